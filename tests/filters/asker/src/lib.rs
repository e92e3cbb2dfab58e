//! A filter that makes lookups before it decides. The first label of a name selects them; the answer, a TXT
//! record, reports their results.

#![cfg(target_family = "wasm")] // Nothing to be had from it elsewhere.

use std::time::Duration;

use dnsweir_filter::{
    Answer, Answers, Ask, Filter, Invalid, Manifest, NameBuf, Query, Rcode, Rdata, Response, ResponseVerdict,
    Setup, Transport, Type, Verdict, count,
};

const MINUTE: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(200);

struct Asker {
    /// Lookups below the filter and in zones are for names below this one.
    under: NameBuf,
}

impl Asker {
    fn name(&self, label: &str) -> NameBuf {
        NameBuf::join([label.as_bytes()], &self.under).unwrap_or_else(|_| NameBuf::root())
    }
}

impl Filter for Asker {
    fn configure(setup: Setup<'_>) -> Result<(Asker, Manifest), Invalid> {
        let config = setup.config();
        let under = config
            .node("under")?
            .ok_or_else(|| config.mistake("no `under`").report())?;
        let under = under.argument(0)?;
        Ok((Asker { under }, Manifest::new().queries().responses().asks()))
    }

    fn query(&mut self, query: &Query<'_>) -> Verdict {
        count("queries", 1);
        let own = query.name();
        let ask = Ask::new().state(own.as_wire());
        let inside = query.transport() == Transport::Internal;
        let ask = match first_label(query).as_str() {
            "two" => ask
                .lookup(&self.name("one"), Type::A)
                .lookup(&self.name("more"), Type::A),
            "below" if !inside => ask
                .lookup(own, Type::A)
                .below()
                .lookup(&self.name("one"), Type::A)
                .below(),
            "zone" => ask
                .lookup(own, Type::A)
                .zone(self.under.as_name())
                .lookup(own, Type::A)
                .zone(own),
            // Endlessly, whichever client asks.
            "self" => ask.lookup(own, Type::TXT),
            "many" => (0..16).fold(ask, |ask, _| ask.lookup(own, Type::TXT)),
            "slow" => ask.lookup(&self.name("silent"), Type::A).time(SHORT),
            "slower" => ask.lookup(&self.name("silent"), Type::A),
            "pass" | "often" | "panic" => ask.lookup(&self.name("one"), Type::A),
            "kept" => return Verdict::ask(ask.lookup(&self.name("one"), Type::A)).remember(MINUTE),
            _ => return Verdict::pass(),
        };
        Verdict::ask(ask)
    }

    fn response(&mut self, response: &Response<'_>) -> ResponseVerdict {
        let query = response.query();
        let ask = Ask::new().state(query.name().as_wire());
        match first_label(query).as_str() {
            "later" | "later-often" | "later-panic" => {
                ResponseVerdict::ask(ask.lookup(&self.name("one"), Type::A))
            }
            "later-drop" => ResponseVerdict::ask(ask.lookup(&self.name("silent"), Type::A).time(SHORT)),
            // A lookup for the question whose response is still waiting.
            "later-self" => ResponseVerdict::ask(ask.lookup(query.name(), query.qtype())),
            _ => ResponseVerdict::pass(),
        }
    }

    fn response_answers(&mut self, response: &Response<'_>, answers: &Answers<'_>) -> ResponseVerdict {
        let query = response.query();
        assert_eq!(answers.state(), query.name().as_wire(), "another's state");
        match first_label(query).as_str() {
            "later-drop" => ResponseVerdict::drop_for("told to"),
            "later-panic" => panic!("told to panic at {}", query.name()),
            "later-often" => {
                let ask = Ask::new().state(answers.state());
                ResponseVerdict::ask(ask.lookup(&self.name("one"), Type::A))
            }
            _ => {
                let text = Rdata::Txt(format!("{} then {}", response.rcode(), told(answers)));
                ResponseVerdict::replace(Answer::noerror().record(query.name(), MINUTE, text))
            }
        }
    }

    fn answers(&mut self, query: &Query<'_>, answers: &Answers<'_>) -> Verdict {
        count("answers", 1);
        assert_eq!(answers.state(), query.name().as_wire(), "another's state");
        match first_label(query).as_str() {
            "pass" => return Verdict::pass(),
            "panic" => panic!("told to panic at {}", query.name()),
            "often" => {
                let ask = Ask::new().state(answers.state());
                return Verdict::ask(ask.lookup(&self.name("one"), Type::A));
            }
            _ => {}
        }
        let text = Rdata::Txt(told(answers));
        let verdict = Verdict::answer(Answer::noerror().record(query.name(), MINUTE, text));
        match first_label(query).as_str() {
            "kept" => verdict.remember(MINUTE),
            _ => verdict,
        }
    }
}

/// The outcome of each lookup, and its number of records.
fn told(answers: &Answers<'_>) -> String {
    let told = answers.iter().map(|found| {
        let failed = if found.rcode() == Rcode::NOERROR { "" } else { "!" };
        format!("{:?}{failed} {}", found.status(), found.answer_count())
    });
    told.collect::<Vec<_>>().join(", ")
}

fn first_label(query: &Query<'_>) -> String {
    let label = query.name().labels().next().unwrap_or_default();
    String::from_utf8_lossy(label).into_owned()
}

dnsweir_filter::export!(Asker);
