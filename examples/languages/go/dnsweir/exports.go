package dnsweir

// The functions that the host calls. All are exported, whatever the filter has; the manifest determines which are
// called.

import (
	"time"
	"unsafe"
)

var (
	makeFilter func(*Setup) (Filter, Manifest, []Mistake)
	// The filter, by its phases; nil: it does not have the phase.
	onQuery          QueryPhase
	onResponse       ResponsePhase
	onQueryAnswer    QueryAnswersPhase
	onResponseAnswer ResponseAnswersPhase
	onEvent          EventPhase
	onSources        RefreshPhase
)

//go:wasmexport dnsweir:filter/configure@0.1.0#configure
func configure(name, nameLength, config, configLength, zones, zonesLength uint32) uint32 {
	setup := Setup{
		Name:   string(memory(name, nameLength)),
		Config: readConfig(config, configLength),
		Zones:  make([]string, zonesLength),
	}
	for i := range setup.Zones {
		setup.Zones[i] = readText(memory(zones+uint32(i)*8, 8))
	}
	filter, manifest, mistakes := makeFilter(&setup)
	result := take(60)
	clear(result)
	if len(mistakes) > 0 {
		result[0] = 1
		putList(result[4:], 36, mistakes, putMistake)
		return address(result)
	}
	onQuery, _ = filter.(QueryPhase)
	onResponse, _ = filter.(ResponsePhase)
	onQueryAnswer, _ = filter.(QueryAnswersPhase)
	onResponseAnswer, _ = filter.(ResponseAnswersPhase)
	onEvent, _ = filter.(EventPhase)
	onSources, _ = filter.(RefreshPhase)
	if onQuery == nil && onResponse == nil && onEvent == nil {
		panic("the filter has none of the methods Query, Response and Event")
	}
	putManifest(result[4:], &manifest)
	return address(result)
}

//go:wasmexport dnsweir:filter/queries@0.1.0#on-queries
func onQueries(now uint64, batch, length, octets, octetCount uint32) uint32 {
	queries := unsafe.Slice((*rawQuery)(pointer(batch)), length)
	bytes := memory(octets, octetCount)
	var query Query
	return say(length, verdictSize, func(i uint32) Verdict {
		query = queries[i].read(bytes, now)
		return onQuery.Query(&query)
	})
}

//go:wasmexport dnsweir:filter/responses@0.1.0#on-responses
func onResponses(now uint64, batch, length, octets, octetCount uint32) uint32 {
	responses := unsafe.Slice((*rawResponse)(pointer(batch)), length)
	bytes := memory(octets, octetCount)
	var response Response
	return say(length, responseVerdictSize, func(i uint32) ResponseVerdict {
		response = responses[i].read(bytes, now)
		return onResponse.Response(&response)
	})
}

//go:wasmexport dnsweir:filter/query-answers@0.1.0#on-query-answers
func onQueryAnswers(now uint64, batch, length, answers, answerCount, octets, octetCount uint32) uint32 {
	asked := unsafe.Slice((*rawAskedQuery)(pointer(batch)), length)
	found := unsafe.Slice((*rawAnswer)(pointer(answers)), answerCount)
	bytes := memory(octets, octetCount)
	return say(length, verdictSize, func(i uint32) Verdict {
		if onQueryAnswer == nil {
			panic("the filter asks about queries and has no method QueryAnswers")
		}
		query := asked[i].query.read(bytes, now)
		return onQueryAnswer.QueryAnswers(&query, asked[i].about.read(found, bytes))
	})
}

//go:wasmexport dnsweir:filter/response-answers@0.1.0#on-response-answers
func onResponseAnswers(now uint64, batch, length, answers, answerCount, octets, octetCount uint32) uint32 {
	asked := unsafe.Slice((*rawAskedResponse)(pointer(batch)), length)
	found := unsafe.Slice((*rawAnswer)(pointer(answers)), answerCount)
	bytes := memory(octets, octetCount)
	return say(length, responseVerdictSize, func(i uint32) ResponseVerdict {
		if onResponseAnswer == nil {
			panic("the filter asks about responses and has no method ResponseAnswers")
		}
		response := asked[i].response.read(bytes, now)
		return onResponseAnswer.ResponseAnswers(&response, asked[i].about.read(found, bytes))
	})
}

//go:wasmexport dnsweir:filter/events@0.1.0#on-events
func onEvents(batch, length, octets, octetCount uint32) {
	events := unsafe.Slice((*rawEvent)(pointer(batch)), length)
	bytes := memory(octets, octetCount)
	for i := range events {
		event := events[i].read(bytes)
		onEvent.Event(&event)
	}
}

//go:wasmexport dnsweir:filter/refresh@0.1.0#on-refresh
func onRefresh(now uint64, sources, length uint32) uint32 {
	files := make([]SourceFile, length)
	for i := range files {
		raw := memory(sources+uint32(i)*20, 20)
		files[i] = SourceFile{
			Name: readText(raw),
			File: readText(raw[8:]),
			Data: Data(word(raw, 16)),
			Time: time.UnixMilli(int64(now)),
		}
	}
	result := take(12)
	clear(result)
	if onSources == nil {
		result[0] = 1
		putText(result[4:], "this filter has no refresh: remove the `refresh` block")
	} else if err := onSources.Refresh(files, Output{}); err != nil {
		result[0] = 1
		putText(result[4:], err.Error())
	}
	return address(result)
}

//go:wasmexport cabi_post_dnsweir:filter/queries@0.1.0#on-queries
func readOnQueries(uint32) { giveBack() }

//go:wasmexport cabi_post_dnsweir:filter/responses@0.1.0#on-responses
func readOnResponses(uint32) { giveBack() }

//go:wasmexport cabi_post_dnsweir:filter/query-answers@0.1.0#on-query-answers
func readOnQueryAnswers(uint32) { giveBack() }

//go:wasmexport cabi_post_dnsweir:filter/response-answers@0.1.0#on-response-answers
func readOnResponseAnswers(uint32) { giveBack() }

//go:wasmexport cabi_post_dnsweir:filter/events@0.1.0#on-events
func readOnEvents() { giveBack() }

//go:wasmexport cabi_post_dnsweir:filter/refresh@0.1.0#on-refresh
func readOnRefresh(uint32) { giveBack() }
