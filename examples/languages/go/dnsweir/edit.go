package dnsweir

import "slices"

// Edit is a change to a response. An empty one changes nothing.
type Edit struct {
	rcodes     [][2]uint16
	records    []recordEdit
	set, clear uint16
	why        *ExtendedError
	ttlMin     uint32
	// None: no bound.
	ttlMax           *uint32
	noStore, noStale bool
}

// Bits of the second 16 bits of the header that an edit may set or clear.
const (
	TC = 0x0200
	AA = 0x0400
	AD = 0x0020
)

// Section is a section of a message.
type Section uint8

// The sections.
const (
	Anywhere Section = iota
	AnswerSection
	AuthoritySection
	AdditionalSection
)

// Selector selects records that meet all of its conditions. An empty one selects all.
type Selector struct {
	Section Section
	// The owner, in any letter case; none: any.
	Name []byte
	// The type; 0: any.
	Type uint16

	index *uint32
}

// At selects only one of the records that meet the other conditions, counted from 0.
func (s Selector) At(index uint32) Selector {
	s.index = &index
	return s
}

type recordEdit struct {
	kind     uint8
	selector Selector
	section  Section
	records  []Record
	order    uint8
	// One for ROTATE, all for PERMUTE.
	numbers []uint32
}

const (
	editRemove = iota
	editReplace
	editAppend
	editOrder
)

const (
	orderRotate = iota
	orderShuffle
	orderPermute
)

// with is a copy with one more edit, which shares no mutable data.
func (e Edit) with(edit recordEdit) Edit {
	e.records = append(slices.Clip(e.records), edit)
	return e
}

// Remove removes records.
func (e Edit) Remove(which Selector) Edit {
	return e.with(recordEdit{kind: editRemove, selector: which})
}

// Replace puts these in the place of the first selected record and removes the others; it does nothing if none is
// selected.
func (e Edit) Replace(which Selector, records ...Record) Edit {
	return e.with(recordEdit{kind: editReplace, selector: which, records: records})
}

// Append adds a record at the end of a section.
func (e Edit) Append(to Section, record Record) Edit {
	return e.with(recordEdit{kind: editAppend, section: to, records: []Record{record}})
}

// Rotate rotates the records of each set in the answer section, so that the one with this index comes first.
func (e Edit) Rotate(by uint32) Edit {
	return e.with(recordEdit{kind: editOrder, order: orderRotate, numbers: []uint32{by}})
}

// Shuffle shuffles the records of each set, differently for each response.
func (e Edit) Shuffle() Edit { return e.with(recordEdit{kind: editOrder, order: orderShuffle}) }

// Permute puts the records of the answer section in the order of these indices.
func (e Edit) Permute(indices ...uint32) Edit {
	return e.with(recordEdit{kind: editOrder, order: orderPermute, numbers: indices})
}

// Rcode replaces one rcode with another.
func (e Edit) Rcode(found, instead uint16) Edit {
	e.rcodes = append(slices.Clip(e.rcodes), [2]uint16{found, instead})
	return e
}

// Header sets bits of the header and clears others: TC, AA and AD.
func (e Edit) Header(set, clear uint16) Edit {
	e.set, e.clear = set, clear
	return e
}

// Error sets the extended error of the response.
func (e Edit) Error(code uint16, text string) Edit {
	e.why = &ExtendedError{code, text}
	return e
}

// MinTTL is the lower bound for the TTL of every record, in seconds.
func (e Edit) MinTTL(ttl uint32) Edit {
	e.ttlMin = ttl
	return e
}

// MaxTTL is the upper bound.
func (e Edit) MaxTTL(ttl uint32) Edit {
	e.ttlMax = &ttl
	return e
}

// NoStore keeps the cache from storing the response and from answering from it.
func (e Edit) NoStore() Edit {
	e.noStore = true
	return e
}

// NoStale keeps the cache from serving the response after its TTL.
func (e Edit) NoStale() Edit {
	e.noStale = true
	return e
}
