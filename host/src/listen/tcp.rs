//! The TCP side of a listener (RFC 7766): accepts connections, as many as there is room for.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{spawn_local, yield_now};
use tokio::time::{Instant, timeout_at};

use super::account::Account;
use super::accounts::Reason;
use super::conversation::converse;
use super::{Limits, Switch};
use crate::serve::Worker;

/// How long connections whose handshake has begun may take to end it once we are to stop. They cannot be
/// given to another listener: closed before, ours would have them reset.
const HANDSHAKE: Duration = Duration::from_millis(100);

/// Accepts connections until `stop`.
pub async fn listen(
    worker: Rc<Worker>,
    listener: TcpListener,
    switch: Arc<Switch>,
    server: u16,
    limits: Rc<RefCell<Limits>>,
    mut stop: watch::Receiver<bool>,
) {
    let mut last: Option<Instant> = None;
    loop {
        let accepted = match last {
            None => tokio::select! {
                accepted = listener.accept() => accepted,
                _ = stop.changed() => {
                    switch.pass_on(limits.borrow().siblings);
                    last = Some(Instant::now() + HANDSHAKE);
                    continue;
                }
            },
            Some(at) => match timeout_at(at, listener.accept()).await {
                Ok(accepted) => accepted,
                // The last look is at the socket itself, and finds those that wait: closed unaccepted, they
                // would be reset.
                Err(_) => match switch.accept() {
                    Some(accepted) => accepted,
                    None => return switch.tcp_off(),
                },
            },
        };
        match accepted {
            Ok((stream, client)) => {
                begin(&worker, stream, client, server, &limits.borrow(), &stop);
                // Those that had to go for it go now.
                yield_now().await;
            }
            Err(_) if last.is_some() => return switch.tcp_off(),
            Err(error) => {
                // Out of descriptors, or a connection that was gone before we took it: the next attempt
                // may do better, but not at once.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Serves a connection, if there is room for it.
fn begin(
    worker: &Rc<Worker>,
    mut stream: TcpStream,
    client: SocketAddr,
    server: u16,
    limits: &Limits,
    stop: &watch::Receiver<bool>,
) {
    // RFC 7766 section 6.2.2 leaves the bound to us; a closed connection tells the client so.
    let Some(account) = limits.accounts.open(client.ip(), worker.now()) else {
        return tracing::debug!(%client, "too many connections");
    };
    let open = Open {
        account,
        reason: None,
    };
    let _ = stream.set_nodelay(true);
    let (worker, stop) = (Rc::clone(worker), stop.clone());
    spawn_local(async move {
        let reason = converse(worker, &mut stream, client, server, &open.account, stop).await;
        if reason == Some(Reason::Write) || open.account.is_closed() {
            // Or the kernel would keep for minutes what the client does not take.
            let _ = stream.set_zero_linger();
        }
        drop(stream);
        open.end(reason);
    });
}

/// A connection in the book of all; dropped, it is out of it.
struct Open {
    account: Arc<Account>,
    /// Why it ended, if that was our decision.
    reason: Option<Reason>,
}

impl Open {
    fn end(mut self, reason: Option<Reason>) {
        self.reason = reason;
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.account.accounts().close(&self.account, self.reason);
    }
}
