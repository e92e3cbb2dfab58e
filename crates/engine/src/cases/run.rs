//! Runs test cases, for a report or to decide whether the proxy accepts a filter.

use std::sync::Arc;

use dnsweir_os::clock::UnixTime;

use super::compare::Difference;
use super::file::{Case, Input, TestCases};
use super::snapshot::Snapshot;
use crate::config::{self, Diagnostic, Report, TestCasesFile};
use crate::dns::{Transport, edns, flag};
use crate::filter::{
    self, Answers, Asked, Cost, Decision, Engine, Execution, Filter, LoadError, Outcome, ResponseDecision,
    Trial, one_line,
};

/// Maximum bytes of a difference in one line.
const LINE: usize = 512;

/// The result of one case.
#[derive(Debug)]
pub struct CaseResult {
    /// What the filter did.
    pub snapshot: Snapshot,
    /// Why the filter failed, if it did, in the runtime's words.
    pub failure: Option<String>,
    /// The cost of the call.
    pub cost: Cost,
    /// The difference from the recorded snapshot.
    pub difference: Difference,
}

/// Runs the filter's refresh on the sources of the cases, if there are any. Must precede the cases.
///
/// # Errors
/// Why the refresh failed.
pub fn refresh(trial: &mut Trial, cases: &TestCases) -> Result<(), String> {
    match cases.sources.is_empty() {
        true => Ok(()),
        false => trial
            .refresh(UnixTime::from_millis(cases.clock), cases.sources.clone())
            .map_err(|problem| format!("its refresh failed: {problem}")),
    }
}

/// Runs all cases in order, lazily.
pub fn run(trial: &mut Trial, cases: &TestCases) -> impl Iterator<Item = CaseResult> {
    let mut now = cases.clock;
    cases.cases.iter().map(move |case| {
        now += case.after.as_millis() as u64;
        run_case(trial, cases, case, UnixTime::from_millis(now))
    })
}

/// Finds the cases (by index) in which a verdict may be memoized although another client gets a different
/// one, with the difference: the proxy would give one of the two to all clients. `results` are those of the
/// cases; `trial` must not have run any of them.
pub fn ask_again(trial: &mut Trial, cases: &TestCases, results: &[CaseResult]) -> Vec<(usize, Difference)> {
    let mut again = cases.clone();
    for case in &mut again.cases {
        if let Input::Query(query) = &mut case.input {
            *query = from_another_client(*query);
        }
    }
    let compared = run(trial, &again).zip(results).zip(&again.cases).enumerate();
    let differing = compared.filter_map(|(index, ((other, result), case))| {
        let is_query = matches!(case.input, Input::Query(_));
        let may_be_remembered = result.snapshot.is_remembered() || other.snapshot.is_remembered();
        let difference = result.snapshot.compare_verdicts(&other.snapshot);
        (is_query && may_be_remembered && difference != Difference::None).then_some((index, difference))
    });
    differing.collect()
}

/// The same question from another client, over another transport. Different clients stay different.
fn from_another_client(query: filter::Query) -> filter::Query {
    let has_edns = query.edns == 0;
    let [udp, tcp] = [Transport::Udp, Transport::Tcp].map(filter::transport_number);
    filter::Query {
        // Changes the last bytes of an IPv4 address, and also the network of an IPv6 address.
        client_high: if query.client_high == 0 {
            0
        } else {
            query.client_high ^ 0x4a_4a00_0000
        },
        client_low: query.client_low ^ 0x4a4a_4a4a,
        client_port: query.client_port ^ 0x4a4a,
        header: query.header ^ flag::CD,
        transport: if query.transport == udp { tcp } else { udp },
        edns: has_edns.into(),
        udp_size: if has_edns {
            edns::UDP_DEFAULT
        } else {
            edns::UDP_CLASSIC
        },
        edns_flags: if has_edns { edns::DO } else { 0 },
        ..query
    }
}

/// Loads a filter for the proxy, replacing `before`, and runs all test cases configured for it. Returns it
/// with the number of cases.
///
/// # Errors
/// Where the configuration names what does not load or pass.
pub fn load_filter(
    engine: &Engine,
    block: &config::Filter,
    zones: &[String],
    before: Option<&Filter>,
) -> Result<(Arc<Filter>, usize), Vec<Diagnostic>> {
    let cases = match &block.test_cases {
        Some(file) => {
            let cases = TestCases::parse(file.source.clone());
            Some(cases.map_err(|report| vec![invalid(file, &report)])?)
        }
        None => None,
    };
    let filter = Filter::load(engine, block, zones, before).map_err(|error| error.diagnostics(block))?;
    let Some(cases) = cases else {
        return Ok((filter, 0));
    };
    match verify(engine, &filter, block, &cases) {
        Ok(()) => Ok((filter, cases.cases.len())),
        Err(reason) => {
            let problem = format!("filter {:?} cannot be loaded: {reason}", block.name);
            Err(vec![Diagnostic::new(block.module_span, problem)])
        }
    }
}

