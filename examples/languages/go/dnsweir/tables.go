package dnsweir

import (
	"encoding/binary"
	"time"
	"unsafe"
)

// Table is a table that all instances of a filter share, by its index in Manifest.Tables. It is not there before
// configure has returned. What is put there without a time, 0, stays.
type Table uint32

// TableShape declares a table.
type TableShape struct {
	// 1 to 63 ASCII letters, digits, -, _ or .
	Name string
	// Octets of all its entries, at least 4 096.
	Octets uint32
	// Whether the metrics show its numbers, by key.
	Shown bool
}

// Get is the value under a key, and whether there is one.
func (t Table) Get(key []byte) ([]byte, bool) {
	return some(func() { tablesGet(uint32(t), asText(key), returnedTo()) })
}

// Number is the number under a key, and whether there is one.
func (t Table) Number(key []byte) (int64, bool) {
	octets, there := t.Get(key)
	if !there || len(octets) != 8 {
		return 0, false
	}
	return int64(binary.LittleEndian.Uint64(octets)), true
}

// Put puts a value in the place of what is there, unless it is refused.
func (t Table) Put(key, value []byte, ttl time.Duration) bool {
	return tablesPut(uint32(t), asText(key), asText(value), lifetime(ttl))
}

// Remove removes what is under a key, and says whether there was anything.
func (t Table) Remove(key []byte) bool { return tablesRemove(uint32(t), asText(key)) }

// Add adds to a number, and returns the sum. Later additions do not prolong its time.
func (t Table) Add(key []byte, by int64, ttl time.Duration) int64 {
	return tablesAdd(uint32(t), asText(key), by, lifetime(ttl))
}

// CompareAndSwap puts a value, or removes what is there if it is nil, if the value is as expected until then; nil:
// there is none.
func (t Table) CompareAndSwap(key, expected, value []byte, ttl time.Duration) bool {
	return tablesCompareAndSwap(uint32(t), asText(key), expected != nil, asText(expected), value != nil, asText(value),
		lifetime(ttl))
}

// Take takes tokens out of a bucket, which fills by so many a second up to burst, if they are there.
func (t Table) Take(key []byte, tokens uint32, rate float64, burst uint32) bool {
	return tablesTake(uint32(t), asText(key), tokens, rate, burst)
}

// lifetime is a time in milliseconds: what is short is not without end.
func lifetime(ttl time.Duration) uint64 {
	if ttl <= 0 {
		return 0
	}
	return uint64(max(ttl.Milliseconds(), 1))
}

//go:wasmimport dnsweir:filter/tables@0.1.0 get
func tablesGet(table uint32, key string, value unsafe.Pointer)

//go:wasmimport dnsweir:filter/tables@0.1.0 put
func tablesPut(table uint32, key, value string, ttl uint64) bool

//go:wasmimport dnsweir:filter/tables@0.1.0 remove
func tablesRemove(table uint32, key string) bool

//go:wasmimport dnsweir:filter/tables@0.1.0 add
func tablesAdd(table uint32, key string, by int64, ttl uint64) int64

//go:wasmimport dnsweir:filter/tables@0.1.0 compare-and-swap
func tablesCompareAndSwap(table uint32, key string, isExpected bool, expected string, isNew bool, value string, ttl uint64) bool

//go:wasmimport dnsweir:filter/tables@0.1.0 take
func tablesTake(table uint32, key string, tokens uint32, rate float64, burst uint32) bool
