//! The first queries of a filter: if calls fail for many, whoever has loaded it is told, and may go back to the filter
//! that was there before.
//!
//! Who fails is noted in the book of [blame](super::blame) anyway, and what failed is kept there as
//! [evidence](super::evidence) while a filter is on probation. Once there is enough, the filter before is asked the same,
//! aside: nothing that it does then is seen by anybody.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use super::check;
use super::engine::Engine;
use super::failure::Failure;
use super::load::Filter;
use super::outcomes::Outcomes;
use super::question::Question;
use super::sandbox::Sandbox;
use super::verdict::Outcome;

/// What a filter failed on while it was on probation.
pub struct Charges {
    /// Why it failed on the last of them.
    pub why: String,
    questions: Vec<Question>,
    /// The zones that it knows by number.
    zones: Vec<String>,
}

impl Charges {
    /// For how many names it failed.
    pub fn names(&self) -> usize {
        self.questions.len()
    }
}

impl Filter {
    /// What it failed on while it was on probation, if that is enough to ask another filter about. It is told once.
    pub fn charges(&self) -> Option<Charges> {
        let (why, questions) = self.blame.take_evidence()?;
        Some(Charges {
            why,
            questions,
            zones: self.setup.zones.clone(),
        })
    }

    /// On how many of the questions it fails that another filter failed on. It is asked without any effect: in an instance of
    /// its own, whose tables are empty and whose counters, output and log nobody sees; lookups are not made.
    ///
    /// Takes as long as the calls do: not for a worker's thread. It ends early if the engine's work is cancelled.
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

    /// The same question with its own number of the zone; none: it would not be asked.
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
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.map_or(0, |since| since.as_millis() as u64);
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
