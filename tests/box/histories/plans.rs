//! The plans of histories: a seed determines the lines of a scenario.

use crate::history::History;

#[expect(dead_code, reason = "the box draws octets, too")]
#[path = "../src/seed.rs"]
mod seed;

use seed::Random;

/// Milliseconds in a second.
const SECOND: u64 = 1000;

/// What upstreams can be like.
const WEATHER: [&str; 8] = [
    "fine",
    "lossy",
    "slow",
    "truncating",
    "lying",
    "silent",
    "gone",
    "failing",
];

/// What an API server can be like, and what happens to it.
const MOODS: [&str; 10] = [
    "fine",
    "lagging",
    "breaking",
    "forgetting",
    "deaf",
    "silent",
    "failing",
    "gone",
    "backup",
    "restored",
];

/// The upstreams' addresses.
const UPSTREAMS: [&str; 2] = ["10.0.0.1", "10.0.0.2"];

/// Random troubles: kinds of calls, and their error. Not `register` and `open`, which the runtime cannot do
/// without, nor `accept`, without which no client is answered; the sweep fails these in turn.
const TROUBLES: [(&str, i32); 8] = [
    ("socket", libc::EMFILE),
    ("connect", libc::ENETUNREACH),
    ("read", libc::EIO),
    ("write", libc::ENOSPC),
    ("change", libc::ENOSPC),
    ("change", libc::EACCES),
    ("remove", libc::EACCES),
    ("thread", libc::EAGAIN),
];

/// Returns the upstreams that both configurations name, and readers of both admin addresses.
fn everybody() -> Vec<String> {
    let roles = [
        "upstream 10.0.0.1",
        "upstream 10.0.0.2",
        "reader 10.1.0.250 127.0.0.1:9253",
        "reader 10.1.0.251 127.0.0.1:9254",
    ];
    roles.map(str::to_owned).into()
}

/// A start, a reload to another configuration, a second one in case the first was refused, and a stop, while
/// clients ask. Calls are counted in the phases `start`, `reload` and `stop`, with snapshots between them.
pub fn changes(faults: &[String]) -> History {
    let mut lines = everybody();
    let script = [
        "client glibc 10.1.0.1 127.0.0.1:53 100ms 99000ms",
        "client tcp 10.1.0.2 127.0.0.1:53 700ms 99000ms",
        "up 2000ms",
        "down 99000ms",
        "at 2000ms phase calm",
        "at 28000ms metrics before",
        "at 30000ms snapshot before",
        "at 31000ms phase reload",
        "at 31000ms replace other.kdl live.kdl",
        "at 31000ms hup",
        "at 35000ms phase calm",
        "at 61000ms metrics after",
        "at 63000ms snapshot after",
        "at 64000ms hup",
        "at 94000ms metrics again",
        "at 96000ms snapshot again",
        "at 100000ms phase stop",
        "at 100000ms term",
        "at 140000ms end",
    ];
    lines.extend(script.map(str::to_owned));
    lines.extend_from_slice(faults);
    History {
        seed: 1,
        configuration: "one".to_owned(),
        lines,
    }
}

/// A start on what a killed process left, with queries, and a stop.
pub fn start_again() -> History {
    let mut lines = everybody();
    let script = [
        "client glibc 10.1.0.1 127.0.0.1:53 100ms 30000ms",
        "client tcp 10.1.0.2 127.0.0.1:53 700ms 30000ms",
        "up 2000ms",
        "down 30000ms",
        "at 27000ms metrics after",
        "at 29000ms snapshot after",
        "at 30000ms term",
        "at 60000ms end",
    ];
    lines.extend(script.map(str::to_owned));
    History {
        seed: 2,
        configuration: "one".to_owned(),
        lines,
    }
}

/// Valid configurations (unlike `bad`), each with one address for clients and one for the admin.
const GOOD: [&str; 5] = ["one", "other", "filtered", "own", "waiting"];

/// Minutes of changing weather, configurations and troubles, then fine weather, then silence, then a few late
/// queries, which must be answered although the stop comes.
pub fn long(seed: u64, minutes: u64, every: u64, fuel: bool) -> History {
    let mut chance = Random::new(seed).branch(100);
    let well = minutes * 60 * SECOND;
    let quiet = well + 90 * SECOND;
    let term = quiet + 60 * SECOND;
    let mut lines = everybody();
    lines.push("up 4000ms".to_owned());
    lines.push(format!("well {well}ms {}ms", term - 5 * SECOND));
    lines.push(format!("down {term}ms"));
    lines.extend(clients(&mut chance, every, quiet, term));
    lines.push("at 3000ms metrics quiet1".to_owned());
    lines.push("at 3500ms snapshot quiet1".to_owned());
    lines.extend(weather(&mut chance, well));
    lines.extend(troubles(&mut chance, well));
    let mut good = GOOD.to_vec();
    // Without fuel, it would not end in virtual time.
    good.extend(fuel.then_some("spinning"));
    let first = good[chance.below(good.len() as u64) as usize];
    lines.extend(operator(&mut chance, well, first, &good));
    // While upstreams are well, so that every answer after the wake-up must be fresh.
    let asleep = well + (30 + chance.below(40)) * SECOND;
    lines.push(format!("at {asleep}ms sleep {}", 600 + chance.below(9_000)));
    lines.push(format!("at {}ms metrics quiet2", quiet + 50 * SECOND));
    lines.push(format!("at {}ms snapshot quiet2", quiet + 52 * SECOND));
    for upstream in UPSTREAMS {
        lines.push(format!("at {}ms weather {upstream} slow", term - 5 * SECOND));
    }
    lines.push(format!("at {term}ms term"));
    lines.push(format!("at {}ms end", term + 60 * SECOND));
    History {
        seed,
        configuration: first.to_owned(),
        lines,
    }
}

