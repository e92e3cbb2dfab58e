//! What a history begins with: a seed, who is there, what happens when, and what fails. A line each.

use std::net::{IpAddr, SocketAddr};

/// One of those at the other end of the network.
#[derive(Debug, Clone)]
pub enum Role {
    /// A server that is asked by the program.
    Upstream { ip: IpAddr },
    /// Somebody who asks, in a certain manner, so often.
    Client {
        manner: String,
        ip: IpAddr,
        server: SocketAddr,
        every: u64,
        from: u64,
        until: u64,
    },
    /// An API server, and who asks the program about its services.
    Cluster { ip: IpAddr, server: SocketAddr },
    /// Somebody who reads the admin address.
    Reader { ip: IpAddr, server: SocketAddr },
}

/// What happens at a time.
#[derive(Debug, Clone)]
pub enum Deed {
    Signal(i32),
    /// Another phase begins, in which calls are counted anew.
    Phase(String),
    /// A file takes the place of another.
    Replace {
        from: String,
        to: String,
    },
    /// The same, of a configuration: the program is to reload it soon, or to refuse it.
    Change {
        from: String,
        to: String,
    },
    /// The clock that can be set is set, by nanoseconds.
    Step(i64),
    /// The machine sleeps, for nanoseconds.
    Sleep(u64),
    /// What the program holds is noted.
    Snapshot(String),
    /// What an upstream is like from now on.
    Weather {
        ip: IpAddr,
        name: String,
    },
    /// The admin address is read.
    Metrics(String),
    /// Calls of a kind fail for a while, by chance.
    Trouble(Trouble),
    End,
}

/// What is wrong with the machine for a while.
#[derive(Debug, Clone)]
pub struct Trouble {
    /// Of calls; or `short`: streams have little room and arrive in pieces, and files are read and written by pieces.
    pub kind: String,
    /// What calls fail with.
    pub errno: i32,
    /// One call in so many.
    pub one_in: u64,
    /// Nanoseconds.
    pub lasts: u64,
}

/// A call that fails.
#[derive(Debug, Clone)]
pub struct Fault {
    pub phase: String,
    pub kind: String,
    /// Which of that kind in that phase, counted from 1.
    pub which: u64,
    /// And all that follow.
    pub lasting: bool,
    /// 0: the process is killed.
    pub errno: i32,
}

/// All of it.
#[derive(Debug, Default)]
pub struct Scenario {
    pub seed: u64,
    /// Nothing is simulated: calls fail in the world as it is.
    pub outside: bool,
    pub report: String,
    pub roles: Vec<Role>,
    pub deeds: Vec<(u64, Deed)>,
    pub faults: Vec<Fault>,
    /// From when on upstreams are well, and until when; nanoseconds.
    pub well: (u64, u64),
    /// From when on every query is to be answered.
    pub up: u64,
    /// From when on nobody expects an answer any more.
    pub down: u64,
}

impl Scenario {
    /// Reads it. A line that is none ends the process: the runner wrote it.
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

/// A time in nanoseconds: milliseconds, as they are written.
fn time(word: &str) -> Option<u64> {
    word.strip_suffix("ms")?
        .parse::<u64>()
        .ok()?
        .checked_mul(1_000_000)
}
