//! Corefiles that both run, and the intended differences.

use super::{Difference, Said};

/// A Corefile and its special properties.
pub struct Case {
    pub title: &'static str,
    /// With the placeholders `$BIND`, `$PORT` and `$UPSTREAM`.
    pub text: &'static str,
    /// Names to ask for in addition to the common ones.
    pub names: &'static [&'static str],
    /// Whether the order of records is random.
    pub in_any_order: bool,
    pub differences: &'static [Difference],
}

const PLAIN: Case = Case {
    title: "",
    text: "",
    names: &[],
    in_any_order: false,
    differences: &[],
};

pub const CASES: [Case; 15] = [
    Case {
        title: "views",
        text: "example.org:$PORT {\n bind $BIND\n view here {\n expr incidr(client_ip(), '127.0.0.0/8')\n }\n cache\n forward . $UPSTREAM\n}\nexample.org:$PORT {\n bind $BIND\n template ANY ANY {\n rcode REFUSED\n }\n}",
        ..PLAIN
    },
    Case {
        title: "forward alone",
        text: ".:$PORT {\n bind $BIND\n forward . $UPSTREAM\n}",
        ..PLAIN
    },
    Case {
        title: "cache",
        text: ".:$PORT {\n bind $BIND\n errors\n log\n cache\n forward . $UPSTREAM\n}",
        ..PLAIN
    },
    Case {
        title: "cache with bounds",
        text: ".:$PORT {\n bind $BIND\n cache 30 {\n success 1000 60 10\n denial 1000 20 3\n servfail 1s\n }\n forward . $UPSTREAM {\n force_tcp\n policy sequential\n }\n}",
        ..PLAIN
    },
    Case {
        title: "cache, not of everything",
        differences: &[
            Difference {
                settle: |asked, theirs, ours| {
                    if asked.name == "chain.example.org" && ["A", "AAAA"].contains(&asked.qtype) {
                        *theirs = ours.clone();
                    }
                },
                why: "An alias without a target and without an SOA record is not cached (RFC 2308 section 5): its TTL stays",
            },
            Difference {
                settle: |asked, theirs, ours| {
                    if asked.name == "x.live.example.org" {
                        for said in [theirs, ours] {
                            let sections = [&mut said.answers, &mut said.authority, &mut said.additional];
                            for (_, ttl) in sections.into_iter().flatten() {
                                *ttl = (*ttl).min(30);
                            }
                        }
                    }
                },
                why: "Answers that are not cached keep the upstream's TTLs; CoreDNS's cache limits these, too",
            },
        ],
        text: ".:$PORT {\n bind $BIND\n cache 30 {\n disable denial\n disable success live.example.org\n }\n forward . $UPSTREAM\n}",
        ..PLAIN
    },
    Case {
        title: "blocks",
        text: "example.org:$PORT {\n bind $BIND\n cache\n forward . $UPSTREAM\n}\nlive.example.org:$PORT {\n bind $BIND\n forward . $UPSTREAM\n}",
        ..PLAIN
    },
    Case {
        title: "except",
        differences: &[Difference {
            settle: |_, theirs, ours| {
                if (theirs.rcode.as_str(), ours.rcode.as_str()) == ("SERVFAIL", "REFUSED") {
                    theirs.rcode = "REFUSED".into();
                }
            },
            why: "A name for which no stage answers gets REFUSED; CoreDNS answers SERVFAIL",
        }],
        text: "example.org:$PORT {\n bind $BIND\n forward . $UPSTREAM {\n except live.example.org a-3.example.org\n }\n}",
        ..PLAIN
    },
    Case {
        title: "rewrite",
        differences: &[Difference {
            settle: |asked, theirs, ours| {
                let rewritten = asked.name.ends_with(".svc.test") || asked.name == "old.example.org";
                let said = |said: &Said| (said.rcode.clone(), said.answers.len(), said.authority.len());
                if rewritten && said(theirs) == said(ours) {
                    *theirs = ours.clone();
                }
            },
            why: "Original names are restored in the owners of records, not in their data, such as the name of a mail server",
        }],
        text: ".:$PORT {\n bind $BIND\n rewrite name exact old.example.org a-3.example.org\n rewrite name suffix .svc.test .example.org answer auto\n rewrite ttl suffix live.example.org 77\n rewrite type MX TXT\n cache\n forward . $UPSTREAM\n}",
        names: &["old.example.org", "a-1.svc.test", "alias.svc.test", "nx.svc.test"],
        ..PLAIN
    },
    Case {
        title: "hosts",
        differences: &[
            Difference {
                settle: |asked, theirs, ours| {
                    let listed =
                        ["web.example.org", "www.example.org", "six.example.org"].contains(&asked.name);
                    let reverse = asked.name == "1.0.0.10.in-addr.arpa";
                    if listed && asked.qtype == "PTR" || reverse && asked.qtype != "PTR" {
                        *theirs = ours.clone();
                    }
                },
                why: "A name in the table has no other records: no PTR record, and a reverse name has only PTR records",
            },
            Difference {
                settle: |asked, theirs, ours| {
                    let denied = ours.answers.is_empty() && theirs.answers.is_empty();
                    let own = format!("{}. soa ", asked.name);
                    if denied && theirs.authority.is_empty() {
                        ours.authority.retain(|(record, _)| !record.starts_with(&own));
                    }
                },
                why: "A negative answer from the table has an SOA record; without it, caches do not store the answer (RFC 2308 section 2.2)",
            },
        ],
        text: ".:$PORT {\n bind $BIND\n hosts /nonexistent {\n 10.0.0.1 web.example.org www.example.org\n 10.0.0.2 web.example.org\n 2001:db8::7 six.example.org\n ttl 99\n fallthrough\n }\n cache\n forward . $UPSTREAM\n}",
        names: &[
            "web.example.org",
            "www.example.org",
            "six.example.org",
            "1.0.0.10.in-addr.arpa",
        ],
        ..PLAIN
    },
    Case {
        title: "template",
        text: ".:$PORT {\n bind $BIND\n template IN A ip.test {\n match ^ip-(?P<a>\\d+)-(?P<b>\\d+)-(?P<c>\\d+)-(?P<d>\\d+)\\.ip\\.test\\.$\n answer \"{{ .Name }} 60 IN A {{ .Group.a }}.{{ .Group.b }}.{{ .Group.c }}.{{ .Group.d }}\"\n additional \"{{ .Zone }} 30 IN TXT \\\"{{ .Type }} {{ index .Match 1 }}\\\"\"\n fallthrough\n }\n template ANY ANY ip.test {\n rcode NXDOMAIN\n authority \"{{ .Zone }} 60 IN SOA ns.{{ .Zone }} hostmaster.{{ .Zone }} 1 7200 3600 1209600 60\"\n }\n template IN A alias.test {\n answer \"{{ .Name }} 40 IN CNAME a-3.example.org.\"\n }\n template IN TXT strict.test {\n match ^ok\n answer \"{{ .Name }} TXT yes\"\n }\n forward . $UPSTREAM\n}",
        names: &[
            "ip-10-0-0-1.ip.test",
            "www.ip.test",
            "ip.test",
            "x.alias.test",
            "ok.strict.test",
            "no.strict.test",
        ],
        ..PLAIN
    },
    Case {
        title: "acl",
        text: ".:$PORT {\n bind $BIND\n acl live.example.org {\n block\n }\n acl {\n allow net 10.0.0.0/8\n filter type AAAA MX net 127.0.0.0/8\n block type TXT\n }\n cache\n forward . $UPSTREAM\n}",
        ..PLAIN
    },
    Case {
        title: "minimal",
        text: ".:$PORT {\n bind $BIND\n cache\n minimal\n forward . $UPSTREAM\n}",
        ..PLAIN
    },
    Case {
        title: "loadbalance",
        text: ".:$PORT {\n bind $BIND\n loadbalance\n cache\n forward . $UPSTREAM\n}",
        in_any_order: true,
        ..PLAIN
    },
    Case {
        title: "dns64",
        differences: &[Difference {
            settle: |asked, theirs, ours| {
                if asked.qtype == "AAAA" && theirs.answers.len() == ours.answers.len() {
                    for (theirs, ours) in theirs.answers.iter_mut().zip(&ours.answers) {
                        theirs.1 = theirs.1.min(ours.1.max(120));
                    }
                    theirs.authority.clear();
                    theirs.additional.clear();
                }
            },
            why: "A translated answer has a TTL of at most that of the negative answer that it replaces (RFC 6147 section 5.1.7), and only one section",
        }],
        text: ".:$PORT {\n bind $BIND\n dns64 {\n prefix 64:ff9b::/96\n allow_ipv4\n }\n cache\n forward . $UPSTREAM\n}",
        ..PLAIN
    },
    Case {
        title: "small datagrams, any, no ANY",
        text: ".:$PORT {\n bind $BIND\n bufsize 600\n any\n cache\n forward . $UPSTREAM\n}",
        ..PLAIN
    },
];
