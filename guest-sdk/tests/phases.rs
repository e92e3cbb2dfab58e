//! A filter with every phase, run as in a unit test by its author.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use dnsweir_filter::{
    Answer, Event, Filter, Invalid, Level, Manifest, Name, NameBuf, Query, Rcode, Rdata, Response,
    ResponseEdit, ResponseVerdict, Setup, Soa, Source, Transport, Type, Verdict, count, log, print, test,
};

struct Everything {
    zones: usize,
}

impl Filter for Everything {
    fn configure(setup: Setup<'_>) -> Result<(Everything, Manifest), Invalid> {
        log(Level::Info, setup.name());
        Ok((
            Everything {
                zones: setup.zones().len(),
            },
            Manifest::new().queries().responses().events().messages(),
        ))
    }

    fn query(&mut self, query: &Query<'_>) -> Verdict {
        assert!(query.zone() < self.zones);
        match query.transport() {
            Transport::Udp => Verdict::pass(),
            Transport::Tcp => Verdict::drop(),
            _ => Verdict::refuse(Rcode::REFUSED),
        }
    }

    fn response(&mut self, response: &Response<'_>) -> ResponseVerdict {
        match response.message() {
            Some(message) if message.len() > 3 => ResponseVerdict::replace(Answer::new(Rcode::SERVFAIL)),
            Some(_) => ResponseVerdict::edit(ResponseEdit::new().no_store()),
            None => ResponseVerdict::pass(),
        }
    }

    fn event(&mut self, event: &Event<'_>) {
        count("events", 1);
        print(&format!("{} {:?}", event.query().name(), event.source()));
    }
}

dnsweir_filter::export!(Everything);

#[test]
fn every_phase_is_called() {
    let mut filter = test::start_in::<Everything>(&[".", "example.org."], []).unwrap();
    assert_eq!(filter.logged(), [(Level::Info, "test".to_owned())]);
    let query = test::query("a.example.org", Type::A).zone(1);
    assert_eq!(filter.query(&query), Verdict::pass());
    assert_eq!(
        filter.query(&query.clone().transport(Transport::Tcp)),
        Verdict::drop()
    );
    let response = test::response(query.clone());
    assert_eq!(filter.response(&response), ResponseVerdict::pass());
    let edited = ResponseVerdict::edit(ResponseEdit::new().no_store());
    assert_eq!(filter.response(&response.clone().message(b"abc")), edited);
    assert_ne!(filter.response(&response.message(b"abcd")), edited);
    filter.event(&test::event(query.clone()));
    filter.event(&test::event(query).source(Source::Stale));
    assert_eq!(filter.printed(), "a.example.org. Cache\na.example.org. Stale\n");
    assert_eq!(filter.counter("events"), 2);
}

struct Looker;

impl Filter for Looker {
    fn configure(_: Setup<'_>) -> Result<(Looker, Manifest), Invalid> {
        Ok((Looker, Manifest::new().queries()))
    }

    fn query(&mut self, query: &Query<'_>) -> Verdict {
        print(&format!(
            "{} {} {} {} {} {} {} {} {} {} {:?}",
            query.client(),
            query.client_port(),
            query.name(),
            query.qtype(),
            query.class(),
            query.opcode(),
            query.recursion_desired(),
            query.edns(),
            query.dnssec_ok(),
            query.udp_size(),
            query.time(),
        ));
        assert_eq!(query.name().ancestors().last(), Some(Name::ROOT));
        Verdict::pass()
    }
}

#[test]
fn a_query_shows_what_the_client_sent() {
    let mut filter = test::start::<Looker>([]).unwrap();
    let plain = test::query("Example.ORG", Type::TXT);
    let _ = filter.query(&plain);
    assert_eq!(
        filter.printed(),
        "192.0.2.1 1053 example.org. TXT IN 0 true false false 512 0ns\n"
    );
    let client = SocketAddr::from((Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 7), 53));
    let fancy = plain
        .client(client)
        .header(0x2000)
        .edns(1232, true)
        .time(Duration::from_millis(1500));
    let _ = filter.query(&fancy);
    assert_eq!(
        filter.printed(),
        "2001:db8::7 53 example.org. TXT IN 4 false true true 1232 1.5s\n"
    );
}

