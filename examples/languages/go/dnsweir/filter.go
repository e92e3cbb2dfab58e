// Package dnsweir lets a filter for the dnsweir DNS proxy be written in Go.
//
// It is the whole filter interface, written by hand and without dependencies; wit/ is its full documentation.
// A filter is built for WASI as a library, with GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared.
package dnsweir

// A Filter takes part in the phases whose methods it has: at least one of [QueryPhase], [ResponsePhase] and
// [EventPhase]. One that asks also has [QueryAnswersPhase] or [ResponseAnswersPhase], and one that refreshes data
// [RefreshPhase]. It is called by one thread, one call at a time. Its arguments are valid only during the call.
type Filter any

// QueryPhase decides about queries.
type QueryPhase interface {
	Query(*Query) Verdict
}

// ResponsePhase decides about responses.
type ResponsePhase interface {
	Response(*Response) ResponseVerdict
}

// QueryAnswersPhase continues with queries that the filter has asked about. It may ask again.
type QueryAnswersPhase interface {
	QueryAnswers(*Query, *Answers) Verdict
}

// ResponseAnswersPhase continues with responses that the filter has asked about. It may ask again.
type ResponseAnswersPhase interface {
	ResponseAnswers(*Response, *Answers) ResponseVerdict
}

// EventPhase gets answered queries, after the answers have been sent.
type EventPhase interface {
	Event(*Event)
}

// RefreshPhase turns the files of the filter's refresh block into data, in a separate instance. When the method
// returns, all of it replaces all data published before; with an error, nothing changes.
type RefreshPhase interface {
	Refresh([]SourceFile, Output) error
}

// Serve sets the filter of this module: configure is called once, and returns what the filter is to be called for, or
// all mistakes at once. Call Serve from an init function.
func Serve(configure func(*Setup) (Filter, Manifest, []Mistake)) {
	makeFilter = configure
}

// Setup is the input of configure.
type Setup struct {
	// The name in the configuration: filter "NAME".
	Name   string
	Config Config
	// The zones that use the filter, in presentation format. Query.Zone is an index into them.
	Zones []string
}

// Manifest is what the proxy calls the filter for; it makes no other calls.
type Manifest struct {
	// Query types; none: all.
	Types []uint16
	// The filter gets names at or below these, in presentation format; none: all.
	Suffixes []string
	// Whether responses and events include the message.
	Messages bool
	// The tables that its instances share; a Table is an index into them.
	Tables []TableShape
	// Details that come with each query.
	Details []Detail
	// The sources that it may route queries to, by their names in the configuration: Verdict.Source is an index into them.
	Sources []string
	// The outcomes of the queries that it gets events for; none: all.
	Outcomes []Outcome
}

// Outcome is the outcome of a query.
type Outcome uint8

// The outcomes.
const (
	// NOERROR, with records in the answer section.
	Success Outcome = iota
	// The name or the type does not exist.
	Denial
	// Another response code, or no response.
	NoSuccess
)

// Detail is information about a query that is collected only if a filter requests it.
type Detail struct {
	kind   uint8
	option uint16
	name   string
}

// EDNSOption is the EDNS option with this code, repeated as often as the client sent it.
func EDNSOption(code uint16) Detail { return Detail{kind: 0, option: code} }

// EDNSOptions is all EDNS options.
func EDNSOptions() Detail { return Detail{kind: 1} }

// Listener is the address and port of the listener that received the query.
func Listener() Detail { return Detail{kind: 2} }

// ServerName is the server name that the client sent in TLS.
func ServerName() Detail { return Detail{kind: 3} }

// Identity is the client: a pod, or the node itself.
func Identity() Detail { return Detail{kind: 4} }

// PodLabel is the label of this name of the pod that asks.
func PodLabel(name string) Detail { return Detail{kind: 5, name: name} }

// PodAnnotation is an annotation of that pod.
func PodAnnotation(name string) Detail { return Detail{kind: 6, name: name} }

// NamespaceLabel is a label of its namespace.
func NamespaceLabel(name string) Detail { return Detail{kind: 7, name: name} }

// NamespaceAnnotation is an annotation of its namespace.
func NamespaceAnnotation(name string) Detail { return Detail{kind: 8, name: name} }
