//! Where workers log messages.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{fmt, fs, thread};

use super::message::{Exchange, Kind, Message};
use super::stream::{Counters, Stream};
use crate::config::{self, TapMessages};
use crate::output::Queue;

/// How long frames are collected, so that a busy server wakes the writer thread fifty times a second.
const GATHER: Duration = Duration::from_millis(20);

/// The dnstap logger.
pub struct Tap {
    config: config::Dnstap,
    identity: Vec<u8>,
    counters: Arc<Counters>,
    /// Created by the first message; `None` if its thread could not be started.
    queue: OnceLock<Option<Queue>>,
}

impl Tap {
    /// Creates a tap. It opens nothing before the first message.
    pub fn new(config: &config::Dnstap) -> Arc<Tap> {
        let identity = config.identity.clone().or_else(host_name).unwrap_or_default();
        Arc::new(Tap {
            config: config.clone(),
            identity: identity.into_bytes(),
            counters: Arc::default(),
            queue: OnceLock::new(),
        })
    }

    /// Whether this configuration would give the same tap.
    pub fn is_for(&self, config: &config::Dnstap) -> bool {
        self.config == *config
    }

    /// Whether messages from and to clients are logged.
    pub fn wants_clients(&self) -> bool {
        self.config.logs(TapMessages::Clients)
    }

    /// Whether messages to and from upstreams are logged.
    pub fn wants_upstreams(&self) -> bool {
        self.config.logs(TapMessages::Upstreams)
    }

    /// Logs a client's query and the response to it.
    pub fn tell_client(&self, exchange: &Exchange<'_>) {
        self.tell(exchange, Kind::ClientQuery, Kind::ClientResponse);
    }

    /// Logs a query to an upstream and the response to it.
    pub fn tell_upstream(&self, exchange: &Exchange<'_>) {
        self.tell(exchange, Kind::ForwarderQuery, Kind::ForwarderResponse);
    }

    fn tell(&self, exchange: &Exchange<'_>, query: Kind, response: Kind) {
        let Some(queue) = self.queue.get_or_init(|| self.start()) else {
            return;
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let query = Message::query(query, exchange, now);
        let response = Message::response(response, exchange, now);
        let count = 1 + u64::from(response.is_some());
        let messages = [Some(query), response].into_iter().flatten();
        let frames = messages
            .into_iter()
            .map(|message| message.frame(&self.identity, exchange.pod.as_deref()));
        let frames: Vec<u8> = frames.flatten().collect();
        queue.push(frames.len(), || count, |out| out.extend_from_slice(&frames));
    }

    fn start(&self) -> Option<Queue> {
        let stream = Stream::new(self.config.to.clone(), Arc::clone(&self.counters));
        Queue::start("dnstap", stream, GATHER)
            .inspect_err(
                |error| tracing::error!(%error, "cannot start the thread of dnstap: no messages are logged"),
            )
            .ok()
    }

    /// Writes what is queued and ends the stream, if there is a reader. Takes at most a second.
    pub fn finish(&self) {
        if let Some(Some(queue)) = self.queue.get() {
            queue.finish();
        }
    }

    /// Returns the frames written, those dropped because the reader was too slow, and those dropped for lack
    /// of a reader.
    pub fn metrics(&self) -> (u64, u64, u64) {
        let slow = match self.queue.get() {
            Some(Some(queue)) => queue.dropped(),
            _ => 0,
        };
        let [written, unread] =
            [&self.counters.written, &self.counters.unread].map(|of| of.load(Ordering::Relaxed));
        (written, slow, unread)
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        // A worker may drop the last reference, and the reader may be slow.
        if let Some(Some(queue)) = self.queue.take() {
            let _ = thread::Builder::new()
                .name("dnstap-end".into())
                .spawn(move || drop(queue));
        }
    }
}

impl fmt::Debug for Tap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tap").field(&self.config).finish()
    }
}

/// The kernel's name for this host, or for the container.
fn host_name() -> Option<String> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().to_owned())
}
