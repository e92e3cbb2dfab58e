//! The first queries of a new filter: if calls fail for many of them, its owner is alerted and may return to
//! the previous filter.
//!
//! Failures are recorded by [blame](super::blame) anyway; while a filter is on probation, the failed
//! questions are kept as [evidence](super::evidence). Once there is enough, the previous filter is given the
//! same questions, without side effects.

use std::sync::Arc;

use dnsweir_os::clock::UnixTime;

use super::check;
use super::engine::Engine;
use super::failure::Failure;
use super::load::Filter;
use super::outcomes::Outcomes;
use super::question::Question;
use super::sandbox::Sandbox;
use super::verdict::Outcome;

/// The questions on which a filter failed during probation.
pub struct Charges {
    /// Why it failed on the last one.
    pub why: String,
    questions: Vec<Question>,
    /// The zones that the questions refer to by index.
    zones: Vec<String>,
}

impl Charges {
    /// The number of names it failed for.
    pub fn names(&self) -> usize {
        self.questions.len()
    }
}

impl Filter {
    /// Takes the questions it failed on during probation, once there are enough to test another filter.
    /// Returns them once.
    pub fn charges(&self) -> Option<Charges> {
        let (why, questions) = self.blame.take_evidence()?;
        Some(Charges {
            why,
            questions,
            zones: self.setup.zones.clone(),
        })
    }

    /// Counts the questions, on which another filter failed, that this one fails on, too. They run without
    /// side effects, in a separate instance with empty tables, whose counters, output and log are discarded;
    /// lookups are not made.
    ///
    /// Takes as long as the calls do, so it must not run on a worker's thread. Ends early if the engine is
    /// cancelled.
    pub fn failures_on(&self, charges: &Charges, engine: &Engine) -> usize {
        let context = Arc::new(self.context.aside());
        let mut sandbox = None;
        let mut failures = 0;
        for question in &charges.questions {
            let Some(question) = self.as_own(question.clone(), &charges.zones) else {
                continue;
            };
            let ready = sandbox.take();
            let started = ready.or_else(|| {
                let started = Sandbox::start(&self.exports, &context, &self.setup, &engine.cancel);
                started.ok().map(|(sandbox, _)| sandbox)
            });
            let answered = started.and_then(|mut asked| {
                let said = self.put(&question, &mut asked);
                said.ok().map(|()| asked)
            });
            failures += usize::from(answered.is_none());
            sandbox = answered;
        }
        failures
    }

    /// The same question with this filter's index of the zone; none: this filter would not be called.
    fn as_own(&self, mut question: Question, zones: &[String]) -> Option<Question> {
        let zone = zones.get(usize::from(question.query().0.zone));
        let own = self.setup.zones.iter().position(|own| Some(own) == zone)?;
        question.query_mut().zone = own as u16;
        let interest = self.interest();
        let is_wanted = match &question {
            Question::Query(..) => interest.queries,
            Question::Response(..) => interest.responses,
            Question::Event(..) => interest.events != Outcomes::NONE,
            Question::QueryAnswers(_) => interest.queries && interest.asks,
            Question::ResponseAnswers(_) => interest.responses && interest.asks,
        };
        let (query, name) = question.query();
        (is_wanted && interest.covers(query.qtype, name)).then_some(question)
    }

    fn put(&self, question: &Question, sandbox: &mut Sandbox) -> Result<(), Failure> {
        let now = UnixTime::now();
        let interest = self.interest();
        let (asks, sources) = (interest.asks, &interest.sources);
        match question {
            Question::Query(query, bytes) => {
                let said = sandbox.queries(now, std::slice::from_ref(query), bytes)?;
                check::verdicts(said, asks, sources, &mut [Outcome::Passed])?;
            }
            Question::Response(response, bytes) => {
                let said = sandbox.responses(now, std::slice::from_ref(response), bytes)?;
                check::response_verdicts(said, asks, &mut [Outcome::Passed])?;
            }
            Question::Event(event, bytes) => sandbox.events(std::slice::from_ref(event), bytes)?,
            Question::QueryAnswers(answers) => {
                let said = sandbox.query_answers(now, answers)?;
                check::verdicts(said, true, sources, &mut [Outcome::Passed])?;
            }
            Question::ResponseAnswers(answers) => {
                let said = sandbox.response_answers(now, answers)?;
                check::response_verdicts(said, true, &mut [Outcome::Passed])?;
            }
        }
        Ok(())
    }
}
