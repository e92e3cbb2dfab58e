package dnsweir

// Input: records of numbers, which are read in place, and the configuration.

import (
	"encoding/binary"
	"math"
	"net/netip"
	"structs"
	"time"
	"unsafe"
)

type rawQuery struct {
	_                      structs.HostLayout
	clientHigh, clientLow  uint64
	nameStart              uint32
	nameLength             uint16
	qtype, qclass          uint16
	header, udpSize, flags uint16
	clientPort, zone       uint16
	transport, edns        uint8
	detailsLength          uint16
}

type rawResponse struct {
	_                           structs.HostLayout
	query                       rawQuery
	rcode                       uint16
	source                      uint8
	answerCount                 uint16
	ttl                         uint32
	messageStart, messageLength uint32
}

type rawAnswer struct {
	_                           structs.HostLayout
	status                      uint8
	rcode                       uint16
	source                      uint8
	ttl                         uint32
	answerCount                 uint16
	messageStart, messageLength uint32
}

// The fields after a query or response that was asked about.
type rawAbout struct {
	_                       structs.HostLayout
	stateStart, stateLength uint32
	first, count            uint32
}

type rawAskedQuery struct {
	_     structs.HostLayout
	query rawQuery
	about rawAbout
}

type rawAskedResponse struct {
	_        structs.HostLayout
	response rawResponse
	about    rawAbout
}

type rawEvent struct {
	_                           structs.HostLayout
	query                       rawQuery
	time                        uint64
	duration                    uint32
	id, querySize               uint16
	responseSize                uint32
	rcode, responseHeader       uint16
	hasAnswers, source          uint8
	messageStart, messageLength uint32
}

// Sizes as in wit/types.wit.
var (
	_ [40]byte = [unsafe.Sizeof(rawQuery{})]byte{}
	_ [64]byte = [unsafe.Sizeof(rawResponse{})]byte{}
	_ [24]byte = [unsafe.Sizeof(rawAnswer{})]byte{}
	_ [56]byte = [unsafe.Sizeof(rawAskedQuery{})]byte{}
	_ [80]byte = [unsafe.Sizeof(rawAskedResponse{})]byte{}
	_ [80]byte = [unsafe.Sizeof(rawEvent{})]byte{}
)

func (raw *rawQuery) read(bytes []byte, now uint64) Query {
	var client [16]byte
	binary.BigEndian.PutUint64(client[:8], raw.clientHigh)
	binary.BigEndian.PutUint64(client[8:], raw.clientLow)
	behind := bytes[raw.nameStart+uint32(raw.nameLength):]
	return Query{
		Name:      bytes[raw.nameStart:][:raw.nameLength],
		Type:      raw.qtype,
		Class:     raw.qclass,
		Client:    netip.AddrPortFrom(netip.AddrFrom16(client).Unmap(), raw.clientPort),
		Time:      time.UnixMilli(int64(now)),
		Header:    raw.header,
		UDPSize:   raw.udpSize,
		EDNS:      raw.edns != 0,
		EDNSFlags: raw.flags,
		Transport: Transport(raw.transport),
		Zone:      int(raw.zone),
		details:   behind[:raw.detailsLength],
	}
}

func (raw *rawResponse) read(bytes []byte, now uint64) Response {
	return Response{
		Query:       raw.query.read(bytes, now),
		Rcode:       raw.rcode,
		Source:      Source(raw.source),
		AnswerCount: int(raw.answerCount),
		TTL:         raw.ttl,
		Message:     bytes[raw.messageStart:][:raw.messageLength],
	}
}

func (raw *rawAbout) read(found []rawAnswer, bytes []byte) *Answers {
	answers := Answers{
		State: bytes[raw.stateStart:][:raw.stateLength],
		Found: make([]Found, raw.count),
	}
	for i := range answers.Found {
		raw := &found[raw.first+uint32(i)]
		answers.Found[i] = Found{
			Status:      Status(raw.status),
			Rcode:       raw.rcode,
			Source:      Source(raw.source),
			TTL:         raw.ttl,
			AnswerCount: int(raw.answerCount),
			Message:     bytes[raw.messageStart:][:raw.messageLength],
		}
	}
	return &answers
}

func (raw *rawEvent) read(bytes []byte) Event {
	return Event{
		Query:          raw.query.read(bytes, raw.time),
		Duration:       time.Duration(raw.duration) * time.Microsecond,
		ID:             raw.id,
		QuerySize:      int(raw.querySize),
		ResponseSize:   int(raw.responseSize),
		Rcode:          raw.rcode,
		ResponseHeader: raw.responseHeader,
		HasAnswers:     raw.hasAnswers != 0,
		Source:         Source(raw.source),
		Message:        bytes[raw.messageStart:][:raw.messageLength],
	}
}

func readConfig(at, length uint32) Config {
	config := make(Config, length)
	for i := range config {
		raw := memory(at+uint32(i)*32, 32)
		config[i] = Node{
			Name:       readText(raw),
			Arguments:  make([]Value, word(raw, 12)),
			Properties: make(map[string]Value),
			Parent:     -1,
			index:      uint32(i),
		}
		for j := range config[i].Arguments {
			config[i].Arguments[j] = readValue(memory(word(raw, 8)+uint32(j)*16, 16))
		}
		for j := range word(raw, 20) {
			property := memory(word(raw, 16)+j*24, 24)
			config[i].Properties[readText(property)] = readValue(property[8:])
		}
		if raw[24] == 1 {
			config[i].Parent = int(word(raw, 28))
		}
	}
	return config
}

func readValue(raw []byte) Value {
	bits := binary.LittleEndian.Uint64(raw[8:])
	switch raw[0] {
	case 1:
		return raw[8] != 0
	case 2:
		return int64(bits)
	case 3:
		return math.Float64frombits(bits)
	case 4:
		return readText(raw[8:])
	case 5:
		return Data(word(raw, 8))
	}
	return nil
}
