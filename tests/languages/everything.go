// The filter of tests/filters/released in Go: every phase, every kind of verdict, everything that it may call. What it is
// given is as the test gives it, and it looks for no mistakes.
package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"time"

	"dnsweir.example/dnsweir"
)

const (
	typeA   = 1
	typeNS  = 2
	classIN = 1
	ttl     = 300
	option  = 65001
	reason  = "told to"
)

// Indices into the manifest.
const (
	values dnsweir.Table = iota
	numbers
)

const other = 0

var state = []byte("state")

type everything struct {
	address, target     []byte
	list, copied, whole dnsweir.Data
}

func init() {
	dnsweir.Serve(func(setup *dnsweir.Setup) (dnsweir.Filter, dnsweir.Manifest, []dnsweir.Mistake) {
		filter := &everything{copied: dnsweir.Published("copied"), whole: dnsweir.Published("whole")}
		for i := range setup.Config {
			node := &setup.Config[i]
			text, _ := node.Text(0)
			switch node.Name {
			case "address":
				filter.address = netip.MustParseAddr(text).AsSlice()
			case "target":
				filter.target, _ = dnsweir.Wire(text)
			case "list":
				filter.list = node.Arguments[0].(dnsweir.Data)
			}
		}
		dnsweir.Log(dnsweir.Info, fmt.Sprintf("%s is configured for %v", setup.Name, setup.Zones))
		return filter, dnsweir.Manifest{
			Messages: true,
			Tables:   []dnsweir.TableShape{{Name: "values", Octets: 1 << 16}, {Name: "numbers", Octets: 1 << 16, Shown: true}},
			Details:  []dnsweir.Detail{dnsweir.Listener(), dnsweir.EDNSOption(option)},
			Sources:  []string{"other"},
			Outcomes: []dnsweir.Outcome{dnsweir.Success, dnsweir.Denial},
		}, nil
	})
}

func (f *everything) Query(query *dnsweir.Query) dnsweir.Verdict {
	label := first(query)
	dnsweir.Count("queries", 1)
	dnsweir.Count("labels", 1, dnsweir.Label{Name: "label", Value: label})
	answerIf := func(right bool) dnsweir.Verdict { return dnsweir.AnswerWith(f.answerIf(query, right)) }
	var verdict dnsweir.Verdict
	switch label {
	case "answer":
		verdict = dnsweir.AnswerWith(f.sections(query)).Error(4, reason)
	case "alias":
		verdict = dnsweir.Alias(f.target)
	case "rename":
		verdict = dnsweir.Rename(f.target)
	case "refuse":
		verdict = dnsweir.Refuse(5).Error(18, reason)
	case "drop":
		verdict = dnsweir.DropFor(reason)
	case "edit":
		verdict = dnsweir.Pass().Edit(dnsweir.Edit{}.MaxTTL(7))
	case "records":
		verdict = dnsweir.Pass().Edit(f.otherRecords(query))
	case "shuffle":
		verdict = dnsweir.Pass().Edit(dnsweir.Edit{}.Shuffle())
	case "mark":
		marks := dnsweir.Edit{}.Rcode(3, 0).Header(dnsweir.AA, dnsweir.AD).MinTTL(1).NoStore().NoStale()
		verdict = dnsweir.Pass().Edit(marks).Error(17, reason)
	case "route":
		verdict = dnsweir.Pass().Source(other).ClientSubnet(netip.MustParsePrefix("192.0.2.0/24"))
	case "late":
		verdict = answerIf(true).Delay(20 * time.Millisecond)
	case "skip":
		verdict = dnsweir.Pass().SkipResponse()
	case "ask":
		verdict = dnsweir.AskFirst(f.ask(query))
	case "table":
		verdict = answerIf(tablesWork(query.Name))
	case "data":
		verdict = answerIf(f.dataIsThere())
	case "details":
		told, _ := query.EDNSOption(option)
		verdict = answerIf(string(told) == "told" && query.Listener() != "")
	case "trap":
		panic("told to panic at " + dnsweir.Text(query.Name))
	default:
		return dnsweir.Pass()
	}
	return verdict.Remember(time.Second)
}

func (f *everything) Response(response *dnsweir.Response) dnsweir.ResponseVerdict {
	switch first(&response.Query) {
	case "shorten":
		return dnsweir.PassResponse().Edit(dnsweir.Edit{}.MaxTTL(9))
	case "reask":
		return dnsweir.AskAboutResponse(f.ask(&response.Query))
	case "silence":
		return dnsweir.DropResponse(reason)
	case "later":
		return dnsweir.PassResponse().Delay(20 * time.Millisecond)
	case "replace", "skip":
		return dnsweir.Replace(f.answerIf(&response.Query, len(response.Message) > 0))
	}
	return dnsweir.PassResponse()
}

func (f *everything) QueryAnswers(query *dnsweir.Query, answers *dnsweir.Answers) dnsweir.Verdict {
	return dnsweir.AnswerWith(f.answerIf(query, found(answers)))
}

