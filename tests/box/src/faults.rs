//! Calls that fail: which of which kind, in which phase, so that a history means the same under every seed.

use std::collections::BTreeMap;

use crate::scenario::{Fault, Scenario, Trouble};
use crate::seed::Random;

/// Calls that can fail, by what they are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Socket,
    Bind,
    Listen,
    Accept,
    Connect,
    /// An option of a socket.
    Option,
    /// Any other descriptor: files, copies, instances of epoll.
    Open,
    Read,
    Write,
    /// A folder or name made or moved.
    Change,
    /// A name removed.
    Remove,
    /// Something to be told of: by epoll or inotify.
    Register,
    Thread,
    /// Another program, started.
    Child,
    /// A request about links, addresses, routes or rules.
    Netlink,
    /// Octets read from a file or written to it: some of them.
    Short,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Socket => "socket",
            Kind::Bind => "bind",
            Kind::Listen => "listen",
            Kind::Accept => "accept",
            Kind::Connect => "connect",
            Kind::Option => "option",
            Kind::Open => "open",
            Kind::Read => "read",
            Kind::Write => "write",
            Kind::Change => "change",
            Kind::Remove => "remove",
            Kind::Register => "register",
            Kind::Thread => "thread",
            Kind::Child => "child",
            Kind::Netlink => "netlink",
            Kind::Short => "short",
        }
    }
}

/// What becomes of a call.
pub enum Fate {
    Passes,
    Fails(i32),
    /// The process is killed.
    Kills,
}

/// What fails, and what was met so far.
pub struct Faults {
    phase: String,
    faults: Vec<Fault>,
    /// How many, by phase and kind.
    met: BTreeMap<(String, &'static str), u64>,
    /// What failed.
    failed: Vec<String>,
    /// What is wrong with the machine, and until when.
    troubles: Vec<(Trouble, u64)>,
    chance: Random,
}

impl Faults {
    pub fn new(scenario: &Scenario, chance: Random) -> Faults {
        Faults {
            phase: "start".to_owned(),
            faults: scenario.faults.clone(),
            met: BTreeMap::new(),
            failed: Vec::new(),
            troubles: Vec::new(),
            chance,
        }
    }

    /// Something is wrong with the machine from now on, for a while.
    pub fn trouble(&mut self, trouble: Trouble, now: u64) {
        let until = now + trouble.lasts;
        self.troubles.push((trouble, until));
    }

    /// What a call of a kind fails with, by chance.
    fn draws(&mut self, kind: Kind, now: u64) -> Option<i32> {
        self.troubles.retain(|(_, until)| now < *until);
        let mut of_kind = self
            .troubles
            .iter()
            .filter(|(trouble, _)| trouble.kind == kind.name());
        of_kind.find_map(|(trouble, _)| (self.chance.below(trouble.one_in) == 0).then_some(trouble.errno))
    }

    /// Another phase begins.
    pub fn enter(&mut self, phase: &str) {
        self.phase = phase.to_owned();
    }

    /// A call that can fail is made, about something.
    pub fn meets(&mut self, kind: Kind, what: &str, now: u64) -> Fate {
        if let Some(errno) = self.draws(kind, now) {
            return Fate::Fails(errno);
        }
        // What is asked of the machine when there is nothing to do is no part of any phase.
        if self.phase == "calm" {
            return Fate::Passes;
        }
        let count = self.met.entry((self.phase.clone(), kind.name())).or_insert(0);
        *count += 1;
        let count = *count;
        let hit = self.faults.iter().find(|fault| {
            fault.phase == self.phase
                && fault.kind == kind.name()
                && (fault.which == count || (fault.lasting && fault.which < count))
        });
        let Some(fault) = hit else { return Fate::Passes };
        self.failed
            .push(format!("{} {} {count} {what}", self.phase, kind.name()));
        match fault.errno {
            0 => Fate::Kills,
            errno => Fate::Fails(errno),
        }
    }

    /// What was met and what failed, a line each.
    pub fn account(&self) -> String {
        let met = self
            .met
            .iter()
            .map(|((phase, kind), count)| format!("met {phase} {kind} {count}\n"));
        let failed = self.failed.iter().map(|failed| format!("failed {failed}\n"));
        met.chain(failed).collect()
    }
}
