//! `dnsweir filter record`: test cases from the queries of a server with dnstap.

use std::path::Path;

use crate::harness::guests::verdicts;
use crate::harness::process::Process;
use crate::harness::proxy::command;
use crate::harness::{Message, Proxy, Upstream, until};

/// A running recording.
fn record(place: &str, output: &Path, more: &[&str]) -> Process {
    let mut command = command();
    command.args(["filter", "record", place, "--output"]);
    Process::start(command.arg(output).args(more))
}

/// A proxy that logs its clients' queries over dnstap.
fn told(place: &str) -> (Proxy, Upstream) {
    let upstream = Upstream::zone(&[
        "refuse.example. 300 A 192.0.2.1",
        "example. 300 SOA . . 1 1 1 1 60",
    ]);
    let proxy = Proxy::start(&format!(
        "dnstap \"{place}\" {{ messages \"clients\" }}\nzone \".\" {{ cache; forward \"{}\" }}\n",
        upstream.address
    ));
    (proxy, upstream)
}

/// Records the module's answers to the recorded queries, and tests them again: nothing may differ.
fn bless(cases: &Path) -> String {
    let test = |more: &[&str]| {
        let mut test = command();
        test.args(["filter", "test"]).arg(verdicts());
        test.arg("--test-cases").arg(cases).args(more);
        test.status().expect("dnsweir")
    };
    assert!(test(&["--bless"]).success());
    assert!(test(&[]).success());
    std::fs::read_to_string(cases).expect("the cases")
}

#[test]
fn queries_become_test_cases() {
    let folder = tempfile::tempdir().expect("a folder");
    let [socket, cases] = ["tap.sock", "test-cases.kdl"].map(|name| folder.path().join(name));
    let place = format!("unix:{}", socket.display());
    let mut recording = record(&place, &cases, &["--count", "2"]);
    until("it listens", || socket.exists());
    let (proxy, _upstream) = told(&place);
    proxy.query("Refuse.example", "A");
    proxy.query("refuse.example", "A");
    let asked = Message::query("pass.example", "AAAA")
        .edns(1232)
        .option(8, b"\x00\x01\x18\x00\x7f\x00\x02");
    let _ = proxy.connect().ask(&asked);
    assert!(recording.ended().success());
    assert!(!socket.exists(), "it cleans up");
    let text = bless(&cases);
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("query ")).collect();
    assert_eq!(
        lines,
        [
            "query \"refuse.example.\" \"A\" client=\"192.0.2.1\" {",
            "query \"pass.example.\" \"AAAA\" client=\"192.0.2.1\" transport=\"tcp\" edns=1232 {",
        ],
        "{text}"
    );
    assert!(
        text.contains("    refuse \"NXDOMAIN\"") && text.contains("    pass"),
        "{text}"
    );
    // Neither an address nor an option that may identify a client.
    assert!(!text.contains("127.") && !text.contains("option"), "{text}");

    // An existing recording is not overwritten.
    let mut again = record(&place, &cases, &[]);
    assert_eq!(again.ended().code(), Some(64));
    again.logged("is there: name another file, or remove it");
    assert_eq!(std::fs::read_to_string(&cases).expect("the cases"), text);
}

#[test]
fn responses_come_with_their_records_from_a_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let [file, cases] = ["messages.tap", "test-cases.kdl"].map(|name| folder.path().join(name));
    let (mut proxy, _upstream) = told(&file.display().to_string());
    proxy.query("refuse.example", "A");
    proxy.query("refuse.example", "A");
    proxy.query("other.example", "A");
    proxy.process.signal("TERM");
    assert!(proxy.process.ended().success());
    assert!(
        record(&file.display().to_string(), &cases, &["--responses"])
            .ended()
            .success()
    );
    let text = bless(&cases);
    for part in [
        "response \"refuse.example.\" \"A\" client=\"192.0.2.1\" {\n    given {\n        record \"refuse.example.\" 300 \"A\" \"192.0.2.1\"",
        "response \"other.example.\" \"A\" client=\"192.0.2.1\" rcode=\"NXDOMAIN\" {\n    given {\n        authority \"example.\"",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert_eq!(text.matches("response \"").count(), 2, "{text}");
}

#[test]
fn what_is_no_dnstap_is_an_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let [file, cases] = ["notes.txt", "test-cases.kdl"].map(|name| folder.path().join(name));
    std::fs::write(&file, "nothing of the kind").expect("a file");
    let mut recording = record(&file.display().to_string(), &cases, &[]);
    assert!(!recording.ended().success());
    recording.logged("notes.txt: it is not a file of dnstap");
    // Without a connection, it ends after its time.
    let place = format!("unix:{}", folder.path().join("tap.sock").display());
    std::fs::remove_file(&cases).expect("what was begun");
    assert!(record(&place, &cases, &["--for", "1s"]).ended().success());
}

/// A connection to a plain file is refused like one to a socket without a listener.
#[test]
fn a_plain_file_in_the_place_of_a_socket_stays() {
    let folder = tempfile::tempdir().expect("a folder");
    let [file, cases] = ["notes.txt", "test-cases.kdl"].map(|name| folder.path().join(name));
    std::fs::write(&file, "to be kept").expect("a file");
    let mut recording = record(&format!("unix:{}", file.display()), &cases, &[]);
    assert!(!recording.ended().success());
    recording.logged("in use");
    assert_eq!(std::fs::read_to_string(&file).expect("the file"), "to be kept");
}
