//! Answers names according to an annotation of the client's namespace.
//!
//! The annotation is to the pods of a namespace what `/etc/hosts` is to a machine: it has names with
//! addresses, or with another name as alias. All other names pass to the next stage.

use std::net::IpAddr;
use std::time::Duration;

use dnsweir_filter::{Answer, Class, Filter, Invalid, Manifest, Name, NameBuf, Query, Setup, Ttl, Verdict};

/// How long the host remembers a verdict. A change of the annotation clears it.
const REMEMBERED: Duration = Duration::from_secs(3600);

/// The filter.
pub struct NamespaceAnswers {
    annotation: String,
    ttl: Duration,
}

/// The entry for a name.
#[derive(Debug, PartialEq)]
enum Said {
    /// It has these addresses, and nothing else.
    Addresses(Vec<IpAddr>),
    /// It is an alias of this name.
    Other(NameBuf),
}

impl Filter for NamespaceAnswers {
    fn configure(setup: Setup<'_>) -> Result<(NamespaceAnswers, Manifest), Invalid> {
        let config = setup.config();
        let annotation: String = config.setting("annotation")?;
        let ttl = config.setting_or("ttl", Ttl::MINUTE).into();
        let manifest = Manifest::new().queries().namespace_annotation(&annotation);
        Ok((NamespaceAnswers { annotation, ttl }, manifest))
    }

    fn query(&mut self, query: &Query<'_>) -> Verdict {
        let text = query.namespace_annotation(&self.annotation).unwrap_or_default();
        let said = find(text, query.name()).filter(|_| query.class() == Class::IN);
        let verdict = match said {
            None => Verdict::pass(),
            Some(Said::Addresses(addresses)) => Verdict::answer(Answer::of_host(query, &addresses, self.ttl)),
            Some(Said::Other(other)) => Verdict::alias(other),
        };
        verdict.remember(REMEMBERED)
    }
}

/// The entry for a name in a text: `NAME ADDRESS…` or `NAME NAME`, separated by line ends or semicolons.
/// Invalid entries are ignored.
fn find(text: &str, name: Name<'_>) -> Option<Said> {
    let mut entries = text.split([';', '\n']).map(str::split_whitespace);
    entries.find_map(|mut words| {
        let owner: NameBuf = words.next()?.parse().ok()?;
        if owner.as_name() != name {
            return None;
        }
        let words: Vec<&str> = words.collect();
        let addresses: Result<Vec<IpAddr>, _> = words.iter().map(|word| word.parse()).collect();
        match (addresses, &words[..]) {
            (_, []) => None,
            (Ok(addresses), _) => Some(Said::Addresses(addresses)),
            (Err(_), [other]) => other.parse().ok().map(Said::Other),
            (Err(_), _) => None,
        }
    })
}

dnsweir_filter::export!(NamespaceAnswers);
