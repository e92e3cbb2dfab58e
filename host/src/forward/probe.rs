//! Questions of our own: whether an upstream that is out is back, and whether one leads back to us.

use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::time::Duration;

use hickory_proto::rr::Name;

use super::failure::Fault;
use super::message::{Query, Reply};
use super::tcp::Pool;
use super::udp;
use super::upstream::Upstream;
use crate::config::{self, Protocol};

const TYPE_NS: u16 = 2;
const TYPE_HINFO: u16 = 13;
/// An upstream that refuses at once is not asked in a busy loop.
const SHORTEST: Duration = Duration::from_millis(10);

/// Asks an upstream that is out every `probe` until it answers. It is the caller's business that only one
/// such task runs ([`Upstream::failed`]); it ends with the generation, whose upstreams it does not keep
/// alive.
pub(super) fn start(upstream: &Arc<Upstream>, config: &config::Forward) {
    // The root's name servers, as node-cache asks: any recursive server has them at hand.
    let Some(query) = question(&Name::root(), TYPE_NS) else {
        return;
    };
    let (upstream, every) = (Watch(Arc::downgrade(upstream)), config.probe.max(SHORTEST));
    let (protocol, limit) = (config.protocol, config.timeout);
    tokio::task::spawn_local(async move {
        loop {
            tokio::time::sleep(every).await;
            let Some(upstream) = upstream.0.upgrade() else {
                return;
            };
            // Any reply proves that someone is there, whatever it says.
            if upstream.wants_probe()
                && matches!(
                    ask(&upstream, protocol, &query, limit).await,
                    Ok(_) | Err(Fault::Malformed)
                )
            {
                upstream.answered();
            }
            if !upstream.wants_probe() && !upstream.probe_ended() {
                return;
            }
        }
    });
}

/// The right to probe an upstream, given back even if the task is dropped half-way with its worker.
struct Watch(Weak<Upstream>);

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(upstream) = self.0.upgrade() {
            upstream.probe_dropped();
        }
    }
}

/// Asks `upstream` once for its own token in `zone`. Whoever receives that question knows that it came from
/// here.
pub(super) async fn for_loop(upstream: &Arc<Upstream>, config: &config::Forward, zone: &str) {
    let name = Name::from_ascii(zone).and_then(|zone| zone.prepend_label(&upstream.loop_token()[..]));
    let query = name.ok().and_then(|name| question(&name, TYPE_HINFO));
    match query {
        // The answer is of no interest.
        Some(query) => drop(ask(upstream, config.protocol, &query, config.timeout).await),
        None => tracing::debug!(zone, "the zone's name leaves no room for a loop probe"),
    }
}

async fn ask(
    upstream: &Arc<Upstream>,
    protocol: Protocol,
    query: &Rc<Query>,
    limit: Duration,
) -> Result<Reply, Fault> {
    match protocol {
        Protocol::Udp => {
            // A socket of its own: it says nothing about queries, nor they about it.
            let sockets = udp::Sockets::new(upstream.clone(), udp::Buffer::new());
            tokio::time::timeout(limit, sockets.exchange(query))
                .await
                .unwrap_or(Err(Fault::Timeout))
        }
        // A connection of its own: an old one is what may be broken.
        Protocol::Tcp => {
            Pool::new(upstream.clone(), 1, Duration::ZERO, limit)
                .exchange(query, limit)
                .await
        }
    }
}

/// A query with RD set.
fn question(name: &Name, rtype: u16) -> Option<Rc<Query>> {
    let mut message = vec![0, 0, 0x01, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.iter() {
        message.push(u8::try_from(label.len()).ok()?);
        message.extend_from_slice(label);
    }
    message.push(0);
    message.extend_from_slice(&rtype.to_be_bytes());
    message.extend_from_slice(&1u16.to_be_bytes());
    Query::new(&message).ok().map(Rc::new)
}
