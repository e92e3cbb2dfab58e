package dnsweir

import (
	"bytes"
	"encoding/binary"
	"iter"
	"net/netip"
	"time"
)

// Query is a question and the client that asks it.
type Query struct {
	// Wire format, lowercase, ending in the root label.
	Name        []byte
	Type, Class uint16
	Client      netip.AddrPort
	// When the batch was passed in; for an event, when the query arrived.
	Time time.Time
	// The second 16 bits of the header as the client sent them.
	Header uint16
	// The UDP payload size that the client advertised; 512 without EDNS.
	UDPSize uint16
	// Whether the client uses EDNS, and its flags; the top bit is DO.
	EDNS      bool
	EDNSFlags uint16
	Transport Transport
	// Index into Setup.Zones.
	Zone int

	details []byte
}

// Transport is how a query arrived. Later versions may add values.
type Transport uint8

// The transports.
const (
	UDP Transport = iota
	TCP
	TLS
	HTTPS
	QUIC
	// Asked by the proxy itself.
	Internal
)

// Source is the origin of a response, or of the answer to a lookup. Later versions may add values.
type Source uint8

// The sources.
const (
	// An upstream, just now.
	FromUpstream Source = iota
	// The cache, within its TTL.
	FromCache
	// The cache, past its TTL.
	FromStale
	// A filter.
	FromFilter
	// The proxy itself.
	FromProxy
)

// Response is a response on its way to the client.
type Response struct {
	// The query as this filter saw it, or would have seen it, on the way in.
	Query
	// With the upper bits of the OPT record.
	Rcode  uint16
	Source Source
	// Records in the answer section.
	AnswerCount int
	// The lowest TTL of its records, in seconds; 0 if it has none.
	TTL uint32
	// Wire format, without OPT; none unless the manifest has Messages.
	Message []byte
}

// Event is a query that has been answered.
type Event struct {
	// The query as the client asked it, but in lowercase.
	Query
	// Time from query to response.
	Duration time.Duration
	ID       uint16
	// In bytes; 0 without a response.
	QuerySize, ResponseSize int
	// With the upper bits of the OPT record.
	Rcode uint16
	// The second 16 bits of the response's header.
	ResponseHeader uint16
	HasAnswers     bool
	Source         Source
	// The response as it was sent; none unless the manifest has Messages.
	Message []byte
}

// Answers has the answers to a filter's lookups.
type Answers struct {
	// The State of the Ask.
	State []byte
	// One per lookup, in the same order.
	Found []Found
}

// Found is the answer to one lookup.
type Found struct {
	Status Status
	// Including the upper bits of the OPT record; 2, SERVFAIL, without a response.
	Rcode  uint16
	Source Source
	// The lowest TTL of its records, in seconds; 0 if it has none.
	TTL uint32
	// Records in the answer section.
	AnswerCount int
	// Wire format, without OPT; none unless it was Answered.
	Message []byte
}

// Status is the result of a lookup. Later versions may add values.
type Status uint8

// The results of lookups.
const (
	// There is a conclusive response: records, or that there are none.
	Answered Status = iota
	// No result.
	Failed
	TimedOut
	// Not made, or abandoned, because a limit of the proxy was reached.
	Limited
)

// Kinds of details.
const (
	isEDNSOption = 1 + iota
	isListener
	isServerName
	isHost
	isPod
	isPodLabel
	isPodAnnotation
	isNamespaceLabel
	isNamespaceAnnotation
)

// Details has the details that the manifest requested: the kind of each, numbered as in wit/types.wit, and its bytes.
func (q *Query) Details() iter.Seq2[uint16, []byte] {
	return func(yield func(uint16, []byte) bool) {
		for rest := q.details; len(rest) >= 4; {
			end := 4 + int(binary.BigEndian.Uint16(rest[2:]))
			if end > len(rest) || !yield(binary.BigEndian.Uint16(rest), rest[4:end]) {
				return
			}
			rest = rest[end:]
		}
	}
}

// EDNSOption is the first EDNS option with this code, and whether there is one.
func (q *Query) EDNSOption(code uint16) ([]byte, bool) {
	return q.detail(isEDNSOption, binary.BigEndian.AppendUint16(nil, code))
}

// Listener is the address and port of the listener that received the query; empty if unknown.
func (q *Query) Listener() string {
	listener, _ := q.detail(isListener, nil)
	return string(listener)
}

// ServerName is the server name that the client sent in TLS; empty if unknown.
func (q *Query) ServerName() string {
	name, _ := q.detail(isServerName, nil)
	return string(name)
}

// FromHost is whether the client is the node itself or a pod on its network.
func (q *Query) FromHost() bool {
	_, host := q.detail(isHost, nil)
	return host
}

// Pod is the identity of a pod.
type Pod struct{ Namespace, Name, ServiceAccount string }

// Pod is the client, and whether it is known to be a pod.
func (q *Query) Pod() (Pod, bool) {
	octets, there := q.detail(isPod, nil)
	parts := bytes.Split(octets, []byte{0})
	if !there || len(parts) != 3 {
		return Pod{}, false
	}
	return Pod{string(parts[0]), string(parts[1]), string(parts[2])}, true
}

// PodLabel is the label of this name of the pod that asks, and whether it has it.
func (q *Query) PodLabel(name string) (string, bool) { return q.label(isPodLabel, name) }

// PodAnnotation is an annotation of that pod.
func (q *Query) PodAnnotation(name string) (string, bool) { return q.label(isPodAnnotation, name) }

// NamespaceLabel is a label of its namespace.
func (q *Query) NamespaceLabel(name string) (string, bool) { return q.label(isNamespaceLabel, name) }

// NamespaceAnnotation is an annotation of its namespace.
func (q *Query) NamespaceAnnotation(name string) (string, bool) {
	return q.label(isNamespaceAnnotation, name)
}

func (q *Query) label(wanted uint16, name string) (string, bool) {
	value, there := q.detail(wanted, append([]byte(name), 0))
	return string(value), there
}

// detail is the rest of the first detail of a kind that begins with a prefix.
func (q *Query) detail(wanted uint16, prefix []byte) ([]byte, bool) {
	for kind, octets := range q.Details() {
		if rest, found := bytes.CutPrefix(octets, prefix); found && kind == wanted {
			return rest, true
		}
	}
	return nil, false
}
