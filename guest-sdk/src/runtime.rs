//! The layer between the generated bindings and a [`Filter`]: it unpacks batches, checks bounds, and stores
//! the filter.
//!
//! Used only through [`export!`](crate::export). It has no unsafe code: the bindings pass owned lists, and
//! every index into them is checked, so that a faulty host gets fewer verdicts instead of a trap.

use std::cell::RefCell;
use std::marker::PhantomData;

use crate::bindings::dnsweir::filter::types as raw;
use crate::bindings::exports::dnsweir::filter as exports;
use crate::config::Tree;
use crate::{Answers, Data, Event, Filter, Manifest, Output, Query, Response, SourceFile, host};

/// The filter, once configured.
pub struct State<F>(Option<F>);

impl<F> State<F> {
    /// A state without a filter.
    pub const fn new() -> State<F> {
        State(None)
    }
}

impl<F> Default for State<F> {
    fn default() -> State<F> {
        State::new()
    }
}

/// Configures a filter, unless its configuration has a mistake.
pub(crate) fn make<F: Filter>(setup: raw::Setup) -> Result<(F, Manifest), Vec<raw::ConfigError>> {
    let tree = Tree::new(setup);
    let made = F::configure(tree.setup());
    if let Ok((_, manifest)) = &made {
        // Only if reading was complete: otherwise, unread parts prove nothing.
        tree.check_all_read();
        if !manifest.has_phase() {
            let message = "this filter takes part in no phase; its manifest must name one";
            let _ = tree.setup().config().mistake(message).report();
        }
    }
    host::hand_over();
    let (mistakes, tables) = tree.into_parts();
    match made {
        Ok((filter, manifest)) if mistakes.is_empty() => Ok((filter, manifest.with_tables(tables))),
        _ => Err(mistakes),
    }
}

impl<F: Filter> State<F> {
    /// Configures the filter, unless its configuration has a mistake.
    pub fn configure(&mut self, setup: raw::Setup) -> Result<raw::Manifest, Vec<raw::ConfigError>> {
        let (filter, manifest) = make(setup)?;
        self.0 = Some(filter);
        Ok(manifest.into_raw())
    }

    /// Collects the verdicts on a batch. Verdicts that change nothing are left out.
    fn verdicts<R, V>(&mut self, batch: &[R], mut ask: impl FnMut(&mut F, u32, &R) -> Option<V>) -> Vec<V> {
        let Some(filter) = &mut self.0 else {
            return Vec::new();
        };
        let mut verdicts = Vec::new();
        for (index, record) in (0u32..).zip(batch) {
            if let Some(verdict) = ask(filter, index, record) {
                // A batch with one verdict often has more: reserve room for all of them.
                if verdicts.is_empty() {
                    verdicts.reserve_exact(batch.len());
                }
                verdicts.push(verdict);
            }
        }
        host::hand_over();
        verdicts
    }

    /// Returns the verdicts on a batch of queries.
    pub fn on_queries(&mut self, now: u64, batch: &[raw::Query], bytes: &[u8]) -> Vec<raw::Verdict> {
        self.verdicts(batch, |filter, index, query| {
            let query = Query::new(query, bytes, now)?;
            filter.query(&query).into_raw(index)
        })
    }

    /// Returns the verdicts on a batch of responses.
    pub fn on_responses(
        &mut self,
        now: u64,
        batch: &[raw::Response],
        bytes: &[u8],
    ) -> Vec<raw::ResponseVerdict> {
        self.verdicts(batch, |filter, index, response| {
            let response = Response::new(response, bytes, now)?;
            filter.response(&response).into_raw(index)
        })
    }

