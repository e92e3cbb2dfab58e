//! The running process's side of the control socket.

use std::fs;
use std::io::{self, BufRead as _, BufReader, BufWriter, Read as _, Write};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::dump::write_entry;
use super::request::Request;
use super::{ERROR, LONGEST};
use crate::background;
use crate::log;
use crate::serve::Shared;
use crate::state::State;

/// Connections served concurrently.
const AT_ONCE: usize = 8;

/// How many of them may dump the cache.
const DUMPS: usize = 2;

/// How long the client may take to send its request, and to take each part of the reply.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long a whole reply may take.
const LASTING: Duration = Duration::from_secs(60);

/// A served socket. Dropping it ends service and removes the socket, unless a successor has taken its path.
pub struct Server {
    path: PathBuf,
    /// The inode of the socket's file.
    inode: u64,
    task: JoinHandle<()>,
}

impl Server {
    /// Serves the socket at `path` on the calling runtime, replacing any other socket there: of two
    /// processes, the last one gets the requests.
    ///
    /// # Errors
    /// As text, when the socket cannot be created, or something that is not a socket is there.
    pub fn start(path: &Path, state: &Arc<State>) -> Result<Server, String> {
        let wrong = |error: io::Error| format!("cannot serve the control socket {}: {error}", path.display());
        let (listener, inode) = bind(path).map_err(wrong)?;
        let state = Arc::clone(state);
        let task = tokio::spawn(async move {
            let (room, dumps) = (Arc::new(Semaphore::new(AT_ONCE)), Arc::new(Semaphore::new(DUMPS)));
            loop {
                let Ok(turn) = Arc::clone(&room).acquire_owned().await else {
                    return;
                };
                match listener.accept().await {
                    Ok((stream, _)) => {
                        let (state, dumps) = (Arc::clone(&state), Arc::clone(&dumps));
                        let begun = background::begin("control", move || {
                            let _turn = turn;
                            if let Err(error) = allowed(&stream).and_then(|()| serve(stream, &state, &dumps))
                            {
                                tracing::debug!(%error, "a request on the control socket broke off");
                            }
                        });
                        if let Err(error) = begun {
                            tracing::warn!(%error, "cannot serve a connection on the control socket");
                        }
                    }
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept a connection on the control socket");
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                }
            }
        });
        Ok(Server {
            path: path.to_owned(),
            inode,
            task,
        })
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
        let own = |found: fs::Metadata| found.ino() == self.inode;
        if fs::symlink_metadata(&self.path).is_ok_and(own) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Creates the socket under another name, restricts its mode, and only then renames it into place; nothing
/// fails after.
fn bind(path: &Path) -> io::Result<(tokio::net::UnixListener, u64)> {
    if let Ok(found) = fs::symlink_metadata(path)
        && !found.file_type().is_socket()
    {
        return Err(io::Error::other("something other than a socket is there"));
    }
    let mut aside = path.as_os_str().to_owned();
    aside.push(format!(".{}", std::process::id()));
    let aside = PathBuf::from(aside);
    match fs::remove_file(&aside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let made = (|| {
        let listener = UnixListener::bind(&aside)?;
        fs::set_permissions(&aside, fs::Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        let inode = fs::symlink_metadata(&aside)?.ino();
        let listener = tokio::net::UnixListener::from_std(listener)?;
        fs::rename(&aside, path)?;
        Ok((listener, inode))
    })();
    if made.is_err() {
        let _ = fs::remove_file(&aside);
    }
    made
}

/// Refuses all users but the process's own and root, whatever the mode of the file is.
fn allowed(stream: &tokio::net::UnixStream) -> io::Result<()> {
    let user = stream.peer_cred()?.uid();
    match user == 0 || user == rustix::process::geteuid().as_raw() {
        true => Ok(()),
        false => Err(io::Error::other(format!("user {user} may not use it"))),
    }
}

fn serve(stream: tokio::net::UnixStream, state: &State, dumps: &Semaphore) -> io::Result<()> {
    let stream: UnixStream = stream.into_std()?;
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new((&stream).take(LONGEST as u64)).read_line(&mut line)?;
    let mut out = BufWriter::new(&stream);
    match Request::parse(&line).and_then(|request| answered(&request, state)) {
        Ok(Some(text)) => write!(out, "ok\n{text}\n")?,
        Ok(None) => match dumps.try_acquire() {
            Ok(_turn) => {
                out.write_all(b"ok\n")?;
                dump(&mut out, &state.shared)?;
                out.flush()?;
            }
            Err(_) => writeln!(out, "{ERROR}{DUMPS} dumps of the cache are already running")?,
        },
        Err(problem) => writeln!(out, "{ERROR}{problem}")?,
    }
    out.flush()
}

/// Returns the reply to a request that is done immediately; `None` if the cache is to be dumped.
fn answered(request: &Request, state: &State) -> Result<Option<String>, String> {
    let shared = &state.shared;
    match request {
        Request::Health => state
            .ailment()
            .map_or(Ok(Some("well".into())), |why| Err(why.into())),
        Request::Dump => Ok(None),
        Request::Flush { name, below } => {
            let forgotten = match below {
                true => shared.cache.flush_below(name.as_bytes()),
                false => shared.cache.flush_name(name.as_bytes()),
            };
            tracing::info!(%name, below, forgotten, "cached answers were flushed");
            Ok(Some(format!("forgot {}", answers(forgotten))))
        }
        Request::LogLevel(level) => {
            log::set_level(*level)?;
            Ok(Some(format!("the log level is now {level}")))
        }
    }
}

fn dump(out: &mut impl Write, shared: &Shared) -> io::Result<()> {
    let (began, now) = (Instant::now(), shared.now());
    let mut count = 0usize;
    for shard in 0..shared.cache.shards() {
        for entry in shared.cache.entries(shard) {
            if began.elapsed() > LASTING {
                return writeln!(out, "; broken off after {} s", LASTING.as_secs());
            }
            write_entry(out, &entry, now)?;
            count += 1;
        }
    }
    writeln!(out, "; {}", answers(count))
}

fn answers(count: usize) -> String {
    match count {
        1 => "1 answer".to_owned(),
        _ => format!("{count} answers"),
    }
}
