//! `forward`: whom to ask.

use std::net::SocketAddr;
use std::path::Path;

use kdl::{KdlEntry, KdlNode, KdlValue};

use super::address::{DNS_PORT, address};
use super::decode::{Mistakes, Shape, Wrong, arguments, block, child, head, whole, word};
use super::encrypted;
use super::error::{Diagnostic, Span};
use super::files;
use super::listen::Listeners;
use super::name::zone_name;
use super::resolv_conf::{self, NameServers};
use super::units::{duration, ms, s, spell_duration};
use super::{Encryption, Forward, Next, Node, NodeMode, Policy, Protocol, Trust, TsigKey, Upstream};

/// Upstreams of one `forward`, those of a resolv.conf included.
const MOST_UPSTREAMS: usize = 16;

pub(super) const FORWARD: Shape = Shape {
    example: r#"forward "10.96.0.11" { protocol "tcp" }"#,
    arguments: 1..=MOST_UPSTREAMS,
    properties: &[],
    children: &[
        "protocol",
        "tls",
        "https-method",
        "policy",
        "timeout",
        "deadline",
        "attempts",
        "max-fails",
        "probe",
        "concurrent",
        "jostle",
        "connections",
        "idle",
        "max-age",
        "any",
        "plain-names",
        "except",
        "next",
    ],
    repeated: &[],
};

/// With any of these, some questions are left to the stages below.
pub(super) const PASSES_ON: [&str; 2] = ["except", "next"];

const PROTOCOLS: [(&str, Protocol); 2] = [("udp", Protocol::Udp), ("tcp", Protocol::Tcp)];

const METHODS: [(&str, bool); 2] = [("POST", false), ("GET", true)];

const POLICIES: [(&str, Policy); 3] = [
    ("random", Policy::Random),
    ("round-robin", Policy::RoundRobin),
    ("sequential", Policy::Sequential),
];

const PLAIN_NAMES: [(&str, bool); 2] = [("forward", false), ("nxdomain", true)];

const OUTCOMES: [(&str, Next); 4] = [
    ("NXDOMAIN", Next::Nxdomain),
    ("NODATA", Next::Nodata),
    ("SERVFAIL", Next::Servfail),
    ("REFUSED", Next::Refused),
];

