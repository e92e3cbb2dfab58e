package dnsweir

import (
	"io"
	"time"
	"unsafe"
)

// Data is a large file that the proxy keeps, (data)"PATH", a source of a refresh, or what a refresh has published.
type Data uint32

var _ io.ReaderAt = Data(0)

// Published is what a refresh publishes under a name. It becomes another between two calls, never during one. As long as
// nothing is published, it is not there.
func Published(name string) Data { return Data(dataPublished(name)) }

// Revision counts up whenever other data is published.
func Revision() uint64 { return dataRevision() }

// Size is how many octets there are, and whether it is there.
func (d Data) Size() (uint64, bool) {
	dataSize(uint32(d), returnedTo())
	return returned[1], returnedRaw()[0] == 1
}

// ReadAt fills a slice with what is there from an offset on, as [io.ReaderAt] has it.
func (d Data) ReadAt(into []byte, offset int64) (int, error) {
	done := 0
	for done < len(into) {
		// What the host gives in one call at most.
		length := uint32(min(len(into)-done, 1<<16))
		count := 0
		meanwhile(func() {
			dataRead(uint32(d), uint64(offset)+uint64(done), length, returnedTo())
			count = copy(into[done:], readOctets(returnedRaw()))
		})
		if count == 0 {
			return done, io.EOF
		}
		done += count
	}
	return done, nil
}

// FindLine is the first line with this key, without its end, and whether there is one. The lines have to be sorted by
// their keys, which end before the first separator.
func (d Data) FindLine(key []byte, separator byte) ([]byte, bool) {
	return some(func() { dataFindLine(uint32(d), asText(key), uint32(separator), returnedTo()) })
}

// SourceFile is a file that a refresh makes data of.
type SourceFile struct {
	// The name that the configuration has for it.
	Name string
	// What it is called in its folder; empty if the source is no folder.
	File string
	// Its contents, during the call.
	Data Data
	// When the refresh began.
	Time time.Time
}

// Output is what a refresh publishes. Its functions say whether there was room for it.
type Output struct{}

// Append adds to what will be published under a name.
func (Output) Append(name string, octets []byte) bool { return outputAppend(name, asText(octets)) }

// Publish publishes data as it is, without a copy.
func (Output) Publish(name string, data Data) bool { return outputPublish(name, uint32(data)) }

//go:wasmimport dnsweir:filter/data@0.1.0 size
func dataSize(index uint32, size unsafe.Pointer)

//go:wasmimport dnsweir:filter/data@0.1.0 read
func dataRead(index uint32, offset uint64, length uint32, octets unsafe.Pointer)

//go:wasmimport dnsweir:filter/data@0.1.0 find-line
func dataFindLine(index uint32, key string, separator uint32, line unsafe.Pointer)

//go:wasmimport dnsweir:filter/data@0.1.0 published
func dataPublished(name string) uint32

//go:wasmimport dnsweir:filter/data@0.1.0 revision
func dataRevision() uint64

//go:wasmimport dnsweir:filter/output@0.1.0 append
func outputAppend(name, octets string) bool

//go:wasmimport dnsweir:filter/output@0.1.0 publish
func outputPublish(name string, index uint32) bool
