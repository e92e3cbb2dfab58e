//! The scenario of a history, one item a line: the seed, the actors, what happens when, and which calls fail.

use std::net::{IpAddr, SocketAddr};

/// A peer in the simulated network.
#[derive(Debug, Clone)]
pub enum Role {
    /// A server that the program queries.
    Upstream { ip: IpAddr },
    /// A client that queries in a certain manner, every so many nanoseconds.
    Client {
        manner: String,
        ip: IpAddr,
        server: SocketAddr,
        every: u64,
        from: u64,
        until: u64,
    },
    /// An API server that also queries the program about its services.
    Cluster { ip: IpAddr, server: SocketAddr },
    /// A reader of the admin address.
    Reader { ip: IpAddr, server: SocketAddr },
}

/// A scheduled action.
#[derive(Debug, Clone)]
pub enum Deed {
    Signal(i32),
    /// Begins a phase, in which calls are counted from 1 again.
    Phase(String),
    /// Replaces a file with another.
    Replace {
        from: String,
        to: String,
    },
    /// Replaces the configuration: the program must reload or refuse it soon.
    Change {
        from: String,
        to: String,
    },
    /// Steps the real-time clock, by nanoseconds.
    Step(i64),
    /// Puts the machine to sleep, for nanoseconds.
    Sleep(u64),
    /// Records what the program holds.
    Snapshot(String),
    /// Changes the behaviour of an upstream.
    Weather {
        ip: IpAddr,
        name: String,
    },
    /// Reads the metrics at the admin address.
    Metrics(String),
    /// Makes calls of a kind fail at random for a while.
    Trouble(Trouble),
    End,
}

/// A fault of the machine that lasts for a while.
#[derive(Debug, Clone)]
pub struct Trouble {
    /// The kind of calls; or `short`: streams have little room and deliver in pieces, and files are read and
    /// written in pieces.
    pub kind: String,
    /// The error of failing calls.
    pub errno: i32,
    /// One call in this many fails.
    pub one_in: u64,
    /// The duration in nanoseconds.
    pub lasts: u64,
}

/// A call that fails.
#[derive(Debug, Clone)]
pub struct Fault {
    pub phase: String,
    pub kind: String,
    /// The number of the call within its kind and phase, from 1.
    pub which: u64,
    /// Whether all later ones fail too.
    pub lasting: bool,
    /// The error; 0 kills the process.
    pub errno: i32,
}

/// The whole scenario.
#[derive(Debug, Default)]
pub struct Scenario {
    pub seed: u64,
    /// Whether nothing is simulated, and calls only fail in the real world.
    pub outside: bool,
    pub report: String,
    pub roles: Vec<Role>,
    pub deeds: Vec<(u64, Deed)>,
    pub faults: Vec<Fault>,
    /// From when and until when upstreams are well, in nanoseconds.
    pub well: (u64, u64),
    /// From when on every query must be answered.
    pub up: u64,
    /// From when on no answer is expected.
    pub down: u64,
}

impl Scenario {
    /// Parses a scenario. A malformed line panics, because the runner wrote it.
    pub fn read(text: &str) -> Scenario {
        let mut scenario = Scenario {
            down: u64::MAX,
            well: (0, u64::MAX),
            ..Scenario::default()
        };
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            if !words.is_empty() {
                assert!(scenario.take(&words).is_some(), "no line of a scenario: {line}");
            }
        }
        scenario
    }

    fn take(&mut self, words: &[&str]) -> Option<()> {
        match *words {
            ["seed", seed] => self.seed = seed.parse().ok()?,
            ["outside"] => self.outside = true,
            ["report", path] => self.report = path.to_owned(),
            ["up", at] => self.up = time(at)?,
            ["down", at] => self.down = time(at)?,
            ["well", from] => self.well = (time(from)?, u64::MAX),
            ["well", from, until] => self.well = (time(from)?, time(until)?),
            ["upstream", ip] => self.roles.push(Role::Upstream { ip: ip.parse().ok()? }),
            ["cluster", ip, server] => self.roles.push(Role::Cluster {
                ip: ip.parse().ok()?,
                server: server.parse().ok()?,
            }),
            ["reader", ip, server] => self.roles.push(Role::Reader {
                ip: ip.parse().ok()?,
                server: server.parse().ok()?,
            }),
            ["client", manner, ip, server, every, until] => {
                self.take(&["client", manner, ip, server, every, "0ms", until])?;
            }
            ["client", manner, ip, server, every, from, until] => self.roles.push(Role::Client {
                manner: manner.to_owned(),
                ip: ip.parse().ok()?,
                server: server.parse().ok()?,
                every: time(every)?,
                from: time(from)?,
                until: time(until)?,
            }),
            ["fault", phase, kind, which, errno] => self.faults.push(Fault {
                phase: phase.to_owned(),
                kind: kind.to_owned(),
                which: which.trim_end_matches('+').parse().ok()?,
                lasting: which.ends_with('+'),
                errno: errno.parse().ok()?,
            }),
            ["at", at, ref deed @ ..] => self.deeds.push((time(at)?, read_deed(deed)?)),
            _ => return None,
        }
        Some(())
    }
}

fn read_deed(words: &[&str]) -> Option<Deed> {
    Some(match *words {
        ["hup"] => Deed::Signal(libc::SIGHUP),
        ["term"] => Deed::Signal(libc::SIGTERM),
        ["kill"] => Deed::Signal(libc::SIGKILL),
        ["phase", name] => Deed::Phase(name.to_owned()),
        ["replace", from, to] => Deed::Replace {
            from: from.to_owned(),
            to: to.to_owned(),
        },
        ["change", from, to] => Deed::Change {
            from: from.to_owned(),
            to: to.to_owned(),
        },
        ["step", seconds] => Deed::Step(seconds.parse::<i64>().ok()?.checked_mul(1_000_000_000)?),
        ["sleep", seconds] => Deed::Sleep(seconds.parse::<u64>().ok()?.checked_mul(1_000_000_000)?),
        ["snapshot", name] => Deed::Snapshot(name.to_owned()),
        ["weather", ip, name] => Deed::Weather {
            ip: ip.parse().ok()?,
            name: name.to_owned(),
        },
        ["metrics", name] => Deed::Metrics(name.to_owned()),
        ["trouble", kind, errno, one_in, lasts] => Deed::Trouble(Trouble {
            kind: kind.to_owned(),
            errno: errno.parse().ok()?,
            one_in: one_in.parse().ok().filter(|one_in| *one_in > 0)?,
            lasts: time(lasts)?,
        }),
        ["end"] => Deed::End,
        _ => return None,
    })
}

/// Parses a time in milliseconds, such as `100ms`, to nanoseconds.
fn time(word: &str) -> Option<u64> {
    word.strip_suffix("ms")?
        .parse::<u64>()
        .ok()?
        .checked_mul(1_000_000)
}
