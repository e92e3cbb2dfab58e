//! Every rule of the README, and its effect on queries.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::time::Duration;

use dnsweir_filter::test::{self, Node, QueryLiteral, Running, node};
use dnsweir_filter::{
    Answer, Class, Manifest, NameBuf, Rcode, Rdata, ResponseEdit, ResponseVerdict, Rewrite, Type, Verdict,
};
use dnsweir_filter_rewrite::Rewriter;

const HOUR: Duration = Duration::from_secs(3600);

fn start(config: impl IntoIterator<Item = Node>) -> Running<Rewriter> {
    test::start::<Rewriter>(config).unwrap()
}

fn a(name: &str) -> QueryLiteral {
    test::query(name, Type::A)
}

fn name(text: &str) -> NameBuf {
    text.parse().unwrap()
}

fn rule(field: &str, kind: &str, from: &str) -> Node {
    node(field).arg(kind).arg(from)
}

fn to(text: &str) -> Verdict {
    Verdict::rewrite(Rewrite::new().name(name(text))).remember(HOUR)
}

fn pass() -> Verdict {
    Verdict::pass().remember(HOUR)
}

#[test]
fn exact_names() {
    let mut filter = start([rule("name", "exact", "DB.internal").arg("db.prod.svc.cluster.local")]);
    assert_eq!(filter.query(&a("db.internal")), to("db.prod.svc.cluster.local"));
    assert_eq!(filter.query(&a("a.db.internal")), pass());
    assert_eq!(
        filter.manifest(),
        &Manifest::new().queries().at_or_below(&[name("db.internal")])
    );
}

#[test]
fn suffixes_with_and_without_a_dot() {
    let mut filter = start([
        rule("name", "suffix", "old.test").arg("new.test"),
        rule("name", "suffix", ".corp.test").arg(".example.org"),
    ]);
    assert_eq!(filter.query(&a("a.b.old.test")), to("a.b.new.test"));
    assert_eq!(filter.query(&a("old.test")), to("new.test"));
    assert_eq!(filter.query(&a("cold.test")), pass());
    assert_eq!(filter.query(&a("a.corp.test")), to("a.example.org"));
    assert_eq!(filter.query(&a("corp.test")), pass());
}

#[test]
fn prefixes_substrings_and_expressions() {
    let mut filter = start([
        rule("name", "prefix", "Dev-").arg("prod-"),
        rule("name", "substring", ".us-west.").arg(".eu-north."),
        rule("name", "regex", r"^(.*)-([A-Z]+)\.example\.com$").arg("{1}.{2}.svc.cluster.local"),
        rule("name", "regex", r"tele(phone)?").arg("{0}x{1}.test"),
    ]);
    assert_eq!(filter.query(&a("dev-api.test")), to("prod-api.test"));
    assert_eq!(filter.query(&a("api.dev-x.test")), pass());
    assert_eq!(
        filter.query(&a("a.us-west.us-west.us-west.test")),
        to("a.eu-north.us-west.eu-north.test")
    );
    assert_eq!(
        filter.query(&a("ftp-eu.example.com")),
        to("ftp.eu.svc.cluster.local")
    );
    assert_eq!(filter.query(&a("ftp-eu.example.com.test")), pass());
    // The match may be anywhere, and the whole name is replaced.
    assert_eq!(filter.query(&a("my.telephone.test")), to("telephonexphone.test"));
    assert_eq!(filter.query(&a("my.telegram.test")), to("telex.test"));
    assert_eq!(filter.manifest(), &Manifest::new().queries());
}

#[test]
fn types_and_classes() {
    let mut filter = start([
        node("type").arg("ANY").arg("HINFO"),
        node("class").arg("CH").arg("IN").prop("then", "continue"),
        node("type").arg("TXT").arg("TYPE65"),
    ]);
    let hinfo = Verdict::rewrite(Rewrite::new().qtype(Type::HINFO)).remember(HOUR);
    assert_eq!(filter.query(&test::query("a.test", Type::ANY)), hinfo);
    assert_eq!(filter.query(&a("a.test")), pass());
    let both = Rewrite::new().class(Class::IN).qtype(Type::HTTPS);
    let chaos = test::query("version.bind", Type::TXT).class(Class::CH);
    assert_eq!(filter.query(&chaos), Verdict::rewrite(both).remember(HOUR));
}

