package dnsweir

import "slices"

// Edit is what happens to a response. An empty one changes nothing.
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

// Bits of the header's second 16 that an edit may set or clear.
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

// Selector says which records are meant: those for which all of it holds. An empty one means all.
type Selector struct {
	Section Section
	// Their owner, in any letter case; none: any.
	Name []byte
	// Their type; 0: any.
	Type uint16

	index *uint32
}

// At means only one of those that the rest selects, counted from 0.
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
	// Of ROTATE one, of PERMUTE all.
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

// with is a copy with one more edit, which shares nothing that could change.
func (e Edit) with(edit recordEdit) Edit {
	e.records = append(slices.Clip(e.records), edit)
	return e
}

// Remove removes records.
func (e Edit) Remove(which Selector) Edit {
	return e.with(recordEdit{kind: editRemove, selector: which})
}

// Replace puts these in the place of the records selected, where the first of them stood; nothing happens if there is none.
func (e Edit) Replace(which Selector, records ...Record) Edit {
	return e.with(recordEdit{kind: editReplace, selector: which, records: records})
}

// Append adds one more at the end of a section.
func (e Edit) Append(to Section, record Record) Edit {
	return e.with(recordEdit{kind: editAppend, section: to, records: []Record{record}})
}

// Rotate has the records of each set in the answer section begin with that of this index.
func (e Edit) Rotate(by uint32) Edit {
	return e.with(recordEdit{kind: editOrder, order: orderRotate, numbers: []uint32{by}})
}

// Shuffle puts the records of each set in a random order, anew for each response.
func (e Edit) Shuffle() Edit { return e.with(recordEdit{kind: editOrder, order: orderShuffle}) }

// Permute puts all records of the answer section in the order of these indices.
func (e Edit) Permute(indices ...uint32) Edit {
	return e.with(recordEdit{kind: editOrder, order: orderPermute, numbers: indices})
}

// Rcode puts one rcode in the place of another.
func (e Edit) Rcode(found, instead uint16) Edit {
	e.rcodes = append(slices.Clip(e.rcodes), [2]uint16{found, instead})
	return e
}

// Header sets bits of the header and clears others: TC, AA and AD.
func (e Edit) Header(set, clear uint16) Edit {
	e.set, e.clear = set, clear
	return e
}

// Error says why the response is as it is.
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

// NoStore has the cache neither keep the response nor answer from what it kept.
func (e Edit) NoStore() Edit {
	e.noStore = true
	return e
}

// NoStale has the cache not serve the response after its TTL.
func (e Edit) NoStale() Edit {
	e.noStale = true
	return e
}
