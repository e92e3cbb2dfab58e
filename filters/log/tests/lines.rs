//! Every option of the README, and its effect on lines.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::net::{Ipv6Addr, SocketAddr};
use std::time::Duration;

use dnsweir_filter::test::{self, EventLiteral, QueryLiteral, node};
use dnsweir_filter::{Class, Manifest, Rcode, Source, Transport, Type};
use dnsweir_filter_log::Log;

fn lines(config: &[test::Node], events: &[EventLiteral]) -> String {
    let mut log = test::start::<Log>(config.to_vec()).unwrap();
    for event in events {
        log.event(event);
    }
    log.printed()
}

fn query() -> QueryLiteral {
    test::query("example.org", Type::A).time(Duration::from_millis(1_767_225_599_001))
}

fn answered() -> EventLiteral {
    test::event(query()).duration(Duration::from_micros(420))
}

#[test]
fn the_default_is_the_common_log_format() {
    let line = "192.0.2.1:1053 - 4660 \"A IN example.org. udp 29 false 512\" NOERROR qr,rd,ra 45 0.00042s\n";
    assert_eq!(lines(&[], &[answered()]), line);
    assert_eq!(lines(&[node("format").arg("common")], &[answered()]), line);
    let mut log = test::start::<Log>([]).unwrap();
    assert_eq!(log.manifest(), &Manifest::new().events());
    log.event(&answered());
    log.event(&answered());
    assert_eq!(log.printed(), line.repeat(2));
}

#[test]
fn combined_adds_the_opcode() {
    let notify = test::event(query().header(0x2000).edns(1232, true)).rcode(Rcode::NOTIMP);
    assert_eq!(
        lines(&[node("format").arg("combined")], &[notify]),
        "192.0.2.1:1053 - 4660 4 \"A IN example.org. udp 29 true 1232\" NOTIMP qr,rd,ra 45 0s\n"
    );
}

#[test]
fn pods_are_told_where_that_is_wanted() {
    let text = node("format").arg("{name} {identity} {namespace} {pod}");
    let ask = |query: QueryLiteral| test::event(query);
    let events = [
        ask(query().pod("shop", "web-1.a")),
        ask(query().host()),
        ask(query()),
        ask(query().pod("a\"b", "c\nd")),
    ];
    let expected = [
        "example.org. shop/web-1.a shop web-1.a",
        "example.org. host - -",
        "example.org. unknown - -",
        "example.org. ?/? ? ?",
    ];
    assert_eq!(
        lines(std::slice::from_ref(&text), &events),
        expected.join("\n") + "\n"
    );
    let manifest = |config: test::Node| test::start::<Log>([config]).unwrap().manifest().clone();
    assert_eq!(manifest(text), Manifest::new().events().identity());
    assert_eq!(manifest(node("format").arg("{name}")), Manifest::new().events());
    let json = lines(&[node("format").arg("json")], &events[..1]);
    assert!(
        json.ends_with(",\"namespace\":\"shop\",\"pod\":\"web-1.a\"}\n"),
        "{json}"
    );
}

/// Both are written by separate code.
#[test]
fn common_and_combined_are_what_the_readme_says() {
    let start = "{remote}:{port} - {>id}";
    let rest =
        r#""{type} {class} {name} {proto} {size} {>do} {>bufsize}" {rcode} {>rflags} {rsize} {duration}"#;
    let over_tcp = test::query(r"a\.b.test", Type(65_280))
        .client(SocketAddr::from((Ipv6Addr::LOCALHOST, 7)))
        .transport(Transport::Tcp);
    let notify = test::event(query().header(0x2000).edns(1232, true)).rcode(Rcode::NOTIMP);
    let events = [answered(), notify, test::event(over_tcp).dropped()];
    for (name, text) in [
        ("common", format!("{start} {rest}")),
        ("combined", format!("{start} {{>opcode}} {rest}")),
    ] {
        // With a suffix, the text is not recognized, and is written piece by piece.
        let apart = lines(&[node("format").arg(format!("{text}!").as_str())], &events);
        let named = lines(&[node("format").arg(name)], &events);
        assert_eq!(named.replace('\n', "!\n"), apart);
        assert_eq!(lines(&[node("format").arg(text.as_str())], &events), named);
    }
}

