//! A filter that uses every phase, every verdict and every function of the interface, to be kept as built
//! today: the queried names select what it does. `docs/interface.md` says why it is kept. `tests/languages`
//! has the same in C and in Go.

#![cfg(target_family = "wasm")] // Nothing to be had from it elsewhere.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use dnsweir_filter::{
    Answer, Answers, Ask, Data, Event, ExtendedError, Filter, Invalid, Level, Manifest, NameBuf, NamedSource,
    Outcome, Output, Prefix, Query, Rcode, Rdata, Record, Response, ResponseEdit, ResponseVerdict, Rewrite,
    Section, Selector, Setup, SourceFile, Table, Type, Verdict, count, count_with, log, print,
};

const TTL: Duration = Duration::from_secs(300);

/// The state passed to the answers.
const STATE: &[u8] = b"state";

/// An unassigned EDNS option (RFC 6891 section 9), and the client's data for it.
const OPTION: (u16, &[u8]) = (65001, b"told");

/// The answer if something does not work as it did.
const UNSPECIFIED: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// The reason to drop a query.
const REASON: &str = "told to";

struct Released {
    address: IpAddr,
    /// The new name of renamed queries.
    target: NameBuf,
    /// The data `key value`.
    list: Data,
    /// The same, as built by a refresh, and as published unchanged.
    copied: Data,
    whole: Data,
    values: Table,
    numbers: Table,
    other: NamedSource,
}

impl Filter for Released {
    fn configure(setup: Setup<'_>) -> Result<(Released, Manifest), Invalid> {
        let config = setup.config();
        let mut manifest = Manifest::new().queries().responses().events().messages().asks();
        let filter = Released {
            address: config.setting("address")?,
            target: config.setting("target")?,
            list: config.setting("list")?,
            copied: setup.published("copied"),
            whole: setup.published("whole"),
            values: setup.table("values", 1 << 16),
            numbers: setup.shown_table("numbers", 1 << 16),
            other: manifest.source("other"),
        };
        log(
            Level::Info,
            &format!("{} is configured for {:?}", setup.name(), setup.zones()),
        );
        let outcomes = [Outcome::Success, Outcome::Denial];
        Ok((
            filter,
            manifest.outcomes(outcomes).listener().edns_option(OPTION.0),
        ))
    }

    fn query(&mut self, query: &Query<'_>) -> Verdict {
        let label = first_label(query);
        count("queries", 1);
        count_with("labels", &[("label", &label)], 1);
        let verdict = match label.as_str() {
            "answer" => Verdict::answer(self.sections(query)),
            "alias" => Verdict::alias(self.target.clone()),
            "rename" => Verdict::rewrite(Rewrite::new().name(self.target.clone())),
            "refuse" => Verdict::refuse(Rcode::REFUSED).error(ExtendedError::PROHIBITED.text(REASON)),
            "drop" => Verdict::drop_for(REASON),
            "edit" => Verdict::pass().edit(ResponseEdit::new().ttl_max(Duration::from_secs(7))),
            "records" => Verdict::pass().edit(self.other_records(query)),
            "shuffle" => Verdict::pass().edit(ResponseEdit::new().shuffle()),
            "mark" => Verdict::pass().edit(marks()),
            "route" => {
                let subnet = Prefix::of(self.address, 24);
                Verdict::pass().via(self.other).client_subnet(subnet)
            }
            "late" => Verdict::answer(self.answer_if(query, true)).delay(Duration::from_millis(20)),
            "skip" => Verdict::pass().skip_response(),
            "ask" => Verdict::ask(self.ask(query)),
            "table" => Verdict::answer(self.answer_if(query, self.tables_work(query))),
            "data" => Verdict::answer(self.answer_if(query, self.data_is_there())),
            "details" => {
                let told = query.edns_option(OPTION.0) == Some(OPTION.1) && query.listener().is_some();
                Verdict::answer(self.answer_if(query, told))
            }
            "trap" => panic!("told to panic at {}", query.name()),
            _ => return Verdict::pass(),
        };
        verdict.remember(Duration::from_secs(1))
    }

    fn response(&mut self, response: &Response<'_>) -> ResponseVerdict {
        match first_label(response.query()).as_str() {
            "shorten" => ResponseVerdict::edit(ResponseEdit::new().ttl_max(Duration::from_secs(9))),
            "reask" => ResponseVerdict::ask(self.ask(response.query())),
            "silence" => ResponseVerdict::drop_for(REASON),
            "later" => ResponseVerdict::pass().delay(Duration::from_millis(20)),
            "replace" | "skip" => {
                let there = response.message().is_some();
                ResponseVerdict::replace(self.answer_if(response.query(), there))
            }
            _ => ResponseVerdict::pass(),
        }
    }

