//! A Corefile imported by `dnsweir import` answers as CoreDNS does.

use std::path::Path;
use std::process::Output;

use crate::corefiles::{import, imported, refused};
use crate::harness::{Message, Proxy, Upstream};

/// A proxy with the imported configuration of a block for all names.
fn start(plugins: &str) -> Proxy {
    start_all(&format!(".:5301 {{\n bind 127.0.0.1\n{plugins}\n}}\n"))
}

/// A proxy with the imported configuration of server blocks on 127.0.0.1:5301.
fn start_all(corefile: &str) -> Proxy {
    let text = imported(corefile).replace("127.0.0.1:5301", "$LISTEN");
    Proxy::start(&text.replace("listen \"$LISTEN\"", "admin \"$ADMIN\"\nlisten \"$LISTEN\""))
}

/// Imports a Corefile; blocks that cannot be translated refuse all queries.
fn import_partly(corefile: &Path) -> Output {
    let mut command = crate::harness::proxy::command();
    let command = command.arg("import").arg("--partly").arg(corefile);
    command.output().expect("dnsweir import")
}

/// The part of a translation about a zone.
fn zone<'t>(text: &'t str, name: &str) -> &'t str {
    let from = text.split(&format!("zone \"{name}\" {{")).nth(1);
    let part = from.unwrap_or_else(|| panic!("no zone {name}: {text}"));
    part.split("\n}").next().unwrap_or(part)
}

fn anything() -> Upstream {
    Upstream::start(|asked| asked.answer(&[&format!("{} 300 A 192.0.2.1", asked.name())]))
}

/// CoreDNS's names end with a dot, and its expressions expect it, in whichever way they are written.
#[test]
fn expressions_match_the_last_dot() {
    let upstream = anything();
    for expression in [
        r"^a\.test\.$",
        r"^a[.]test[.]$",
        "^a.test.$",
        r"^a\.test(\.)$",
        r"^a\x2etest\x2e\z",
        r"^a\.test.+",
    ] {
        let proxy = start(&format!(
            " rewrite continue ttl regex {expression} 77\n rewrite name regex {expression} b.test answer auto\n \
             forward . {}",
            upstream.address
        ));
        let before = upstream.count("b.test");
        assert_eq!(
            proxy.query("a.test", "A").answers(),
            ["a.test. A 192.0.2.1"],
            "{expression}"
        );
        assert_eq!(upstream.count("b.test"), before + 1, "{expression}");
        assert_eq!(proxy.query("a.test", "A").ttl(), 77, "{expression}");
        let proxy = start(&format!(
            " template IN TXT . {{\n match {expression} ^never$\n match ^late\n answer \"{{{{ .Name }}}} 60 IN TXT yes\"\n fallthrough\n }}\n \
             rewrite rcode regex {expression} NOERROR NXDOMAIN\n forward . {}",
            upstream.address
        ));
        assert_eq!(
            proxy.query("a.test", "TXT").answers(),
            ["a.test. TXT \"yes\""],
            "{expression}"
        );
        assert_eq!(
            proxy.query("late.test", "TXT").answers(),
            ["late.test. TXT \"yes\""]
        );
        assert_eq!(proxy.query("a.test", "A").rcode(), "NXDOMAIN", "{expression}");
    }
    let whole = start(&format!(
        " rewrite name regex (.+) {{1}}example answer auto\n forward . {}",
        upstream.address
    ));
    whole.query("a.test", "A");
    assert_eq!(upstream.count("a.test.example"), 1);
}

/// `rewrite cname` applies to the targets in answers, not to the question.
#[test]
fn rules_about_aliases_are_about_answers() {
    let upstream = Upstream::start(|asked| match asked.name().as_str() {
        "abc.example." => asked.answer(&["abc.example. 5 CNAME def.example.", "def.example. 5 A 192.0.2.9"]),
        name => asked.answer(&[&format!("{name} 300 A 192.0.2.1")]),
    });
    let rules =
        " rewrite continue cname exact def.example xyz.example\n rewrite continue cname suffix old. new.\n";
    let proxy = start(&format!("{rules} cache\n forward . {}", upstream.address));
    for _ in 0..2 {
        assert_eq!(
            proxy.query("abc.example", "A").answers(),
            ["abc.example. CNAME xyz.example.", "xyz.example. A 192.0.2.1"]
        );
        // A query for the target itself gets its own answer.
        assert_eq!(
            proxy.query("def.example", "A").answers(),
            ["def.example. A 192.0.2.1"]
        );
    }
    let never = refused(". {\n rewrite cname suffix old new\n forward . 192.0.2.1\n}\n");
    assert!(
        never.contains("Corefile:2:2") && never.contains("end in a dot"),
        "{never}"
    );
}

