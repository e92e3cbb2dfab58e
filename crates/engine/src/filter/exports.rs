//! The interface functions that a component exports, and calls to them.

use std::slice;

use dnsweir_os::clock::UnixTime;
use wasmtime::Store;
use wasmtime::component::{Component, InstancePre, Lift, Lower, TypedFunc};

use super::ask::Answers;
use super::bindings::dnsweir::filter::types;
use super::bindings::exports::dnsweir::filter::{
    configure, events, queries, query_answers, refresh, response_answers, responses,
};
use super::packed::{Flat, Packed};
use super::repeated::Verdicts;

/// A compiled component with resolved imports, for stores with data of type `W`, and the indices of its
/// functions.
pub(super) struct Exports<W: 'static> {
    pre: InstancePre<W>,
    configure: configure::GuestIndices,
    queries: Option<queries::GuestIndices>,
    responses: Option<responses::GuestIndices>,
    query_answers: Option<query_answers::GuestIndices>,
    response_answers: Option<response_answers::GuestIndices>,
    events: Option<events::GuestIndices>,
    refresh: Option<refresh::GuestIndices>,
}

impl<W: Send + 'static> Exports<W> {
    /// # Errors
    ///
    /// When an interface lacks its function, or the mandatory one is missing.
    pub(super) fn new(pre: InstancePre<W>) -> wasmtime::Result<Exports<W>> {
        let exports = |interface: &str| {
            let name = format!("dnsweir:filter/{interface}@0.1.0");
            pre.component().get_export_index(None, &name).is_some()
        };
        Ok(Exports {
            configure: configure::GuestIndices::new(&pre)?,
            queries: exports("queries")
                .then(|| queries::GuestIndices::new(&pre))
                .transpose()?,
            responses: exports("responses")
                .then(|| responses::GuestIndices::new(&pre))
                .transpose()?,
            query_answers: exports("query-answers")
                .then(|| query_answers::GuestIndices::new(&pre))
                .transpose()?,
            response_answers: exports("response-answers")
                .then(|| response_answers::GuestIndices::new(&pre))
                .transpose()?,
            events: exports("events")
                .then(|| events::GuestIndices::new(&pre))
                .transpose()?,
            refresh: exports("refresh")
                .then(|| refresh::GuestIndices::new(&pre))
                .transpose()?,
            pre,
        })
    }

    /// Names of the phases that the manifest requests but the component does not export.
    pub(super) fn missing(&self, manifest: &types::Manifest) -> Vec<&'static str> {
        let asks = manifest.asks;
        [
            ("queries", manifest.queries && self.queries.is_none()),
            ("responses", manifest.responses && self.responses.is_none()),
            (
                "query-answers",
                asks && manifest.queries && self.query_answers.is_none(),
            ),
            (
                "response-answers",
                asks && manifest.responses && self.response_answers.is_none(),
            ),
            ("events", manifest.events && self.events.is_none()),
        ]
        .into_iter()
        .filter_map(|(name, missing)| missing.then_some(name))
        .collect()
    }

    /// Whether the component exports a refresh.
    pub(super) fn refreshes(&self) -> bool {
        self.refresh.is_some()
    }

    pub(super) fn component(&self) -> &Component {
        self.pre.component()
    }
}

