//! Calls that fail: which of which kind, in which phase, so that a history means the same under every seed.

use std::collections::BTreeMap;

use crate::scenario::{Fault, Scenario};

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
}

impl Faults {
    pub fn new(scenario: &Scenario) -> Faults {
        Faults {
            phase: "start".to_owned(),
            faults: scenario.faults.clone(),
            met: BTreeMap::new(),
            failed: Vec::new(),
        }
    }

    /// Another phase begins.
    pub fn enter(&mut self, phase: &str) {
        self.phase = phase.to_owned();
    }

    /// A call that can fail is made, about something.
    pub fn meets(&mut self, kind: Kind, what: &str) -> Fate {
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
