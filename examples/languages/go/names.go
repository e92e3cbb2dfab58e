// A filter with a handful of names: answers some, blocks others.
//
//	config {
//	    host "hello.example" "192.0.2.7"   // A queries for this name get this address
//	    block "ads.example"                // this name and all below it do not exist
//	}
package main

import (
	"fmt"
	"net/netip"

	"dnsweir.example/dnsweir"
)

const (
	typeA    = 1
	classIN  = 1
	nxdomain = 3
	ttl      = 300
)

type names struct {
	hosts   map[string]netip.Addr
	blocked map[string]bool
}

func init() {
	dnsweir.Serve(configure)
}

func configure(setup *dnsweir.Setup) (dnsweir.Filter, dnsweir.Manifest, []dnsweir.Mistake) {
	filter := &names{hosts: map[string]netip.Addr{}, blocked: map[string]bool{}}
	var manifest dnsweir.Manifest
	var mistakes []dnsweir.Mistake
	for i := range setup.Config {
		node := &setup.Config[i]
		if node.Name != "host" && node.Name != "block" {
			message := fmt.Sprintf("there is no `%s` here", node.Name)
			mistakes = append(mistakes, node.Mistake(message, "valid here: `host`, `block`"))
			continue
		}
		text, _ := node.Text(0)
		wire, ok := dnsweir.Wire(text)
		if !ok {
			mistakes = append(mistakes, node.MistakeIn(0, "this needs a domain name", "write one like \"ads.example\""))
			continue
		}
		manifest.Suffixes = append(manifest.Suffixes, text)
		if node.Name == "block" {
			filter.blocked[string(wire)] = true
			continue
		}
		text, _ = node.Text(1)
		address, err := netip.ParseAddr(text)
		if err != nil || !address.Is4() {
			mistakes = append(mistakes, node.MistakeIn(1, "this needs an IPv4 address", "write it like \"192.0.2.7\""))
			continue
		}
		filter.hosts[string(wire)] = address
	}
	dnsweir.Log(dnsweir.Info, fmt.Sprintf("the Go filter is ready: %d hosts, %d blocked", len(filter.hosts), len(filter.blocked)))
	return filter, manifest, mistakes
}

// Query says what happens to a query.
func (f *names) Query(query *dnsweir.Query) dnsweir.Verdict {
	if address, ok := f.hosts[string(query.Name)]; ok && query.Type == typeA {
		octets := address.As4()
		record := dnsweir.Record{Name: query.Name, Type: typeA, Class: classIN, TTL: ttl, Data: octets[:]}
		return dnsweir.Answer(0, record)
	}
	for name := query.Name; len(name) > 1; name = name[1+name[0]:] {
		if f.blocked[string(name)] {
			dnsweir.Count("blocked", 1)
			return dnsweir.Refuse(nxdomain)
		}
	}
	return dnsweir.Pass()
}

// A module that is a library has no main, but Go wants one.
func main() {}
