//! A process takes over from another, or ends as the last one, and one of its calls fails or it is killed
//! there: what it set up is complete or gone, and clients are answered. The library of tests/box makes the
//! calls fail, in the real world.
//!
//! One call of each kind fails; with `DNSWEIR_EVERY_CALL=all` every call, as in
//! `cargo xtask simulate --takeover`, or every call of the kinds that it names.

use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use harness::process::Process;
use harness::{PATIENCE, failing, until};

use super::falling::{CONFIG, LOST};
use super::load::{Answer, Load, Protocol};
use super::neighbours::asked;
use super::world::{CLUSTER, KubeProxy, LISTENED, World, alone, same, sorted, terminate};

const PROTOCOLS: [Protocol; 2] = [Protocol::Udp, Protocol::Tcp];

/// A call that fails, or at which the process is killed.
struct Fault {
    phase: &'static str,
    kind: String,
    which: u64,
    /// 0: killed.
    errno: i32,
}

impl fmt::Display for Fault {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            to,
            "fault {} {} {} {}",
            self.phase, self.kind, self.which, self.errno
        )
    }
}

/// The library, which cargo puts beside this program.
fn library() -> PathBuf {
    let this = std::env::current_exe().expect("this program");
    this.with_file_name("libdnsweir_box.so")
}

/// Starts a proxy whose calls are counted, and one of which may fail.
fn launch(world: &World, fault: Option<&Fault>) -> Process {
    let folder = world.folder().display();
    let fault = fault.map(Fault::to_string).unwrap_or_default();
    let scenario = format!("outside\nreport {folder}/report\n{fault}\n");
    fs::write(world.folder().join("scenario"), scenario).expect("a scenario");
    let _ = fs::remove_file(world.folder().join("report"));
    let library = format!("LD_PRELOAD={}", library().display());
    let scenario = format!("DNSWEIR_BOX={folder}/scenario");
    world.launch_by(&["env", &library, &scenario], CONFIG)
}

/// Returns how often each kind of call was made in a phase.
fn met(world: &World, phase: &str) -> Vec<(String, u64)> {
    let report = fs::read_to_string(world.folder().join("report")).expect("a report");
    let lines = report.lines().filter_map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        match *words {
            ["met", of, kind, count] if of == phase => Some((kind.to_owned(), count.parse().ok()?)),
            _ => None,
        }
    });
    lines.collect()
}

/// Returns the call that failed, if any.
fn failed(world: &World) -> Option<String> {
    let report = fs::read_to_string(world.folder().join("report")).unwrap_or_default();
    let failed = report.lines().find_map(|line| line.strip_prefix("failed "));
    failed.map(str::to_owned)
}

/// The same as text for messages.
fn what_failed(world: &World) -> String {
    failed(world).unwrap_or_else(|| "the call was not made".to_owned())
}

/// Ends a phase of a proxy that [`launch`] started.
fn next_phase(proxy: &Process) {
    proxy.signal("RTMIN+7");
}

/// Returns the faults to try, from the calls of a phase without faults.
fn faults(phase: &'static str, met: &[(String, u64)]) -> Vec<Fault> {
    let every = std::env::var("DNSWEIR_EVERY_CALL").ok();
    let kinds: Vec<&str> = every
        .as_deref()
        .map_or_else(Vec::new, |kinds| kinds.split(',').collect());
    let mut faults = Vec::new();
    for (kind, count) in met {
        if !kinds.is_empty() && kinds != ["all"] && !kinds.contains(&&**kind) {
            continue;
        }
        // A short read or write is no failure.
        let Some(errno) = failing::errno(kind) else {
            continue;
        };
        let last = if kinds.is_empty() { 1 } else { *count };
        for which in 1..=last {
            for errno in [errno, 0] {
                let kind = kind.clone();
                faults.push(Fault {
                    phase,
                    kind,
                    which,
                    errno,
                });
            }
        }
    }
    faults
}

/// A node, and its network without a proxy and with one.
struct Node {
    world: World,
    without: String,
    with: String,
}

impl Node {
    fn new() -> Node {
        let world = World::new(KubeProxy::Iptables);
        // Creates the tables beforehand.
        world.script(
            "for c in iptables ip6tables; do $c -w -t raw -A OUTPUT -p sctp; $c -w -A OUTPUT -p sctp; done",
        );
        let without = world.network();
        let proxy = world.start(CONFIG);
        let with = world.network();
        terminate(proxy);
        same(&world.network(), &without, "a proxy was there and ended");
        Node { world, without, with }
    }

    /// Checks that the network is complete and the proxy answers at every address.
    fn is_whole(&self, when: &str) {
        let begun = Instant::now();
        // Recreated links come after others, so order is ignored.
        let wanted = sorted(&self.with);
        let mut seen = sorted(&self.world.network());
        while seen != wanted && begun.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(50));
            seen = sorted(&self.world.network());
        }
        same(&seen, &wanted, when);
        for server in LISTENED {
            until(&format!("{when}: {server} to be answered"), || {
                asked(&self.world, server) == Answer::Proxy
            });
        }
        for path in ["/health", "/ready"] {
            until(&format!("{when}: {path}"), || {
                self.world.admin(path).is_some_and(|(code, _)| code == 200)
            });
        }
    }

    fn loads(&self) -> Vec<Load> {
        let start = |protocol| Load::start(&self.world.pod(), CLUSTER[0], protocol);
        PROTOCOLS.map(start).into()
    }
}