#[test]
fn ttls_and_response_codes() {
    let seconds = Duration::from_secs;
    let mut filter = start([
        rule("ttl", "suffix", "svc.local")
            .prop("min", "5s")
            .prop("max", "60s")
            .prop("then", "continue"),
        rule("ttl", "exact", "api.svc.local")
            .arg("30s")
            .prop("then", "continue"),
        rule("rcode", "suffix", "svc.local")
            .arg("SERVFAIL")
            .arg("NXDOMAIN")
            .prop("then", "continue"),
        rule("rcode", "prefix", "api.").arg("REFUSED").arg("NOERROR"),
    ]);
    let suffix = ResponseEdit::new().ttl_min(seconds(5)).ttl_max(seconds(60));
    let one = suffix.clone().rcode(Rcode::SERVFAIL, Rcode::NXDOMAIN);
    assert_eq!(filter.query(&a("x.svc.local")), pass().edit(one));
    let all = ResponseEdit::new().ttl_min(seconds(30)).ttl_max(seconds(30));
    let all = all
        .rcode(Rcode::SERVFAIL, Rcode::NXDOMAIN)
        .rcode(Rcode::REFUSED, Rcode::NOERROR);
    assert_eq!(filter.query(&a("api.svc.local")), pass().edit(all));
    assert_eq!(filter.query(&a("x.test")), pass());
}

#[test]
fn rules_about_responses_see_the_name_the_client_asked() {
    let mut filter = start([
        rule("name", "exact", "a.test")
            .arg("b.test")
            .prop("then", "continue"),
        rule("ttl", "exact", "b.test").arg("1s"),
        rule("ttl", "exact", "a.test").arg("2s"),
    ]);
    let two = Duration::from_secs(2);
    assert_eq!(
        filter.query(&a("a.test")),
        to("b.test").edit(ResponseEdit::new().ttl_min(two).ttl_max(two))
    );
}

#[test]
fn aliases_end_the_rules() {
    let mut filter = start([
        rule("name", "exact", "a.test")
            .arg("b.test")
            .prop("then", "continue"),
        rule("cname", "exact", "b.test").arg("target.example"),
        rule("name", "suffix", "test").arg("never.example"),
    ]);
    assert_eq!(
        filter.query(&a("a.test")),
        Verdict::alias(name("target.example")).remember(HOUR)
    );
    assert_eq!(filter.query(&a("c.test")), to("c.never.example"));
}

#[test]
fn rules_apply_in_order_and_stop_unless_told_to_go_on() {
    let chain = |then: &str| {
        let mut filter = start([
            rule("name", "suffix", "c.test").arg("wrong.test"),
            rule("name", "exact", "a.test").arg("b.test").prop("then", then),
            rule("name", "substring", "b.").arg("c."),
        ]);
        filter.query(&a("a.test"))
    };
    assert_eq!(chain("stop"), to("b.test"));
    // The first rule comes before the others, so it does not see their result.
    assert_eq!(chain("continue"), to("c.test"));
    let mut back = start([
        rule("name", "exact", "a.test")
            .arg("b.test")
            .prop("then", "continue"),
        rule("name", "exact", "b.test").arg("a.test"),
    ]);
    assert_eq!(back.query(&a("a.test")), pass());
}

#[test]
fn answers_may_keep_the_new_name() {
    let kept = |answers: &str| {
        let mut filter = start([rule("name", "exact", "a.test")
            .arg("b.test")
            .prop("answers", answers)]);
        filter.query(&a("a.test"))
    };
    assert_eq!(kept("revert"), to("b.test"));
    assert_eq!(
        kept("keep"),
        Verdict::rewrite(Rewrite::new().name(name("b.test")).keep_answers()).remember(HOUR)
    );
}

