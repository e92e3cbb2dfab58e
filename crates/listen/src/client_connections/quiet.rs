//! Finds the connection that has been quiet longest, without looking at all of them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use dnsweir_os::clock::Uptime;

/// How many connections that wait for a reply are passed over for one that does not.
const PASSED_OVER: usize = 64;

/// Entries of connections that have ended are kept until there are this many more than twice the others.
const ENDED: usize = 64;

/// A connection as it is now.
#[derive(Debug, Clone, Copy)]
pub(super) struct Now {
    /// Since when no complete query or reply has passed. Never earlier than before.
    pub quiet_since: Uptime,
    /// Whether the client waits for a reply.
    pub waits: bool,
}

/// Serial numbers of connections, by the time since which each was quiet when it was last looked at. A connection that has
/// not been quiet since then is put back, once, when it would be the first.
#[derive(Debug, Default)]
pub(super) struct Quiet(BinaryHeap<Reverse<(Uptime, u64)>>);

impl Quiet {
    /// Adds a connection beside so many others. `look` returns `None` for a connection that has ended.
    pub fn add(&mut self, serial: u64, since: Uptime, others: usize, look: impl Fn(u64) -> Option<Now>) {
        if self.0.len() > 2 * others + ENDED {
            self.0.retain(|Reverse((_, serial))| look(*serial).is_some());
        }
        self.0.push(Reverse((since, serial)));
    }

    /// Takes out the connection that has been quiet longest, preferring those that wait for no reply.
    pub fn take(&mut self, look: impl Fn(u64) -> Option<Now>) -> Option<u64> {
        let mut waiting = Vec::new();
        let mut quietest = None;
        while let Some(Reverse((since, serial))) = self.0.pop() {
            match look(serial) {
                None => {}
                Some(now) if now.quiet_since > since => self.0.push(Reverse((now.quiet_since, serial))),
                Some(now) if now.waits && waiting.len() < PASSED_OVER => waiting.push((since, serial)),
                Some(_) => {
                    quietest = Some(serial);
                    break;
                }
            }
        }
        let mut passed_over = waiting.into_iter();
        let quietest = quietest.or_else(|| passed_over.next().map(|(_, serial)| serial));
        self.0.extend(passed_over.map(Reverse));
        quietest
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::collections::HashMap;

    use super::*;

    /// Connections by number, and how often one was looked at.
    #[derive(Default)]
    struct World {
        open: RefCell<HashMap<u64, Now>>,
        looks: Cell<u64>,
    }

    impl World {
        fn set(&self, serial: u64, quiet_since: u64, waits: bool) {
            let quiet_since = Uptime::from_micros(quiet_since);
            self.open.borrow_mut().insert(serial, Now { quiet_since, waits });
        }

        fn look(&self, serial: u64) -> Option<Now> {
            self.looks.set(self.looks.get() + 1);
            self.open.borrow().get(&serial).copied()
        }
    }

    #[test]
    fn the_quietest_that_waits_for_nothing_is_first() {
        let (world, mut quiet) = (World::default(), Quiet::default());
        for serial in 0..4 {
            world.set(serial, serial, serial == 0);
            quiet.add(serial, Uptime::from_micros(serial), 0, |serial| {
                world.look(serial)
            });
        }
        // Another one is busy again, and the next has ended.
        world.set(1, 9, false);
        world.open.borrow_mut().remove(&2);
        let mut take = || quiet.take(|serial| world.look(serial));
        assert_eq!(
            [take(), take(), take(), take()],
            [Some(3), Some(1), Some(0), None]
        );
    }

    /// If all wait, some are passed over, and the rest is not looked at.
    #[test]
    fn those_that_wait_are_not_searched_for_ever() {
        let (world, mut quiet) = (World::default(), Quiet::default());
        for serial in 0..1000 {
            world.set(serial, serial, true);
            quiet.add(serial, Uptime::from_micros(serial), 1000, |serial| {
                world.look(serial)
            });
        }
        assert_eq!(quiet.take(|serial| world.look(serial)), Some(PASSED_OVER as u64));
        assert_eq!(world.looks.get(), PASSED_OVER as u64 + 1);
    }

    /// Thousands of connections that come and go beside thousands that stay cost a few looks each, and their entries go.
    #[test]
    fn a_flood_costs_a_few_looks_a_connection() {
        const STAYING: u64 = 10_000;
        let (world, mut quiet) = (World::default(), Quiet::default());
        for serial in 0..STAYING {
            world.set(serial, serial, false);
            quiet.add(serial, Uptime::from_micros(serial), serial as usize, |serial| {
                world.look(serial)
            });
        }
        for serial in 0..STAYING {
            world.set(serial, STAYING + serial, false);
        }
        for serial in STAYING..4 * STAYING {
            world.set(serial, serial, false);
            quiet.add(serial, Uptime::from_micros(serial), STAYING as usize, |serial| {
                world.look(serial)
            });
            match serial % 2 {
                0 => drop(world.open.borrow_mut().remove(&serial)),
                _ => {
                    let quietest = quiet.take(|serial| world.look(serial)).unwrap();
                    world.open.borrow_mut().remove(&quietest);
                }
            }
        }
        assert!(world.looks.get() < 8 * STAYING, "{} looks", world.looks.get());
        assert!(quiet.0.len() <= 2 * STAYING as usize + ENDED + 1);
    }
}
