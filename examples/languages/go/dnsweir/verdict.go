package dnsweir

import (
	"net/netip"
	"time"
)

// Record is a resource record; the name and names in the data are in wire format, uncompressed.
type Record struct {
	Name        []byte
	Type, Class uint16
	TTL         uint32
	Data        []byte
}

// ExtendedError says why a response is as it is (RFC 8914).
type ExtendedError struct {
	Code uint16
	Text string
}

// Reply is a whole answer. The proxy puts question, ID, flags and EDNS right.
type Reply struct {
	Rcode         uint16
	Authoritative bool
	Answers       []Record
	// With an SOA record, a denial can be cached.
	Authority  []Record
	Additional []Record
	Error      *ExtendedError
}

// Rewrite is what a query goes on as. What is not said stays as it is.
type Rewrite struct {
	Name        []byte
	Type, Class uint16
	// Whether records of the answer keep the new name. Almost always false: resolvers drop answers to other names.
	KeepAnswers bool
}

// Ask is what a filter wants to know before it decides.
type Ask struct {
	// All are made at once, at most 16.
	Lookups []Lookup
	// How long all of them together may take; 0: two seconds.
	Time time.Duration
	// Handed back with the answers: the instance that gets them need not be the one that asked.
	State []byte
}

// Lookup is a question of a filter's own. It is made as if a client had asked, or below the filter, or in a zone.
type Lookup struct {
	Name []byte
	Type uint16
	// Whether it is made from the stage below this filter, in the zone of the query.
	Below bool
	// The zone from whose first stage it is made, in presentation format; empty: that which owns the name.
	Zone string
}

// Verdict is what is said of a query.
type Verdict struct {
	decision uint8
	reply    *Reply
	rewrite  *Rewrite
	names    [][]byte
	reason   string
	ask      *Ask

	remember uint32
	edit     *Edit
	skip     bool
	delay    uint16
	source   *uint16
	subnet   netip.Prefix
}

const (
	pass = iota
	rewrite
	answer
	alias
	refuse
	drop
	ask
)

// Pass hands the query on to the next stage: what plugin.NextOrFailure does in CoreDNS.
func Pass() Verdict { return Verdict{decision: pass} }

// Answer answers here and now.
func Answer(rcode uint16, answers ...Record) Verdict {
	return AnswerWith(Reply{Rcode: rcode, Answers: answers})
}

// AnswerWith answers with all of a message.
func AnswerWith(reply Reply) Verdict { return Verdict{decision: answer, reply: &reply} }

// Refuse answers with this rcode and nothing else.
func Refuse(rcode uint16) Verdict { return Verdict{decision: refuse, reply: &Reply{Rcode: rcode}} }

// Rename lets the query go on under another name, in wire format; the client gets its own name back.
func Rename(name []byte) Verdict { return RewriteTo(Rewrite{Name: name}) }

// RewriteTo lets the query go on under another name, type or class.
func RewriteTo(to Rewrite) Verdict { return Verdict{decision: rewrite, rewrite: &to} }

// Alias gives the client a CNAME to the first of these names that exists, and what that name resolves to.
func Alias(names ...[]byte) Verdict { return Verdict{decision: alias, names: names} }

// Drop leaves the client without an answer.
func Drop() Verdict { return DropFor("") }

// DropFor does that for a reason, which the metrics count by: at most 64 octets.
func DropFor(reason string) Verdict { return Verdict{decision: drop, reason: reason} }

// AskFirst puts the verdict off: QueryAnswers is called with the answers.
func AskFirst(what Ask) Verdict { return Verdict{decision: ask, ask: &what} }

// Remember says for how long the verdict holds for everybody who asks for the same name, type and class: the
// filter is not asked again meanwhile.
func (v Verdict) Remember(d time.Duration) Verdict {
	v.remember = milliseconds32(d)
	return v
}

// Edit says what to do with the response, if that is already known.
func (v Verdict) Edit(edit Edit) Verdict {
	v.edit = &edit
	return v
}

// Error says why the response is as it is.
func (v Verdict) Error(code uint16, text string) Verdict {
	why := &ExtendedError{code, text}
	if v.reply != nil {
		reply := *v.reply
		reply.Error = why
		v.reply = &reply
		return v
	}
	var edit Edit
	if v.edit != nil {
		edit = *v.edit
	}
	edit.why = why
	return v.Edit(edit)
}

// SkipResponse leaves the response phase out for this query.
func (v Verdict) SkipResponse() Verdict {
	v.skip = true
	return v
}

// Delay holds the response back once there is one, for two seconds at most.
func (v Verdict) Delay(d time.Duration) Verdict {
	v.delay = uint16(d.Milliseconds())
	return v
}

// Source has a query that goes on sent to this source, an index into Manifest.Sources.
func (v Verdict) Source(source int) Verdict {
	index := uint16(source)
	v.source = &index
	return v
}

// ClientSubnet has upstreams told from which network a query that goes on comes (RFC 7871).
func (v Verdict) ClientSubnet(subnet netip.Prefix) Verdict {
	v.subnet = subnet
	return v
}

// ResponseVerdict is what is said of a response.
type ResponseVerdict struct {
	decision uint8
	reply    *Reply
	reason   string
	ask      *Ask
	edit     *Edit
	delay    uint16
}

const (
	responsePass = iota
	responseReplace
	responseDrop
	responseAsk
)

// PassResponse lets the response go on.
func PassResponse() ResponseVerdict { return ResponseVerdict{} }

// Replace gives the client this instead.
func Replace(reply Reply) ResponseVerdict {
	return ResponseVerdict{decision: responseReplace, reply: &reply}
}

// DropResponse leaves the client without a response, for a reason that the metrics count by.
func DropResponse(reason string) ResponseVerdict {
	return ResponseVerdict{decision: responseDrop, reason: reason}
}

// AskAboutResponse puts the verdict off: ResponseAnswers is called with the answers.
func AskAboutResponse(what Ask) ResponseVerdict {
	return ResponseVerdict{decision: responseAsk, ask: &what}
}

// Edit says what is changed in what goes on.
func (v ResponseVerdict) Edit(edit Edit) ResponseVerdict {
	v.edit = &edit
	return v
}

// Delay holds the response back, for two seconds at most.
func (v ResponseVerdict) Delay(d time.Duration) ResponseVerdict {
	v.delay = uint16(d.Milliseconds())
	return v
}

// milliseconds32 is a duration as the interface has it; what is too long lasts as long as it can.
func milliseconds32(d time.Duration) uint32 {
	return uint32(min(max(d.Milliseconds(), 0), 1<<32-1))
}
