//! How histories begin: plans that a seed makes, as lines of a scenario.

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

/// Those that both configurations name, and who reads the admin addresses of both.
fn everybody() -> Vec<String> {
    let roles = [
        "upstream 10.0.0.1",
        "upstream 10.0.0.2",
        "reader 10.1.0.250 127.0.0.1:9253",
        "reader 10.1.0.251 127.0.0.1:9254",
    ];
    roles.map(str::to_owned).into()
}

/// A start, a reload to another configuration, the same again if the first was refused, and a stop; while somebody asks.
/// Calls are counted in the phases `start`, `reload` and `stop`; snapshots are taken between them.
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

/// A start on what a process left that was killed, questions, and a stop.
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

/// Minutes of changing weather and configurations, then fine weather, then nobody asks, then the end.
pub fn long(seed: u64, minutes: u64, every: u64) -> History {
    let mut chance = Random::new(seed).branch(100);
    let (well, quiet) = (minutes * 60 * SECOND, (minutes * 60 + 90) * SECOND);
    let mut lines = everybody();
    let manners = ["glibc", "musl", "go", "tcp", "hostile"];
    for (index, manner) in manners.iter().enumerate() {
        let every = every * manners.len() as u64 / (1 + chance.below(3));
        lines.push(format!(
            "client {manner} 10.1.0.{} 127.0.0.1:53 {every}ms {quiet}ms",
            index + 1
        ));
    }
    lines.push("up 4000ms".to_owned());
    lines.push(format!("well {well}ms"));
    lines.push(format!("down {}ms", quiet + 60 * SECOND));
    lines.push("at 3000ms metrics quiet1".to_owned());
    lines.push("at 3500ms snapshot quiet1".to_owned());
    for upstream in ["10.0.0.1", "10.0.0.2"] {
        let mut at = 5 * SECOND;
        while at < well {
            let weather = WEATHER[chance.below(WEATHER.len() as u64) as usize];
            lines.push(format!("at {at}ms weather {upstream} {weather}"));
            at += SECOND + chance.below(60 * SECOND);
        }
        lines.push(format!("at {well}ms weather {upstream} fine"));
    }
    let mut at = 20 * SECOND;
    while at < well {
        let configuration = ["one", "other", "filtered", "bad"][chance.below(4) as usize];
        lines.push(format!("at {at}ms replace {configuration}.kdl live.kdl"));
        if chance.below(2) == 0 {
            lines.push(format!("at {}ms hup", at + chance.below(400)));
        }
        if chance.below(6) == 0 {
            lines.push(format!(
                "at {}ms step {}",
                at + chance.below(SECOND),
                chance.below(7200) as i64 - 3600
            ));
        }
        at += chance.below(120 * SECOND) + 10;
    }
    lines.push(format!("at {}ms metrics quiet2", quiet + 55 * SECOND));
    lines.push(format!("at {}ms snapshot quiet2", quiet + 57 * SECOND));
    lines.push(format!("at {}ms term", quiet + 60 * SECOND));
    lines.push(format!("at {}ms end", quiet + 120 * SECOND));
    let configuration = ["one", "other", "filtered"][chance.below(3) as usize];
    History {
        seed,
        configuration: configuration.to_owned(),
        lines,
    }
}