#[test]
fn what_becomes_no_name_fails() {
    let long = vec!["a".repeat(63); 3].join(".");
    let mut filter = start([
        rule("name", "suffix", "long.test").arg(&*format!("{long}.test")),
        rule("name", "prefix", "x").arg(".."),
    ]);
    let failed = Verdict::answer(Answer::new(Rcode::SERVFAIL)).remember(HOUR);
    assert_eq!(filter.query(&a(&format!("{}.long.test", "b".repeat(63)))), failed);
    assert_eq!(filter.query(&a("x.test")), failed);
    assert_eq!(filter.counter("invalid_names"), 2);
}

#[test]
fn ten_thousand_rules_keep_their_order() {
    let mut rules: Vec<Node> = (0..10_000)
        .map(|number| rule("name", "exact", &format!("h{number}.test")).arg(&*format!("t{number}.example")))
        .collect();
    // The same name further down is never reached. A suffix at the top is.
    rules.push(rule("name", "exact", "h7.test").arg("late.example"));
    rules.push(rule("name", "suffix", "test").arg("rest.example"));
    let mut filter = start(rules.clone());
    assert_eq!(filter.query(&a("h7.test")), to("t7.example"));
    assert_eq!(filter.query(&a("h9999.test")), to("t9999.example"));
    assert_eq!(filter.query(&a("other.test")), to("other.rest.example"));
    rules.insert(0, rule("name", "suffix", ".test").arg("first.example"));
    assert_eq!(start(rules).query(&a("h7.test")), to("h7.first.example"));
}

/// Expressions that expect the final dot of a name, as those for CoreDNS do.
#[test]
fn a_name_may_have_its_last_dot() {
    for expression in [
        r"^a\.test\.$",
        "^a[.]test[.]$",
        "^a.test.$",
        r"^a(\.)test(\.)$",
        r"^a\x2etest\x2e\z",
    ] {
        let dotted = rule("name", "regex", expression)
            .arg("b.test")
            .prop("final-dot", true);
        assert_eq!(start([dotted]).query(&a("a.test")), to("b.test"), "{expression}");
    }
    let all = rule("name", "regex", "(.+)")
        .arg("{1}example")
        .prop("final-dot", true);
    assert_eq!(start([all]).query(&a("a.test")), to("a.test.example"));
    let prefix = rule("ttl", "prefix", "a.test.").arg("7s");
    let bounds = ResponseEdit::new()
        .ttl_min(Duration::from_secs(7))
        .ttl_max(Duration::from_secs(7));
    assert_eq!(start([prefix.clone()]).query(&a("a.test")), pass());
    let dotted = prefix.prop("final-dot", true);
    assert_eq!(start([dotted]).query(&a("a.test")), pass().edit(bounds));
    let part = rule("rcode", "substring", ".test.")
        .arg("SERVFAIL")
        .arg("NXDOMAIN")
        .prop("final-dot", true);
    let edit = ResponseEdit::new().rcode(Rcode::SERVFAIL, Rcode::NXDOMAIN);
    assert_eq!(start([part]).query(&a("a.test")), pass().edit(edit));
}

/// The list ends with a rule about targets, which applies to every query.
#[test]
fn targets_are_looked_at_where_their_rule_was_reached() {
    let rules = || {
        [
            rule("name", "exact", "a.test").arg("b.test"),
            rule("target", "suffix", "old").arg("new"),
        ]
    };
    let mut filter = start(rules());
    assert_eq!(filter.query(&a("a.test")), to("b.test").skip_response());
    assert_eq!(filter.query(&a("c.test")), pass());
    let mut behind = rules().to_vec();
    behind.reverse();
    assert_eq!(start(behind).query(&a("a.test")), pass());
}

/// The host refuses lookups of these types; the failed call would be blamed on the name.
#[test]
fn targets_stay_where_nothing_can_be_looked_up() {
    let mut filter = start([rule("target", "suffix", "old").arg("new")]);
    let mut verdict = |qtype: Type| {
        let alias = Rdata::Cname(name("b.old"));
        filter.response(&test::response(test::query("a.test", qtype)).records([("a.test", alias)]))
    };
    for qtype in [128, 200, 254] {
        assert_eq!(verdict(Type(qtype)), ResponseVerdict::pass(), "{qtype}");
    }
    assert_ne!(verdict(Type::ANY), ResponseVerdict::pass());
    assert_eq!(filter.asked(), ["b.new. ANY"]);
}