    /// Returns the verdicts on queries whose lookups have been answered.
    pub fn on_query_answers(
        &mut self,
        now: u64,
        batch: &[raw::AskedQuery],
        answers: &[raw::LookupAnswer],
        bytes: &[u8],
    ) -> Vec<raw::Verdict> {
        self.verdicts(batch, |filter, index, asked| {
            let state = (asked.state_start, asked.state_length);
            let answers = Answers::new(answers, (asked.first, asked.count), state, bytes)?;
            let query = Query::new(&asked.query, bytes, now)?;
            filter.answers(&query, &answers).into_raw(index)
        })
    }

    /// Returns the verdicts on responses whose lookups have been answered.
    pub fn on_response_answers(
        &mut self,
        now: u64,
        batch: &[raw::AskedResponse],
        answers: &[raw::LookupAnswer],
        bytes: &[u8],
    ) -> Vec<raw::ResponseVerdict> {
        self.verdicts(batch, |filter, index, asked| {
            let state = (asked.state_start, asked.state_length);
            let answers = Answers::new(answers, (asked.first, asked.count), state, bytes)?;
            let response = Response::new(&asked.response, bytes, now)?;
            filter.response_answers(&response, &answers).into_raw(index)
        })
    }

    /// Builds the data to publish.
    pub fn on_refresh(&mut self, sources: Vec<exports::refresh::Source>) -> Result<(), String> {
        let Some(filter) = &mut self.0 else {
            return Err("it is not configured".to_owned());
        };
        let files = sources.into_iter().map(|source| {
            let data = Data::new(source.data);
            SourceFile::new(source.name, source.file, data)
        });
        let files: Vec<SourceFile> = files.collect();
        let done = refresh(filter, &files);
        host::hand_over();
        done
    }

    /// Passes each event to the filter.
    pub fn on_events(&mut self, batch: &[raw::Event], bytes: &[u8]) {
        let Some(filter) = &mut self.0 else { return };
        for event in batch {
            if let Some(event) = Event::new(event, bytes) {
                filter.event(&event);
            }
        }
        host::hand_over();
    }
}

/// Lets a filter build the data to publish.
pub(crate) fn refresh<F: Filter>(filter: &mut F, files: &[SourceFile]) -> Result<(), String> {
    let mut output = Output::default();
    filter.refresh(files, &mut output)?;
    output.finish()
}

/// A filter that [`export!`](crate::export) has given a static to live in.
pub trait Exported: Filter {
    /// Borrows that static: a `thread_local!`, which in single-threaded WebAssembly is a plain static that
    /// needs no unsafe code.
    fn with<R>(work: impl FnOnce(&RefCell<State<Self>>) -> R) -> R;
}

/// The implementation of the exports that the bindings call.
pub struct Component<F>(PhantomData<F>);

/// Runs work on the filter. The component model forbids the host to enter a guest that is already running; a
/// host that does gets the default value.
fn enter<F: Exported, R: Default>(work: impl FnOnce(&mut State<F>) -> R) -> R {
    F::with(|state| {
        state
            .try_borrow_mut()
            .map(|mut state| work(&mut state))
            .unwrap_or_default()
    })
}

impl<F: Exported> exports::configure::Guest for Component<F> {
    fn configure(setup: raw::Setup) -> Result<raw::Manifest, Vec<raw::ConfigError>> {
        std::panic::set_hook(Box::new(|panic| {
            // Otherwise the message is lost: a module without WASI has no standard error.
            host::log(host::Level::Error, &panic.to_string());
        }));
        let mut result = Err(Vec::new());
        enter::<F, ()>(|state| result = state.configure(setup));
        result
    }
}

impl<F: Exported> exports::queries::Guest for Component<F> {
    fn on_queries(now: u64, batch: Vec<raw::Query>, bytes: Vec<u8>) -> Vec<raw::Verdict> {
        enter::<F, _>(|state| state.on_queries(now, &batch, &bytes))
    }
}

impl<F: Exported> exports::responses::Guest for Component<F> {
    fn on_responses(now: u64, batch: Vec<raw::Response>, bytes: Vec<u8>) -> Vec<raw::ResponseVerdict> {
        enter::<F, _>(|state| state.on_responses(now, &batch, &bytes))
    }
}

