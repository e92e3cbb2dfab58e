package dnsweir

import "unsafe"

// Level is how much a line of the log matters.
type Level uint32

// The levels.
const (
	Error Level = iota
	Warn
	Info
	Debug
)

// Log writes a line into the proxy's log, under the filter's name.
func Log(level Level, message string) {
	hostLog(uint32(level), unsafe.Pointer(unsafe.StringData(message)), uint32(len(message)))
}

// Print writes whole lines to the proxy's standard output.
func Print(lines string) {
	hostPrint(unsafe.Pointer(unsafe.StringData(lines)), uint32(len(lines)))
}

// Count adds to a counter of the filter's, which the proxy's metrics show under this name.
func Count(name string, by uint64) {
	hostCount(unsafe.Pointer(unsafe.StringData(name)), uint32(len(name)), nil, 0, by)
}

//go:wasmimport dnsweir:filter/host@0.1.0 log
func hostLog(level uint32, at unsafe.Pointer, length uint32)

//go:wasmimport dnsweir:filter/host@0.1.0 print
func hostPrint(at unsafe.Pointer, length uint32)

//go:wasmimport dnsweir:filter/host@0.1.0 count
func hostCount(at unsafe.Pointer, length uint32, labels unsafe.Pointer, labelCount uint32, by uint64)
