//! The command line's side of the control socket.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use super::ERROR;
use super::request::Request;

/// How long the process may be silent.
const PATIENCE: Duration = Duration::from_secs(10);

/// Sends a request to the process that serves the socket at `path`, and copies its reply to `out`.
///
/// # Errors
/// As text: there is no such socket, it may not be used, or the request failed.
pub fn send(path: &Path, request: &Request, out: &mut impl io::Write) -> Result<(), String> {
    let name = path.display();
    let stream = UnixStream::connect(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => format!(
            "no dnsweir can be reached at {name} ({error}): its configuration needs `control \"{name}\"`, or name \
             the socket with --control"
        ),
        io::ErrorKind::PermissionDenied => {
            format!("{name} may only be used by the user that dnsweir runs as: {error}")
        }
        _ => format!("{name}: {error}"),
    })?;
    let broken = |error: io::Error| format!("{name}: {error}");
    stream.set_read_timeout(Some(PATIENCE)).map_err(broken)?;
    writeln!(&stream, "{request}").map_err(broken)?;
    let mut reply = BufReader::new(&stream);
    let mut first = String::new();
    reply.read_line(&mut first).map_err(broken)?;
    match first.trim_end() {
        "ok" => {
            io::copy(&mut reply, out).map_err(broken)?;
            Ok(())
        }
        "" => Err(format!("{name}: the connection was closed without a reply")),
        line => Err(line.strip_prefix(ERROR).unwrap_or(line).to_owned()),
    }
}