/// Checks that a failed call loses no query. Exceptions: those that a process read before it was killed or
/// failed to start, and one unaccepted connection per worker when its listener closes: under load, one in
/// some ten thousand.
fn nothing_lost(loads: Vec<Load>, fault: &Fault, died: bool, what: &str) {
    for (load, protocol) in loads.into_iter().zip(PROTOCOLS) {
        let fates = load.stop();
        let allowed = match protocol {
            // The CPUs are busy, and there are two loads.
            _ if died => 4 * LOST,
            Protocol::Udp => 0,
            Protocol::Tcp => 2,
        };
        assert!(
            fates.lost() <= allowed,
            "{fault} ({what}): {} of {} lost over {protocol:?}, {:?} of silence",
            fates.lost(),
            fates.count(),
            fates.silence()
        );
    }
}

/// Checks that a process that ended by itself or could not start says why, without a panic.
fn says_why(proxy: &Process, fault: &Fault) {
    if fault.errno != 0 {
        // Its last output may arrive after its end.
        proxy.logged("error");
    }
    let said = proxy.stderr().join("\n");
    assert!(!said.contains("panicked"), "{fault}: {said}");
}

/// Waits until it answers queries or has ended, and returns whether it runs.
fn begun(proxy: &mut Process) -> bool {
    let mut running = true;
    until("a start, or an end", || {
        running = proxy.running();
        !running
            || proxy
                .stderr()
                .iter()
                .any(|line| line.contains("answering queries"))
    });
    running
}

/// A successor's start fails somewhere: it continues with everything, or ends and its predecessor continues.
#[test]
fn a_successor_takes_everything_or_nothing() {
    let Some(_place) = alone(&[]) else { return };
    let node = Node::new();
    let mut older = node.world.start(CONFIG);
    let mut counted = launch(&node.world, None);
    assert!(begun(&mut counted));
    next_phase(&counted);
    terminate(older);
    older = node.world.start(CONFIG);
    terminate(counted);
    for fault in faults("start", &met(&node.world, "start")) {
        let loads = node.loads();
        let mut successor = launch(&node.world, Some(&fault));
        let mut running = begun(&mut successor);
        if running {
            next_phase(&successor);
            // Killed between its start and the signal that ended the phase.
            if fault.errno == 0 && failed(&node.world).is_some() {
                successor.ended();
                running = false;
            }
        }
        if running {
            terminate(older);
            node.is_whole(&format!("{fault}: with the successor alone"));
            older = node.world.start(CONFIG);
            terminate(successor);
        } else {
            says_why(&successor, &fault);
        }
        let what = what_failed(&node.world);
        println!("{fault} ({what}): {}", if running { "went on" } else { "ended" });
        node.is_whole(&format!("{fault}: with one that nothing happened to"));
        nothing_lost(loads, &fault, !running, &what);
    }
    terminate(older);
    same(&node.world.network(), &node.without, "the last one has ended");
}

/// A process that ends for a successor fails somewhere: the successor has everything.
#[test]
fn an_end_leaves_everything_to_the_successor() {
    let Some(_place) = alone(&[]) else { return };
    let node = Node::new();
    for fault in stops(&node, true) {
        let loads = node.loads();
        let mut older = launch(&node.world, Some(&fault));
        assert!(begun(&mut older));
        next_phase(&older);
        node.is_whole(&format!("{fault}: with the one that will end"));
        let successor = node.world.start(CONFIG);
        end(&mut older);
        let what = what_failed(&node.world);
        println!("{fault} ({what}): ended");
        node.is_whole(&format!("{fault}: with the successor"));
        nothing_lost(loads, &fault, fault.errno == 0, &what);
        terminate(successor);
        same(&node.world.network(), &node.without, "the successor has ended");
    }
}

/// The last process fails somewhere while it ends: nothing of it stays, or its exit status says so. The next
/// process removes what a killed one left.
#[test]
fn the_last_end_leaves_nothing_or_says_so() {
    let Some(_place) = alone(&[]) else { return };
    let node = Node::new();
    for fault in stops(&node, false) {
        let mut last = launch(&node.world, Some(&fault));
        assert!(begun(&mut last));
        next_phase(&last);
        let ended = end(&mut last);
        let left = node.world.network() != node.without;
        let what = what_failed(&node.world);
        println!(
            "{fault} ({what}): {ended:?}, {}",
            if left { "something stays" } else { "clean" }
        );
        if ended == Some(0) {
            same(&node.world.network(), &node.without, &fault.to_string());
        } else {
            says_why(&last, &fault);
        }
        terminate(node.world.start(CONFIG));
        same(
            &node.world.network(),
            &node.without,
            &format!("{fault}: the next one has ended"),
        );
    }
}

/// Returns the faults to try in an end, with or without a successor.
fn stops(node: &Node, with_successor: bool) -> Vec<Fault> {
    let mut counted = launch(&node.world, None);
    assert!(begun(&mut counted));
    next_phase(&counted);
    let successor = with_successor.then(|| node.world.start(CONFIG));
    assert_eq!(end(&mut counted), Some(0));
    let faults = faults("stop", &met(&node.world, "stop"));
    if let Some(successor) = successor {
        terminate(successor);
    }
    same(&node.world.network(), &node.without, "nothing failed");
    faults
}

/// Ends a proxy, with the fault of that phase; returns its exit status, `None` if killed.
fn end(proxy: &mut Process) -> Option<i32> {
    next_phase(proxy);
    proxy.signal("TERM");
    proxy.ended().code()
}
