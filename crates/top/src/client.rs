//! Queries the admin address.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use dnsweir_config::tls::Trust;
use dnsweir_http::{Endpoint, Error, Session, collect};
use dnsweir_os::plain_text::{one_line, with_causes};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::{Request, Uri};
use tokio::time::timeout;

use super::changes::Look;
use super::samples::Samples;

/// Timeout of a request.
const PATIENCE: Duration = Duration::from_secs(5);

/// Size limit of a response, in bytes.
const MOST: usize = 16 << 20;

/// Requests the current metrics and status.
///
/// # Errors
/// The problem as text, with the address.
pub async fn look(admin: SocketAddr) -> Result<Look, String> {
    let url: Uri = format!("http://{admin}/").parse().map_err(text)?;
    let mut session = Session::new(Endpoint::new(&url, &Trust::default(), None)?);
    let metrics = get(&mut session, admin, "/metrics").await?;
    let at = Instant::now();
    let status = get(&mut session, admin, "/status").await?;
    let status = serde_json::from_slice(&status)
        .map_err(|error| format!("{admin} does not answer as dnsweir does: {error}"))?;
    Ok(Look {
        at,
        samples: Samples::parse(&String::from_utf8_lossy(&metrics)),
        status,
    })
}

async fn get(session: &mut Session, admin: SocketAddr, path: &str) -> Result<Vec<u8>, String> {
    let answer = timeout(PATIENCE, attempt(session, path)).await;
    let problem = match answer {
        Ok(Ok(octets)) => return Ok(octets),
        Ok(Err(problem)) => problem,
        Err(_) => format!("no answer in {} s", PATIENCE.as_secs()),
    };
    Err(format!(
        "cannot read {admin}: {problem}; name the address of `admin` in its configuration with --admin"
    ))
}

async fn attempt(session: &mut Session, path: &str) -> Result<Vec<u8>, String> {
    let request = Request::get(path).body(Full::<Bytes>::default()).map_err(text)?;
    let response = session.send(request).await.map_err(|error| why(&error))?;
    let status = response.status();
    let body = collect(response.into_body(), MOST).await;
    match status.is_success() {
        true => body.map_err(|error| why(&error)),
        false => {
            // The body gives the reason.
            let said = body.map(|body| one_line(String::from_utf8_lossy(&body).trim(), 200));
            Err(format!(
                "{path} is answered with {status}: {}",
                said.unwrap_or_default()
            ))
        }
    }
}

fn why(error: &Error) -> String {
    match error {
        // The server is named already.
        Error::Connect { source, .. } => source.to_string(),
        error => with_causes(error),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn text(error: impl ToString) -> String {
    error.to_string()
}
