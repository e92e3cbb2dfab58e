// Asks over QUIC (RFC 9250) with an implementation that dnsweir has nothing in common with, and prints each answer:
// doq ADDRESS CA-FILE SERVER-NAME NAME...
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"github.com/miekg/dns"
	"github.com/quic-go/quic-go"
)

func main() {
	address, file, server, names := os.Args[1], os.Args[2], os.Args[3], os.Args[4:]
	authority, err := os.ReadFile(file)
	if err != nil {
		log.Fatal(err)
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(authority)
	patience, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	config := &tls.Config{RootCAs: trusted, ServerName: server, NextProtos: []string{"doq"}}
	connection, err := quic.DialAddr(patience, address, config, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("group", connection.ConnectionState().TLS.CurveID)
	for _, name := range names {
		answer, err := ask(patience, connection, name)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(answer)
	}
	// DOQ_NO_ERROR (RFC 9250 section 4.3).
	connection.CloseWithError(0, "")
}

// A query has a stream of its own, and the ID 0 (RFC 9250 section 4.2.1).
func ask(patience context.Context, connection *quic.Conn, name string) (*dns.Msg, error) {
	stream, err := connection.OpenStreamSync(patience)
	if err != nil {
		return nil, err
	}
	query := new(dns.Msg).SetQuestion(dns.Fqdn(name), dns.TypeA)
	query.Id = 0
	packed, err := query.Pack()
	if err != nil {
		return nil, err
	}
	framed := binary.BigEndian.AppendUint16(nil, uint16(len(packed)))
	if _, err := stream.Write(append(framed, packed...)); err != nil {
		return nil, err
	}
	stream.Close()
	octets, err := io.ReadAll(stream)
	if err != nil {
		return nil, err
	}
	if len(octets) < 2 || int(binary.BigEndian.Uint16(octets)) != len(octets)-2 {
		return nil, fmt.Errorf("a reply of %d octets does not have the length it says", len(octets))
	}
	answer := new(dns.Msg)
	return answer, answer.Unpack(octets[2:])
}