/// A function that takes time, records and bytes.
type TakesBatch<'a, R, V> = TypedFunc<(u64, &'a [Packed<R>], &'a [u8]), (V,)>;
/// One that also takes lookup answers.
type TakesAnswers<'a, R, V> =
    TypedFunc<(u64, &'a [Packed<R>], &'a [Packed<types::LookupAnswer>], &'a [u8]), (V,)>;
type HearsBatch<'a, R> = TypedFunc<(&'a [Packed<R>], &'a [u8]), ()>;

/// The functions of one instance.
pub(super) struct Functions {
    configure: configure::Guest,
    queries: Option<TakesBatch<'static, types::Query, Verdicts>>,
    responses: Option<TakesBatch<'static, types::Response, Vec<types::ResponseVerdict>>>,
    query_answers: Option<TakesAnswers<'static, types::AskedQuery, Verdicts>>,
    response_answers: Option<TakesAnswers<'static, types::AskedResponse, Vec<types::ResponseVerdict>>>,
    events: Option<HearsBatch<'static, types::Event>>,
    refresh: Option<refresh::Guest>,
}

impl Functions {
    /// Instantiates a component.
    ///
    /// # Errors
    ///
    /// When it does not start, or a function has another type than in the interface.
    pub(super) fn new<W: Send>(exports: &Exports<W>, store: &mut Store<W>) -> wasmtime::Result<Functions> {
        let instance = exports.pre.instantiate(&mut *store)?;
        let configure = exports.configure.load(&mut *store, &instance)?;
        let queries = exports.queries.as_ref().map(|indices| {
            let queries = indices.load(&mut *store, &instance)?;
            queries.func_on_queries().func().typed(&*store)
        });
        let responses = exports.responses.as_ref().map(|indices| {
            let responses = indices.load(&mut *store, &instance)?;
            responses.func_on_responses().func().typed(&*store)
        });
        let query_answers = exports.query_answers.as_ref().map(|indices| {
            let answers = indices.load(&mut *store, &instance)?;
            answers.func_on_query_answers().func().typed(&*store)
        });
        let response_answers = exports.response_answers.as_ref().map(|indices| {
            let answers = indices.load(&mut *store, &instance)?;
            answers.func_on_response_answers().func().typed(&*store)
        });
        let events = exports.events.as_ref().map(|indices| {
            let events = indices.load(&mut *store, &instance)?;
            events.func_on_events().func().typed(&*store)
        });
        let refresh = exports.refresh.as_ref();
        let refresh = refresh.map(|indices| indices.load(&mut *store, &instance));
        Ok(Functions {
            configure,
            queries: queries.transpose()?,
            responses: responses.transpose()?,
            query_answers: query_answers.transpose()?,
            response_answers: response_answers.transpose()?,
            events: events.transpose()?,
            refresh: refresh.transpose()?,
        })
    }

    pub(super) fn configure<W: Send>(
        &self,
        store: &mut Store<W>,
        setup: &types::Setup,
    ) -> wasmtime::Result<Result<types::Manifest, Vec<types::ConfigError>>> {
        self.configure.call_configure(store, setup)
    }

    /// Calls the refresh; an error message if it is not exported.
    pub(super) fn refresh<W: Send>(
        &self,
        store: &mut Store<W>,
        now: UnixTime,
        sources: &[refresh::Source],
    ) -> wasmtime::Result<Result<(), String>> {
        match &self.refresh {
            Some(refresh) => refresh.call_on_refresh(store, now.as_millis(), sources),
            None => Ok(Err("its module has no refresh".to_owned())),
        }
    }

    /// Calls the query phase; no verdicts if it is not exported.
    pub(super) fn queries<W>(
        &self,
        store: &mut Store<W>,
        now: UnixTime,
        batch: &[types::Query],
        bytes: &[u8],
    ) -> wasmtime::Result<Verdicts> {
        verdicts(self.queries, store, now, batch, bytes)
    }

    /// Calls the response phase; no verdicts if it is not exported.
    pub(super) fn responses<W>(
        &self,
        store: &mut Store<W>,
        now: UnixTime,
        batch: &[types::Response],
        bytes: &[u8],
    ) -> wasmtime::Result<Vec<types::ResponseVerdict>> {
        verdicts(self.responses, store, now, batch, bytes)
    }

    /// Continues with a query after its lookups; no verdicts if that is not exported.
    pub(super) fn query_answers<W>(
        &self,
        store: &mut Store<W>,
        now: UnixTime,
        answers: &Answers<types::AskedQuery>,
    ) -> wasmtime::Result<Verdicts> {
        go_on(self.query_answers, store, now, answers)
    }

    /// Continues with a response after its lookups; no verdicts if that is not exported.
    pub(super) fn response_answers<W>(
        &self,
        store: &mut Store<W>,
        now: UnixTime,
        answers: &Answers<types::AskedResponse>,
    ) -> wasmtime::Result<Vec<types::ResponseVerdict>> {
        go_on(self.response_answers, store, now, answers)
    }

    /// Calls the event phase; does nothing if it is not exported.
    pub(super) fn events<W>(
        &self,
        store: &mut Store<W>,
        batch: &[types::Event],
        bytes: &[u8],
    ) -> wasmtime::Result<()> {
        let function: Option<HearsBatch<'_, types::Event>> = self.events;
        match function {
            Some(function) => function.call(store, (Packed::all(batch), bytes)),
            None => Ok(()),
        }
    }
}

fn verdicts<R: Flat + Lower, V: Lift + Default, W>(
    function: Option<TakesBatch<'_, R, V>>,
    store: &mut Store<W>,
    now: UnixTime,
    batch: &[R],
    bytes: &[u8],
) -> wasmtime::Result<V> {
    match function {
        Some(function) => {
            let (verdicts,) = function.call(store, (now.as_millis(), Packed::all(batch), bytes))?;
            Ok(verdicts)
        }
        None => Ok(V::default()),
    }
}

fn go_on<R: Flat + Lower, V: Lift + Default, W>(
    function: Option<TakesAnswers<'_, R, V>>,
    store: &mut Store<W>,
    now: UnixTime,
    answers: &Answers<R>,
) -> wasmtime::Result<V> {
    match function {
        Some(function) => {
            let records = Packed::all(slice::from_ref(&answers.record));
            let found = Packed::all(&answers.answers);
            let (verdicts,) = function.call(store, (now.as_millis(), records, found, &answers.bytes[..]))?;
            Ok(verdicts)
        }
        None => Ok(V::default()),
    }
}