pub(super) const EXCEPT: Shape = Shape::plain(1..=256, r#"except "corp.example""#);
pub(super) const NEXT: Shape = Shape::plain(1..=4, r#"next "NXDOMAIN""#);

const TIMEOUT: &str = r#"timeout "2s""#;
const DEADLINE: &str = r#"deadline "5s""#;

/// What surrounds a `forward` and matters to it.
pub(super) struct Place<'a> {
    /// Relative paths begin here.
    pub folder: &'a Path,
    pub listeners: &'a Listeners,
    pub node: Option<&'a Node>,
    /// Every resolv.conf that is read is added.
    pub files: &'a mut files::Met,
    /// What such files name and cannot be asked, or not yet, is added.
    pub unusable: &'a mut Vec<String>,
    /// The interfaces that are named there are added.
    pub interfaces: &'a mut Vec<String>,
    /// Those that zone transfers may be signed with.
    pub keys: &'a [TsigKey],
}

/// Decodes `forward`.
pub(super) fn decode(mistakes: &mut Mistakes, place: &mut Place<'_>, node: &KdlNode) -> Forward {
    mistakes.check(node, &FORWARD);
    let nodes = block(node);
    let (upstreams, scheme) = upstreams(mistakes, place, node);
    let forward = Forward {
        upstreams,
        protocol: protocol(mistakes, nodes, scheme),
        trust: trust(mistakes, place, nodes, scheme),
        get: get(mistakes, nodes, scheme),
        policy: mistakes
            .scalar(nodes, r#"policy "random""#, word(&POLICIES))
            .unwrap_or_default(),
        timeout: mistakes
            .scalar(nodes, TIMEOUT, duration(ms(10)..=s(30)))
            .unwrap_or(s(2)),
        deadline: mistakes
            .scalar(nodes, DEADLINE, duration(ms(10)..=s(60)))
            .unwrap_or(s(5)),
        attempts: mistakes.scalar(nodes, "attempts 4", whole(1..=10)).unwrap_or(4),
        max_fails: mistakes
            .scalar(nodes, "max-fails 2", whole(0..=1000))
            .unwrap_or(2),
        probe: mistakes
            .scalar(nodes, r#"probe "500ms""#, duration(ms(10)..=s(60)))
            .unwrap_or(ms(500)),
        concurrent: mistakes
            .scalar(nodes, "concurrent 1024", whole(1..=1_000_000))
            .unwrap_or(1024),
        jostle: mistakes.scalar(nodes, r#"jostle "200ms""#, duration(ms(0)..=s(60))),
        connections: mistakes
            .scalar(nodes, "connections 2", whole(1..=64))
            .unwrap_or(2),
        idle: mistakes
            .scalar(nodes, r#"idle "10s""#, duration(ms(100)..=s(3600)))
            .unwrap_or(s(10)),
        max_age: mistakes.scalar(nodes, r#"max-age "5m""#, duration(s(1)..=s(86_400))),
        any: mistakes.switch(nodes, "any"),
        denies_plain_names: mistakes
            .scalar(nodes, r#"plain-names "forward""#, word(&PLAIN_NAMES))
            .unwrap_or_default(),
        except: mistakes
            .list(nodes, "except", &EXCEPT, zone_name)
            .unwrap_or_default(),
        next: mistakes
            .list(nodes, "next", &NEXT, word(&OUTCOMES))
            .unwrap_or_default(),
    };
    if forward.timeout > forward.deadline {
        let written = child(nodes, "timeout")
            .or(child(nodes, "deadline"))
            .unwrap_or(node);
        let problem = format!(
            "`timeout` ({}) is longer than `deadline` ({})",
            spell_duration(forward.timeout),
            spell_duration(forward.deadline)
        );
        mistakes.push(Diagnostic::new(head(written), problem).help("lower `timeout` or raise `deadline`"));
    }
    forward
}

/// What upstreams are asked over: what `protocol` says, or their scheme.
fn protocol(mistakes: &mut Mistakes, nodes: &[KdlNode], scheme: Option<Encryption>) -> Protocol {
    let written = mistakes.scalar(nodes, r#"protocol "udp""#, word(&PROTOCOLS));
    if let (Some(scheme), Some(node)) = (scheme, child(nodes, "protocol")) {
        let problem = format!(
            "the upstreams are asked over {}://, and not over this",
            scheme.word()
        );
        mistakes.push(Diagnostic::new(head(node), problem).help("remove `protocol`"));
    }
    scheme.map(Protocol::Encrypted).or(written).unwrap_or_default()
}

/// `https-method "POST" | "GET"`
fn get(mistakes: &mut Mistakes, nodes: &[KdlNode], scheme: Option<Encryption>) -> bool {
    let written = mistakes.scalar(nodes, r#"https-method "POST""#, word(&METHODS));
    if let (Some(node), false) = (child(nodes, "https-method"), scheme == Some(Encryption::Https)) {
        let problem = "`https-method` is for upstreams that are asked over https://, and these are not";
        mistakes.push(Diagnostic::new(head(node), problem).help("remove it"));
    }
    written.unwrap_or_default()
}

/// `tls { … }`
fn trust(
    mistakes: &mut Mistakes,
    place: &mut Place<'_>,
    nodes: &[KdlNode],
    scheme: Option<Encryption>,
) -> Trust {
    let Some(node) = child(nodes, "tls") else {
        return Trust::default();
    };
    if scheme.is_none() {
        let problem = "`tls` is for upstreams that are asked over TLS, and these are asked in clear text";
        mistakes.push(
            Diagnostic::new(head(node), problem)
                .help("write the upstreams with their scheme, as in \"tls://192.0.2.1%dns.example\""),
        );
    }
    let mut files = encrypted::Files {
        folder: place.folder,
        met: place.files,
    };
    encrypted::trust(mistakes, &mut files, node)
}

/// The upstreams that are written, and those in the files that are named; and the scheme that all have, if any has.
fn upstreams(
    mistakes: &mut Mistakes,
    place: &mut Place<'_>,
    node: &KdlNode,
) -> (Vec<Upstream>, Option<Encryption>) {
    let mut found: Vec<(Upstream, Span)> = Vec::new();
    let (mut unusable, mut awaited) = (Vec::new(), false);
    let mut schemes: Vec<(Option<Encryption>, Span)> = Vec::new();
    for entry in arguments(node) {
        let span = Span::from(entry.span());
        let path = entry.value().as_string().filter(|text| is_path(text));
        match path {
            Some(path) => {
                schemes.push((None, span));
                let (servers, mut why) = resolv_conf(mistakes, place, entry, path);
                for address in servers.usable {
                    if !found.iter().any(|(known, _)| known.address == address) {
                        found.push((address.into(), span));
                    }
                }
                awaited |= servers.awaited;
                unusable.append(&mut why);
                place.unusable.extend(servers.unusable);
                place.interfaces.extend(servers.interfaces);
            }
            None => {
                let Some((upstream, scheme)) = mistakes.value("forward", entry, upstream) else {
                    continue;
                };
                schemes.push((scheme, span));
                match found.iter().find(|(known, _)| *known == upstream) {
                    Some((_, first)) => mistakes.push(
                        Diagnostic::new(span, format!("upstream {} is written twice", upstream.address))
                            .label("again")
                            .other(*first, "first here")
                            .help("keep one of them"),
                    ),
                    None => found.push((upstream, span)),
                }
            }
        }
    }
    if found.len() > MOST_UPSTREAMS && arguments(node).count() <= MOST_UPSTREAMS {
        let problem = format!(
            "{} upstreams are more than the {MOST_UPSTREAMS} allowed",
            found.len()
        );
        mistakes.push(Diagnostic::new(head(node), problem).help("remove some of them"));
    }
    for (upstream, span) in &found {
        refuse_loop(mistakes, place, upstream.address, *span);
    }
    if found.is_empty() && !awaited {
        unusable.into_iter().for_each(|why| mistakes.push(why));
    }
    refuse_mixture(mistakes, &schemes);
    let scheme = schemes.first().and_then(|(scheme, _)| *scheme);
    (found.into_iter().map(|(upstream, _)| upstream).collect(), scheme)
}

/// Reports upstreams of one stage that are asked in different ways. Whoever can keep us from one that is encrypted would get
/// to read what is asked instead.
fn refuse_mixture(mistakes: &mut Mistakes, schemes: &[(Option<Encryption>, Span)]) {
    let Some((first, first_span)) = schemes.first() else {
        return;
    };
    if let Some((_, span)) = schemes.iter().find(|(scheme, _)| scheme != first) {
        let problem = "the upstreams of one `forward` are asked in one way, and these are not";
        mistakes.push(
            Diagnostic::new(*span, problem)
                .label("another way than the first")
                .other(*first_span, "the first")
                .help(
                    "give each way a `forward` of its own; the first asks the next with `next \"SERVFAIL\"`",
                ),
        );
    }
}

/// Whether an argument names a file; no address begins like that.
pub(super) fn is_path(text: &str) -> bool {
    ["/", "./", "../"]
        .iter()
        .any(|beginning| text.starts_with(beginning))
}

fn upstream(value: &KdlValue) -> Result<(Upstream, Option<Encryption>), Wrong> {
    if let Some(scheme) = value.as_string().and_then(encrypted::scheme) {
        let (encryption, rest) = scheme?;
        return Ok((encrypted::upstream(rest, encryption)?, Some(encryption)));
    }
    let plain = address(DNS_PORT)(value).map_err(|wrong| {
        let help = format!(
            "{}; or the path of a resolv.conf, which begins with / or ./",
            wrong.help
        );
        Wrong { help, ..wrong }
    })?;
    Ok((plain.into(), None))
}

/// Reports an upstream that is this proxy itself.
fn refuse_loop(mistakes: &mut Mistakes, place: &Place<'_>, upstream: SocketAddr, span: Span) {
    if upstream.ip().is_unspecified() {
        let nobody = Diagnostic::new(span, format!("{upstream} is not the address of a server"));
        mistakes.push(nobody.help("write the address of the server to ask"));
        return;
    }
    let Some((listener, listens)) = loops(place, upstream) else {
        return;
    };
    let why = if listener.ip().is_unspecified() {
        "this listens on every address"
    } else {
        "listens here"
    };
    mistakes.push(
        Diagnostic::new(
            span,
            format!("forwarding to {upstream} is a loop: the proxy itself listens there"),
        )
        .label("queries come back from here")
        .other(listens, why)
        .help("forward to another server, or listen on another address or port"),
    );
}

/// The listener that gets what is sent to an upstream, if one does, and its place.
fn loops(place: &Place<'_>, upstream: SocketAddr) -> Option<(SocketAddr, Span)> {
    // With the rules of fall-through, what the node itself sends to the cluster's DNS goes to the
    // cluster's DNS, although the proxy listens on that address, too.
    let past_us = place.node.is_some_and(|node| {
        node.iptables
            && node.mode == NodeMode::FallThrough
            && upstream.port() == DNS_PORT
            && node.cluster_dns.contains(&upstream.ip())
    });
    place.listeners.reached_by(upstream).filter(|_| !past_us)
}

/// The name servers in the resolv.conf at `path`, and what is to be reported if nobody else can be asked.
fn resolv_conf(
    mistakes: &mut Mistakes,
    place: &mut Place<'_>,
    entry: &KdlEntry,
    path: &str,
) -> (NameServers, Vec<Diagnostic>) {
    let path = place.folder.join(path);
    place.files.note(&path);
    let span = Span::from(entry.span());
    let found = resolv_conf::name_servers(&path, |upstream| {
        let (listener, _) = loops(place, upstream)?;
        Some(format!("a loop: the proxy itself listens on {listener}"))
    });
    let help = "name a file with lines such as `nameserver 192.0.2.1`, or write the addresses here";
    match found {
        Ok(found) => {
            let unusable = found.unusable.iter();
            let unusable = unusable.map(|why| Diagnostic::new(span, why.clone()).help(help));
            let unusable = unusable.collect();
            (found, unusable)
        }
        Err(problem) => {
            mistakes.push(Diagnostic::new(span, format!("{}: {problem}", path.display())).help(help));
            (NameServers::default(), Vec::new())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::tests::{in_zone, parse_in, problems, zone};
    use super::super::{SourceConfig, Stage, Zone};
    use super::*;

    fn forward(text: &str) -> Forward {
        let Zone { stages, .. } = zone(text);
        match stages.into_iter().next() {
            Some(Stage::Source(SourceConfig::Forward(forward))) => forward,
            other => panic!("{other:?}"),
        }
    }

    /// Upstreams without more than an address.
    fn to(addresses: &[&str]) -> Vec<Upstream> {
        let parsed = addresses
            .iter()
            .map(|address| address.parse::<SocketAddr>().unwrap());
        parsed.map(Upstream::from).collect()
    }

    #[test]
    fn everything_but_the_upstreams_has_a_default() {
        let forward = forward(r#"forward "192.0.2.1" "[2001:db8::1]:5353""#);
        assert_eq!(
            forward,
            Forward {
                upstreams: to(&["192.0.2.1:53", "[2001:db8::1]:5353"]),
                protocol: Protocol::Udp,
                trust: Trust::default(),
                get: false,
                policy: Policy::Random,
                timeout: s(2),
                deadline: s(5),
                attempts: 4,
                max_fails: 2,
                probe: ms(500),
                concurrent: 1024,
                jostle: None,
                connections: 2,
                idle: s(10),
                max_age: None,
                any: false,
                denies_plain_names: false,
                except: vec![],
                next: vec![],
            }
        );
    }

    #[test]
    fn every_word_is_read() {
        let zone = zone(
            r#"forward "192.0.2.1" {
                protocol "tcp"; policy "round-robin"; timeout "1s"; deadline "3s"; attempts 1; max-fails 0
                probe "1s"; concurrent 10; jostle "1s"; connections 4; idle "30s"; max-age "5m"; any; plain-names "nxdomain"
                except "Corp.example" "10.in-addr.arpa."; next "NXDOMAIN" "SERVFAIL"
            }
            forward "192.0.2.2""#,
        );
        let Some(Stage::Source(SourceConfig::Forward(forward))) = zone.stages.into_iter().next() else {
            panic!("no source")
        };
        assert_eq!(
            (forward.protocol, forward.policy),
            (Protocol::Tcp, Policy::RoundRobin)
        );
        assert_eq!(
            (forward.timeout, forward.deadline, forward.probe, forward.idle),
            (s(1), s(3), s(1), s(30))
        );
        assert_eq!((forward.attempts, forward.max_fails), (1, 0));
        assert_eq!(forward.max_age, Some(s(300)));
        assert_eq!(
            (forward.concurrent, forward.jostle, forward.connections),
            (10, Some(s(1)), 4)
        );
        assert!(forward.any && forward.denies_plain_names);
        assert_eq!(forward.except, ["corp.example.", "10.in-addr.arpa."]);
        assert_eq!(forward.next, [Next::Nxdomain, Next::Servfail]);
    }

    #[test]
    fn a_scheme_and_a_name_surround_an_address() {
        for (text, address, name) in [
            ("tls://192.0.2.1", "192.0.2.1:853", None),
            (
                "tls://192.0.2.1%Dns.Example",
                "192.0.2.1:853",
                Some("dns.example"),
            ),
            (
                "tls://192.0.2.1%dns.example:8853",
                "192.0.2.1:8853",
                Some("dns.example"),
            ),
            (
                "tls://[2001:db8::1]%dns.example",
                "[2001:db8::1]:853",
                Some("dns.example"),
            ),
            (
                "tls://[fe80::1%7]%dns.example:853",
                "[fe80::1%7]:853",
                Some("dns.example"),
            ),
            (
                "tls://2001:db8::1%dns.example",
                "[2001:db8::1]:853",
                Some("dns.example"),
            ),
        ] {
            let forward = forward(&format!("forward \"{text}\""));
            let name = name.map(str::to_owned);
            let address = address.parse().unwrap();
            let path = None;
            assert_eq!(forward.upstreams, [Upstream { address, name, path }], "{text}");
            assert_eq!(forward.protocol, Protocol::Encrypted(Encryption::Tls));
        }
    }

    #[test]
    fn over_https_a_path_follows() {
        for (text, path) in [
            ("https://192.0.2.1%dns.example", "/dns-query"),
            ("https://192.0.2.1%dns.example:443/", "/"),
            ("https://192.0.2.1%dns.example/a/b~c", "/a/b~c"),
            ("https://192.0.2.1%dns.example/dns-query{?dns}", "/dns-query"),
        ] {
            let forward = forward(&format!("forward \"{text}\" {{ https-method \"GET\" }}"));
            assert_eq!(forward.upstreams[0].path.as_deref(), Some(path), "{text}");
            assert_eq!(forward.upstreams[0].address, "192.0.2.1:443".parse().unwrap());
            assert!(forward.get);
        }
    }

    #[test]
    fn files_of_certificates_are_read_and_watched() {
        let folder = tempfile::tempdir().unwrap();
        let parse = |tls: &str| {
            parse_in(
                folder.path(),
                &in_zone(&format!("forward \"tls://192.0.2.1\" {{ tls {{ {tls} }} }}")),
            )
        };
        let issuer = rcgen::generate_simple_self_signed(["dns.example".to_owned()]).unwrap();
        let other = rcgen::generate_simple_self_signed(["dns.example".to_owned()]).unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        write("ca.pem", &issuer.cert.pem());
        write("key.pem", &issuer.signing_key.serialize_pem());
        write("other.pem", &other.signing_key.serialize_pem());
        write(
            "garbage.pem",
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        );
        write("text.pem", "no PEM");
        let config = parse("ca \"ca.pem\"; certificate \"ca.pem\" key=\"key.pem\"").unwrap();
        assert_eq!(
            config.files,
            ["ca.pem", "key.pem"].map(|name| folder.path().join(name))
        );
        for (text, expected) in [
            ("ca \"none.pem\"", "\"none.pem\" cannot be read"),
            ("ca \"text.pem\"", "\"text.pem\" has no certificate in PEM"),
            (
                "ca \"garbage.pem\"",
                "\"garbage.pem\" has something that is no certificate of an authority",
            ),
            (
                "certificate \"ca.pem\" key=\"ca.pem\"",
                "\"ca.pem\" has no private key in PEM",
            ),
            (
                "certificate \"ca.pem\" key=\"other.pem\"",
                "\"other.pem\" is the key of another certificate",
            ),
            (
                "certificate \"garbage.pem\" key=\"key.pem\"",
                "\"garbage.pem\" cannot be used",
            ),
        ] {
            let report = parse(text).unwrap_err().to_string();
            assert!(report.contains(expected), "{text}\n{report}");
        }
    }

    #[test]
    fn mistakes_of_encrypted_upstreams_are_found() {
        for (text, expected) in [
            (
                "forward \"tsl://192.0.2.1\"",
                "`forward`: \"tsl://192.0.2.1\" is of a scheme that is not known",
            ),
            (
                "forward \"tls://dns.example\"",
                "`forward`: \"tls://dns.example\" is not an IP address",
            ),
            (
                "forward \"tls://192.0.2.1%\"",
                "`forward`: \"tls://192.0.2.1%\" has \"\" for a name, which is none",
            ),
            (
                "forward \"tls://192.0.2.1:853%dns.example\"",
                "`forward`: \"tls://192.0.2.1:853%dns.example\" has its port before the name",
            ),
            (
                "forward \"tls://192.0.2.1\" \"192.0.2.2\"",
                "the upstreams of one `forward` are asked in one way, and these are not",
            ),
            (
                "forward \"tls://192.0.2.1\" { protocol \"tcp\" }",
                "the upstreams are asked over tls://, and not over this",
            ),
            (
                "forward \"192.0.2.1\" { tls }",
                "`tls` is for upstreams that are asked over TLS, and these are asked in clear text",
            ),
            (
                "forward \"https://192.0.2.1/a?b\"",
                "`forward`: \"https://192.0.2.1/a?b\" has \"/a?b\" for a path, which is none",
            ),
            (
                "forward \"tls://192.0.2.1\" { https-method \"GET\" }",
                "`https-method` is for upstreams that are asked over https://, and these are not",
            ),
            (
                "forward \"tls://192.0.2.1\" { tls { pin \"sha256/AAAA\" } }",
                "`pin`: \"sha256/AAAA\" is not the digest of a key",
            ),
            (
                "forward \"tls://192.0.2.1\" { tls { certificate \"a.pem\" } }",
                "`certificate` needs the file of its key",
            ),
        ] {
            assert_eq!(problems(&in_zone(text)), [expected], "{text}");
        }
    }

    #[test]
    fn mistakes_are_found() {
        for (text, expected) in [
            ("forward", "`forward` needs a value"),
            (
                "forward \"dns.example\"",
                "`forward`: \"dns.example\" is not an IP address",
            ),
            ("forward \"0.0.0.0\"", "0.0.0.0:53 is not the address of a server"),
            (
                "forward \"192.0.2.1\" \"192.0.2.1:53\"",
                "upstream 192.0.2.1:53 is written twice",
            ),
            (
                "forward \"192.0.2.1\" { protocol \"tls\" }",
                "`protocol`: \"tls\" is not a valid value",
            ),
            (
                "forward \"192.0.2.1\" { protocol #true }",
                "`protocol`: #true is not a valid value",
            ),
            (
                "forward \"192.0.2.1\" { policy \"round_robin\" }",
                "`policy`: \"round_robin\" is not a valid value",
            ),
            (
                "forward \"192.0.2.1\" { timeout \"6s\" }",
                "`timeout` (6s) is longer than `deadline` (5s)",
            ),
            (
                "forward \"192.0.2.1\" { attempts 0 }",
                "`attempts`: 0 is out of range",
            ),
            (
                "forward \"192.0.2.1\" { max-fails -1 }",
                "`max-fails`: -1 is out of range",
            ),
            (
                "forward \"192.0.2.1\" { concurrent 1.5 }",
                "`concurrent`: 1.5 is not a whole number",
            ),
        ] {
            assert_eq!(problems(&in_zone(text)), [expected], "{text}");
        }
        let many: String = (0..17).map(|n| format!(" \"192.0.2.{n}\"")).collect();
        assert_eq!(
            problems(&in_zone(&format!("forward{many}"))),
            ["`forward` takes at most 16 values"]
        );
    }

    #[test]
    fn loops_are_found() {
        for (text, expected) in [
            (
                "forward \"127.0.0.1\"",
                "forwarding to 127.0.0.1:53 is a loop: the proxy itself listens there",
            ),
            (
                "forward \"::ffff:127.0.0.1\"",
                "forwarding to [::ffff:127.0.0.1]:53 is a loop: the proxy itself listens there",
            ),
        ] {
            assert_eq!(problems(&in_zone(text)), [expected], "{text}");
        }
    }

    #[test]
    fn mistakes_in_what_is_passed_on_are_found() {
        for (text, expected) in [
            ("except", "`except` needs a value"),
            (
                "except \"*.example\"",
                "`except`: \"*.example\" is a wildcard, not a zone",
            ),
            ("next \"NOERROR\"", "`next`: \"NOERROR\" is not a valid value"),
        ] {
            let text = format!("forward \"192.0.2.1\" {{ {text} }}; forward \"192.0.2.2\"");
            assert_eq!(problems(&in_zone(&text)), [expected], "{text}");
        }
    }

    #[test]
    fn a_wildcard_listener_is_reached_through_loopback() {
        let found = |listen: &str, forward: &str| {
            problems(&format!(
                "listen \"{listen}\"\nzone \".\" {{ forward \"{forward}\" }}"
            ))
            .len()
        };
        assert_eq!(found("0.0.0.0", "127.0.0.1"), 1);
        assert_eq!(found("::", "::1"), 1);
        assert_eq!(found("0.0.0.0", "127.0.0.1:5353"), 0);
        assert_eq!(found("0.0.0.0", "::1"), 0);
        assert_eq!(found("0.0.0.0", "192.0.2.1"), 0);
    }

    #[test]
    fn with_fall_through_the_clusters_dns_is_asked_at_the_address_listened_on() {
        let found = |node: &str| {
            problems(&format!(
                "listen \"10.96.0.10\"\nzone \".\" {{ forward \"10.96.0.10\" }}\nnode {{ {node} }}"
            ))
            .len()
        };
        assert_eq!(found("iptables; cluster-dns \"10.96.0.10\""), 0);
        assert_eq!(found("iptables"), 1);
        assert_eq!(found("iptables; mode \"bypass\"; cluster-dns \"10.96.0.10\""), 1);
        assert_eq!(found("interface \"dns\"; cluster-dns \"10.96.0.10\""), 1);
    }

    #[test]
    fn name_servers_are_read_from_a_resolv_conf() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("resolv.conf");
        let text = in_zone("forward \"./resolv.conf\"");
        let parse = |content: &str| {
            fs::write(&path, content).unwrap();
            parse_in(folder.path(), &text)
        };

        let config = parse(
            "# comment\nsearch a.example\noptions ndots:5 new-option\n\
             nameserver 192.0.2.1\nnameserver 2001:db8::1\nnameserver 192.0.2.1\n",
        )
        .unwrap();
        let Stage::Source(SourceConfig::Forward(forward)) = &config.zones[0].stages[0] else {
            panic!("{config:?}")
        };
        assert_eq!(forward.upstreams, to(&["192.0.2.1:53", "[2001:db8::1]:53"]));
        assert_eq!(config.files, [folder.path().join("./resolv.conf")]);

        // What cannot be used is said, and what can is used beside it.
        let config = parse("nameserver 127.0.0.1\nnameserver 192.0.2.1\nnameserver dns.example\n").unwrap();
        let Stage::Source(SourceConfig::Forward(forward)) = &config.zones[0].stages[0] else {
            panic!("{config:?}")
        };
        assert_eq!(forward.upstreams, to(&["192.0.2.1:53"]));
        assert_eq!(config.unusable.len(), 2, "{:?}", config.unusable);
        // Who is not there yet is waited for.
        for content in ["", "nameserver fe80::1%nosuchlink\n"] {
            assert_eq!(parse(content).unwrap().unusable.len(), 1);
        }
        for (content, expected) in [
            ("nameserver dns.example\n", "not an IP address"),
            (
                "nameserver 127.0.0.1\n",
                "a loop: the proxy itself listens on 127.0.0.1:53",
            ),
        ] {
            let report = parse(content).unwrap_err();
            assert_eq!(report.diagnostics().len(), 1, "{report}");
            assert!(report.diagnostics()[0].message.contains(expected), "{report}");
        }
        fs::remove_file(&path).unwrap();
        let config = parse_in(folder.path(), &text).unwrap();
        assert!(
            config.unusable[0].ends_with("not there yet"),
            "{:?}",
            config.unusable
        );
        let beside = in_zone("forward \"192.0.2.1\" \"./resolv.conf\"");
        assert_eq!(parse_in(folder.path(), &beside).unwrap().unusable.len(), 1);
        fs::create_dir(&path).unwrap();
        let report = parse_in(folder.path(), &text).unwrap_err();
        assert!(
            report.diagnostics()[0].message.contains("cannot be read"),
            "{report}"
        );
    }
}
