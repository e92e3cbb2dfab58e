package dnsweir

import "unsafe"

// Level is the severity of a log line.
type Level uint32

// The levels.
const (
	Error Level = iota
	Warn
	Info
	Debug
)

// Log writes a line to the proxy's log, under the filter's name.
func Log(level Level, message string) { hostLog(uint32(level), message) }

// Print writes whole lines to the proxy's standard output, each ending in a newline.
func Print(lines string) { hostPrint(lines) }

// Label of a counter.
type Label struct{ Name, Value string }

// Count adds to one of the filter's counters, which the proxy's metrics show with this name and these labels.
func Count(name string, by uint64, labels ...Label) {
	meanwhile(func() {
		var list [8]byte
		putList(list[:], 16, labels, func(at []byte, label Label) {
			putText(at, label.Name)
			putText(at[8:], label.Value)
		})
		hostCount(name, word(list[:], 0), word(list[:], 4), by)
	})
}

// returned is where the host writes results that are not a number. It must not move during the host's call.
var returned [2]uint64

func returnedTo() unsafe.Pointer { return unsafe.Pointer(&returned) }

func returnedRaw() []byte { return unsafe.Slice((*byte)(returnedTo()), 16) }

// some is a copy of the bytes that the host has returned, and whether there are any.
func some(call func()) (octets []byte, there bool) {
	meanwhile(func() {
		call()
		raw := returnedRaw()
		if there = raw[0] == 1; there {
			octets = append([]byte{}, readOctets(raw[4:])...)
		}
	})
	return octets, there
}

// asText passes bytes to the host.
func asText(octets []byte) string { return unsafe.String(unsafe.SliceData(octets), len(octets)) }

//go:wasmimport dnsweir:filter/host@0.1.0 log
func hostLog(level uint32, message string)

//go:wasmimport dnsweir:filter/host@0.1.0 print
func hostPrint(lines string)

//go:wasmimport dnsweir:filter/host@0.1.0 count
func hostCount(name string, labels, labelCount uint32, by uint64)
