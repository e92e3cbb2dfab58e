// Package dnsweir lets a filter for the dnsweir DNS proxy be written in Go.
//
// It is the part of the filter interface (wit/) that filters of the query phase need, written by hand and without
// dependencies: copy this folder, and add what else you need from wit/.
package dnsweir

import (
	"net/netip"
	"time"
)

// A Filter says what happens to queries. It is called by one thread and never while a call is under way.
type Filter interface {
	Query(*Query) Verdict
}

// Serve makes the filter of this module: configure is called once, with the block that stands in the proxy's
// configuration, and says what the filter wants to see. It is to be called from an init function.
func Serve(configure func(Config) (Filter, Manifest, []Mistake)) {
	makeFilter = configure
}

// Manifest says what a filter wants to see. The proxy calls it for nothing else.
type Manifest struct {
	// Query types; none: all.
	Types []uint16
	// Names at or below which it looks, in presentation format; none: all.
	Suffixes []string
}

// Query is one question and who asks it.
type Query struct {
	// Wire format, lowercase, ending in the root label. It must not be kept beyond the call.
	Name        []byte
	Type, Class uint16
	Client      netip.AddrPort
	// When the batch was handed in.
	Time time.Time
}

// Record is a resource record; the name and names in the data are in wire format, uncompressed.
type Record struct {
	Name        []byte
	Type, Class uint16
	TTL         uint32
	Data        []byte
}

// Verdict is what is said of a query.
type Verdict struct {
	decision byte
	rcode    uint16
	answers  []Record
	name     []byte
	remember uint32
}

const (
	pass = iota
	rewrite
	answer
	_ // alias
	refuse
	drop
)

// Pass hands the query on to the next stage: what plugin.NextOrFailure does in CoreDNS.
func Pass() Verdict { return Verdict{decision: pass} }

// Answer answers here and now.
func Answer(rcode uint16, answers ...Record) Verdict {
	return Verdict{decision: answer, rcode: rcode, answers: answers}
}

// Refuse answers with this rcode and nothing else.
func Refuse(rcode uint16) Verdict { return Verdict{decision: refuse, rcode: rcode} }

// Rename lets the query go on under another name, in wire format; the client gets its own name back.
func Rename(name []byte) Verdict { return Verdict{decision: rewrite, name: name} }

// Drop leaves the client without an answer.
func Drop() Verdict { return Verdict{decision: drop} }

// Remember says for how long the verdict holds for everybody who asks for the same name, type and class: the
// filter is not asked again meanwhile.
func (v Verdict) Remember(d time.Duration) Verdict {
	v.remember = uint32(d.Milliseconds())
	return v
}

// Config is the filter's block of the configuration.
type Config []Node

// Node is one line of it.
type Node struct {
	Name      string
	Arguments []Value
	// Property values by name.
	Properties map[string]Value
	// The index of the node in whose block this one stands; -1 at the top.
	Parent int

	index uint32
}

// Value is nil, a bool, an int64, a float64, a string or Data.
type Value any

// Data is a file that the proxy keeps, (data)"PATH": its index for the functions of the interface data.
type Data uint32

// Text is the argument with this index, if it is there and a string.
func (n *Node) Text(argument int) (string, bool) {
	if argument >= len(n.Arguments) {
		return "", false
	}
	text, ok := n.Arguments[argument].(string)
	return text, ok
}

// Mistake is something wrong in the configuration, which the proxy underlines in the user's file.
type Mistake struct {
	node     uint32
	argument int
	message  string
	help     string
}

// Mistake says what is wrong with a node and what would be right.
func (n *Node) Mistake(message, help string) Mistake {
	return Mistake{node: n.index, argument: -1, message: message, help: help}
}

// MistakeIn says what is wrong with one of its arguments.
func (n *Node) MistakeIn(argument int, message, help string) Mistake {
	mistake := n.Mistake(message, help)
	if argument < len(n.Arguments) {
		mistake.argument = argument
	}
	return mistake
}
