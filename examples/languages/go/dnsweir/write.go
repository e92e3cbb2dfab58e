package dnsweir

// Output: verdicts, the manifest and mistakes. Their memory is zeroed: what is not written is zero, false or none.

import (
	"encoding/binary"
	"math"
)

// Sizes of the interface's records in bytes.
const (
	verdictSize         = 160
	responseVerdictSize = 108
	recordSize          = 24
	recordEditSize      = 40
	lookupSize          = 24
)

// said is a verdict of either kind.
type said interface {
	// Whether it equals no verdict.
	silent() bool
	put(at []byte, index uint32)
}

// say decides about each record of a batch, and returns the address of the list of verdicts.
func say[V said](length, size uint32, decide func(uint32) V) uint32 {
	verdicts := take(length * size)
	count := uint32(0)
	for i := range length {
		if verdict := decide(i); !verdict.silent() {
			at := verdicts[count*size:][:size]
			clear(at)
			verdict.put(at, i)
			count++
		}
	}
	result := take(8)
	put32(result, address(verdicts))
	put32(result[4:], count)
	return address(result)
}

func (v Verdict) silent() bool {
	return v.decision == pass && v.remember == 0 && v.edit == nil && !v.skip && v.delay == 0 && v.source == nil &&
		!v.subnet.IsValid()
}

func (v Verdict) put(at []byte, query uint32) {
	put32(at, query)
	put32(at[4:], v.remember)
	at[8] = v.decision
	switch payload := at[12:]; v.decision {
	case rewrite:
		putRewrite(payload, v.rewrite)
	case answer:
		putReply(payload, v.reply)
	case alias:
		putList(payload, 8, v.names, putOctets)
	case refuse:
		put16(payload, v.reply.Rcode)
		putError(payload[4:], v.reply.Error)
	case drop:
		putText(payload, v.reason)
	case ask:
		putAsk(payload, v.ask)
	}
	putEdit(at[56:], v.edit)
	putBool(at[108:], v.skip)
	put16(at[110:], v.delay)
	v.putRoute(at[112:])
}

func (v Verdict) putRoute(at []byte) {
	if v.source == nil && !v.subnet.IsValid() {
		return
	}
	at[0] = 1
	if v.source != nil {
		at[8] = 1
		put16(at[10:], *v.source)
	}
	if v.subnet.IsValid() {
		at[16] = 1
		octets := v.subnet.Addr().As16()
		put64(at[24:], binary.BigEndian.Uint64(octets[:8]))
		put64(at[32:], binary.BigEndian.Uint64(octets[8:]))
		at[40] = uint8(v.subnet.Bits())
	}
}

func (v ResponseVerdict) silent() bool {
	return v.decision == responsePass && v.edit == nil && v.delay == 0
}

func (v ResponseVerdict) put(at []byte, response uint32) {
	put32(at, response)
	at[4] = v.decision
	switch payload := at[8:]; v.decision {
	case responseReplace:
		putReply(payload, v.reply)
	case responseDrop:
		putText(payload, v.reason)
	case responseAsk:
		putAsk(payload, v.ask)
	}
	putEdit(at[52:], v.edit)
	put16(at[104:], v.delay)
}

func putRewrite(at []byte, to *Rewrite) {
	if to.Name != nil {
		at[0] = 1
		putOctets(at[4:], to.Name)
	}
	putSome16(at[12:], to.Type)
	putSome16(at[16:], to.Class)
	putBool(at[20:], !to.KeepAnswers)
}

// putSome16 writes an optional number; 0, which is no type or class, is none.
func putSome16(at []byte, value uint16) {
	if value != 0 {
		at[0] = 1
		put16(at[2:], value)
	}
}

func putReply(at []byte, reply *Reply) {
	put16(at, reply.Rcode)
	putBool(at[2:], reply.Authoritative)
	putList(at[4:], recordSize, reply.Answers, putRecord)
	putList(at[12:], recordSize, reply.Authority, putRecord)
	putList(at[20:], recordSize, reply.Additional, putRecord)
	putError(at[28:], reply.Error)
}

func putRecord(at []byte, record Record) {
	putOctets(at, record.Name)
	put16(at[8:], record.Type)
	put16(at[10:], record.Class)
	put32(at[12:], record.TTL)
	putOctets(at[16:], record.Data)
}

