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

// ExtendedError is the reason for a response (RFC 8914).
type ExtendedError struct {
	Code uint16
	Text string
}

// Reply is a complete answer. The proxy sets question, ID, flags and EDNS.
type Reply struct {
	Rcode         uint16
	Authoritative bool
	Answers       []Record
	// A negative answer can be cached if it has an SOA record here.
	Authority  []Record
	Additional []Record
	Error      *ExtendedError
}

// Rewrite is a query's new question. What is not set does not change.
type Rewrite struct {
	Name        []byte
	Type, Class uint16
	// Whether answer records keep the new name. Almost always false: resolvers discard answers to other names.
	KeepAnswers bool
}

// Ask has the lookups that a filter needs before it decides.
type Ask struct {
	// At most 16, all made at once.
	Lookups []Lookup
	// Time limit for all of them together; 0: two seconds.
	Time time.Duration
	// Returned with the answers, because another instance may get them.
	State []byte
}

// Lookup is a query made by a filter: like a client's, below the filter, or in a zone.
type Lookup struct {
	Name []byte
	Type uint16
	// Whether it starts at the stage below this filter, in the zone of the query.
	Below bool
	// The zone at whose first stage it starts, in presentation format; empty: the zone that owns the name.
	Zone string
}

// Verdict is the decision about a query.
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

// Pass passes the query to the next stage, like plugin.NextOrFailure in CoreDNS.
func Pass() Verdict { return Verdict{decision: pass} }

// Answer answers the query.
func Answer(rcode uint16, answers ...Record) Verdict {
	return AnswerWith(Reply{Rcode: rcode, Answers: answers})
}

// AnswerWith answers with a complete reply.
func AnswerWith(reply Reply) Verdict { return Verdict{decision: answer, reply: &reply} }

// Refuse answers with this rcode and nothing else.
func Refuse(rcode uint16) Verdict { return Verdict{decision: refuse, reply: &Reply{Rcode: rcode}} }

// Rename continues with another name, in wire format; the answer has the client's name.
func Rename(name []byte) Verdict { return RewriteTo(Rewrite{Name: name}) }

// RewriteTo continues with another name, type or class.
func RewriteTo(to Rewrite) Verdict { return Verdict{decision: rewrite, rewrite: &to} }

// Alias gives the client a CNAME to the first of these names that exists, and what that name resolves to.
func Alias(names ...[]byte) Verdict { return Verdict{decision: alias, names: names} }

// Drop sends no response.
func Drop() Verdict { return DropFor("") }

// DropFor does so for a reason, a label of the metrics: at most 64 bytes.
func DropFor(reason string) Verdict { return Verdict{decision: drop, reason: reason} }

// AskFirst postpones the verdict: QueryAnswers is called with the answers.
func AskFirst(what Ask) Verdict { return Verdict{decision: ask, ask: &what} }

// Remember sets how long the verdict also applies to all clients' queries for the same name, type and class, without
// calling the filter.
func (v Verdict) Remember(d time.Duration) Verdict {
	v.remember = milliseconds32(d)
	return v
}

// Edit sets the changes to the response, if already known.
func (v Verdict) Edit(edit Edit) Verdict {
	v.edit = &edit
	return v
}

// Error sets the extended error of the response.
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

// SkipResponse skips the response phase for this query.
func (v Verdict) SkipResponse() Verdict {
	v.skip = true
	return v
}

// Delay holds the response back once it is ready, for two seconds at most.
func (v Verdict) Delay(d time.Duration) Verdict {
	v.delay = uint16(d.Milliseconds())
	return v
}

// Source sends a query that continues to this source, an index into Manifest.Sources.
func (v Verdict) Source(source int) Verdict {
	index := uint16(source)
	v.source = &index
	return v
}

// ClientSubnet sends this client subnet with a query that continues (RFC 7871).
func (v Verdict) ClientSubnet(subnet netip.Prefix) Verdict {
	v.subnet = subnet
	return v
}

// ResponseVerdict is the decision about a response.
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

// PassResponse lets the response continue.
func PassResponse() ResponseVerdict { return ResponseVerdict{} }

// Replace sends the client this instead.
func Replace(reply Reply) ResponseVerdict {
	return ResponseVerdict{decision: responseReplace, reply: &reply}
}

// DropResponse sends no response, for a reason, a label of the metrics.
func DropResponse(reason string) ResponseVerdict {
	return ResponseVerdict{decision: responseDrop, reason: reason}
}

// AskAboutResponse postpones the verdict: ResponseAnswers is called with the answers.
func AskAboutResponse(what Ask) ResponseVerdict {
	return ResponseVerdict{decision: responseAsk, ask: &what}
}

// Edit sets the changes to what continues.
func (v ResponseVerdict) Edit(edit Edit) ResponseVerdict {
	v.edit = &edit
	return v
}

// Delay holds the response back, for two seconds at most.
func (v ResponseVerdict) Delay(d time.Duration) ResponseVerdict {
	v.delay = uint16(d.Milliseconds())
	return v
}

// milliseconds32 is a duration in the interface's form; one that is too long becomes the maximum.
func milliseconds32(d time.Duration) uint32 {
	return uint32(min(max(d.Milliseconds(), 0), 1<<32-1))
}
