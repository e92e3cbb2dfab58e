//! The state of the simulated world, and the choice of what happens next.

use std::collections::{BTreeMap, VecDeque};

use crate::actors::{Actors, Outcome};
use crate::faults::Faults;
use crate::kernel::{kernel, real_milliseconds, rest};
use crate::net::{Net, Number};
use crate::polls::{Polls, Source};
use crate::pulse;
use crate::report::Report;
use crate::scenario::{Scenario, Trouble};
use crate::schedule::{Drawn, NEVER, Thread, Waits};
use crate::seed::Random;
use crate::symbols::memory;

/// The real-time clock at the start: a day in January 2027.
pub const EPOCH: u64 = 1_800_000_000_000_000_000;

/// The monotonic clock at the start.
pub const BOOT: u64 = 1_000_000_000_000;

/// The cost of a call that the box sees, in nanoseconds.
const CALL: u64 = 400;

/// One call in this many passes the baton on, whatever the call is for.
const PREEMPTS: u64 = 48;

/// Milliseconds of real time that a child may run before what it has written so far is read.
const CHILD: i64 = 5_000;

/// Milliseconds of real time after which a child counts as hung; generous, for busy machines.
const LONGEST_CHILD: i64 = 300_000;

/// Milliseconds of real time after which a world in which nothing can happen any more is ended.
const STANDSTILL: i64 = 2_000;

/// What a descriptor of the box refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Thing {
    Socket(Number),
    Counter(u32),
    Poll(u32),
}

/// Nanoseconds until everything sent has arrived.
const SETTLES: u64 = 1_000_000;

/// The simulated world.
pub struct World {
    pub threads: Vec<Thread>,
    pub net: Net,
    pub polls: Polls,
    pub descriptors: Vec<Option<Thing>>,
    /// How many descriptors refer to each epoll instance and counter.
    shares: BTreeMap<u32, u32>,
    pub chance: Random,
    /// The source of the random bytes that the program asks for.
    pub secrets: Random,
    pub faults: Faults,
    pub actors: Actors,
    pub report: Report,
    /// How far the real-time clock has been stepped, in nanoseconds.
    pub stepped: i64,
    /// How many events sockets have had.
    pub changes: u64,
    signals: VecDeque<i32>,
}

impl World {
    /// Builds the world of a scenario.
    pub fn new(scenario: &Scenario) -> World {
        let seed = Random::new(scenario.seed);
        let mut net = Net::new(seed.branch(1));
        let actors = Actors::new(scenario, &mut net, &seed.branch(2));
        World {
            threads: vec![Thread::new()],
            net,
            polls: Polls::default(),
            descriptors: Vec::new(),
            shares: BTreeMap::new(),
            chance: seed.branch(3),
            secrets: seed.branch(4),
            faults: Faults::new(scenario, seed.branch(5)),
            actors,
            report: Report::new(scenario),
            stepped: 0,
            changes: 0,
            signals: VecDeque::new(),
        }
    }

    /// Returns what a descriptor refers to, if it belongs to the box.
    pub fn thing(&self, descriptor: i32) -> Option<Thing> {
        self.descriptors
            .get(usize::try_from(descriptor).ok()?)
            .copied()
            .flatten()
    }

    /// Assigns a descriptor to an object of the box.
    pub fn name(&mut self, descriptor: i32, thing: Thing) {
        let Ok(index) = usize::try_from(descriptor) else {
            return;
        };
        if self.descriptors.len() <= index {
            self.descriptors.resize(index + 1, None);
        }
        self.descriptors[index] = Some(thing);
        if let Thing::Counter(number) | Thing::Poll(number) = thing {
            *self.shares.entry(number).or_insert(0) += 1;
        }
    }

    /// Makes `copy` refer to the same object as `descriptor`.
    pub fn duplicate(&mut self, descriptor: i32, copy: i32) {
        let Some(thing) = self.thing(descriptor) else {
            return;
        };
        if let Thing::Socket(number) = thing {
            self.net.share(number);
        }
        self.name(copy, thing);
    }

