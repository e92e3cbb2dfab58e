//! Queries the admin address.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::HOST;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::changes::Look;
use super::samples::Samples;
use crate::plain_text::one_line;

/// Timeout of a request.
const PATIENCE: Duration = Duration::from_secs(5);

/// Size limit of a response, in bytes.
const MOST: usize = 16 << 20;

/// Requests the current metrics and status.
///
/// # Errors
/// The problem as text, with the address.
pub async fn look(admin: SocketAddr) -> Result<Look, String> {
    let metrics = get(admin, "/metrics").await?;
    let at = Instant::now();
    let status = get(admin, "/status").await?;
    let status = serde_json::from_slice(&status)
        .map_err(|error| format!("{admin} does not answer as dnsweir does: {error}"))?;
    Ok(Look {
        at,
        samples: Samples::parse(&String::from_utf8_lossy(&metrics)),
        status,
    })
}

async fn get(admin: SocketAddr, path: &str) -> Result<Bytes, String> {
    let answer = timeout(PATIENCE, attempt(admin, path)).await;
    let problem = match answer {
        Ok(Ok(octets)) => return Ok(octets),
        Ok(Err(problem)) => problem,
        Err(_) => format!("no answer in {} s", PATIENCE.as_secs()),
    };
    Err(format!(
        "cannot look at {admin}: {problem}; name the address of `admin` in its configuration with --admin"
    ))
}

async fn attempt(admin: SocketAddr, path: &str) -> Result<Bytes, String> {
    let stream = TcpStream::connect(admin).await.map_err(text)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(text)?;
    let connection = tokio::spawn(connection);
    let request = Request::get(path)
        .header(HOST, admin.to_string())
        .body(Empty::<Bytes>::new())
        .map_err(text)?;
    let response = sender.send_request(request).await.map_err(text)?;
    let status = response.status();
    let body = Limited::new(response.into_body(), MOST).collect().await;
    connection.abort();
    match status.is_success() {
        true => Ok(body.map_err(text)?.to_bytes()),
        false => {
            // The body gives the reason.
            let said = body.map(|body| one_line(String::from_utf8_lossy(&body.to_bytes()).trim(), 200));
            Err(format!(
                "{path} is answered with {status}: {}",
                said.unwrap_or_default()
            ))
        }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn text(error: impl ToString) -> String {
    error.to_string()
}
