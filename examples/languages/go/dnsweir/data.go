package dnsweir

import (
	"io"
	"time"
	"unsafe"
)

// Data is a large file in the proxy's memory, (data)"PATH", a source of a refresh, or the data that a refresh has
// published.
type Data uint32

var _ io.ReaderAt = Data(0)

// Published is the data that a refresh publishes under a name. It may change between two calls, never during one. It
// does not exist until something is published.
func Published(name string) Data { return Data(dataPublished(name)) }

// Revision increases whenever new data is published.
func Revision() uint64 { return dataRevision() }

// Size is the size in bytes, and whether the data exists.
func (d Data) Size() (uint64, bool) {
	dataSize(uint32(d), returnedTo())
	return returned[1], returnedRaw()[0] == 1
}

// ReadAt fills a slice with the data from an offset on, like [io.ReaderAt].
func (d Data) ReadAt(into []byte, offset int64) (int, error) {
	done := 0
	for done < len(into) {
		// The most that the host returns in one call.
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

// FindLine is the first line with this key, without its line end, and whether there is one. The lines must be sorted by
// their keys, which end before the first separator.
func (d Data) FindLine(key []byte, separator byte) ([]byte, bool) {
	return some(func() { dataFindLine(uint32(d), asText(key), uint32(separator), returnedTo()) })
}

// SourceFile is a file of a refresh's source.
type SourceFile struct {
	// The source's name in the configuration.
	Name string
	// The file's name in its folder; empty if the source is not a folder.
	File string
	// Its contents, only during the call.
	Data Data
	// When the refresh started.
	Time time.Time
}

// Output is what a refresh publishes. Its functions return whether the data fits.
type Output struct{}

// Append appends to the data for a name.
func (Output) Append(name string, octets []byte) bool { return outputAppend(name, asText(octets)) }

// Publish publishes existing data unchanged, without a copy.
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
