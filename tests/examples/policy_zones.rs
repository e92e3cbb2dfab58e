//! `policy-zones`: a zone file with policies, and one that changes.

use std::fs;

use super::documented;
use crate::harness::message::flags;
use crate::harness::{Message, Proxy, Upstream, until};

const ZONE: &str = "\
$TTL 300
@ SOA ns.rpz.example. root.rpz.example. 1 3600 600 86400 60
*.gone.test CNAME .
garden.test CNAME wall.test.
tcp.test CNAME rpz-tcp-only.
24.0.2.0.198.rpz-ip CNAME .
";

#[test]
fn the_documented_configuration_follows_the_zone() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("rpz.zone");
    fs::write(&file, ZONE).expect("a zone");
    let upstream = Upstream::zone(&[
        "wall.test. 300 A 192.0.2.80",
        "tcp.test. 300 A 192.0.2.1",
        "bad.test. 300 A 198.0.2.77",
        "www.gone.test. 300 A 192.0.2.2",
    ]);
    let path = file.display().to_string();
    let proxy = Proxy::start(&documented(
        "policy-zones",
        upstream.address,
        &[("rpz.zone", &path)],
    ));
    assert_eq!(proxy.query("www.gone.test", "A").rcode(), "NXDOMAIN");
    let garden = proxy.query("garden.test", "A").answers();
    assert_eq!(
        garden,
        ["garden.test. CNAME wall.test.", "wall.test. A 192.0.2.80"]
    );
    assert_eq!(proxy.query("bad.test", "A").rcode(), "NXDOMAIN");
    let truncated = proxy.query("tcp.test", "A");
    assert!(truncated.has(flags::TC), "{truncated}");
    assert_eq!(
        proxy.connect().ask(&Message::query("tcp.test", "A")).answers(),
        ["tcp.test. A 192.0.2.1"]
    );

    let new = file.with_extension("new");
    fs::write(
        &new,
        ZONE.replace("*.gone.test CNAME .", "*.gone.test CNAME rpz-passthru."),
    )
    .expect("a zone");
    fs::rename(new, &file).expect("a zone");
    until("the changed zone", || {
        proxy.query("www.gone.test", "A").answers() == ["www.gone.test. A 192.0.2.2"]
    });
}
