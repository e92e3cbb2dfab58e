//! Epoll instances and event counters (eventfd).
//!
//! Each instance has two parts: the kernel's, for the kernel's descriptors, and the box's own. Both are
//! edge-triggered where the program asks for it. Events that the box polled from the kernel's part are kept
//! until the program asks.

use std::collections::BTreeMap;

use crate::kernel::kernel;
use crate::net::{Net, Number};

/// A source of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    Socket(Number),
    Counter(u32),
}

struct Interest {
    source: Source,
    events: u32,
    data: u64,
    /// Whether something happened since its last report.
    happened: bool,
}

/// An epoll instance.
pub struct Poll {
    /// The descriptor of the kernel's part.
    descriptor: i32,
    /// Registrations by descriptor.
    interests: BTreeMap<i32, Interest>,
    /// How many descriptors the kernel's part has.
    kernels: usize,
    kept: Vec<(u32, u64)>,
}

/// All instances and counters.
#[derive(Default)]
pub struct Polls {
    polls: BTreeMap<u32, Poll>,
    counters: BTreeMap<u32, u64>,
    next: u32,
}

impl Polls {
    /// Creates an instance around a descriptor of the kernel.
    pub fn open(&mut self, descriptor: i32) -> u32 {
        self.next += 1;
        let poll = Poll {
            descriptor,
            interests: BTreeMap::new(),
            kernels: 0,
            kept: Vec::new(),
        };
        self.polls.insert(self.next, poll);
        self.next
    }

    /// Creates a counter.
    pub fn count_from(&mut self, initial: u64) -> u32 {
        self.next += 1;
        self.counters.insert(self.next, initial);
        self.next
    }

    /// Adds to a counter. Returns whether there was room.
    pub fn add(&mut self, counter: u32, value: u64) -> bool {
        let Some(count) = self.counters.get_mut(&counter) else {
            return false;
        };
        let Some(sum) = count.checked_add(value).filter(|sum| *sum < u64::MAX) else {
            return false;
        };
        *count = sum;
        self.happened(Source::Counter(counter));
        true
    }

    /// Takes the value of a counter, unless it is zero.
    pub fn take(&mut self, counter: u32) -> Option<u64> {
        let count = self.counters.get_mut(&counter).filter(|count| **count > 0)?;
        Some(std::mem::take(count))
    }

    /// Adds, changes or removes a registration.
    ///
    /// # Errors
    /// Those of epoll_ctl(2).
    pub fn control(
        &mut self,
        poll: u32,
        operation: i32,
        descriptor: i32,
        source: Source,
        events: (u32, u64),
    ) -> Result<(), i32> {
        let poll = self.polls.get_mut(&poll).ok_or(libc::EBADF)?;
        let there = poll.interests.contains_key(&descriptor);
        match operation {
            libc::EPOLL_CTL_ADD if there => return Err(libc::EEXIST),
            libc::EPOLL_CTL_MOD | libc::EPOLL_CTL_DEL if !there => return Err(libc::ENOENT),
            libc::EPOLL_CTL_DEL => {
                poll.interests.remove(&descriptor);
            }
            _ => {
                let interest = Interest {
                    source,
                    events: events.0,
                    data: events.1,
                    happened: true,
                };
                poll.interests.insert(descriptor, interest);
            }
        }
        Ok(())
    }

    /// Counts registrations with the kernel's part.
    pub fn kernels(&mut self, poll: u32, operation: i32) {
        let Some(poll) = self.polls.get_mut(&poll) else {
            return;
        };
        match operation {
            libc::EPOLL_CTL_ADD => poll.kernels += 1,
            libc::EPOLL_CTL_DEL => poll.kernels = poll.kernels.saturating_sub(1),
            _ => {}
        }
    }

    /// Marks an event on a socket or counter.
    pub fn happened(&mut self, source: Source) {
        for interest in self
            .polls
            .values_mut()
            .flat_map(|poll| poll.interests.values_mut())
        {
            interest.happened |= interest.source == source;
        }
    }

    /// Removes a closed socket or counter.
    pub fn forget(&mut self, source: Source) {
        if let Source::Counter(counter) = source {
            self.counters.remove(&counter);
        }
        for poll in self.polls.values_mut() {
            poll.interests.retain(|_, interest| interest.source != source);
        }
    }

    /// Removes an instance.
    pub fn close(&mut self, poll: u32) {
        self.polls.remove(&poll);
    }

    /// Returns a source's readiness.
    pub fn ready(&self, net: &Net, source: Source) -> u32 {
        match source {
            Source::Socket(number) => net.ready(number),
            Source::Counter(counter) => {
                let holds = self.counters.get(&counter).is_some_and(|count| *count > 0);
                (libc::EPOLLOUT | if holds { libc::EPOLLIN } else { 0 }) as u32
            }
        }
    }

    /// Whether an instance has events to report.
    pub fn has_news(&self, net: &Net, poll: u32) -> bool {
        let Some(poll) = self.polls.get(&poll) else {
            return true;
        };
        !poll.kept.is_empty()
            || poll
                .interests
                .values()
                .any(|interest| interest.happened && self.told(net, interest) != 0)
    }

    fn told(&self, net: &Net, interest: &Interest) -> u32 {
        let always = (libc::EPOLLERR | libc::EPOLLHUP) as u32;
        self.ready(net, interest.source) & (interest.events | always)
    }

    /// Returns up to `most` events of an instance, and marks them as reported.
    pub fn tell(&mut self, net: &Net, poll: u32, most: usize) -> Vec<(u32, u64)> {
        let mut told = Vec::new();
        let mut done = Vec::new();
        if let Some(poll) = self.polls.get(&poll) {
            for (descriptor, interest) in poll.interests.iter().filter(|(_, interest)| interest.happened) {
                let events = self.told(net, interest);
                if events != 0 && told.len() < most {
                    told.push((events, interest.data));
                    done.push(*descriptor);
                }
            }
        }
        let Some(poll) = self.polls.get_mut(&poll) else {
            return told;
        };
        for descriptor in done {
            if let Some(interest) = poll.interests.get_mut(&descriptor) {
                interest.happened = interest.events & libc::EPOLLET as u32 == 0;
            }
        }
        let room = most.saturating_sub(told.len()).min(poll.kept.len());
        told.extend(poll.kept.drain(..room));
        told
    }

    /// Polls the kernel's part without waiting, and keeps its events. Returns whether there are any.
    pub fn look(&mut self, poll: u32) -> bool {
        let Some(poll) = self.polls.get_mut(&poll).filter(|poll| poll.kernels > 0) else {
            return false;
        };
        if !poll.kept.is_empty() {
            return true;
        }
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 64];
        let count = kernel!(
            libc::SYS_epoll_pwait,
            poll.descriptor,
            events.as_mut_ptr(),
            events.len(),
            0,
            0,
            0
        );
        let count = usize::try_from(count).unwrap_or(0);
        poll.kept
            .extend(events[..count].iter().map(|event| (event.events, event.u64)));
        count > 0
    }
}
