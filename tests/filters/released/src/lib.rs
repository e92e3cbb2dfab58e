//! A filter with every phase and every kind of verdict, to be kept as it is built today: the names that it is
//! asked for say what it does. `docs/interface.md` tells what it is kept for.

#![cfg(target_family = "wasm")] // Nothing to be had from it elsewhere.

use std::net::IpAddr;
use std::time::Duration;

use dnsweir_filter::{
    Answer, Answers, Ask, Event, Filter, Invalid, Level, Manifest, NameBuf, Query, Rcode, Rdata, Response,
    ResponseEdit, ResponseVerdict, Rewrite, Setup, Verdict, count, log, print,
};

const TTL: Duration = Duration::from_secs(300);

/// What is handed back with answers.
const STATE: &[u8] = b"state";

/// The answer where something is not as it was.
const UNSPECIFIED: IpAddr = IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED);

struct Released {
    address: IpAddr,
    /// What renamed queries go on as.
    target: NameBuf,
}

impl Filter for Released {
    fn configure(setup: Setup<'_>) -> Result<(Released, Manifest), Invalid> {
        let config = setup.config();
        let address = config
            .node("address")?
            .ok_or_else(|| config.mistake("no `address`").report())?;
        let target = config
            .node("target")?
            .ok_or_else(|| config.mistake("no `target`").report())?;
        let filter = Released {
            address: address.argument(0)?,
            target: target.argument(0)?,
        };
        log(
            Level::Info,
            &format!("{} is configured for {:?}", setup.name(), setup.zones()),
        );
        Ok((
            filter,
            Manifest::new().queries().responses().events().messages().asks(),
        ))
    }

    fn query(&mut self, query: &Query<'_>) -> Verdict {
        count("queries", 1);
        let verdict = match first_label(query).as_str() {
            "answer" => {
                let record = Rdata::address(self.address);
                Verdict::answer(
                    Answer::noerror()
                        .authoritative()
                        .record(query.name(), TTL, record),
                )
            }
            "alias" => Verdict::alias(self.target.clone()),
            "rename" => Verdict::rewrite(Rewrite::new().name(self.target.clone())),
            "refuse" => Verdict::refuse(Rcode::REFUSED),
            "drop" => Verdict::drop(),
            "edit" => Verdict::pass().edit(ResponseEdit::new().ttl_max(Duration::from_secs(7))),
            "ask" => Verdict::ask(
                Ask::new()
                    .lookup(&self.target, query.qtype())
                    .below()
                    .state(STATE),
            ),
            "trap" => panic!("told to panic at {}", query.name()),
            _ => return Verdict::pass(),
        };
        verdict.remember(Duration::from_secs(1))
    }

    fn response(&mut self, response: &Response<'_>) -> ResponseVerdict {
        match first_label(response.query()).as_str() {
            "shorten" => ResponseVerdict::edit(ResponseEdit::new().ttl_max(Duration::from_secs(9))),
            "reask" => {
                let ask = Ask::new().lookup(&self.target, response.query().qtype()).below();
                ResponseVerdict::ask(ask.state(STATE))
            }
            "replace" if response.message().is_some() => {
                let record = Rdata::address(self.address);
                ResponseVerdict::replace(Answer::noerror().record(response.query().name(), TTL, record))
            }
            _ => ResponseVerdict::pass(),
        }
    }

    fn answers(&mut self, query: &Query<'_>, answers: &Answers<'_>) -> Verdict {
        let found = answers.state() == STATE && answers.iter().all(|found| found.answer_count() == 1);
        let address = if found { self.address } else { UNSPECIFIED };
        Verdict::answer(Answer::noerror().record(query.name(), TTL, Rdata::address(address)))
    }

    fn response_answers(&mut self, response: &Response<'_>, answers: &Answers<'_>) -> ResponseVerdict {
        let found = answers.state() == STATE && answers.iter().all(|found| found.answer_count() == 1);
        let address = if found { self.address } else { UNSPECIFIED };
        let answer = Answer::noerror().record(response.query().name(), TTL, Rdata::address(address));
        ResponseVerdict::replace(answer)
    }

    fn event(&mut self, event: &Event<'_>) {
        print(&format!("heard of {}", event.query().name()));
    }
}

fn first_label(query: &Query<'_>) -> String {
    let name = query.name().to_string();
    name.split('.').next().unwrap_or_default().to_owned()
}

dnsweir_filter::export!(Released);
