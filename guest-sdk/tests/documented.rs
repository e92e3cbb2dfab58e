//! The Rust code of `docs/filters.md`, word for word; a test of the whole repository compares them. Each
//! section is a filter here that does what the document says.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use dnsweir_filter::test::{self, data, node, query};
use dnsweir_filter::{
    Answer, Answers, Ask, Data, Filter, Invalid, Manifest, NameBuf, Output, Query, Rcode, Rdata, Setup,
    SourceFile, Table, Type, Verdict,
};

/// "Ask"
struct Asking {
    list: NameBuf,
}

impl Filter for Asking {
    fn configure(setup: Setup<'_>) -> Result<(Asking, Manifest), Invalid> {
        let list = setup.config().setting("list")?;
        Ok((Asking { list }, Manifest::new().queries().asks()))
    }

    fn query(&mut self, query: &Query<'_>) -> Verdict {
        match NameBuf::join(query.name().labels(), &self.list) {
            Ok(listed) => Verdict::ask(
                Ask::new()
                    .lookup(&listed, Type::A)
                    .time(Duration::from_millis(500)),
            ),
            Err(_) => Verdict::pass(),
        }
    }

    fn answers(&mut self, _: &Query<'_>, answers: &Answers<'_>) -> Verdict {
        let verdict = match answers.iter().any(|found| found.answer_count() > 0) {
            true => Verdict::refuse(Rcode::NXDOMAIN),
            false => Verdict::pass(),
        };
        verdict.remember(Duration::from_secs(60))
    }
}

#[test]
fn a_filter_asks() {
    let mut filter = test::start::<Asking>([node("list").arg("list.test")]).unwrap();
    let listed: NameBuf = "ads.example.list.test".parse().unwrap();
    let answer = Answer::noerror().record(&listed, Duration::from_secs(60), Rdata::A([127, 0, 0, 2].into()));
    filter.finds("ads.example.list.test", Type::A, answer);
    let minute = Duration::from_secs(60);
    let refused = Verdict::refuse(Rcode::NXDOMAIN).remember(minute);
    assert_eq!(filter.query(&query("ads.example", Type::A)), refused);
    let passed = Verdict::pass().remember(minute);
    assert_eq!(filter.query(&query("www.example", Type::A)), passed);
}

/// "Hold back"
struct Holding {
    buckets: Table,
}

impl Filter for Holding {
    fn configure(setup: Setup<'_>) -> Result<(Holding, Manifest), Invalid> {
        let buckets = setup.table("clients", 4 << 20);
        Ok((Holding { buckets }, Manifest::new().queries()))
    }

    fn query(&mut self, query: &Query<'_>) -> Verdict {
        match self.buckets.take(query.client().to_string(), 1, 50.0, 100) {
            true => Verdict::pass(),
            false => Verdict::pass().delay(Duration::from_millis(500)),
        }
    }
}

#[test]
fn a_filter_holds_back() {
    let mut filter = test::start::<Holding>([]).unwrap();
    let mut ask = || filter.query(&query("www.example", Type::A));
    assert!((0..100).all(|_| ask() == Verdict::pass()));
    assert_eq!(ask(), Verdict::pass().delay(Duration::from_millis(500)));
}

/// "Data"
struct Listed {
    list: Data,
}

impl Filter for Listed {
    fn configure(setup: Setup<'_>) -> Result<(Listed, Manifest), Invalid> {
        let list: Data = setup.config().setting("list")?;
        Ok((Listed { list }, Manifest::new().queries()))
    }

    fn query(&mut self, query: &Query<'_>) -> Verdict {
        let name = query.name().to_string();
        // In a text with sorted lines.
        let line = self.list.find_line(name.trim_end_matches('.'), b' ');
        // Anywhere in anything.
        let mut octets = [0; 4];
        let count = self.list.read_at(0, &mut octets);
        match line {
            Some(_) if octets[..count] != *b"none" => Verdict::refuse(Rcode::NXDOMAIN),
            _ => Verdict::pass(),
        }
    }
}

#[test]
fn a_filter_has_data() {
    for (list, expected) in [
        ("ads.example\nnone.example\n", Verdict::refuse(Rcode::NXDOMAIN)),
        ("none\n", Verdict::pass()),
    ] {
        let mut filter = test::start::<Listed>([node("list").arg(data(list))]).unwrap();
        assert_eq!(filter.query(&query("ads.example", Type::A)), expected);
    }
}

/// "Refresh"
struct Blocker {
    names: Data,
}

impl Filter for Blocker {
    fn configure(setup: Setup<'_>) -> Result<(Blocker, Manifest), Invalid> {
        let names = setup.published("names");
        Ok((Blocker { names }, Manifest::new().queries()))
    }

    fn refresh(&mut self, sources: &[SourceFile], output: &mut Output) -> Result<(), String> {
        let mut names: Vec<Vec<u8>> = sources.iter().flat_map(|source| source.data().lines()).collect();
        names.sort();
        names
            .iter()
            .try_for_each(|name| output.append("names", [name, &b"\n"[..]].concat()))
    }

    fn query(&mut self, query: &Query<'_>) -> Verdict {
        let name = query.name().to_string();
        match self.names.find_line(name.trim_end_matches('.'), b' ') {
            Some(_) => Verdict::refuse(Rcode::NXDOMAIN),
            None => Verdict::pass(),
        }
    }
}

#[test]
fn a_filter_refreshes() {
    let mut filter = test::start::<Blocker>([]).unwrap();
    let files = [("a", "tracker.example\n"), ("b", "ads.example\n")];
    filter.refresh(files).unwrap();
    assert_eq!(
        filter.query(&query("ads.example", Type::A)),
        Verdict::refuse(Rcode::NXDOMAIN)
    );
    assert_eq!(filter.query(&query("www.example", Type::A)), Verdict::pass());
}