#[test]
fn json_is_one_object_per_line() {
    let odd = test::query(r#"q\"uo\\te\010.test"#, Type(65_280))
        .class(Class::CH)
        .client(SocketAddr::from((Ipv6Addr::LOCALHOST, 7)))
        .transport(Transport::Tcp);
    let events = [answered().source(Source::Upstream), test::event(odd).dropped()];
    assert_eq!(
        lines(&[node("format").arg("json")], &events),
        concat!(
            r#"{"time":"2025-12-31T23:59:59.001Z","client":"192.0.2.1","port":1053,"id":4660,"#,
            r#""name":"example.org.","type":"A","class":"IN","proto":"udp","size":29,"do":false,"#,
            r#""bufsize":512,"rcode":"NOERROR","flags":["qr","rd","ra"],"rsize":45,"duration":0.00042,"#,
            r#""source":"upstream"}"#,
            "\n",
            r#"{"time":"1970-01-01T00:00:00.000Z","client":"::1","port":7,"id":4660,"#,
            r#""name":"q\\\"uo\\\\te\\010.test.","type":"TYPE65280","class":"CH","proto":"tcp","size":29,"#,
            r#""do":false,"bufsize":65535,"rcode":null,"flags":[],"rsize":0,"duration":0,"source":"cache"}"#,
            "\n",
        )
    );
}

#[test]
fn every_placeholder_has_a_value() {
    let format = "{time} {remote} {port} {>id} {>opcode} {type} {class} {name} {proto} {size} {>do} \
                  {>bufsize} {rcode} {>rflags} {rsize} {duration} {source} end";
    let client = SocketAddr::from((Ipv6Addr::LOCALHOST, 5353));
    let event = test::event(query().client(client).edns(300, false))
        .rcode(Rcode(4095))
        .response_header(0x87f0)
        .id(1)
        .source(Source::Stale);
    assert_eq!(
        lines(&[node("format").arg(format)], std::slice::from_ref(&event)),
        "2025-12-31T23:59:59.001Z [::1] 5353 1 0 A IN example.org. udp 29 false 512 4095 \
         qr,aa,tc,rd,ra,z,ad,cd 45 0s stale end\n"
    );
    let flags = lines(&[node("format").arg("{rcode} {>rflags}")], &[event.dropped()]);
    assert_eq!(flags, "- -\n");
}

#[test]
fn the_readme_names_placeholders_that_exist() {
    let rows = include_str!("../README.md")
        .lines()
        .filter(|line| line.starts_with("| `{"));
    let mut count = 0;
    for row in rows {
        let cell = row.split('|').nth(1).unwrap().replace(['`', ' '], "");
        assert!(test::start::<Log>([node("format").arg(&*cell)]).is_ok(), "{cell}");
        count += cell.matches('{').count();
    }
    assert_eq!(count, 20);
}

#[test]
fn what_a_client_sends_cannot_forge_a_line() {
    let forged = test::query(r#"a\010b\"\032c.test"#, Type::A);
    let line = lines(&[node("format").arg("\"{name}\"")], &[test::event(forged)]);
    assert_eq!(line, "\"a\\010b\\\"\\032c.test.\"\n");
}

#[test]
fn classes_choose_what_is_logged() {
    let events = [
        answered(),
        answered().rcode(Rcode::NXDOMAIN),
        answered().no_answers(),
        answered().rcode(Rcode::SERVFAIL),
        answered().rcode(Rcode::REFUSED),
        answered().dropped(),
        test::event(query().transport(Transport::Internal)),
    ];
    let logged = |classes: &[test::Node]| {
        let format = node("format").arg("{rcode}/{rsize}");
        lines(&[classes, &[format]].concat(), &events)
    };
    let (success, denial) = ("NOERROR/45\n", "NXDOMAIN/45\nNOERROR/45\n");
    let error = "SERVFAIL/45\nREFUSED/45\n-/0\n";
    let all = [success, denial, error].concat();
    let class = |name: &str| node("class").arg(name);
    assert_eq!(logged(&[]), all);
    assert_eq!(logged(&[class("all")]), all);
    assert_eq!(logged(&[class("denial").arg("all")]), all);
    assert_eq!(logged(&[class("success")]), success);
    assert_eq!(logged(&[class("denial")]), denial);
    assert_eq!(logged(&[class("error")]), error);
    assert_eq!(logged(&[class("denial").arg("error")]), [denial, error].concat());
    assert_eq!(
        logged(&[class("denial"), class("success")]),
        [success, denial].concat()
    );
}

#[test]
fn mistakes_are_told() {
    let told = |config: test::Node| {
        let mistakes = test::start::<Log>([config]).unwrap_err();
        assert_eq!(mistakes.len(), 1, "{mistakes:?}");
        (mistakes[0].message.clone(), mistakes[0].help.clone())
    };
    let (message, help) = told(node("class").arg("denied"));
    assert_eq!(
        message,
        "the first argument of `class` must be a class, not \"denied\""
    );
    assert_eq!(help, "\"success\", \"denial\", \"error\" or \"all\"");
    assert!(
        told(node("format").arg("{name} {local}"))
            .1
            .starts_with("there is no {local}; there are {remote} {port}")
    );
    assert_eq!(told(node("format").arg("{name")).1, "a { is not closed by }");
    assert!(told(node("format").arg("comon")).1.contains("placeholders"));
    assert!(
        told(node("format").arg("{name}\n"))
            .1
            .contains("control characters")
    );
    assert_eq!(
        told(node("class")).0,
        "`class` needs a class as its first argument"
    );
    assert_eq!(
        told(node("classes").arg("all")).0,
        "this filter knows no `classes`"
    );
}