func (f *everything) ResponseAnswers(response *dnsweir.Response, answers *dnsweir.Answers) dnsweir.ResponseVerdict {
	return dnsweir.Replace(f.answerIf(&response.Query, found(answers)))
}

func (f *everything) Event(event *dnsweir.Event) {
	heard := "heard a part"
	if size := len(event.Message); size > 0 && size == event.ResponseSize {
		heard = "heard"
	}
	dnsweir.Print(fmt.Sprintf("%s of %s\n", heard, dnsweir.Text(event.Name)))
}

func (f *everything) Refresh(sources []dnsweir.SourceFile, output dnsweir.Output) error {
	for _, source := range sources {
		if source.Name != "list" || source.File != "" {
			return fmt.Errorf("there is no %q", source.Name)
		}
		size, _ := source.Data.Size()
		lines := bufio.NewScanner(io.NewSectionReader(source.Data, 0, int64(size)))
		for lines.Scan() {
			if !output.Append("copied", append(lines.Bytes(), '\n')) {
				return errors.New("no room")
			}
		}
		if !output.Publish("whole", source.Data) {
			return errors.New("no room")
		}
	}
	return nil
}

// answerIf is the address, if all is as it should be.
func (f *everything) answerIf(query *dnsweir.Query, right bool) dnsweir.Reply {
	address := []byte{0, 0, 0, 0}
	if right {
		address = f.address
	}
	return dnsweir.Reply{Answers: []dnsweir.Record{record(query.Name, typeA, address)}}
}

func (f *everything) sections(query *dnsweir.Query) dnsweir.Reply {
	reply := f.answerIf(query, true)
	reply.Authoritative = true
	reply.Authority = []dnsweir.Record{record(query.Name, typeNS, f.target)}
	reply.Additional = []dnsweir.Record{record(f.target, typeA, f.address)}
	return reply
}

// otherRecords makes of three addresses, 1, 2 and 3, those of 8, 2 and 7, and another in the last section.
func (f *everything) otherRecords(query *dnsweir.Query) dnsweir.Edit {
	address := func(name []byte, last byte) dnsweir.Record { return record(name, typeA, []byte{192, 0, 2, last}) }
	addresses := dnsweir.Selector{Section: dnsweir.AnswerSection, Type: typeA}
	own := addresses
	own.Name = query.Name
	return dnsweir.Edit{}.
		Remove(addresses.At(2)).
		Replace(own.At(0), address(query.Name, 7)).
		Append(dnsweir.AnswerSection, address(query.Name, 8)).
		Append(dnsweir.AdditionalSection, address(f.target, 9)).
		Permute(1, 0, 2).
		Rotate(2)
}

func (f *everything) ask(query *dnsweir.Query) dnsweir.Ask {
	return dnsweir.Ask{
		Lookups: []dnsweir.Lookup{{Name: f.target, Type: query.Type, Below: true}, {Name: f.target, Type: query.Type}},
		Time:    10 * time.Second,
		State:   state,
	}
}

func (f *everything) dataIsThere() bool {
	size, there := f.list.Size()
	value := make([]byte, 8)
	// To the end, in which there is less.
	count, err := f.list.ReadAt(value, 4)
	_, found := f.whole.FindLine([]byte("value"), ' ')
	for _, data := range []dnsweir.Data{f.list, f.copied, f.whole} {
		line, _ := data.FindLine([]byte("key"), ' ')
		there = there && string(line) == "key value"
	}
	return there && size == 10 && err == io.EOF && string(value[:count]) == "value\n" && !found && dnsweir.Revision() > 0
}

// tablesWork does each thing that can be done with a table.
func tablesWork(key []byte) bool {
	asked := []byte("asked")
	before, after := []byte("old"), []byte("new")
	numbers.Add(asked, 1, 0)
	work := values.Put(key, before, time.Minute)
	value, _ := values.Get(key)
	work = work && bytes.Equal(value, before) &&
		values.CompareAndSwap(key, before, after, time.Minute) &&
		!values.CompareAndSwap(key, before, nil, 0) &&
		values.Remove(key)
	_, there := values.Get(key)
	work = work && !there && values.Take(key, 1, 0.001, 1) && !values.Take(key, 1, 0.001, 1)
	sum, _ := numbers.Number(asked)
	return work && sum == 1 && numbers.Add(asked, 1, 0) == 2
}

func found(answers *dnsweir.Answers) bool {
	all := len(answers.Found) == 2 && bytes.Equal(answers.State, state)
	for _, one := range answers.Found {
		all = all && one.Status == dnsweir.Answered && one.AnswerCount == 1 && len(one.Message) > 0
	}
	return all
}

func record(name []byte, kind uint16, data []byte) dnsweir.Record {
	return dnsweir.Record{Name: name, Type: kind, Class: classIN, TTL: ttl, Data: data}
}

func first(query *dnsweir.Query) string {
	label, _, _ := strings.Cut(dnsweir.Text(query.Name), ".")
	return label
}

func main() {}