/// Expressions change names in data with `answer value`.
#[test]
fn names_in_data_are_changed() {
    let upstream =
        Upstream::start(|asked| asked.answer(&[&format!("{} 300 MX 10 mail.new.test.", asked.name())]));
    let proxy = start(&format!(
        " rewrite stop {{\n name suffix .old.test. .new.test.\n answer auto\n answer value (.*)\\.new\\.test\\.$ {{1}}.old.test\n }}\n \
         forward . {}",
        upstream.address
    ));
    assert_eq!(
        proxy.query("a.old.test", "MX").answers(),
        ["a.old.test. MX 10 mail.old.test."]
    );
    assert_eq!(
        proxy.query("a.new.test", "MX").answers(),
        ["a.new.test. MX 10 mail.new.test."]
    );
}

/// What `check` would refuse is reported at its line of the Corefile, and nothing is printed.
#[test]
fn what_check_would_refuse_is_told_of_the_corefile() {
    for (text, line, reason) in [
        (
            ". {\n errors\n template IN A {\n  match (\n  answer \"x A 192.0.2.1\"\n }\n}\n",
            "Corefile:4:",
            "regular expression",
        ),
        (
            ". {\n forward . 192.0.2.1\n hosts /none {\n  192.0.2.1 a..b\n }\n}\n",
            "Corefile:4:",
            "domain name",
        ),
        (
            ". {\n forward . 192.0.2.1\n acl {\n  block net 10.0.0.0/33\n }\n}\n",
            "Corefile:4:",
            "10.0.0.0/33",
        ),
        (
            ". {\n forward . 192.0.2.1\n rewrite name regex (a) {2}\n}\n",
            "Corefile:3:",
            "no group 2",
        ),
        (
            ". {\n rewrite type ANY HINF\n forward . 192.0.2.1\n}\n",
            "Corefile:2:",
            "HINF",
        ),
        (
            "a {\n file /nonexistent/a.zone\n}\n",
            "Corefile:2:",
            "/nonexistent/a.zone",
        ),
    ] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let corefile = folder.path().join("Corefile");
        std::fs::write(&corefile, text).expect("a Corefile");
        let done = import(&corefile);
        let said = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(64), "{text}\n{said}");
        assert!(done.stdout.is_empty(), "{text}");
        assert!(said.contains(line) && said.contains(reason), "{text}\n{said}");
    }
}

