//! Answers built from the question: records in zone file format, with placeholders for parts of the name.

mod pattern;
mod template;

use std::time::Duration;

use dnsweir_filter::{
    Answer, Answers, Filter, Found, Invalid, Manifest, Query, Rcode, Section, Setup, Type, Verdict, count,
};

use template::{Outcome, Template};

/// How long the host may remember a verdict. Bounded, so that it forgets names that are no longer asked for.
const REMEMBER: Duration = Duration::from_secs(3600);

/// The filter.
pub struct Templates {
    templates: Vec<Template>,
    /// Whether answers depend only on the question.
    same_for_all: bool,
}

impl Filter for Templates {
    fn configure(setup: Setup<'_>) -> Result<(Templates, Manifest), Invalid> {
        let config = setup.config();
        let nodes = config.nodes(&["template"]);
        if nodes.is_empty() {
            let help = "such as: template \"A\" { answer \"{name} 60 IN A 192.0.2.1\" }";
            return Err(config.mistake("no templates are configured").help(help).report());
        }
        let templates = nodes
            .into_iter()
            .filter_map(|node| Template::read(node, setup.zones()).ok());
        let templates: Vec<Template> = templates.collect();
        let same_for_all = !templates.iter().any(Template::names_client);
        let filter = Templates {
            templates,
            same_for_all,
        };
        Ok((filter, Manifest::new().queries().asks()))
    }

    fn query(&mut self, query: &Query<'_>) -> Verdict {
        let verdict = self.decide(query);
        match self.same_for_all {
            true => verdict.remember(REMEMBER),
            false => verdict,
        }
    }

    /// Appends what an alias resolves to, except what no answer of a filter may have.
    fn answers(&mut self, query: &Query<'_>, answers: &Answers<'_>) -> Verdict {
        let Some(Outcome::Alias(alias)) = self.outcome(query) else {
            return Verdict::pass();
        };
        let Some(found) = answers.get(0).filter(Found::answered) else {
            return failure();
        };
        let Ok(message) = found.read() else {
            return failure();
        };
        let target = message.answers().iter().filter(|record| record.is_writable());
        Verdict::answer(target.fold(alias.answer, |answer, record| {
            answer.append(Section::Answer, record.clone())
        }))
    }
}

impl Templates {
    /// The outcome of the first template that applies to a question; `None` if none does.
    fn outcome(&self, query: &Query<'_>) -> Option<Outcome> {
        self.templates.iter().find_map(|template| template.outcome(query))
    }

    fn decide(&self, query: &Query<'_>) -> Verdict {
        match self.outcome(query) {
            None => Verdict::pass(),
            Some(Outcome::Answer(answer)) => Verdict::answer(answer),
            Some(Outcome::Alias(alias)) => Verdict::ask(alias.ask(query.qtype())),
            Some(Outcome::Unmatched) => failure(),
            Some(Outcome::Unreadable) => {
                count("unreadable_records", 1);
                failure()
            }
        }
    }
}

fn failure() -> Verdict {
    Verdict::answer(Answer::new(Rcode::SERVFAIL))
}

/// Types for which aliases are followed.
const FOLLOWED: [Type; 2] = [Type::A, Type::AAAA];

dnsweir_filter::export!(Templates);
