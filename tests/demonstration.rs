//! `dnsweir run` without a configuration, in a network of its own: it listens on 127.0.0.1:15353.

use crate::harness::namespace::Namespace;
use crate::harness::process::Process;
use crate::harness::{needs, proxy, tools, until};

/// A filter answers without any upstream, and the rest goes to the system's resolvers.
#[test]
fn the_embedded_configuration_answers_without_a_network() {
    if !needs(&["root", "ip", "nsenter", "dig"]) {
        return;
    }
    let network = Namespace::new();
    let mut process = Process::start(proxy::command_in(&network).arg("run"));
    let dig = |arguments: &[&str]| {
        let mut command = network.tool("dig");
        tools::output(
            command
                .args(["@127.0.0.1", "-p", "15353", "+tries=1", "+time=5"])
                .args(arguments),
        )
    };
    until("the embedded configuration to be served", || {
        assert!(process.running(), "the proxy ended: {:#?}", process.stderr());
        let mut probe = network.tool("dig");
        probe.args([
            "@127.0.0.1",
            "-p",
            "15353",
            "+tries=1",
            "+time=1",
            "hello.demo.test",
        ]);
        probe.output().is_ok_and(|output| output.status.success())
    });

    let address = dig(&["hello.demo.test", "+short"]);
    assert!(
        address
            .trim()
            .parse::<std::net::Ipv4Addr>()
            .is_ok_and(|address| address.is_loopback()),
        "{address}"
    );
    assert_eq!(dig(&["HELLO.demo.TEST", "+short"]), address);
    assert_eq!(dig(&["hello.demo.test", "+short", "+tcp"]), address);
    let other_type = dig(&["hello.demo.test", "MX"]);
    assert!(
        other_type.contains("status: NOERROR") && other_type.contains("ANSWER: 0"),
        "{other_type}"
    );

    process.signal("TERM");
    assert!(process.ended().success());
}
