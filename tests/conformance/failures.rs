//! Failures: what is cached, and what is served instead. RFC 2308, 8767, 9520.

use crate::harness::upstream::{Asked, Reply};
use crate::harness::{Message, Proxy, Upstream, eventually, flags};

/// Extended errors (RFC 8914 section 4).
const STALE_ANSWER: u16 = 3;
const CACHED_ERROR: u16 = 13;

const SOA: &str = "example. 300 SOA ns.example. root.example. 1 2 3 4 300";

/// A failure's name, the upstream's behavior, the expected rcode, and what follows.
type Case = (&'static str, fn(&Asked) -> Reply, &'static str, Then);

/// The result of asking again.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Then {
    /// The failure is cached, with this extended error.
    Failed(u16),
    /// The answer is cached.
    Answered,
    /// The upstream is asked again.
    Asked,
}

fn with(asked: &Asked, rcode: &str) -> Reply {
    asked.denial(rcode, None)
}

/// What is cached of failures and denials.
const KEPT: [Case; 12] = [
    // RFC 9520 section 2.1: server failure; section 3.2: kept.
    (
        "SERVFAIL",
        |asked| with(asked, "SERVFAIL"),
        "SERVFAIL",
        Then::Failed(CACHED_ERROR),
    ),
    // RFC 9520 section 2.2: refusal.
    (
        "REFUSED",
        |asked| with(asked, "REFUSED"),
        "REFUSED",
        Then::Failed(CACHED_ERROR),
    ),
    // RFC 9520 section 2.7, and other useless responses.
    (
        "FORMERR",
        |asked| with(asked, "FORMERR"),
        "FORMERR",
        Then::Failed(CACHED_ERROR),
    ),
    (
        "NOTIMP",
        |asked| with(asked, "NOTIMP"),
        "NOTIMP",
        Then::Failed(CACHED_ERROR),
    ),
    // RFC 9520 section 2.3: a timeout.
    (
        "silence",
        |_| Reply::Silence,
        "SERVFAIL",
        Then::Failed(CACHED_ERROR),
    ),
    // RFC 8914 section 3: the failure is cached with its reason.
    (
        "SERVFAIL with EDE 9",
        |asked| {
            Reply::Message(
                asked
                    .message_with(&[])
                    .rcode_set("SERVFAIL")
                    .edns(1232)
                    .option(15, &[0, 9]),
            )
        },
        "SERVFAIL",
        Then::Failed(9),
    ),
    // RFC 2308 section 5: denials with their SOA record.
    (
        "NXDOMAIN",
        |asked| asked.denial("NXDOMAIN", Some(SOA)),
        "NXDOMAIN",
        Then::Answered,
    ),
    (
        "NODATA",
        |asked| asked.denial("NOERROR", Some(SOA)),
        "NOERROR",
        Then::Answered,
    ),
    // Denials without it are not cached.
    (
        "NXDOMAIN without SOA",
        |asked| with(asked, "NXDOMAIN"),
        "NXDOMAIN",
        Then::Asked,
    ),
    (
        "NODATA without SOA",
        |asked| with(asked, "NOERROR"),
        "NOERROR",
        Then::Asked,
    ),
    // RFC 2181 section 9: a truncated response is neither an answer nor a failure.
    (
        "TC",
        |asked| {
            Reply::Message(
                asked
                    .message_with(&["www.example. 300 A 192.0.2.1"])
                    .set(flags::TC),
            )
        },
        "NOERROR",
        Then::Asked,
    ),
    (
        "SERVFAIL with TC",
        |asked| Reply::Message(asked.message_with(&[]).rcode_set("SERVFAIL").set(flags::TC)),
        "SERVFAIL",
        Then::Asked,
    ),
];

/// A separate proxy and upstream per case, since a failing upstream is treated as such.
#[test]
fn what_is_kept_of_answers_that_are_none() {
    for (case, script, rcode, then) in KEPT {
        let upstream = Upstream::start(script);
        let proxy = Proxy::start(&format!(
            "workers 1\nzone \".\" {{ cache {{ failure \"5m\" }}; forward \"{}\" {{ attempts 1; max-fails 0; timeout \"1s\" }} }}",
            upstream.address
        ));
        let first = proxy.query_edns("www.example", "A");
        assert_eq!(first.rcode(), rcode, "{case}");
        assert!(
            !first.extended_errors().contains(&CACHED_ERROR),
            "{case}: it was just found out"
        );
        let asked = upstream.count("www.example");
        let second = proxy.query_edns("www.example", "A");
        assert_eq!(second.rcode(), rcode, "{case}");
        let known = upstream.count("www.example") == asked;
        let found = match second.extended_errors()[..] {
            _ if !known => Then::Asked,
            [code] => Then::Failed(code),
            _ => Then::Answered,
        };
        assert_eq!(found, then, "{case}");
        // RFC 9520 section 3.2: cached by name, type and class.
        if matches!(then, Then::Failed(_)) {
            proxy.query_edns("www.example", "AAAA");
            assert!(upstream.count("www.example") > asked, "{case}");
        }
    }
}

/// An expired entry that cannot be refreshed.
#[test]
fn what_is_stale_stays_until_there_is_an_answer() {
    // RFC 8767 section 4: any rcode but NOERROR and NXDOMAIN is a failure to refresh, and so is a timeout.
    const FAILURES: [Case; 5] = [
        (
            "SERVFAIL",
            |asked| with(asked, "SERVFAIL"),
            "NOERROR",
            Then::Answered,
        ),
        (
            "REFUSED",
            |asked| with(asked, "REFUSED"),
            "NOERROR",
            Then::Answered,
        ),
        (
            "FORMERR",
            |asked| with(asked, "FORMERR"),
            "NOERROR",
            Then::Answered,
        ),
        ("NOTIMP", |asked| with(asked, "NOTIMP"), "NOERROR", Then::Answered),
        ("silence", |_| Reply::Silence, "NOERROR", Then::Answered),
    ];
    for (case, script, rcode, _) in FAILURES {
        let upstream = Upstream::zone(&["www.example. 1 A 192.0.2.1"]);
        let proxy = Proxy::start(&format!(
            "workers 1\nzone \".\" {{ cache {{ serve-stale \"1h\" }}; forward \"{}\" {{ attempts 1; max-fails 0; timeout \"500ms\" }} }}",
            upstream.address
        ));
        proxy.query("www.example", "A");
        upstream.becomes(script);
        let stale = |answer: &Message| answer.extended_errors() == [STALE_ANSWER];
        let answer = eventually("a stale answer", || {
            let answer = proxy.query_edns("www.example", "A");
            stale(&answer).then_some(answer)
        });
        assert_eq!(answer.rcode(), rcode, "{case}");
        assert_eq!(answer.answers(), ["www.example. A 192.0.2.1"], "{case}");
        // Section 5, the failure recheck timer: for the next half minute there is no upstream query, and no
        // wait.
        let asked = upstream.count("www.example");
        for _ in 0..3 {
            assert!(stale(&proxy.query_edns("www.example", "A")), "{case}");
        }
        assert_eq!(upstream.count("www.example"), asked, "{case}");
    }
}
