//! Signatures with a shared secret (TSIG, RFC 8945), of one message or a sequence of messages.
//!
//! The library compares keys, checks times and signs. This module passes it messages as bytes, and keeps
//! secrets out of debug output.

use std::collections::HashMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use domain::base::message_builder::{AdditionalBuilder, MessageBuilder};
use domain::base::name::ToName;
use domain::base::wire::Composer;
use domain::base::{Message, Name as WireName};
use domain::rdata::tsig::Time48;
use domain::tsig::{Algorithm, ClientSequence, ServerSequence};

use super::name::Name;
use super::{flag, u16_at};

/// The supported algorithms, by their names in RFC 8945 section 6: those it requires or recommends.
pub const ALGORITHMS: [&str; 3] = ["hmac-sha256", "hmac-sha384", "hmac-sha512"];

/// A shared secret and the name that both sides use for it.
#[derive(Clone)]
pub struct Key(Arc<Parts>);

struct Parts {
    name: Name,
    algorithm: &'static str,
    secret: Box<[u8]>,
    key: Arc<domain::tsig::Key>,
}

impl Key {
    /// Creates a key with this name; none if the algorithm is not one of [`ALGORITHMS`].
    pub fn new(name: &Name, algorithm: &str, secret: &[u8]) -> Option<Key> {
        let algorithm = ALGORITHMS.into_iter().find(|known| *known == algorithm)?;
        let kind: Algorithm = algorithm.parse().ok()?;
        let wire = WireName::from_slice(name.as_bytes()).ok()?.try_to_name().ok()?;
        let key = domain::tsig::Key::new(kind, secret, wire, None, None).ok()?;
        Some(Key(Arc::new(Parts {
            name: name.clone(),
            algorithm,
            secret: secret.into(),
            key: Arc::new(key),
        })))
    }

    /// The name that both sides use for it.
    pub fn name(&self) -> &Name {
        &self.0.name
    }

    /// The parts that decide whether two keys are equal.
    fn parts(&self) -> (&[u8], &str, &[u8]) {
        (self.0.name.as_bytes(), self.0.algorithm, &self.0.secret)
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Key) -> bool {
        self.parts() == other.parts()
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.parts().hash(state);
    }
}

/// Omits the secret.
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({}, {})", self.0.name, self.0.algorithm)
    }
}

/// Whether a key signs a message.
pub enum Checked {
    /// There is no signature.
    Unsigned,
    /// It does; the signer signs the response.
    Signed(Box<Signer>),
    /// The signature is wrong; this is the complete error response (RFC 8945 section 5.2).
    Wrong(Vec<u8>),
}

/// Signs the messages of a response, one after another.
pub struct Signer(ServerSequence<Arc<domain::tsig::Key>>);

/// Checks whether a query is signed by `key`; none if the signer's key is unknown here.
pub fn check(key: Option<&Key>, query: &[u8]) -> Checked {
    let Ok(mut message) = Message::from_octets(query.to_vec()) else {
        return Checked::Unsigned;
    };
    let checked = match key {
        Some(key) => ServerSequence::request(&key.0.key, &mut message, now()),
        None => ServerSequence::request(&HashMap::<_, Arc<domain::tsig::Key>>::new(), &mut message, now()),
    };
    match checked {
        Ok(Some(sequence)) => Checked::Signed(Box::new(Signer(sequence))),
        Ok(None) => Checked::Unsigned,
        Err(error) => {
            // The query as received: the error response refers to the wrong signature.
            let whole = Message::from_octets(query).ok();
            let told = whole.and_then(|query| error.build_message(&query, MessageBuilder::new_vec()).ok());
            told.map_or(Checked::Unsigned, |told| {
                Checked::Wrong(with_reason(told.finish()))
            })
        }
    }
}

/// Sets the error BADSIG, which RFC 8945 section 5.2.2 requires for a wrong MAC, where the library sets
/// FORMERR. The error precedes the length of other data, of which there is none.
fn with_reason(mut message: Vec<u8>) -> Vec<u8> {
    const NOT_AUTH: u16 = 9;
    const FORM_ERR: u16 = 1;
    const BAD_SIG: u16 = 16;
    if let Some(at) = message.len().checked_sub(4)
        && u16_at(&message, 2) & flag::RCODE == NOT_AUTH
        && u16_at(&message, at) == FORM_ERR
    {
        message[at..at + 2].copy_from_slice(&BAD_SIG.to_be_bytes());
    }
    message
}

impl Signer {
    /// Signs the next message; false if it is too large.
    pub(super) fn sign<T: Composer>(&mut self, message: &mut AdditionalBuilder<T>) -> bool {
        self.0.answer(message, now()).is_ok()
    }
}

/// Checks the messages of the response to a signed request.
pub struct Verifier(ClientSequence<Arc<domain::tsig::Key>>);

/// Signs a request; none if it is too large.
pub(super) fn sign_request<T: Composer>(key: &Key, request: &mut AdditionalBuilder<T>) -> Option<Verifier> {
    let sequence = ClientSequence::request(Arc::clone(&key.0.key), request, now()).ok()?;
    Some(Verifier(sequence))
}

impl Verifier {
    /// Checks the next message and removes its signature. RFC 8945 section 5.3.1 limits how many may be
    /// unsigned.
    ///
    /// # Errors
    /// What is wrong with its signature, in words.
    pub fn check(&mut self, message: &mut Vec<u8>) -> Result<(), String> {
        let octets = std::mem::take(message);
        let mut whole = Message::from_octets(octets).map_err(|_| "it is not a message".to_owned())?;
        let checked = self.0.answer(&mut whole, now());
        let header_and_records = whole.into_octets();
        *message = header_and_records;
        checked.map_err(|error| error.to_string())
    }

    /// Checks that the last message was signed.
    ///
    /// # Errors
    /// It was not.
    pub fn done(self) -> Result<(), String> {
        self.0.done().map_err(|error| error.to_string())
    }
}

fn now() -> Time48 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time48::from_u64(now.as_secs() & 0x0000_ffff_ffff_ffff)
}