    /// Closes a descriptor, and its object with the last one.
    pub fn close(&mut self, descriptor: i32) {
        let Some(thing) = self.thing(descriptor) else {
            return;
        };
        self.descriptors[descriptor as usize] = None;
        match thing {
            Thing::Socket(number) => {
                if self.net.close(number) {
                    self.polls.forget(Source::Socket(number));
                }
            }
            Thing::Counter(number) | Thing::Poll(number) => {
                let Some(share) = self.shares.get_mut(&number) else {
                    return;
                };
                *share -= 1;
                if *share == 0 {
                    self.shares.remove(&number);
                    self.polls.forget(Source::Counter(number));
                    self.polls.close(number);
                }
            }
        }
        self.spread();
    }

    /// Charges a thread for a call. Returns whether the baton is to be passed on.
    pub fn charge(&mut self, thread: usize) -> bool {
        self.spend(thread, CALL);
        self.report.calls += 1;
        pulse::beat();
        self.chance.below(PREEMPTS) == 0
    }

    /// Advances time by this and by uncharged memory costs, and charges the thread.
    fn spend(&mut self, thread: usize, nanoseconds: u64) {
        let all = nanoseconds + memory::owed();
        self.net.now += all;
        self.threads[thread].charged += all;
    }

    /// Charges a thread that is about to wait for its work so far.
    pub fn settle(&mut self, thread: usize) {
        self.spend(thread, 0);
    }

    /// Wakes at most `most` threads that wait at an address; returns how many.
    pub fn wake(&mut self, at: usize, most: usize) -> usize {
        let mut count = 0;
        for thread in &mut self.threads {
            if let Waits::Futex { address, woken } = &mut thread.waits
                && *address == at
                && !*woken
                && count < most
            {
                *woken = true;
                count += 1;
            }
        }
        count
    }

    /// Passes the network's events on to the epoll instances.
    pub fn spread(&mut self) {
        for number in std::mem::take(&mut self.net.edges) {
            self.changes += 1;
            self.polls.happened(Source::Socket(number));
        }
    }

    /// Starts a trouble, which lasts for a while.
    fn trouble(&mut self, trouble: Trouble) {
        if trouble.kind == "short" {
            self.net.narrow(trouble.errno as usize, trouble.lasts);
        }
        self.faults.trouble(trouble, self.net.now);
    }

    /// Runs all events that are due.
    fn happen(&mut self) {
        while let Some(news) = self.net.happen() {
            self.spread();
            let Some(news) = news else { continue };
            match self.actors.told(news, &mut self.net, &mut self.report) {
                Outcome::Nothing => {}
                Outcome::Signal(signal) => self.signals.push_back(signal),
                Outcome::Phase(phase) => self.faults.enter(&phase),
                Outcome::Step(nanoseconds) => self.stepped += nanoseconds,
                Outcome::Sleep(nanoseconds) => self.net.sleep(nanoseconds),
                Outcome::Trouble(trouble) => self.trouble(trouble),
                Outcome::Snapshot(name) => {
                    let threads = self
                        .threads
                        .iter()
                        .filter(|thread| thread.waits != Waits::Ended)
                        .count();
                    self.report.snapshot(&name, threads, &self.net, &self.descriptors);
                }
                Outcome::End => self.end("the end"),
            }
            self.spread();
        }
    }

    /// Writes the report and ends the process immediately.
    pub fn end(&mut self, why: &str) -> ! {
        self.write_report(why);
        loop {
            kernel!(libc::SYS_exit_group, 0);
        }
    }

    /// Kills the process as a power failure would; files already written stay.
    pub fn end_by_force(&mut self) -> ! {
        self.write_report("killed");
        loop {
            kernel!(libc::SYS_kill, kernel!(libc::SYS_getpid), libc::SIGKILL);
        }
    }

    /// Writes the report.
    pub fn write_report(&mut self, why: &str) {
        let ended = why == "exit";
        if ended {
            // Lets what the program sent last arrive.
            self.net.now += SETTLES;
            self.happen();
        }
        self.actors.close(self.net.now, ended, &mut self.report);
        let faults = self.faults.account();
        self.report.write(why, self.net.now, &faults);
    }