func putError(at []byte, err *ExtendedError) {
	if err != nil {
		at[0] = 1
		put16(at[4:], err.Code)
		putText(at[8:], err.Text)
	}
}

func putAsk(at []byte, ask *Ask) {
	putList(at, lookupSize, ask.Lookups, func(at []byte, lookup Lookup) {
		putOctets(at, lookup.Name)
		put16(at[8:], lookup.Type)
		switch {
		case lookup.Zone != "":
			at[12] = 2
			putText(at[16:], lookup.Zone)
		case lookup.Below:
			at[12] = 1
		}
	})
	put32(at[8:], milliseconds32(ask.Time))
	putOctets(at[12:], ask.State)
}

func putEdit(at []byte, edit *Edit) {
	if edit == nil {
		return
	}
	at[0] = 1
	at = at[4:]
	putList(at, 4, edit.rcodes, func(at []byte, rcodes [2]uint16) {
		put16(at, rcodes[0])
		put16(at[2:], rcodes[1])
	})
	putList(at[8:], recordEditSize, edit.records, putRecordEdit)
	put16(at[16:], edit.set)
	put16(at[18:], edit.clear)
	putError(at[20:], edit.why)
	put32(at[36:], edit.ttlMin)
	put32(at[40:], math.MaxUint32)
	if edit.ttlMax != nil {
		put32(at[40:], *edit.ttlMax)
	}
	putBool(at[44:], !edit.noStore)
	putBool(at[45:], !edit.noStale)
}

func putRecordEdit(at []byte, edit recordEdit) {
	at[0] = edit.kind
	switch payload := at[4:]; edit.kind {
	case editRemove:
		putSelector(payload, edit.selector)
	case editReplace:
		putSelector(payload, edit.selector)
		putList(payload[28:], recordSize, edit.records, putRecord)
	case editAppend:
		payload[0] = uint8(edit.section - AnswerSection)
		putRecord(payload[4:], edit.records[0])
	case editOrder:
		payload[0] = edit.order
		switch edit.order {
		case orderRotate:
			put32(payload[4:], edit.numbers[0])
		case orderPermute:
			putList(payload[4:], 4, edit.numbers, put32)
		}
	}
}

func putSelector(at []byte, which Selector) {
	if which.Section != Anywhere {
		at[0] = 1
		at[1] = uint8(which.Section - AnswerSection)
	}
	if which.Name != nil {
		at[4] = 1
		putOctets(at[8:], which.Name)
	}
	putSome16(at[16:], which.Type)
	if which.index != nil {
		at[20] = 1
		put32(at[24:], *which.index)
	}
}

func putManifest(at []byte, manifest *Manifest) {
	putList(at, 2, manifest.Types, put16)
	putList(at[8:], 8, manifest.Suffixes, putText)
	putBool(at[16:], onQuery != nil)
	putBool(at[17:], onResponse != nil)
	putBool(at[18:], onEvent != nil)
	putBool(at[19:], manifest.Messages)
	putBool(at[20:], onQueryAnswer != nil || onResponseAnswer != nil)
	putList(at[24:], 16, manifest.Tables, func(at []byte, table TableShape) {
		putText(at, table.Name)
		put32(at[8:], table.Octets)
		putBool(at[12:], table.Shown)
	})
	putList(at[32:], 12, manifest.Details, func(at []byte, detail Detail) {
		at[0] = detail.kind
		if detail.kind == 0 {
			put16(at[4:], detail.option)
		} else {
			putText(at[4:], detail.name)
		}
	})
	putList(at[40:], 8, manifest.Sources, putText)
	putList(at[48:], 1, manifest.Outcomes, func(at []byte, outcome Outcome) { at[0] = uint8(outcome) })
}

func putMistake(at []byte, mistake Mistake) {
	if mistake.node != nil {
		at[0] = 1
		put32(at[4:], mistake.node.index)
	}
	switch {
	case mistake.argument >= 0:
		at[8] = 1
		put32(at[12:], uint32(mistake.argument))
	case mistake.property != "":
		at[8] = 2
		putText(at[12:], mistake.property)
	}
	putText(at[20:], mistake.message)
	putText(at[28:], mistake.help)
}
