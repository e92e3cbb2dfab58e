// Package dnsweir lets a filter for the dnsweir DNS proxy be written in Go.
//
// It is the whole filter interface (wit/), written by hand and without dependencies: what is not told here is told there.
// A filter is built for WASI as a library, by GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared.
package dnsweir

// A Filter takes part in the phases whose methods it has: [QueryPhase], [ResponsePhase] or [EventPhase], one of them at
// least. One that asks has [QueryAnswersPhase] or [ResponseAnswersPhase] as well, and one that makes data [RefreshPhase].
// It is called by one thread and never while a call is under way. What it is given does not last beyond the call.
type Filter any

// QueryPhase says what happens to queries.
type QueryPhase interface {
	Query(*Query) Verdict
}

// ResponsePhase says what happens to responses.
type ResponsePhase interface {
	Response(*Response) ResponseVerdict
}

// QueryAnswersPhase goes on with queries about which the filter has asked. It may ask once more.
type QueryAnswersPhase interface {
	QueryAnswers(*Query, *Answers) Verdict
}

// ResponseAnswersPhase goes on with responses about which the filter has asked. It may ask once more.
type ResponseAnswersPhase interface {
	ResponseAnswers(*Response, *Answers) ResponseVerdict
}

// EventPhase hears what happened, after the answers have left.
type EventPhase interface {
	Event(*Event)
}

// RefreshPhase makes data of the files that the filter's refresh block names, in an instance of its own. All of it takes
// the place of what was published before when the method returns; with an error, nothing changes.
type RefreshPhase interface {
	Refresh([]SourceFile, Output) error
}

// Serve makes the filter of this module: configure is called once, and says what the filter wants to see, or what is
// wrong, all of it at once. Serve is to be called from an init function.
func Serve(configure func(*Setup) (Filter, Manifest, []Mistake)) {
	makeFilter = configure
}

// Setup is what a filter gets to configure itself.
type Setup struct {
	// The name in the configuration: filter "NAME".
	Name   string
	Config Config
	// The zones that use the filter, in presentation format. Query.Zone is an index into them.
	Zones []string
}

// Manifest says what a filter wants to see. The proxy calls it for nothing else.
type Manifest struct {
	// Query types; none: all.
	Types []uint16
	// Names at or below which it looks, in presentation format; none: all.
	Suffixes []string
	// Whether responses and events carry the message.
	Messages bool
	// The tables that its instances share; a Table is an index into them.
	Tables []TableShape
	// What queries carry beside their fields.
	Details []Detail
	// The sources that it may send queries to, by their names in the configuration: Verdict.Source is an index into them.
	Sources []string
	// The queries that it hears of, by what became of them; none: all.
	Outcomes []Outcome
}

// Outcome is what became of a query.
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

// Detail is something about a query that is not gathered unless a filter asks for it.
type Detail struct {
	kind   uint8
	option uint16
	name   string
}

// EDNSOption is the EDNS option with this code, as often as the client sent it.
func EDNSOption(code uint16) Detail { return Detail{kind: 0, option: code} }

// EDNSOptions is all EDNS options.
func EDNSOptions() Detail { return Detail{kind: 1} }

// Listener is the address and port that the query came to.
func Listener() Detail { return Detail{kind: 2} }

// ServerName is the name that a client asked for in TLS.
func ServerName() Detail { return Detail{kind: 3} }

// Identity is who asks: a pod, or the node itself.
func Identity() Detail { return Detail{kind: 4} }

// PodLabel is the label of this name of the pod that asks.
func PodLabel(name string) Detail { return Detail{kind: 5, name: name} }

// PodAnnotation is an annotation of that pod.
func PodAnnotation(name string) Detail { return Detail{kind: 6, name: name} }

// NamespaceLabel is a label of its namespace.
func NamespaceLabel(name string) Detail { return Detail{kind: 7, name: name} }

// NamespaceAnnotation is an annotation of its namespace.
func NamespaceAnnotation(name string) Detail { return Detail{kind: 8, name: name} }
