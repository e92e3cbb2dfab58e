//! What a client authenticates itself with, besides a certificate, and how long that serves.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::header::HeaderValue;
use parking_lot::Mutex;

use super::plugin::Plugin;

/// How long a token from a file is used before the file is read again. A kubelet renews a service account's token long
/// before it expires.
const REREAD: Duration = Duration::from_secs(60);

/// What expires sooner is replaced.
const EARLY: Duration = Duration::from_secs(60);

/// What goes into the `Authorization` header.
pub(super) enum Credentials {
    /// Nothing.
    None,
    /// Always the same.
    Fixed(HeaderValue),
    /// The token in a file.
    File(PathBuf, Mutex<Option<Cached>>),
    /// The token that a program prints.
    Plugin(Plugin, Mutex<Option<Cached>>),
}

/// A header, and until when it is used.
#[derive(Debug, Clone)]
pub(super) struct Cached {
    header: HeaderValue,
    until: Option<Instant>,
}

impl Cached {
    /// The header for a program's token.
    pub fn of(token: &str, expires: Option<SystemTime>) -> Result<Cached, String> {
        let left = |expires: SystemTime| expires.duration_since(SystemTime::now()).unwrap_or_default();
        Ok(Cached {
            header: bearer(token)?,
            until: expires.map(|expires| Instant::now() + left(expires).saturating_sub(EARLY)),
        })
    }

    fn current(known: &Mutex<Option<Cached>>) -> Option<HeaderValue> {
        let known = known.lock();
        let cached = known.as_ref()?;
        let is_current = cached.until.is_none_or(|until| Instant::now() < until);
        is_current.then(|| cached.header.clone())
    }
}

impl Credentials {
    /// A token.
    pub fn token(token: &str) -> Result<Credentials, String> {
        Ok(Credentials::Fixed(bearer(token)?))
    }

    /// A user's name and password (RFC 7617).
    pub fn password(user: &str, password: &str) -> Result<Credentials, String> {
        let encoded = STANDARD.encode(format!("{user}:{password}"));
        Ok(Credentials::Fixed(secret(&format!("Basic {encoded}"))?))
    }

    /// The header's value, renewed if necessary.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn header(&self) -> Result<Option<HeaderValue>, String> {
        match self {
            Credentials::None => Ok(None),
            Credentials::Fixed(header) => Ok(Some(header.clone())),
            Credentials::File(path, known) => {
                if let Some(header) = Cached::current(known) {
                    return Ok(Some(header));
                }
                let token = std::fs::read_to_string(path);
                let token = token.map_err(|error| format!("{}: {error}", path.display()))?;
                let header =
                    bearer(token.trim()).map_err(|problem| format!("{}: {problem}", path.display()))?;
                let until = Some(Instant::now() + REREAD);
                *known.lock() = Some(Cached {
                    header: header.clone(),
                    until,
                });
                Ok(Some(header))
            }
            Credentials::Plugin(plugin, known) => {
                if let Some(header) = Cached::current(known) {
                    return Ok(Some(header));
                }
                let printed = plugin.run().await?;
                let token = printed.token.ok_or_else(|| plugin.without("a token"))?;
                let cached = Cached::of(&token, printed.expires)?;
                let header = cached.header.clone();
                *known.lock() = Some(cached);
                Ok(Some(header))
            }
        }
    }

    /// Forgets what was kept, since the API server does not accept it.
    pub fn forget(&self) {
        if let Credentials::File(_, known) | Credentials::Plugin(_, known) = self {
            *known.lock() = None;
        }
    }
}

/// How long a client serves whose certificate a program printed: only a new client gets a new certificate.
pub(super) struct Lease {
    until: Option<SystemTime>,
    refused: AtomicBool,
}

impl Lease {
    /// Until the time that the program printed, or the end of the certificate in seconds since 1970, as far as
    /// they are known.
    pub fn new(printed: Option<SystemTime>, not_after: Option<i64>) -> Lease {
        let not_after = not_after.and_then(|at| u64::try_from(at).ok());
        let not_after = not_after.and_then(|at| UNIX_EPOCH.checked_add(Duration::from_secs(at)));
        let first = printed.into_iter().chain(not_after).min();
        Lease {
            until: first.map(|first| first.checked_sub(EARLY).unwrap_or(UNIX_EPOCH)),
            refused: AtomicBool::new(false),
        }
    }

    /// Ends it, since the API server does not accept the client.
    pub fn refuse(&self) {
        self.refused.store(true, Relaxed);
    }

    /// Whether it has ended.
    pub fn is_over(&self) -> bool {
        let is_past = |until: SystemTime| SystemTime::now() >= until;
        self.refused.load(Relaxed) || self.until.is_some_and(is_past)
    }
}

fn bearer(token: &str) -> Result<HeaderValue, String> {
    secret(&format!("Bearer {token}"))
}

fn secret(text: &str) -> Result<HeaderValue, String> {
    // Never quote it.
    let mut value =
        HeaderValue::from_str(text).map_err(|_| "the token has characters that no header may have")?;
    value.set_sensitive(true);
    Ok(value)
}
