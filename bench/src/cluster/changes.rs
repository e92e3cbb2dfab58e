//! Changes to the endpoints of services: some that are awaited, and others at a rate in the background.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::api_server::ApiServer;
use super::objects::is_headless;

/// One in this many services is reserved for awaited changes.
const AWAITED: u32 = 10;

/// The source of changes.
pub struct Changes {
    server: ApiServer,
    services: u32,
    /// Each change uses a new address.
    next: Arc<AtomicU32>,
}

impl Changes {
    /// Creates changes for this many services.
    pub fn of(server: ApiServer, services: u32) -> Changes {
        let next = Arc::new(AtomicU32::new(u32::from(Ipv4Addr::new(172, 16, 0, 1))));
        Changes {
            server,
            services,
            next,
        }
    }

    /// Returns a headless service, and a new address for its first endpoint.
    pub fn awaited(&mut self, number: u32) -> (u32, Ipv4Addr) {
        let turn = number * 7 % (self.services / AWAITED).max(1);
        let service = turn * AWAITED + AWAITED - 1;
        debug_assert!(is_headless(service), "it has the addresses of its endpoints");
        (service, next(&self.next))
    }

    /// Makes a change.
    pub fn make(&self, service: u32, address: Ipv4Addr) {
        self.server.change(service, address);
    }

    /// Makes this many changes per second, to the other services in turn.
    pub fn run(&self, rate: u32) -> Running {
        let (made, end) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let (count, stop) = (Arc::clone(&made), Arc::clone(&end));
        let (server, services, addresses) = (self.server.clone(), self.services, Arc::clone(&self.next));
        let thread = thread::spawn(move || {
            let begin = Instant::now();
            let others = (0..services)
                .cycle()
                .filter(|service| service % AWAITED != AWAITED - 1);
            for (number, service) in others.enumerate() {
                let due = Duration::from_secs_f64(number as f64 / f64::from(rate.max(1)));
                thread::sleep(due.saturating_sub(begin.elapsed()));
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                server.change(service, next(&addresses));
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        Running { made, end, thread }
    }
}

fn next(addresses: &AtomicU32) -> Ipv4Addr {
    addresses.fetch_add(1, Ordering::Relaxed).into()
}

/// Changes in progress.
pub struct Running {
    made: Arc<AtomicU64>,
    end: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Running {
    /// Returns how many were made so far.
    pub fn made(&self) -> u64 {
        self.made.load(Ordering::Relaxed)
    }

    /// Stops them.
    pub fn stop(self) {
        self.end.store(true, Ordering::Relaxed);
        let _ = self.thread.join();
    }
}
