//! Answers names as an annotation of the asking pod's namespace says.
//!
//! What `/etc/hosts` is for one machine, the annotation is for the pods of a namespace: names with addresses, or with another
//! name that they stand for. What it does not mention goes on to the next stage.

use std::net::IpAddr;
use std::time::Duration;

use dnsweir_filter::{Answer, Class, Filter, Invalid, Manifest, Name, NameBuf, Query, Setup, Ttl, Verdict};

/// How long a verdict is remembered. When the annotation changes, it is forgotten.
const REMEMBERED: Duration = Duration::from_secs(3600);

/// The filter.
pub struct NamespaceAnswers {
    annotation: String,
    ttl: Duration,
}

/// What a name is.
#[derive(Debug, PartialEq)]
enum Said {
    /// It has these addresses, and nothing else.
    Addresses(Vec<IpAddr>),
    /// It stands for this one.
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

/// What a text says of a name: `NAME ADDRESS…` or `NAME NAME`, each on a line of its own or up to a semicolon. What is neither
/// says nothing.
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
