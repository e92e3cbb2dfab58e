//! Failing calls, identified by phase, kind and number, so that a history means the same under every seed.

use std::collections::BTreeMap;

use crate::scenario::{Fault, Scenario, Trouble};
use crate::seed::Random;

/// Kinds of calls that can fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Socket,
    Bind,
    Listen,
    Accept,
    Connect,
    /// A socket option.
    Option,
    /// Any other descriptor: files, duplicates, epoll instances.
    Open,
    Read,
    Write,
    /// A directory created, a file renamed or its mode changed.
    Change,
    /// A file removed.
    Remove,
    /// A registration with epoll or inotify.
    Register,
    Thread,
    /// Starting another program.
    Child,
    /// A request about links, addresses, routes or rules.
    Netlink,
    /// A read or write of a file that transfers fewer bytes than asked.
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

/// What happens to a call.
pub enum Fate {
    Passes,
    Fails(i32),
    /// The process is killed.
    Kills,
}

/// The planned faults, and the calls seen so far.
pub struct Faults {
    phase: String,
    faults: Vec<Fault>,
    /// The number of calls by phase and kind.
    met: BTreeMap<(String, &'static str), u64>,
    /// The calls that failed.
    failed: Vec<String>,
    /// Active troubles, each with its end.
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

    /// Starts a trouble, which ends by itself.
    pub fn trouble(&mut self, trouble: Trouble, now: u64) {
        let until = now + trouble.lasts;
        self.troubles.push((trouble, until));
    }

    /// Draws whether a call of this kind fails, and with what.
    fn draws(&mut self, kind: Kind, now: u64) -> Option<i32> {
        self.troubles.retain(|(_, until)| now < *until);
        let mut of_kind = self
            .troubles
            .iter()
            .filter(|(trouble, _)| trouble.kind == kind.name());
        of_kind.find_map(|(trouble, _)| (self.chance.below(trouble.one_in) == 0).then_some(trouble.errno))
    }

    /// Begins another phase.
    pub fn enter(&mut self, phase: &str) {
        self.phase = phase.to_owned();
    }

    /// Counts a call that can fail, and decides its fate.
    pub fn meets(&mut self, kind: Kind, what: &str, now: u64) -> Fate {
        if let Some(errno) = self.draws(kind, now) {
            return Fate::Fails(errno);
        }
        // Calls of an idle machine belong to no phase.
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

    /// Lists the calls seen and failed, one item a line.
    pub fn account(&self) -> String {
        let met = self
            .met
            .iter()
            .map(|((phase, kind), count)| format!("met {phase} {kind} {count}\n"));
        let failed = self.failed.iter().map(|failed| format!("failed {failed}\n"));
        met.chain(failed).collect()
    }
}
