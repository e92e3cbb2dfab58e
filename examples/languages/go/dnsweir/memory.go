package dnsweir

// The memory shared with the host, laid out by hand as the component model's canonical ABI requires. Fields are in the
// order of wit/, each at a multiple of its size.

import (
	"encoding/binary"
	"unsafe"
)

// room is memory that lasts until the host has read a call's result. The host allocates its arguments from it, and
// results are built in it. Its addresses leave Go, so it is referenced here.
var room struct {
	current []uint64
	used    int
	// Filled up earlier in this call.
	full [][]uint64
}

const roomWords = 4096

func take(size uint32) []byte {
	words := max(int(size+7)/8, 1)
	if room.used+words > len(room.current) {
		room.full = append(room.full, room.current)
		room.current = make([]uint64, max(words, roomWords))
		room.used = 0
	}
	at := unsafe.Pointer(&room.current[room.used])
	room.used += words
	return unsafe.Slice((*byte)(at), size)
}

func giveBack() {
	room.full = nil
	room.used = 0
}

// meanwhile frees what was allocated during a piece of work.
func meanwhile(work func()) {
	before, full := room, len(room.full)
	work()
	room.current, room.used, room.full = before.current, before.used, room.full[:full]
}

func address(bytes []byte) uint32 {
	return uint32(uintptr(unsafe.Pointer(unsafe.SliceData(bytes))))
}

// The host calls it while no import may be called. The garbage collector would read the clock, so it must wait: it does
// not start, and no goroutine has to assist it, while a goroutine is pinned.
//
//go:wasmexport cabi_realloc
func realloc(old, oldSize, align, size uint32) uint32 {
	if oldSize != 0 {
		panic("the host never makes room larger")
	}
	procPin()
	at := address(take(size))
	procUnpin()
	return at
}

//go:linkname procPin runtime.procPin
func procPin() int

//go:linkname procUnpin runtime.procUnpin
func procUnpin()

func pointer(at uint32) unsafe.Pointer { return unsafe.Add(unsafe.Pointer(nil), at) }

func memory(at, length uint32) []byte { return unsafe.Slice((*byte)(pointer(at)), length) }

// --- input

func word(raw []byte, at int) uint32 { return binary.LittleEndian.Uint32(raw[at:]) }

func readOctets(raw []byte) []byte { return memory(word(raw, 0), word(raw, 4)) }

func readText(raw []byte) string { return string(readOctets(raw)) }

// --- output

func put16(at []byte, value uint16) { binary.LittleEndian.PutUint16(at, value) }

func put32(at []byte, value uint32) { binary.LittleEndian.PutUint32(at, value) }

func put64(at []byte, value uint64) { binary.LittleEndian.PutUint64(at, value) }

func putBool(at []byte, value bool) {
	if value {
		at[0] = 1
	}
}

// putList allocates a list, writes each item, and then writes its address and length.
func putList[T any](at []byte, size uint32, items []T, put func([]byte, T)) {
	if len(items) == 0 {
		return
	}
	room := take(uint32(len(items)) * size)
	clear(room)
	for i, item := range items {
		put(room[uint32(i)*size:][:size], item)
	}
	put32(at, address(room))
	put32(at[4:], uint32(len(items)))
}

func putOctets(at, octets []byte) {
	copied := take(uint32(len(octets)))
	copy(copied, octets)
	put32(at, address(copied))
	put32(at[4:], uint32(len(octets)))
}

func putText(at []byte, text string) {
	copied := take(uint32(len(text)))
	copy(copied, text)
	put32(at, address(copied))
	put32(at[4:], uint32(len(text)))
}
