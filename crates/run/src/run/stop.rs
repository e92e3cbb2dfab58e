//! The end of the proxy: drains the listeners, and removes the node's network setup.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::time::timeout;

use super::worker::Command;
use super::{Proxy, Stop};
use crate::config::Encryption;
use crate::listen::{Address, Sockets};
use crate::state::State;

/// How long queries in progress may take to end after SIGTERM.
const DRAIN: Duration = Duration::from_secs(5);

/// How much longer workers may take to end. A hanging worker is not waited for.
const LATE: Duration = Duration::from_secs(1);

impl Proxy {
    /// Accepts nothing new, drains, and returns when that is done or takes too long. The node's network setup
    /// is removed unless it `stays`.
    ///
    /// # Errors
    /// Why part of it remains.
    pub(super) async fn stop(mut self, stays: bool) -> Result<(), Stop> {
        self.state.serving.store(false, Ordering::Relaxed);
        let begun = Instant::now();
        // Before anything is torn down: a process that stands aside for us must be listening by then.
        if let Some(succession) = self.succession.take() {
            succession.end().await;
        }
        let reconciler = self.reconciler.as_ref().filter(|_| !stays);
        // Remove the rules first, while our sockets still receive what the rules divert from the cluster's
        // DNS.
        let mut handed_over = false;
        if let Some(reconciler) = reconciler {
            handed_over = reconciler.unguard().await.unwrap_or(false);
            if handed_over {
                tracing::info!(
                    "another process listens on these addresses: leaving the node's network to it"
                );
            }
        }
        if handed_over || stays {
            // From now on the successor answers probes.
            drop(self.admin);
        }
        let _silenced = (reconciler.is_some() && !handed_over).then(|| silenced(&self.state));
        for worker in &self.workers {
            worker.send(Command::Stop { within: DRAIN });
        }
        let ended = async {
            for worker in self.workers {
                worker.join().await;
            }
        };
        if timeout(DRAIN + LATE, ended).await.is_err() {
            tracing::warn!("a worker is unresponsive: not waiting for it");
        }
        let dropped = match reconciler {
            Some(reconciler) => reconciler.drop_link().await,
            None => Ok(()),
        };
        if let Some(tap) = &self.state.generation.read().tap {
            tap.finish();
        }
        tracing::info!(milliseconds = begun.elapsed().as_millis() as u64, "stopped");
        let remains = "parts of the node's network setup remain; `dnsweir node down` removes them";
        dropped.map_err(|error| Stop::Machine(format!("{error}: {remains}")))
    }
}

/// Returns silent sockets for this node's own addresses, from before the workers stop listening until the addresses are
/// gone. After a rollout another process has them a second later: what is lost until then is sent again.
fn silenced(state: &State) -> Vec<Sockets> {
    let generation = Arc::clone(&state.generation.read());
    let own = generation.config.listen.each().filter(may_be_silenced);
    // Without them, clients are refused for some milliseconds.
    own.filter_map(Sockets::bind_silent).collect()
}

/// Whether an address is this node's own, and one more socket there takes nothing from open connections. The kernel
/// distributes the packets of all QUIC connections over the sockets of their address, and a worker still owes replies
/// on some.
fn may_be_silenced((address, encryption): &Address) -> bool {
    !address.ip().is_loopback() && *encryption != Some(Encryption::Quic)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_of_open_connections_are_not_lost() {
        for (address, encryption, silenced) in [
            ("127.0.0.1:53", None, false),
            ("[::1]:53", None, false),
            ("169.254.20.10:53", None, true),
            ("169.254.20.10:853", Some(Encryption::Tls), true),
            ("169.254.20.10:443", Some(Encryption::Https), true),
            ("169.254.20.10:853", Some(Encryption::Quic), false),
        ] {
            let listener = (address.parse().unwrap(), encryption);
            assert_eq!(may_be_silenced(&listener), silenced, "{listener:?}");
        }
    }
}
