//! Notifies secondaries that a zone has changed (RFC 1996).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::net::UdpSocket;
use tokio::time::timeout;

use super::outgoing::Outgoing;
use crate::dns::transfer::{Record, Request};
use crate::dns::{HEADER, MESSAGE_MAXIMUM, flag, u16_at};

/// How often a NOTIFY is sent to a secondary that does not answer (RFC 1996 section 3.6).
const TRIES: u32 = 5;

/// The timeout of the first try; it doubles with each further one.
const FIRST: Duration = Duration::from_secs(2);

/// QR and the opcode NOTIFY, as in a response.
const NOTIFY_RESPONSE: u16 = flag::QR | 4 << 11;

/// Sends the zone's current SOA record to all its secondaries, in the background.
pub fn notify_all(outgoing: &Arc<Outgoing>, soa: &Record) {
    for &secondary in &outgoing.config().notify {
        let (outgoing, soa) = (Arc::clone(outgoing), soa.clone());
        tokio::spawn(async move { notify(&outgoing, &soa, secondary).await });
    }
}

/// Sends the zone's current SOA record to a secondary until it answers or all tries have failed.
pub async fn notify(outgoing: &Outgoing, soa: &Record, secondary: SocketAddr) {
    let mut wait = FIRST;
    for _ in 0..TRIES {
        // A new socket each time, so that an attacker cannot know which port expects the answer (RFC 5452
        // section 9.2).
        if let Ok(true) = timeout(wait, tell_once(outgoing, soa, secondary, wait)).await {
            outgoing.counters.notified.fetch_add(1, Relaxed);
            return;
        }
        wait *= 2;
    }
    tracing::warn!(%secondary, "a secondary does not answer the NOTIFY for its zone");
    outgoing.counters.unheard.fetch_add(1, Relaxed);
}

async fn tell_once(outgoing: &Outgoing, soa: &Record, secondary: SocketAddr, wait: Duration) -> bool {
    let id = rand::random();
    let key = outgoing.config().key.as_ref();
    let Some((message, mut verifier)) = Request::Notify(soa).message(id, &soa.owner, key) else {
        return false;
    };
    let unspecified: IpAddr = match secondary {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((unspecified, 0)).await;
    let Ok(socket) = socket else {
        tokio::time::sleep(wait).await;
        return false;
    };
    if socket.connect(secondary).await.is_err() || socket.send(&message).await.is_err() {
        tokio::time::sleep(wait).await;
        return false;
    }
    let mut received = vec![0; MESSAGE_MAXIMUM];
    loop {
        let Ok(length) = socket.recv(&mut received).await else {
            // Nothing listens there, perhaps not yet.
            tokio::time::sleep(wait).await;
            return false;
        };
        let mut answer = received[..length].to_vec();
        let is_answer = length >= HEADER
            && u16_at(&answer, 0) == id
            && u16_at(&answer, 2) & (flag::QR | flag::OPCODE) == NOTIFY_RESPONSE;
        // Any rcode shows that it got the message (RFC 1996 section 3.5).
        if is_answer
            && verifier
                .as_mut()
                .is_none_or(|verifier| verifier.check(&mut answer).is_ok())
        {
            return true;
        }
    }
}