/// The first mistake in a file of test cases, reported where the configuration names the file.
fn invalid(file: &TestCasesFile, report: &Report) -> Diagnostic {
    let (name, line) = (file.source.name(), report.lines()[0]);
    let problem = format!("the test cases {name} are not valid");
    let help = format!("line {line}: {}", report.diagnostics()[0].message);
    Diagnostic::new(file.span, problem).help(help)
}

/// Runs a filter's test cases up to the first difference, in a separate instance with their configuration.
fn verify(engine: &Engine, filter: &Filter, block: &config::Filter, cases: &TestCases) -> Result<(), String> {
    let block = cases.configured(block);
    let mut trial = match Trial::of(engine, filter, &block, &cases.zones) {
        Ok(trial) => trial,
        Err(_) if engine.is_cancelled() => return Err(LoadError::Cancelled.to_string()),
        Err(LoadError::Rejected(errors)) => {
            let message = errors.first().map_or("no reason given", |error| &error.message);
            return Err(format!(
                "its test cases cannot be run: it rejects their configuration: {message}"
            ));
        }
        Err(error) => return Err(format!("its test cases cannot be run: {error}")),
    };
    refresh(&mut trial, cases)?;
    let mut results = run(&mut trial, cases).zip(&cases.cases).enumerate();
    let different = results.find(|(_, (result, _))| result.difference != Difference::None);
    let Some((index, (result, case))) = different else {
        return Ok(());
    };
    if engine.is_cancelled() {
        return Err(LoadError::Cancelled.to_string());
    }
    let (number, of) = (index + 1, cases.cases.len());
    let line = format!("{}: {}", case.title, in_words(&result.difference));
    let line = one_line(&line, LINE);
    Err(format!("test case {number} of {of} differs: {line}"))
}

fn in_words(difference: &Difference) -> String {
    match difference {
        Difference::None => "no difference".to_owned(),
        Difference::New => "it has no snapshot yet".to_owned(),
        Difference::Lines(lines) => {
            let changed = lines.iter().filter(|line| !line.starts_with(' '));
            let changed: Vec<&str> = changed.map(|line| line.trim_end()).collect();
            changed.join(" ")
        }
    }
}

fn run_case(trial: &mut Trial, cases: &TestCases, case: &Case, now: UnixTime) -> CaseResult {
    let (details, message) = (trial.details().clone(), &case.given.message[..]);
    let asked = Asked {
        name: &case.name,
        details: Some((&details, case.given.known())),
    };
    match case.input {
        Input::Query(query) => {
            let mut snapshot = Snapshot::default();
            let mut execution = trial.query(now, query, asked);
            while let Some(Outcome::Decided(verdict)) = &execution.outcome
                && let Decision::Ask(ask) = &verdict.decision
            {
                snapshot.verdict(verdict);
                let found = cases.lookups.answer(ask).into_iter();
                let answers = Answers::about_query(query, asked, &ask.state, found);
                execution = execution.then(|| trial.query_answers(now, &answers));
            }
            result(case, snapshot, execution, |snapshot, verdict| {
                snapshot.verdict(verdict)
            })
        }
        Input::Response(response) => {
            let mut snapshot = Snapshot::default();
            let mut execution = trial.response(now, response, asked, message);
            while let Some(Outcome::Decided(verdict)) = &execution.outcome
                && let ResponseDecision::Ask(ask) = &verdict.decision
            {
                snapshot.response(verdict);
                let found = cases.lookups.answer(ask).into_iter();
                let message = trial.shown(message);
                let answers = Answers::about_response(response, asked, message, &ask.state, found);
                execution = execution.then(|| trial.response_answers(now, &answers));
            }
            result(case, snapshot, execution, Snapshot::response)
        }
        Input::Event(event) => {
            let event = filter::Event {
                time: now.as_millis().saturating_sub(u64::from(event.duration) / 1000),
                query_size: (case.name.len() + 16) as u16,
                ..event
            };
            // Nothing was sent if the query was dropped.
            let message = if event.response_size == 0 { &[] } else { message };
            let execution = trial.event(event, asked, message);
            result(case, Snapshot::default(), execution, |_, ()| {})
        }
    }
}

/// Appends a case's last call to the snapshot of earlier ones, and compares it with the case's snapshot.
fn result<V>(
    case: &Case,
    mut snapshot: Snapshot,
    execution: Execution<Outcome<V>>,
    decided: impl FnOnce(&mut Snapshot, &V),
) -> CaseResult {
    match &execution.outcome {
        None => snapshot.add("not-called", []),
        Some(Outcome::Passed) => match case.input {
            Input::Event(_) => snapshot.add("called", []),
            Input::Query(_) | Input::Response(_) => snapshot.add("pass", []),
        },
        Some(Outcome::Decided(verdict)) => decided(&mut snapshot, verdict),
        Some(Outcome::Failed) => {}
    }
    snapshot.effects(&execution);
    let difference = match &case.snapshot {
        None => Difference::New,
        Some(recorded) => recorded.compare(&snapshot),
    };
    CaseResult {
        snapshot,
        failure: execution.failure.map(|failure| failure.message),
        cost: execution.cost,
        difference,
    }
}