/// Two `match` lines form one list, and bits beyond a prefix are ignored.
#[test]
fn lists_and_networks_are_read_as_coredns_does() {
    let text = imported(
        ". {\n template ANY A {\n  match ^a ^b\n  match ^c\n  rcode NXDOMAIN\n }\n acl {\n  block net 10.1.2.3/8\n }\n forward . 192.0.2.1\n}\n",
    );
    for part in [
        "match \"^a\" \"^b\" \"^c\" final-dot=#true",
        "block \"10.0.0.0/8\"",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// A block that answers nothing refuses, like a CoreDNS block without plugins.
#[test]
fn blocks_that_answer_nothing_refuse() {
    let upstream = anything();
    let proxy = start_all(&format!(
        "example:5301 {{\n bind 127.0.0.1\n cache\n}}\nlogged.test:5301 {{\n bind 127.0.0.1\n errors\n}}\n\
         .:5301 {{\n bind 127.0.0.1\n forward . {}\n}}\n",
        upstream.address
    ));
    assert_eq!(proxy.query("a.example", "A").rcode(), "REFUSED");
    assert_eq!(proxy.query("a.logged.test", "A").rcode(), "REFUSED");
    assert_eq!(proxy.query("a.test", "A").rcode(), "NOERROR");
}

/// With `--partly`, only the block with the untranslatable part is refused.
#[test]
fn a_block_that_cannot_be_said_refuses() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let corefile = folder.path().join("Corefile");
    let text = "skydns.local:5301 {\n bind 127.0.0.1\n errors\n etcd\n}\n.:5301 {\n bind 127.0.0.1\n forward . 192.0.2.1\n}\n";
    std::fs::write(&corefile, text).expect("a Corefile");
    let whole = import(&corefile);
    assert_eq!((whole.status.code(), whole.stdout.len()), (Some(64), 0));
    let done = import_partly(&corefile);
    assert!(done.status.success(), "{done:?}");
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(
        said.contains("Corefile:4:2") && said.contains("`etcd` is not supported"),
        "{said}"
    );
    let ours = String::from_utf8_lossy(&done.stdout).replace("127.0.0.1:5301", "$LISTEN");
    assert!(ours.contains("// Line 4: `etcd` is not supported."), "{ours}");
    let proxy = Proxy::start(&ours.replace("listen \"$LISTEN\"", "admin \"$ADMIN\"\nlisten \"$LISTEN\""));
    assert_eq!(proxy.query("a.skydns.local", "A").rcode(), "REFUSED");
    // A mistake in where a block answers affects all of it.
    std::fs::write(&corefile, "a..b {\n whoami\n}\n").expect("a Corefile");
    assert_eq!(import_partly(&corefile).status.code(), Some(64));
}

/// The same for what only the check of the result finds. Mistakes in a file hide those in filters.
#[test]
fn a_block_that_check_would_refuse_refuses() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let corefile = folder.path().join("Corefile");
    let upstream = anything();
    let text = format!(
        "a.test:5301 {{\n bind 127.0.0.1\n template IN A {{\n  match (\n  answer \"{{{{ .Name }}}} A 192.0.2.9\"\n }}\n}}\n\
         b.test:5301 {{\n bind 127.0.0.1\n acl {{\n  block net 10.0.0.0/33\n }}\n whoami\n}}\n\
         c.test:5301 {{\n bind 127.0.0.1\n file /nonexistent/c.zone\n}}\n\
         .:5301 {{\n bind 127.0.0.1\n forward . {}\n}}\n",
        upstream.address
    );
    std::fs::write(&corefile, text).expect("a Corefile");
    let done = import_partly(&corefile);
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}");
    let ours = String::from_utf8_lossy(&done.stdout).replace("127.0.0.1:5301", "$LISTEN");
    for line in [4, 11, 17] {
        assert!(
            said.contains(&format!("Corefile:{line}:")) && ours.contains(&format!("// Line {line}: ")),
            "{line}: {said}\n{ours}"
        );
    }
    let proxy = Proxy::start(&ours.replace("listen \"$LISTEN\"", "admin \"$ADMIN\"\nlisten \"$LISTEN\""));
    for (name, rcode) in [
        ("x.a.test", "REFUSED"),
        ("x.b.test", "REFUSED"),
        ("x.c.test", "REFUSED"),
        ("x.test", "NOERROR"),
    ] {
        assert_eq!(proxy.query(name, "A").rcode(), rcode, "{name}");
    }
    // What is in no block cannot refuse.
    let text = "tls://a.test {\n bind 127.0.0.1\n tls /nonexistent/c.pem /nonexistent/k.pem\n whoami\n}\n";
    std::fs::write(&corefile, text).expect("a Corefile");
    assert_eq!(import_partly(&corefile).status.code(), Some(64));
}

/// What a resolv.conf of this machine says may be otherwise where the result is for: it is only noted.
#[test]
fn a_loop_through_a_file_of_this_machine_is_noted() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("resolv.conf");
    let file = file.display();
    std::fs::write(file.to_string(), "nameserver 127.0.0.53\n").expect("a resolv.conf");
    let block = |more: &str| format!(". {{\n bind 127.0.0.53\n{more} forward . {file}\n}}\n");
    let text = imported(&block("")).replace("\n    // ", " ");
    for part in [
        format!(" {file}: nameserver 127.0.0.53: a loop: the proxy itself listens on 127.0.0.53:53."),
        format!("\n    forward \"{file}\""),
    ] {
        assert!(text.contains(&part), "{part}: {text}");
    }
    // It hides no mistake of the Corefile.
    let shown = refused(&block(" rewrite name regex (a) {2}\n"));
    assert!(
        shown.contains("no group 2") && !shown.contains("a loop"),
        "{shown}"
    );
    let shown = refused(". {\n bind 127.0.0.53\n forward . 127.0.0.53\n}\n");
    assert!(shown.contains("is a loop"), "{shown}");
    // A server that is also written is asked, once.
    std::fs::write(file.to_string(), "nameserver 192.0.2.8\n").expect("a resolv.conf");
    let text = imported(&format!(
        ". {{\n bind 127.0.0.53\n forward . {file} 192.0.2.8\n}}\n"
    ));
    assert!(
        text.contains(&format!("forward \"{file}\" \"192.0.2.8\"")),
        "{text}"
    );
}