    /// Decides what happens next.
    pub fn draw(&mut self) -> Drawn {
        let mut still = None;
        loop {
            self.happen();
            if let Some(signal) = self.signals.pop_front() {
                return Drawn::Signal(signal);
            }
            let able: Vec<usize> = (0..self.threads.len())
                .filter(|&index| self.is_able(index))
                .collect();
            if !able.is_empty() {
                let index = able[self.chance.below(able.len() as u64) as usize];
                self.report.switched(index, self.net.now);
                return Drawn::Runs(index);
            }
            if self.wait_for_children() || self.look_outside() {
                continue;
            }
            let deadlines = self.threads.iter().map(|thread| thread.deadline);
            let next = deadlines.chain(self.net.next_due()).min().unwrap_or(NEVER);
            if next < NEVER {
                self.net.now = self.net.now.max(next);
                self.report.jumps += 1;
                pulse::beat();
                continue;
            }
            let since = *still.get_or_insert_with(real_milliseconds);
            if real_milliseconds() - since > STANDSTILL {
                self.report.violation(
                    self.net.now,
                    "nothing can happen any more: every thread waits for ever",
                );
                self.end("a standstill");
            }
            outside();
        }
    }

    fn is_able(&self, index: usize) -> bool {
        let thread = &self.threads[index];
        let late = thread.deadline <= self.net.now;
        match &thread.waits {
            Waits::No => true,
            Waits::Sleep => late,
            Waits::Futex { woken, .. } => *woken || late,
            Waits::Epoll(poll) => late || self.polls.has_news(&self.net, *poll),
            Waits::Anything { seen, .. } => late || *seen != self.changes,
            Waits::Join(other) => self.threads[*other].waits == Waits::Ended,
            Waits::Ended => false,
        }
    }

    /// Stops virtual time until a child has ended or may be waiting for the program.
    fn wait_for_children(&mut self) -> bool {
        let since = real_milliseconds();
        let mut waited = false;
        loop {
            // SAFETY: a C structure of integers and pointers, for which all zeros are valid.
            let mut information: libc::siginfo_t = unsafe { std::mem::zeroed() };
            let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
            let found = kernel!(libc::SYS_waitid, libc::P_ALL, 0, &raw mut information, options, 0);
            // SAFETY: the kernel filled it in as waitid(2) specifies, or left it zero: no child has ended.
            let ended = unsafe { information.si_pid() } != 0;
            if found != 0 || ended {
                return waited && self.look_outside();
            }
            waited = true;
            if real_milliseconds() - since > CHILD && self.look_outside() {
                return true;
            }
            if real_milliseconds() - since > LONGEST_CHILD {
                self.report
                    .violation(self.net.now, "a child process does not end");
                self.end("a child process");
            }
            outside();
        }
    }

    /// Polls the kernel's descriptors, which signal handlers, children and writers of files change. Returns
    /// whether a thread can run now.
    fn look_outside(&mut self) -> bool {
        let mut found = false;
        for index in 0..self.threads.len() {
            match self.threads[index].waits.clone() {
                Waits::Epoll(poll) => found |= self.polls.look(poll),
                Waits::Anything { kernel, .. } if !kernel.is_empty() => {
                    let mut list: Vec<libc::pollfd> = kernel
                        .iter()
                        .map(|&(fd, events)| libc::pollfd {
                            fd,
                            events,
                            revents: 0,
                        })
                        .collect();
                    let none = libc::timespec {
                        tv_sec: 0,
                        tv_nsec: 0,
                    };
                    let ready = kernel!(
                        libc::SYS_ppoll,
                        list.as_mut_ptr(),
                        list.len(),
                        &raw const none,
                        0,
                        8
                    );
                    if ready > 0 {
                        self.threads[index].waits = Waits::No;
                        found = true;
                    }
                }
                _ => {}
            }
        }
        found
    }
}

/// Sleeps for a moment of real time, for the kernel or a child.
fn outside() {
    pulse::outside(true);
    rest(200);
    pulse::outside(false);
}
