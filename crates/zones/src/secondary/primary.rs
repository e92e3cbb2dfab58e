//! Asks a primary for a new version of a zone and fetches it, over one connection (RFC 5936 section 4.1, RFC
//! 1995 section 2).

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::incoming::{Came, Incoming};
use super::state::State;
use crate::dns::rtype;
use crate::dns::transfer::{Record, Request, records};
use crate::dns::tsig::{Key, Verifier};
use crate::transfer::{Contents as _, is_newer, serial};
use crate::zonefile::Zone;

/// A primary, the zone to fetch, and the limits.
pub(crate) struct Primary<'a> {
    /// The primary's address.
    pub address: SocketAddr,
    /// The zone's state.
    pub state: &'a State,
    /// The key that both sides sign with.
    pub key: Option<&'a Key>,
    /// The most bytes to receive.
    pub octets: usize,
    /// How long to wait for the zone's serial, at most.
    pub patience: Duration,
}

impl Primary<'_> {
    /// Fetches what is newer than the `known` zone.
    ///
    /// # Errors
    /// Why nothing was fetched, in words.
    pub async fn look(&self, known: Option<&Arc<Zone>>) -> Result<Came, String> {
        let opened = timeout(self.patience, self.open()).await;
        let (mut connection, newest) = opened.map_err(|_| "its serial took too long")??;
        let Some(known) = known else {
            return self.transfer(&mut connection, Request::Axfr, None).await;
        };
        if !is_newer(newest, known.serial) {
            return Ok(Came::Nothing);
        }
        let own = known.soa();
        let came = match self
            .transfer(&mut connection, Request::Ixfr(&own), Some(known))
            .await
        {
            Ok(came) => came,
            // Whatever is wrong with the changes, the whole zone may be right (RFC 1995 section 4).
            Err(problem) => {
                tracing::info!(
                    "secondary {}: {}: {problem}: asking for all of the zone",
                    self.state.origin,
                    self.address
                );
                self.state.counters.fallbacks.fetch_add(1, Relaxed);
                let mut connection = self.connect().await?;
                self.transfer(&mut connection, Request::Axfr, None).await?
            }
        };
        // Behind one address there may be several servers, of which another has answered now.
        if let Came::Whole(records) | Came::Changed(records) = &came
            && records
                .last()
                .is_none_or(|soa| !is_newer(serial(soa), known.serial))
        {
            return Err("it sent a zone that is not newer".into());
        }
        Ok(came)
    }

    /// Connects, and asks for the zone's serial.
    async fn open(&self) -> Result<(TcpStream, u32), String> {
        let mut connection = self.connect().await?;
        let mut soa = None;
        self.ask(&mut connection, Request::Soa, |records| {
            soa = records.into_iter().find(|record| record.rtype == rtype::SOA);
            Ok(true)
        })
        .await?;
        let soa = soa.filter(|soa| *soa.owner == *self.state.origin.as_bytes());
        let newest = serial(&soa.ok_or("it has no SOA record of the zone")?);
        Ok((connection, newest))
    }

    async fn connect(&self) -> Result<TcpStream, String> {
        let stream = TcpStream::connect(self.address).await;
        stream.map_err(|error| format!("it cannot be reached: {error}"))
    }

    async fn transfer(
        &self,
        connection: &mut TcpStream,
        request: Request<'_>,
        since: Option<&Arc<Zone>>,
    ) -> Result<Came, String> {
        let mut incoming = Incoming::new(self.state.origin.as_bytes(), since.map(|since| &**since));
        self.ask(connection, request, |records| {
            for record in records {
                incoming.take(record).map_err(|wrong| wrong.to_string())?;
            }
            // Separate records take more memory than a zone.
            if incoming.octets() > 2 * self.octets {
                return Err(self.too_much());
            }
            Ok(incoming.has_ended() || incoming.is_nothing())
        })
        .await?;
        incoming
            .finish()
            .ok_or_else(|| "the transfer was not whole".into())
    }

    fn too_much(&self) -> String {
        format!(
            "the transfer takes more than {} bytes: raise `memory`",
            self.octets
        )
    }

    /// Sends a request and passes the records of each response message to `take`, until it returns true.
    async fn ask(
        &self,
        connection: &mut TcpStream,
        request: Request<'_>,
        mut take: impl FnMut(Vec<Record>) -> Result<bool, String>,
    ) -> Result<(), String> {
        let id = rand::random();
        let built = request.message(id, self.state.origin.as_bytes(), self.key);
        let (message, mut verifier) = built.ok_or("no question can be made of the zone's name")?;
        let mut framed = (message.len() as u16).to_be_bytes().to_vec();
        framed.extend(message);
        let broken = |error: std::io::Error| format!("the connection broke: {error}");
        connection.write_all(&framed).await.map_err(broken)?;
        let mut left = self.octets;
        loop {
            let length = usize::from(connection.read_u16().await.map_err(broken)?);
            left = left.checked_sub(length).ok_or_else(|| self.too_much())?;
            let mut message = vec![0; length];
            connection.read_exact(&mut message).await.map_err(broken)?;
            verify(&mut verifier, &mut message)?;
            if take(records(&message, id)?)? {
                return match verifier {
                    Some(verifier) => verifier.done().map_err(signature),
                    None => Ok(()),
                };
            }
        }
    }
}

fn verify(verifier: &mut Option<Verifier>, message: &mut Vec<u8>) -> Result<(), String> {
    match verifier {
        Some(verifier) => verifier.check(message).map_err(signature),
        None => Ok(()),
    }
}

fn signature(problem: String) -> String {
    format!("its signature is not right: {problem}")
}