/// Answers with two addresses, and with an alias for CNAME.
struct Host;

impl Filter for Host {
    fn configure(_: Setup<'_>) -> Result<(Host, Manifest), Invalid> {
        Ok((Host, Manifest::new().queries()))
    }

    fn query(&mut self, query: &Query<'_>) -> Verdict {
        if query.qtype() == Type::CNAME {
            return Verdict::first_of([query.name().into(), NameBuf::root()]);
        }
        let addresses = [[192, 0, 2, 1].into(), IpAddr::from([0; 16])];
        Verdict::answer(Answer::of_host(query, &addresses, Duration::from_secs(5)))
    }
}

#[test]
fn a_host_has_nothing_but_its_addresses() {
    let mut host = test::start::<Host>([]).unwrap();
    let name: NameBuf = "a.test".parse().unwrap();
    let ttl = Duration::from_secs(5);
    let a = |answer: Answer| answer.record(&name, ttl, Rdata::A([192, 0, 2, 1].into()));
    let aaaa = |answer: Answer| answer.record(&name, ttl, Rdata::Aaaa([0; 16].into()));
    for (qtype, answer) in [
        (Type::A, a(Answer::noerror())),
        (Type::AAAA, aaaa(Answer::noerror())),
        (Type::ANY, aaaa(a(Answer::noerror()))),
        (Type::MX, Answer::nodata(&Soa::new(name.clone(), ttl))),
    ] {
        assert_eq!(
            host.query(&test::query("a.test", qtype)),
            Verdict::answer(answer),
            "{qtype}"
        );
    }
}

#[test]
fn one_name_is_an_alias_like_another() {
    let mut host = test::start::<Host>([]).unwrap();
    let name: NameBuf = "a.test".parse().unwrap();
    assert_eq!(
        host.query(&test::query("a.test", Type::CNAME)),
        Verdict::first_of([name.clone(), NameBuf::root()])
    );
    assert_eq!(Verdict::first_of([name.clone()]), Verdict::alias(name));
}

struct Detailed;

impl Filter for Detailed {
    fn configure(_: Setup<'_>) -> Result<(Detailed, Manifest), Invalid> {
        Ok((
            Detailed,
            Manifest::new()
                .queries()
                .events()
                .messages()
                .edns_options()
                .listener()
                .server_name(),
        ))
    }

    fn query(&mut self, query: &Query<'_>) -> Verdict {
        let options: Vec<_> = query.edns_options().collect();
        print(&format!(
            "{options:?} {:?} {:?}",
            query.listener(),
            query.server_name()
        ));
        Verdict::pass()
    }

    fn event(&mut self, event: &Event<'_>) {
        print(&format!(
            "{:?} {:?}",
            event.query().edns_option(8),
            event.message()
        ));
    }
}

#[test]
fn details_lie_behind_the_name() {
    let mut filter = test::start::<Detailed>([]).unwrap();
    let plain = test::query("a.test", Type::A);
    let _ = filter.query(&plain);
    assert_eq!(filter.printed(), "[] None None\n");
    let query = plain
        .edns_option(10, b"12")
        .listener("[::1]:53")
        .edns_option(8, b"")
        .server_name("dns.test");
    let _ = filter.query(&query);
    let expected = "[(10, [49, 50]), (8, [])] Some(\"[::1]:53\") Some(\"dns.test\")\n";
    assert_eq!(filter.printed(), expected);
    filter.event(&test::event(query.clone()));
    filter.event(&test::event(query).message(b"\x01\x02"));
    assert_eq!(filter.printed(), "Some([]) None\nSome([]) Some([1, 2])\n");
}
