//! Applies the policies for a name to the names that lead to it.
//!
//! A tracker that hides behind a CNAME record of the site it tracks for is on no list under that name. So
//! this filter looks up the names in an answer's CNAME chain below itself: if another filter blocks one of
//! them, the client gets that decision.

use std::net::IpAddr;

use dnsweir_filter::{
    Answer, Answers, Ask, ExtendedError, Filter, Found, Invalid, Manifest, NameBuf, NameMap, Rcode, Response,
    ResponseVerdict, Setup, Source, Type, count,
};

/// The maximum number of names checked per answer.
const NAMES: usize = 16;

/// The filter, with the names that may lead anywhere.
pub struct CnameUncloak(NameMap<()>);

impl Filter for CnameUncloak {
    fn configure(setup: Setup<'_>) -> Result<(CnameUncloak, Manifest), Invalid> {
        let mut allowed = NameMap::new();
        for node in setup.config().nodes(&["allow"]) {
            for name in node.arguments::<NameBuf>(0).unwrap_or_default() {
                allowed.insert(name, ());
            }
        }
        let manifest = Manifest::new().responses().messages().asks();
        let manifest = manifest.types([Type::A, Type::AAAA, Type::HTTPS]);
        Ok((CnameUncloak(allowed), manifest))
    }

    fn response(&mut self, response: &Response<'_>) -> ResponseVerdict {
        // An alias with a target takes at least two records.
        let name = response.query().name();
        if response.answer_count() < 2 || self.0.suffixes(name).next().is_some() {
            return ResponseVerdict::pass();
        }
        // A message that cannot be parsed may hide an alias.
        let Ok(message) = response.read() else {
            return ResponseVerdict::replace(Answer::new(Rcode::SERVFAIL));
        };
        let mut aliases = message.aliases().take(NAMES).peekable();
        if aliases.peek().is_none() {
            return ResponseVerdict::pass();
        }
        let qtype = response.query().qtype();
        ResponseVerdict::ask(aliases.fold(Ask::new(), |ask, alias| ask.lookup(&alias, qtype).below()))
    }

    fn response_answers(&mut self, _: &Response<'_>, answers: &Answers<'_>) -> ResponseVerdict {
        match answers.iter().find(is_blocked) {
            Some(found) => {
                count("uncloaked", 1);
                let why = ExtendedError::BLOCKED.text("an alias of a blocked name");
                ResponseVerdict::replace(Answer::new(found.rcode()).error(why))
            }
            None => ResponseVerdict::pass(),
        }
    }
}

/// Whether a filter answered, without a usable address.
fn is_blocked(found: &Found<'_>) -> bool {
    let unusable = |address: IpAddr| address.is_unspecified() || address.is_loopback();
    let null = || {
        let message = found.read();
        message.is_ok_and(|message| message.addresses().all(unusable))
    };
    found.source() == Source::Filter && (found.rcode() != Rcode::NOERROR || null())
}

dnsweir_filter::export!(CnameUncloak);