    fn answers(&mut self, query: &Query<'_>, answers: &Answers<'_>) -> Verdict {
        Verdict::answer(self.answer_if(query, found(answers)))
    }

    fn response_answers(&mut self, response: &Response<'_>, answers: &Answers<'_>) -> ResponseVerdict {
        ResponseVerdict::replace(self.answer_if(response.query(), found(answers)))
    }

    fn event(&mut self, event: &Event<'_>) {
        let whole = event
            .message()
            .is_some_and(|message| message.len() == event.response_size() as usize);
        let heard = if whole { "heard" } else { "heard a part" };
        print(&format!("{heard} of {}", event.query().name()));
    }

    fn refresh(&mut self, sources: &[SourceFile], output: &mut Output) -> Result<(), String> {
        for source in sources {
            if (source.name(), source.file()) != ("list", "") {
                return Err(format!("there is no {:?}", source.name()));
            }
            for line in source.data().lines() {
                output.append("copied", [&line[..], b"\n"].concat())?;
            }
            output.publish("whole", source)?;
        }
        Ok(())
    }
}

impl Released {
    /// The address, if everything works.
    fn answer_if(&self, query: &Query<'_>, right: bool) -> Answer {
        let address = if right { self.address } else { UNSPECIFIED };
        Answer::noerror().record(query.name(), TTL, Rdata::address(address))
    }

    /// An answer with records in each section.
    fn sections(&self, query: &Query<'_>) -> Answer {
        self.answer_if(query, true)
            .authoritative()
            .authority(query.name(), TTL, Rdata::Ns(self.target.clone()))
            .additional(&self.target, TTL, Rdata::address(self.address))
            .error(ExtendedError::FORGED.text(REASON))
    }

    /// Turns three addresses, 1, 2 and 3, into 8, 2, 7 with its own at the end, and another in the last
    /// section.
    fn other_records(&self, query: &Query<'_>) -> ResponseEdit {
        let address =
            |name: &NameBuf, last: u8| Record::new(name, TTL, Rdata::A(Ipv4Addr::new(192, 0, 2, last)));
        let own = NameBuf::from(query.name());
        let addresses = || Selector::of_type(Type::A).section(Section::Answer);
        let first = addresses().name(query.name()).index(0);
        ResponseEdit::new()
            .remove(addresses().index(2))
            .replace(first, [address(&own, 7)])
            .append(Section::Answer, address(&own, 8))
            .append(Section::Additional, address(&self.target, 9))
            .permute([1, 0, 2])
            .rotate(2)
    }

    fn ask(&self, query: &Query<'_>) -> Ask {
        Ask::new()
            .lookup(&self.target, query.qtype())
            .below()
            .lookup(&self.target, query.qtype())
            .time(Duration::from_secs(10))
            .state(STATE)
    }

    /// Uses each function of tables.
    fn tables_work(&self, query: &Query<'_>) -> bool {
        let (values, key) = (&self.values, query.name().as_wire());
        let minute = Some(Duration::from_secs(60));
        self.numbers.add("asked", 1, None);
        values.put(key, "old", minute)
            && values.get(key).as_deref() == Some(b"old")
            && values.compare_and_swap(key, Some(b"old"), Some(b"new"), minute)
            && !values.compare_and_swap(key, Some(b"old"), None, None)
            && values.remove(key)
            && values.get(key).is_none()
            && values.take(key, 1, 0.001, 1)
            && !values.take(key, 1, 0.001, 1)
            && self.numbers.add("asked", 1, None) == 2
    }

    fn data_is_there(&self) -> bool {
        let mut value = [0; 5];
        self.list.size() == 10
            && self.list.read_at(4, &mut value) == value.len()
            && &value == b"value"
            && [&self.list, &self.copied, &self.whole]
                .iter()
                .all(|data| data.find_line("key", b' ').as_deref() == Some(b"key value"))
            && self.whole.find_line("value", b' ').is_none()
    }
}

/// Turns a denial into an authoritative answer without records that is not cached and has an extended error.
fn marks() -> ResponseEdit {
    ResponseEdit::new()
        .rcode(Rcode::NXDOMAIN, Rcode::NOERROR)
        .authoritative(true)
        .authentic(false)
        .error(ExtendedError::FILTERED.text(REASON))
        .ttl_min(Duration::from_secs(1))
        .no_store()
        .no_stale()
}

fn found(answers: &Answers<'_>) -> bool {
    let mut answers_found = answers.iter();
    answers.state() == STATE
        && answers.len() == 2
        && answers_found
            .all(|found| found.answered() && found.answer_count() == 1 && !found.message().is_empty())
}

fn first_label(query: &Query<'_>) -> String {
    let name = query.name().to_string();
    name.split('.').next().unwrap_or_default().to_owned()
}

dnsweir_filter::export!(Released);