/// Minutes of an API server in changing moods, while services come, change and go; then time to recover, and
/// time in which answers must be fresh.
pub fn cluster(seed: u64, minutes: u64) -> History {
    let mut chance = Random::new(seed).branch(101);
    let well = minutes * 60 * SECOND;
    let term = well + 300 * SECOND;
    let mut lines = vec!["cluster 10.0.0.9 127.0.0.1:53".to_owned()];
    lines.push("reader 10.1.0.250 127.0.0.1:9253".to_owned());
    lines.extend([format!("up {}ms", 8 * SECOND), format!("down {term}ms")]);
    lines.push(format!("well {well}ms {term}ms"));
    let mut at = 10 * SECOND;
    while at < well {
        let mood = MOODS[chance.below(MOODS.len() as u64) as usize];
        lines.push(format!("at {at}ms weather 10.0.0.9 {mood}"));
        at += SECOND + chance.below(90 * SECOND);
    }
    lines.push(format!("at {well}ms weather 10.0.0.9 fine"));
    lines.push(format!("at {term}ms term"));
    lines.push(format!("at {}ms end", term + 60 * SECOND));
    History {
        seed,
        configuration: "cluster".to_owned(),
        lines,
    }
}

/// One client of each manner until the quiet time, and one that asks at the very end.
fn clients(chance: &mut Random, every: u64, quiet: u64, term: u64) -> Vec<String> {
    let manners = ["glibc", "musl", "go", "tcp", "hostile"];
    let mut lines = Vec::new();
    for (index, manner) in manners.iter().enumerate() {
        let every = every * manners.len() as u64 / (1 + chance.below(3));
        let ip = index + 1;
        lines.push(format!(
            "client {manner} 10.1.0.{ip} 127.0.0.1:53 {every}ms {quiet}ms"
        ));
    }
    lines.push(format!("client own 10.1.0.6 127.0.0.1:53 3000ms {quiet}ms"));
    let late = term - SECOND;
    lines.push(format!(
        "client glibc 10.1.0.7 127.0.0.1:53 {every}ms {late}ms {term}ms"
    ));
    lines
}

fn weather(chance: &mut Random, well: u64) -> Vec<String> {
    let mut lines = Vec::new();
    for upstream in UPSTREAMS {
        let mut at = 5 * SECOND;
        while at < well {
            let weather = WEATHER[chance.below(WEATHER.len() as u64) as usize];
            lines.push(format!("at {at}ms weather {upstream} {weather}"));
            at += SECOND + chance.below(60 * SECOND);
        }
        lines.push(format!("at {well}ms weather {upstream} fine"));
    }
    lines
}

/// Calls that fail for a while, and streams that carry little at a time.
fn troubles(chance: &mut Random, well: u64) -> Vec<String> {
    let mut lines = Vec::new();
    let mut at = 10 * SECOND;
    while at < well {
        let lasts = (SECOND + chance.below(20 * SECOND)).min(well - at);
        let one_in = [1, 4, 30][chance.below(3) as usize];
        let trouble = match chance.below(2) {
            0 => format!("short {} {one_in}", 1 + chance.below(400)),
            _ => {
                let (kind, errno) = TROUBLES[chance.below(TROUBLES.len() as u64) as usize];
                format!("{kind} {errno} {one_in}")
            }
        };
        lines.push(format!("at {at}ms trouble {trouble} {lasts}ms"));
        at += SECOND + chance.below(90 * SECOND);
    }
    lines
}

/// Milliseconds between changes that give the proxy time to take one before the next.
const APART: u64 = 12 * SECOND;

/// Changes of configuration, signals and clock steps. An isolated change must be taken or refused soon.
fn operator(chance: &mut Random, well: u64, first: &str, good: &[&str]) -> Vec<String> {
    let mut lines = Vec::new();
    let (mut at, mut before, mut is_alone) = (20 * SECOND, first, true);
    while at < well {
        let place = chance.below(good.len() as u64 + 1) as usize;
        let configuration = *good.get(place).unwrap_or(&"bad");
        let apart = chance.below(120 * SECOND) + 10;
        if is_alone && apart > APART && configuration != before {
            lines.push(format!("at {at}ms change {configuration}.kdl live.kdl"));
        } else {
            lines.push(format!("at {at}ms replace {configuration}.kdl live.kdl"));
        }
        if chance.below(2) == 0 {
            lines.push(format!("at {}ms hup", at + chance.below(400)));
        }
        if chance.below(6) == 0 {
            let seconds = chance.below(7200) as i64 - 3600;
            lines.push(format!("at {}ms step {seconds}", at + chance.below(SECOND)));
        }
        (before, is_alone) = (configuration, apart > APART);
        at += apart;
    }
    lines
}
