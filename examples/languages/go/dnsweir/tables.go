package dnsweir

import (
	"encoding/binary"
	"time"
	"unsafe"
)

// Table is a table shared by all instances of a filter: its index in Manifest.Tables. It does not exist before
// configure has returned. Entries with a time of 0 do not expire.
type Table uint32

// TableShape declares a table.
type TableShape struct {
	// 1 to 63 ASCII letters, digits, -, _ or .
	Name string
	// Size of all its entries in bytes, at least 4,096.
	Octets uint32
	// Whether the metrics show its numbers, by key.
	Shown bool
}

// Get is the value of a key, and whether there is one.
func (t Table) Get(key []byte) ([]byte, bool) {
	return some(func() { tablesGet(uint32(t), asText(key), returnedTo()) })
}

// Number is the number of a key, and whether there is one.
func (t Table) Number(key []byte) (int64, bool) {
	octets, there := t.Get(key)
	if !there || len(octets) != 8 {
		return 0, false
	}
	return int64(binary.LittleEndian.Uint64(octets)), true
}

// Put stores a value, replacing any other. False if it was refused.
func (t Table) Put(key, value []byte, ttl time.Duration) bool {
	return tablesPut(uint32(t), asText(key), asText(value), lifetime(ttl))
}

// Remove removes a key, and returns whether it existed.
func (t Table) Remove(key []byte) bool { return tablesRemove(uint32(t), asText(key)) }

// Add adds to a number, and returns the sum. Later additions do not extend its lifetime.
func (t Table) Add(key []byte, by int64, ttl time.Duration) int64 {
	return tablesAdd(uint32(t), asText(key), by, lifetime(ttl))
}

// CompareAndSwap stores a value, or removes the key if the new value is nil, if the current value is as expected (nil:
// there is none).
func (t Table) CompareAndSwap(key, expected, value []byte, ttl time.Duration) bool {
	return tablesCompareAndSwap(uint32(t), asText(key), expected != nil, asText(expected), value != nil, asText(value),
		lifetime(ttl))
}

// Take takes tokens from a bucket, which refills at rate per second up to burst, if it has enough.
func (t Table) Take(key []byte, tokens uint32, rate float64, burst uint32) bool {
	return tablesTake(uint32(t), asText(key), tokens, rate, burst)
}

// lifetime is a time in milliseconds: a short one is not rounded to 0, which means no expiry.
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
