package dnsweir

// Between the host's calls and the filter: the component model's canonical ABI, by hand. What the numbers are is in
// wit/types.wit: fields stand in its order, each at a multiple of its size.

import (
	"encoding/binary"
	"math"
	"net/netip"
	"structs"
	"time"
	"unsafe"
)

var (
	makeFilter func(Config) (Filter, Manifest, []Mistake)
	filter     Filter
)

// room is memory that lasts until the host has read a call's result. The host takes what it hands in from it, and
// results are built in it. Its addresses leave Go, so it is held here.
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

func address(bytes []byte) uint32 {
	return uint32(uintptr(unsafe.Pointer(unsafe.SliceData(bytes))))
}

//go:wasmexport cabi_realloc
func realloc(old, oldSize, align, size uint32) uint32 {
	if oldSize != 0 {
		panic("the host never makes room larger")
	}
	return address(take(size))
}

// --- configure

//go:wasmexport dnsweir:filter/configure@0.1.0#configure
func configure(name, nameLength, config, configLength, zones, zonesLength uint32) uint32 {
	made, manifest, mistakes := makeFilter(readConfig(config, configLength))
	filter = made
	result := take(60)
	clear(result)
	if len(mistakes) > 0 {
		result[0] = 1
		list(result[4:], 36, len(mistakes), func(i int, at []byte) { putMistake(at, mistakes[i]) })
		return address(result)
	}
	list(result[4:], 2, len(manifest.Types), func(i int, at []byte) {
		binary.LittleEndian.PutUint16(at, manifest.Types[i])
	})
	list(result[12:], 8, len(manifest.Suffixes), func(i int, at []byte) { text(at, manifest.Suffixes[i]) })
	result[20] = 1 // queries
	return address(result)
}

func readConfig(at, length uint32) Config {
	config := make(Config, length)
	for i := range config {
		raw := memory(at+uint32(i)*32, 32)
		config[i] = Node{
			Name:       readText(raw),
			Arguments:  make([]Value, word(raw, 12)),
			Properties: make(map[string]Value),
			Parent:     -1,
			index:      uint32(i),
		}
		for j := range config[i].Arguments {
			config[i].Arguments[j] = readValue(memory(word(raw, 8)+uint32(j)*16, 16))
		}
		for j := range word(raw, 20) {
			property := memory(word(raw, 16)+j*24, 24)
			config[i].Properties[readText(property)] = readValue(property[8:])
		}
		if raw[24] == 1 {
			config[i].Parent = int(word(raw, 28))
		}
	}
	return config
}

func readValue(raw []byte) Value {
	bits := binary.LittleEndian.Uint64(raw[8:])
	switch raw[0] {
	case 1:
		return raw[8] != 0
	case 2:
		return int64(bits)
	case 3:
		return math.Float64frombits(bits)
	case 4:
		return readText(raw[8:])
	case 5:
		return Data(binary.LittleEndian.Uint32(raw[8:]))
	}
	return nil
}

func putMistake(at []byte, mistake Mistake) {
	at[0] = 1 // some node
	binary.LittleEndian.PutUint32(at[4:], mistake.node)
	if mistake.argument >= 0 {
		at[8] = 1 // place: argument
		binary.LittleEndian.PutUint32(at[12:], uint32(mistake.argument))
	}
	text(at[20:], mistake.message)
	text(at[28:], mistake.help)
}

// --- queries

// A query as it comes in.
type rawQuery struct {
	_                      structs.HostLayout
	clientHigh, clientLow  uint64
	nameStart              uint32
	nameLength             uint16
	qtype, qclass          uint16
	header, udpSize, flags uint16
	clientPort, zone       uint16
	transport              uint8
	edns                   bool
	detailsLength          uint16
}

const verdictSize = 160

//go:wasmexport dnsweir:filter/queries@0.1.0#on-queries
func onQueries(now uint64, batch, length, names, namesLength uint32) uint32 {
	queries := unsafe.Slice((*rawQuery)(pointer(batch)), length)
	bytes := memory(names, namesLength)
	verdicts := take(length * verdictSize)
	said := uint32(0)
	for i := range queries {
		raw := &queries[i]
		var client [16]byte
		binary.BigEndian.PutUint64(client[:8], raw.clientHigh)
		binary.BigEndian.PutUint64(client[8:], raw.clientLow)
		query := Query{
			Name:   bytes[raw.nameStart:][:raw.nameLength],
			Type:   raw.qtype,
			Class:  raw.qclass,
			Client: netip.AddrPortFrom(netip.AddrFrom16(client).Unmap(), raw.clientPort),
			Time:   time.UnixMilli(int64(now)),
		}
		verdict := filter.Query(&query)
		// A pass that need not be remembered is said by saying nothing.
		if verdict.decision != pass || verdict.remember != 0 {
			putVerdict(verdicts[said*verdictSize:][:verdictSize], uint32(i), verdict)
			said++
		}
	}
	result := take(8)
	binary.LittleEndian.PutUint32(result, address(verdicts))
	binary.LittleEndian.PutUint32(result[4:], said)
	return address(result)
}

//go:wasmexport cabi_post_dnsweir:filter/queries@0.1.0#on-queries
func readOnQueries(result uint32) {
	giveBack()
}

func putVerdict(at []byte, query uint32, verdict Verdict) {
	clear(at)
	binary.LittleEndian.PutUint32(at, query)
	binary.LittleEndian.PutUint32(at[4:], verdict.remember)
	at[8] = verdict.decision
	payload := at[12:]
	switch verdict.decision {
	case rewrite:
		payload[0] = 1 // some name
		octets(payload[4:], verdict.name)
		payload[20] = 1 // revert
	case answer:
		binary.LittleEndian.PutUint16(payload, verdict.rcode)
		list(payload[4:], 24, len(verdict.answers), func(i int, at []byte) {
			record := &verdict.answers[i]
			octets(at, record.Name)
			binary.LittleEndian.PutUint16(at[8:], record.Type)
			binary.LittleEndian.PutUint16(at[10:], record.Class)
			binary.LittleEndian.PutUint32(at[12:], record.TTL)
			octets(at[16:], record.Data)
		})
	case refuse:
		binary.LittleEndian.PutUint16(payload, verdict.rcode)
	}
}

// --- memory

func pointer(at uint32) unsafe.Pointer { return unsafe.Add(unsafe.Pointer(nil), at) }

func memory(at, length uint32) []byte { return unsafe.Slice((*byte)(pointer(at)), length) }

func word(raw []byte, at int) uint32 { return binary.LittleEndian.Uint32(raw[at:]) }

func readText(raw []byte) string { return string(memory(word(raw, 0), word(raw, 4))) }

// list writes where a list is and how long, after room is taken for it and each item is put there.
func list(at []byte, size uint32, length int, put func(int, []byte)) {
	items := take(uint32(length) * size)
	clear(items)
	for i := range length {
		put(i, items[uint32(i)*size:][:size])
	}
	binary.LittleEndian.PutUint32(at, address(items))
	binary.LittleEndian.PutUint32(at[4:], uint32(length))
}

func octets(at, bytes []byte) {
	copied := take(uint32(len(bytes)))
	copy(copied, bytes)
	binary.LittleEndian.PutUint32(at, address(copied))
	binary.LittleEndian.PutUint32(at[4:], uint32(len(bytes)))
}

func text(at []byte, text string) { octets(at, []byte(text)) }
