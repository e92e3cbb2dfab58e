//! Packed records lie in a guest's memory exactly as the component API would store them.

use proptest::collection::vec;
use proptest::prelude::*;
use wasmtime::Store;
use wasmtime::component::{Component, HasSelf, Linker};

use super::*;
use crate::filter::bindings::Filter as World;
use crate::filter::bindings::dnsweir::filter::{host, types};
use crate::filter::packed::Packed;
use crate::filter::plain;

/// The guest's count since it was last read.
#[derive(Default)]
struct Sum(u64);

impl types::Host for Sum {}

impl host::Host for Sum {
    fn log(&mut self, _: host::Level, _: String) {}
    fn print(&mut self, _: String) {}
    fn count(&mut self, _: String, _: Vec<(String, String)>, by: u64) {
        self.0 = by;
    }
}

/// A guest that counts the sum of all bytes that it gets.
fn summer() -> (World, Store<Sum>) {
    let component = plain::component(&guests::summer()).unwrap();
    let component = Component::new(&ENGINE.wasm, component).unwrap();
    let mut linker = Linker::new(&ENGINE.wasm);
    types::add_to_linker::<_, HasSelf<Sum>>(&mut linker, |sum| sum).unwrap();
    host::add_to_linker::<_, HasSelf<Sum>>(&mut linker, |sum| sum).unwrap();
    let mut store = Store::new(&ENGINE.wasm, Sum::default());
    store.set_epoch_deadline(u64::MAX / 2);
    let world = World::instantiate(&mut store, &component, &linker).unwrap();
    let setup = types::Setup {
        name: "sum".into(),
        config: Vec::new(),
        zones: Vec::new(),
    };
    let configured = world
        .dnsweir_filter_configure()
        .call_configure(&mut store, &setup);
    configured.unwrap().unwrap();
    (world, store)
}

fn any_query() -> impl Strategy<Value = types::Query> {
    let sixteens = any::<[u16; 8]>();
    (
        any::<[u64; 2]>(),
        any::<u32>(),
        sixteens,
        any::<u16>(),
        any::<[u8; 2]>(),
    )
        .prop_map(
            |([client_high, client_low], name_start, sixteens, zone, [transport, edns])| {
                let [
                    name_length,
                    qtype,
                    qclass,
                    header,
                    udp_size,
                    edns_flags,
                    client_port,
                    details_length,
                ] = sixteens;
                types::Query {
                    client_high,
                    client_low,
                    name_start,
                    name_length,
                    qtype,
                    qclass,
                    header,
                    udp_size,
                    edns_flags,
                    client_port,
                    zone,
                    transport,
                    edns,
                    details_length,
                }
            },
        )
}

fn any_response() -> impl Strategy<Value = types::Response> {
    (any_query(), any::<[u16; 2]>(), any::<u8>(), any::<[u32; 3]>()).prop_map(
        |(query, [rcode, answer_count], source, [ttl, message_start, message_length])| types::Response {
            query,
            rcode,
            source,
            answer_count,
            ttl,
            message_start,
            message_length,
        },
    )
}

fn any_event() -> impl Strategy<Value = types::Event> {
    (
        any_query(),
        any::<u64>(),
        any::<[u32; 4]>(),
        any::<[u16; 4]>(),
        any::<[u8; 2]>(),
    )
        .prop_map(
            |(
                query,
                time,
                [duration, response_size, message_start, message_length],
                sixteens,
                [has_answers, source],
            )| {
                let [id, query_size, rcode, response_header] = sixteens;
                types::Event {
                    query,
                    time,
                    duration,
                    id,
                    query_size,
                    response_size,
                    rcode,
                    response_header,
                    has_answers,
                    source,
                    message_start,
                    message_length,
                }
            },
        )
}

fn any_answer() -> impl Strategy<Value = types::LookupAnswer> {
    (any::<u8>(), any::<[u16; 2]>(), any::<u8>(), any::<[u32; 3]>()).prop_map(
        |(status, [rcode, answer_count], source, [ttl, message_start, message_length])| types::LookupAnswer {
            status,
            rcode,
            source,
            ttl,
            answer_count,
            message_start,
            message_length,
        },
    )
}

