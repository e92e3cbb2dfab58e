//! Sends a zone to another server: SOA, all other records, SOA (RFC 5936 section 2.2).

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::yield_now;
use tokio::time::timeout;

use super::asked::Asked;
use super::contents::{Contents, serial};
use super::counters::Outcome;
use super::place::Place;
use crate::dns::name::Name;
use crate::dns::transfer::{Record, Response};
use crate::dns::tsig::Signer;
use crate::dns::u16_at;

/// The longest a transfer may take, however slowly its client reads.
const LONGEST: Duration = Duration::from_secs(3600);

/// A transfer that is ready to begin. It holds the current version of the zone until dropped.
pub struct Transfer {
    place: Place,
    contents: Arc<dyn Contents>,
    client: IpAddr,
    id: u16,
    question: Vec<u8>,
    signer: Option<Box<Signer>>,
}

impl Transfer {
    /// The transfer for a request.
    pub fn new(
        place: Place,
        contents: Arc<dyn Contents>,
        asked: &Asked<'_>,
        signer: Option<Box<Signer>>,
    ) -> Transfer {
        Transfer {
            place,
            contents,
            client: asked.client,
            id: u16_at(asked.message, 0),
            question: asked.question.to_vec(),
            signer,
        }
    }

    /// Sends one message after another. `send` waits for room, and returns false if the client is gone.
    /// Returns false if the transfer is incomplete: then the connection must be closed.
    pub async fn run(self, send: impl AsyncFn(&[u8]) -> bool) -> bool {
        let Transfer {
            place,
            contents,
            client,
            id,
            question,
            signer,
        } = self;
        let sender = Sender {
            id,
            question: Some(question),
            signer,
            send,
        };
        let sent = timeout(LONGEST, sender.run(&*contents)).await.unwrap_or(false);
        let soa = contents.soa();
        let (zone, serial) = (Name::lowercased(&soa.owner), serial(&soa));
        match sent {
            true => tracing::info!(%client, %zone, serial, "a zone was transferred"),
            false => tracing::warn!(%client, %zone, serial, "a zone transfer was cut off"),
        }
        let outcome = if sent { Outcome::Sent } else { Outcome::Broken };
        place.count(outcome);
        sent
    }
}

struct Sender<S> {
    id: u16,
    /// For the first message.
    question: Option<Vec<u8>>,
    signer: Option<Box<Signer>>,
    send: S,
}

impl<S: AsyncFn(&[u8]) -> bool> Sender<S> {
    async fn run(mut self, contents: &dyn Contents) -> bool {
        let soa = contents.soa();
        let Some(mut response) = self.begin() else {
            return false;
        };
        let ends = || std::iter::once(vec![soa.clone()]);
        for batch in ends().chain(contents.batches()).chain(ends()) {
            for record in &batch {
                if !self.push(&mut response, record).await {
                    return false;
                }
            }
        }
        self.end(response).await
    }

    fn begin(&mut self) -> Option<Response> {
        Response::new(self.id, self.question.take().as_deref())
    }

    /// Adds a record to this message, or to the next one.
    async fn push(&mut self, response: &mut Response, record: &Record) -> bool {
        if response.push(record) {
            return true;
        }
        let Some(next) = self.begin() else {
            return false;
        };
        let full = std::mem::replace(response, next);
        self.end(full).await && response.push(record)
    }

    async fn end(&mut self, response: Response) -> bool {
        let Some(message) = response.finish(self.signer.as_deref_mut()) else {
            return false;
        };
        let sent = (self.send)(&message).await;
        // Queries get a turn between two messages.
        yield_now().await;
        sent
    }
}