/// The host would refuse a manifest with all of them.
#[test]
fn more_names_than_a_manifest_holds_are_found_among_all() {
    let long = vec!["a".repeat(60); 3].join(".");
    let names = (0..5000).map(|number| format!("h{number}.{long}.test"));
    let mut filter = start(names.map(|from| rule("name", "exact", &from).arg("new.test")));
    let all = Manifest::new().queries().at_or_below(&[NameBuf::root()]);
    assert_eq!(filter.manifest(), &all);
    assert_eq!(filter.query(&a(&format!("h4999.{long}.test"))), to("new.test"));
    assert_eq!(filter.query(&a("other.test")), pass());
}

#[test]
fn mistakes_are_told() {
    let told = |config: Node| {
        let mistakes = test::start::<Rewriter>([config]).unwrap_err();
        assert_eq!(mistakes.len(), 1, "{mistakes:?}");
        (
            mistakes[0].message.clone(),
            mistakes[0].argument,
            mistakes[0].help.clone(),
        )
    };
    assert_eq!(
        test::start::<Rewriter>([]).unwrap_err()[0].message,
        "no rules are configured"
    );
    let kind = told(rule("name", "exactly", "a.test").arg("b.test"));
    assert_eq!(
        kind.0,
        "the first argument of `name` must be a kind of match, not \"exactly\""
    );
    assert_eq!(told(rule("name", "exact", "a..test").arg("b.test")).1, Some(1));
    assert_eq!(told(rule("name", "suffix", ".a..test").arg("b.test")).1, Some(1));
    assert_eq!(
        told(rule("name", "suffix", ".a.test").arg("..b")).0,
        "\".b\" is not a domain name"
    );
    assert_eq!(
        told(rule("name", "exact", "a.test")).0,
        "`name` needs a domain name as its third argument"
    );
    assert_eq!(
        told(rule("name", "substring", "").arg("x")).0,
        "the text to match is empty"
    );
    assert_eq!(
        told(rule("name", "regex", "(").arg("x")).0,
        "this is not a valid regular expression"
    );
    assert_eq!(
        told(rule("name", "regex", "(a)").arg("{2}")).2,
        "the expression has no group 2; its last is 1"
    );
    assert_eq!(
        told(rule("name", "regex", "(a)").arg("{x}")).2,
        "a group is written by its number: {1}"
    );
    assert_eq!(
        told(rule("name", "regex", "(a)").arg("{1")).2,
        "a { is not closed by }"
    );
    assert!(
        told(rule("name", "exact", "a.test").arg("b.test").prop("then", "go"))
            .0
            .starts_with("`then` of `name`")
    );
    assert!(
        told(
            rule("cname", "exact", "a.test")
                .arg("b.test")
                .prop("then", "stop")
        )
        .0
        .contains("knows no `then=`")
    );
    assert!(
        told(
            rule("name", "exact", "a.test")
                .arg("b.test")
                .prop("answers", "no")
        )
        .0
        .starts_with("`answers` of")
    );
    assert_eq!(told(node("type").arg("ANY").arg("HINF")).1, Some(1));
    assert_eq!(told(node("class").arg("XX").arg("IN")).1, Some(0));
    assert_eq!(told(rule("ttl", "exact", "a.test")).0, "`ttl` sets no TTL");
    assert_eq!(
        told(rule("ttl", "exact", "a.test").arg("1s").prop("max", "2s")).0,
        "`ttl` sets the TTL twice"
    );
    assert_eq!(
        told(rule("ttl", "exact", "a.test").prop("min", "3s").prop("max", "2s")).0,
        "`min=` is more than `max=`"
    );
    assert_eq!(
        told(rule("ttl", "exact", "a.test").arg("500ms")).2,
        "TTLs count whole seconds"
    );
    assert_eq!(
        told(rule("rcode", "exact", "a.test").arg("NOERROR").arg("BAD")).1,
        Some(3)
    );
}
