//! CoreDNS and the proxy side by side on `node`, with the same API server.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use harness::process::Process;
use harness::{Message, ask, proxy, until};

use super::{node, state};

/// Where CoreDNS and the proxy answer, and the proxy's admin address.
pub const COREDNS: &str = "10.200.0.2:5301";
pub const DNSWEIR: &str = "10.200.0.2:5302";
const ADMIN: &str = "10.200.0.2:5303";

/// The parts of a reply that are compared: rcode, AA, and the sections.
#[derive(Debug, PartialEq, Eq)]
pub struct Said(pub String, pub bool, pub [Vec<String>; 3]);

impl Said {
    /// Reads a message.
    pub fn read(message: &Message) -> Said {
        let lines = |records: &[harness::Record]| {
            let mut lines: Vec<String> = records
                .iter()
                .map(|record| without_serial(&record.to_string()))
                .collect();
            lines.sort();
            lines
        };
        let sections = [&message.answers, &message.authority, &message.additional];
        Said(
            message.rcode(),
            message.has(harness::flags::AA),
            sections.map(|section| lines(section)),
        )
    }

    /// Whether it is a negative reply with this rcode.
    pub fn denies(&self, rcode: &str) -> bool {
        let Said(said, _, [answers, authority, _]) = self;
        said == rcode && answers.is_empty() && authority.len() == 1
    }
}

/// Masks the SOA serial: it dates the last change, which differs between the two.
fn without_serial(line: &str) -> String {
    let mut words: Vec<&str> = line.split(' ').collect();
    if words.get(2) == Some(&"SOA") {
        words[5] = "SERIAL";
    }
    words.join(" ")
}

/// Returns the kubeconfig of both.
pub fn kubeconfig() -> String {
    state().join("kubeconfig").display().to_string()
}

/// Starts both: CoreDNS with this Corefile, the proxy with these zones.
pub fn start(corefile: &str, zones: &str, folder: &Path) -> [Process; 2] {
    let theirs = folder.join("Corefile");
    fs::write(&theirs, corefile).expect("a file");
    let coredns = Path::new(&std::env::var_os("KUBE_BIN").expect("Kubernetes")).join("coredns");
    [
        Process::start(inside(&coredns).arg("-conf").arg(theirs)),
        start_proxy(zones, folder),
    ]
}

/// Starts the proxy alone.
pub fn start_proxy(zones: &str, folder: &Path) -> Process {
    let file = folder.join("dnsweir.kdl");
    let text = format!("listen \"{DNSWEIR}\"\nadmin \"{ADMIN}\"\n{zones}\n");
    fs::write(&file, text).expect("a file");
    Process::start(inside(&proxy::program()).args(["run", "--config"]).arg(file))
}

fn inside(program: &Path) -> Command {
    let mut command = Command::new("nsenter");
    command
        .arg(format!("--net={}", node("node").0.display()))
        .arg(program);
    command
}

/// Waits in the node's network until the proxy is ready.
pub fn await_proxy() {
    until("the proxy to be ready", || {
        let ready = proxy::try_get(ADMIN.parse().expect("one"), "/ready");
        ready.is_some_and(|(status, _)| status == 200)
    });
}

/// Waits until both are ready, CoreDNS once it answers this query.
pub fn await_ready(name: &str, qtype: &str) {
    await_proxy();
    let query = Message::query(name, qtype);
    until("CoreDNS to be ready", || {
        let said = std::panic::catch_unwind(|| ask(COREDNS.parse().expect("one"), &query));
        said.is_ok_and(|said| !said.answers.is_empty())
    });
}

/// Asks both for every name and type; returns the differences without a reason, and the count for each
/// reason.
pub fn compare(
    names: &BTreeSet<String>,
    types: &[&str],
    reason: impl Fn(&str, &str, &[Said; 2]) -> Option<&'static str>,
) -> (Vec<String>, BTreeMap<&'static str, usize>) {
    let servers: [SocketAddr; 2] = [COREDNS, DNSWEIR].map(|server| server.parse().expect("one"));
    let (mut wrong, mut reasons) = (Vec::new(), BTreeMap::new());
    for name in names {
        for qtype in types {
            let query = Message::query(name, qtype).edns(4096);
            let said = servers.map(|server| Said::read(&ask(server, &query)));
            let [theirs, ours] = &said;
            let why = match theirs == ours {
                true => Some("the same"),
                false => reason(name, qtype, &said),
            };
            match why {
                Some(why) => *reasons.entry(why).or_default() += 1,
                None => wrong.push(format!(
                    "{name} {qtype}\n  CoreDNS {theirs:?}\n  dnsweir {ours:?}"
                )),
            }
        }
    }
    (wrong, reasons)
}