impl<F: Exported> exports::query_answers::Guest for Component<F> {
    fn on_query_answers(
        now: u64,
        batch: Vec<raw::AskedQuery>,
        answers: Vec<raw::LookupAnswer>,
        bytes: Vec<u8>,
    ) -> Vec<raw::Verdict> {
        enter::<F, _>(|state| state.on_query_answers(now, &batch, &answers, &bytes))
    }
}

impl<F: Exported> exports::response_answers::Guest for Component<F> {
    fn on_response_answers(
        now: u64,
        batch: Vec<raw::AskedResponse>,
        answers: Vec<raw::LookupAnswer>,
        bytes: Vec<u8>,
    ) -> Vec<raw::ResponseVerdict> {
        enter::<F, _>(|state| state.on_response_answers(now, &batch, &answers, &bytes))
    }
}

impl<F: Exported> exports::refresh::Guest for Component<F> {
    fn on_refresh(_: u64, sources: Vec<exports::refresh::Source>) -> Result<(), String> {
        let mut done = Err(String::new());
        enter::<F, ()>(|state| done = state.on_refresh(sources));
        done
    }
}

impl<F: Exported> exports::events::Guest for Component<F> {
    fn on_events(batch: Vec<raw::Event>, bytes: Vec<u8>) {
        enter::<F, _>(|state| state.on_events(&batch, &bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Invalid, ResponseVerdict, Setup, Verdict};

    /// Changes everything it sees.
    struct Refuser;

    impl Filter for Refuser {
        fn configure(_: Setup<'_>) -> Result<(Refuser, Manifest), Invalid> {
            Ok((Refuser, Manifest::new().queries().responses()))
        }

        fn query(&mut self, _: &Query<'_>) -> Verdict {
            Verdict::drop()
        }

        fn response(&mut self, _: &Response<'_>) -> ResponseVerdict {
            ResponseVerdict::replace(crate::Answer::noerror())
        }
    }

    fn query(name_start: u32, name_length: u16) -> raw::Query {
        raw::Query {
            client_high: 0,
            client_low: 0,
            name_start,
            name_length,
            qtype: 1,
            qclass: 1,
            header: 0,
            udp_size: 512,
            edns_flags: 0,
            client_port: 0,
            zone: 0,
            transport: 0,
            edns: 0,
            details_length: 0,
        }
    }

    fn response(query: raw::Query, message_start: u32, message_length: u32) -> raw::Response {
        raw::Response {
            query,
            rcode: 0,
            source: 1,
            answer_count: 0,
            ttl: 0,
            message_start,
            message_length,
        }
    }

    #[test]
    fn indexes_out_of_range_are_passed_over() {
        let mut state = State::<Refuser>::new();
        assert_eq!(state.on_queries(0, &[query(0, 3)], b"\x01a\0"), []);
        let setup = raw::Setup {
            name: "f".into(),
            config: vec![],
            zones: vec![".".into()],
        };
        state.configure(setup).unwrap();
        let batch = [
            query(0, 3),
            query(1, 3),
            query(u32::MAX, u16::MAX),
            query(3, 0),
            query(0, 3),
        ];
        let verdicts = state.on_queries(0, &batch, b"\x01a\0");
        assert_eq!(
            verdicts.iter().map(|verdict| verdict.query).collect::<Vec<_>>(),
            [0, 4]
        );
        // A message that is out of range counts as missing.
        let batch = [
            response(query(0, 3), 0, 0),
            response(query(0, 3), 1, 3),
            response(query(0, 3), u32::MAX, u32::MAX),
            response(query(9, 9), 0, 0),
            response(query(0, 3), 0, 3),
        ];
        let verdicts = state.on_responses(0, &batch, b"\x01a\0");
        assert_eq!(
            verdicts
                .iter()
                .map(|verdict| verdict.response)
                .collect::<Vec<_>>(),
            [0, 1, 2, 4]
        );
    }
}