fn any_asked_query() -> impl Strategy<Value = types::AskedQuery> {
    (any_query(), any::<[u32; 4]>()).prop_map(|(query, [state_start, state_length, first, count])| {
        types::AskedQuery {
            query,
            state_start,
            state_length,
            first,
            count,
        }
    })
}

fn any_asked_response() -> impl Strategy<Value = types::AskedResponse> {
    (any_response(), any::<[u32; 4]>()).prop_map(|(response, [state_start, state_length, first, count])| {
        types::AskedResponse {
            response,
            state_start,
            state_length,
            first,
            count,
        }
    })
}

/// The parameters of a call with lookup answers.
type Answered<'a, R> = (u64, &'a [Packed<R>], &'a [Packed<types::LookupAnswer>], &'a [u8]);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 32 } else { 256 }))]

    #[test]
    fn packed_records_are_those_of_the_component_api(
        queries in vec(any_query(), 0..5),
        responses in vec(any_response(), 0..5),
        events in vec(any_event(), 0..5),
        bytes in vec(any::<u8>(), 0..100),
        now in any::<u64>(),
    ) {
        let (world, mut store) = summer();
        let mut sums = [0; 6];
        let of_queries = world.dnsweir_filter_queries().func_on_queries();
        let of_responses = world.dnsweir_filter_responses().func_on_responses();
        let of_events = world.dnsweir_filter_events().func_on_events();

        of_queries.call(&mut store, (now, &queries, &bytes)).unwrap();
        sums[0] = store.data().0;
        let packed = of_queries.func().typed::<(u64, &[Packed<_>], &[u8]), (Vec<types::Verdict>,)>(&store);
        packed.unwrap().call(&mut store, (now, Packed::<types::Query>::all(&queries), &bytes)).unwrap();
        sums[1] = store.data().0;

        of_responses.call(&mut store, (now, &responses, &bytes)).unwrap();
        sums[2] = store.data().0;
        let packed = of_responses.func().typed::<(u64, &[Packed<_>], &[u8]), (Vec<types::ResponseVerdict>,)>(&store);
        packed.unwrap().call(&mut store, (now, Packed::<types::Response>::all(&responses), &bytes)).unwrap();
        sums[3] = store.data().0;

        of_events.call(&mut store, (&events, &bytes)).unwrap();
        sums[4] = store.data().0;
        let packed = of_events.func().typed::<(&[Packed<_>], &[u8]), ()>(&store);
        packed.unwrap().call(&mut store, (Packed::<types::Event>::all(&events), &bytes)).unwrap();
        sums[5] = store.data().0;

        prop_assert_eq!([sums[0], sums[2], sums[4]], [sums[1], sums[3], sums[5]]);
    }

    #[test]
    fn packed_answers_are_those_of_the_component_api(
        queries in vec(any_asked_query(), 0..5),
        responses in vec(any_asked_response(), 0..5),
        answers in vec(any_answer(), 0..5),
        bytes in vec(any::<u8>(), 0..100),
        now in any::<u64>(),
    ) {
        let (world, mut store) = summer();
        let mut sums = [0; 4];
        let of_queries = world.dnsweir_filter_query_answers().func_on_query_answers();
        let of_responses = world.dnsweir_filter_response_answers().func_on_response_answers();
        let packed_answers = Packed::all(&answers);

        of_queries.call(&mut store, (now, &queries, &answers, &bytes)).unwrap();
        sums[0] = store.data().0;
        let packed = of_queries.func().typed::<Answered<'_, _>, (Vec<types::Verdict>,)>(&store);
        let records = Packed::<types::AskedQuery>::all(&queries);
        packed.unwrap().call(&mut store, (now, records, packed_answers, &bytes)).unwrap();
        sums[1] = store.data().0;

        of_responses.call(&mut store, (now, &responses, &answers, &bytes)).unwrap();
        sums[2] = store.data().0;
        let packed = of_responses.func().typed::<Answered<'_, _>, (Vec<types::ResponseVerdict>,)>(&store);
        let records = Packed::<types::AskedResponse>::all(&responses);
        packed.unwrap().call(&mut store, (now, records, packed_answers, &bytes)).unwrap();
        sums[3] = store.data().0;

        prop_assert_eq!([sums[0], sums[2]], [sums[1], sums[3]]);
    }
}
