//! What a client authenticates itself with, besides a certificate.

use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::header::HeaderValue;
use parking_lot::Mutex;

use super::plugin::{Plugin, Token};

/// How long a token from a file is used before the file is read again. A kubelet renews a service account's token long
/// before it expires.
const REREAD: Duration = Duration::from_secs(60);

/// A token that expires sooner is replaced.
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
    pub fn of(token: &Token) -> Result<Cached, String> {
        let left = |expires: SystemTime| expires.duration_since(SystemTime::now()).unwrap_or_default();
        Ok(Cached {
            header: bearer(&token.token)?,
            until: token
                .expires
                .map(|expires| Instant::now() + left(expires).saturating_sub(EARLY)),
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
                let cached = Cached::of(&token)?;
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