/// A wrong expression is one mistake: the records below it are not unknown.
#[test]
fn a_wrong_expression_is_one_mistake() {
    let shown = refused(
        ". {\n template IN A {\n  match (\n  answer \"{{ .Name }} A 192.0.2.1\"\n  additional \"ns A 192.0.2.1\"\n }\n}\n",
    );
    assert!(shown.contains("Corefile:3:"), "{shown}");
    assert_eq!(shown.matches('×').count(), 1, "{shown}");
}

/// CoreDNS takes a file that is not there for an empty one. Here it is a mistake, unless there are other names.
#[test]
fn a_file_of_hosts_is_not_forgotten() {
    let block = |file: &str, inside: &str| {
        format!(
            ". {{\n hosts {file} {{\n{inside}  fallthrough\n }}\n forward a.test 192.0.2.1\n forward . 192.0.2.2\n}}\n"
        )
    };
    let shown = refused(&block("/nonexistent/hosts", ""));
    for part in [
        "Corefile:2:8",
        "there is no file /nonexistent/hosts",
        "create an empty one",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert_eq!(shown.matches('×').count(), 1, "{shown}");
    let named = imported(&block("/nonexistent/hosts", "  192.0.2.7 listed.test\n"));
    for part in [
        "// There was no file /nonexistent/hosts",
        "(file)\"/nonexistent/hosts\"",
        "host \"listed.test\" \"192.0.2.7\"",
    ] {
        assert!(named.contains(part), "{part}: {named}");
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("hosts");
    std::fs::write(&file, "").expect("a file");
    let read = imported(&block(&file.display().to_string(), ""));
    assert!(
        read.contains(&format!("file (file)\"{}\"", file.display())),
        "{read}"
    );
}

/// Of several `log` lines, CoreDNS uses the first that is for the name.
#[test]
fn a_query_is_logged_by_the_first_line_for_its_name() {
    let block = |lines: &str| format!(". {{\n bind 127.0.0.1\n{lines} forward . 192.0.2.1\n}}\n");
    let (some, all) = (" log example.org \"{remote} {name}\"\n", " log . {combined}\n");
    let text = imported(&block(&format!("{some}{all}")));
    assert_eq!(
        zone(&text, "example.org.").matches("use \"log").count(),
        1,
        "{text}"
    );
    assert_eq!(zone(&text, ".").matches("use \"log").count(), 1, "{text}");
    for format in ["format \"{remote} {name}\"", "format \"combined\""] {
        assert_eq!(text.matches(format).count(), 1, "{text}");
    }
    let text = imported(&block(&format!("{all}{some}")));
    assert_eq!(text.matches("format ").count(), 1, "{text}");
    assert!(text.contains("format \"combined\""), "{text}");
}

/// In Go, an address without a host and each wildcard are of both families.
#[test]
fn health_and_metrics_are_on_both_families() {
    let block = |address: &str| {
        format!(
            ". {{\n bind 127.0.0.1\n health 127.0.0.1:9153\n ready {address}:8181\n prometheus {address}:9153\n forward . 192.0.2.1\n}}\n"
        )
    };
    for address in ["", "0.0.0.0", "[::]"] {
        let text = imported(&block(address));
        let admin = "\nadmin \"[::]:8181\" \"[::]:9153\" status=#false\n";
        assert!(text.contains(admin), "{address}: {text}");
    }
}

/// Interfaces become their addresses, files are relative to `root` or the working folder, and words without
/// effect are accepted.
#[test]
fn words_without_an_effect_are_taken() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let zone =
        "$ORIGIN a.test.\n@ 60 IN SOA ns hostmaster 1 60 60 60 60\n@ 60 IN NS ns\nns 60 IN A 192.0.2.1\n";
    std::fs::write(folder.path().join("a.zone"), zone).expect("a zone");
    let text = imported(&format!(
        "a.test:5301 {{\n bind lo {{\n  except ::1\n }}\n root {0}\n file a.zone\n}}\n\
         .:5301 {{\n bind 127.0.0.1\n chaos v1 me\n nsid here\n upstream\n debug\n \
         forward . 192.0.2.1 tls://9.9.9.9%dns.quad9.net {{\n  health_check 2s no_rec domain example.org\n }}\n}}\n",
        folder.path().display()
    ));
    for part in [
        "listen \"127.0.0.1:5301\" {",
        &format!("file \"{}/a.zone\"", folder.path().display()),
        "// chaos: ",
        "// nsid: ",
        "// upstream: ",
        "probe \"2s\"",
        "next \"SERVFAIL\"",
        "forward \"tls://9.9.9.9%dns.quad9.net\"",
        "// debug: ",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(
        text.find("forward \"192.0.2.1\"") < text.find("next \"SERVFAIL\""),
        "{text}"
    );
}

/// Each of several zone files in a block has its own zone, and aliases lead from one to another.
#[test]
fn each_file_of_a_block_has_its_zone() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let soa = "@ 60 IN SOA ns hostmaster 1 60 60 60 60\n@ 60 IN NS ns\n";
    for (name, record) in [
        ("a.test", "www 60 IN CNAME www.b"),
        ("b.a.test", "www 60 IN A 192.0.2.53"),
    ] {
        std::fs::write(
            folder.path().join(name),
            format!("$ORIGIN {name}.\n{soa}{record}\n"),
        )
        .expect("a zone");
    }
    let proxy = start(&format!(
        " root {}\n file a.test a.test\n file b.a.test b.a.test",
        folder.path().display()
    ));
    assert_eq!(
        proxy.query("www.a.test", "A").answers(),
        ["www.a.test. CNAME www.b.a.test.", "www.b.a.test. A 192.0.2.53"]
    );
}

/// `local` answers for this host's names and networks, whatever follows.
#[test]
fn local_names_are_answered_as_coredns_does() {
    let upstream = anything();
    let proxy = start(&format!(" local\n forward . {}", upstream.address));
    let soa = "SOA localhost. root.localhost. 1 0 0 0 604800";
    for (name, qtype, rcode, answers) in [
        (
            "localhost.example",
            "A",
            "NOERROR",
            vec!["localhost.example. A 127.0.0.1"],
        ),
        (
            "localhost.example",
            "AAAA",
            "NOERROR",
            vec!["localhost.example. AAAA ::1"],
        ),
        ("localhost.example", "MX", "NOERROR", vec![]),
        (
            "1.0.0.127.in-addr.arpa",
            "PTR",
            "NOERROR",
            vec!["1.0.0.127.in-addr.arpa. PTR localhost."],
        ),
        ("1.0.0.127.in-addr.arpa", "A", "NOERROR", vec![]),
        ("2.0.0.127.in-addr.arpa", "PTR", "NXDOMAIN", vec![]),
        (
            "127.in-addr.arpa",
            "NS",
            "NOERROR",
            vec!["127.in-addr.arpa. NS localhost."],
        ),
        ("255.in-addr.arpa", "A", "NOERROR", vec![]),
        (
            "other.example",
            "A",
            "NOERROR",
            vec!["other.example. A 192.0.2.1"],
        ),
    ] {
        let answer = proxy.query(name, qtype);
        assert_eq!(
            (answer.rcode().as_str(), answer.answers()),
            (rcode, answers.iter().map(|line| (*line).to_owned()).collect()),
            "{name} {qtype}"
        );
        assert!(
            !answers.is_empty() || answer.authority[0].without_ttl().ends_with(soa),
            "{answer}"
        );
    }
    assert_eq!(upstream.count("localhost.example"), 0);
    let off = start(&format!(
        " local {{\n localhost_prefix off\n }}\n forward . {}",
        upstream.address
    ));
    off.ask(&Message::query("localhost.example", "A"));
    assert_eq!(upstream.count("localhost.example"), 1);
}

/// CoreDNS serves health and metrics to everyone, but none of the clients' queries.
#[test]
fn an_imported_address_of_metrics_shows_no_queries() {
    let upstream = anything();
    let text = imported(&format!(
        ".:5301 {{\n bind 127.0.0.1\n prometheus 127.0.0.1:5302\n forward . {}\n}}\n",
        upstream.address
    ));
    let text = text
        .replace("127.0.0.1:5301", "$LISTEN")
        .replace("127.0.0.1:5302", "$ADMIN");
    assert!(text.contains("admin \"$ADMIN\" status=#false"), "{text}");
    let proxy = Proxy::start(&text);
    assert_eq!(proxy.query("secret.tenant.test", "A").rcode(), "NOERROR");
    assert_eq!(proxy.get("/health").0, 200);
    let (code, metrics) = proxy.get("/metrics");
    assert_eq!(code, 200);
    for path in ["/", "/status"] {
        let (code, body) = proxy.get(path);
        assert_eq!(code, 404, "{path}: {body}");
        assert!(!body.contains("tenant"), "{path}: {body}");
    }
    assert!(!metrics.contains("tenant"), "{metrics}");
}
