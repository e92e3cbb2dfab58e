//! Checks that a static program needs no other files: as the root of its file system, it gets a folder that
//! has only the program, a configuration and a zone file, and must answer a query there.

use std::fs;
use std::io;
use std::net::UdpSocket;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::build::target;
use crate::commands::{Failure, call};
use crate::processor::Processor;

/// The zone that it answers from.
const ZONE: &str = "@ 300 SOA ns host 1 2 3 4 5\n@ 300 NS ns\nns 300 A 192.0.2.53\nwww 300 A 192.0.2.7\n";

/// A query for www.example A, with RD (RFC 1035 section 4).
const QUERY: &[u8] =
    b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x03www\x07example\x00\x00\x01\x00\x01";

/// How long a program may take to answer, even in an emulator.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Tries a statically linked program: it prints its version, checks a configuration, and answers a query.
///
/// # Errors
/// If it does not run, or gives a wrong answer.
pub fn run(program: &Path, processor: &Processor) -> Result<(), Failure> {
    let root = target().join("trial").join(processor.name);
    let failed = |error: io::Error| format!("{}: {error}", root.display());
    if root.exists() {
        fs::remove_dir_all(&root).map_err(failed)?;
    }
    fs::create_dir_all(&root).map_err(failed)?;
    fs::copy(program, root.join("dnsweir")).map_err(failed)?;
    fs::write(root.join("example.zone"), ZONE).map_err(failed)?;
    // The kernel picks a free port. It is released again, but not soon given to another socket.
    let port = UdpSocket::bind("127.0.0.1:0")
        .and_then(|socket| socket.local_addr())
        .map_err(failed)?
        .port();
    let text = format!("listen \"127.0.0.1:{port}\"\nzone \"example\" {{ file \"/example.zone\" }}\n");
    fs::write(root.join("dnsweir.kdl"), text).map_err(failed)?;
    let emulator = emulator(processor, &root).map_err(failed)?;
    // Root may change the root folder, but in a container perhaps not create a user namespace.
    let is_root = fs::metadata("/proc/self").map_err(failed)?.uid() == 0;
    let inside = || {
        let mut command = Command::new("unshare");
        if !is_root {
            command.args(["--user", "--map-root-user"]);
        }
        command.arg("--root").arg(&root);
        command.args(emulator.iter().copied()).arg("/dnsweir");
        command
    };
    call(inside().arg("--version"))?;
    call(inside().args(["check", "/dnsweir.kdl"]))?;
    let mut serve = inside();
    serve.args(["run", "--config", "/dnsweir.kdl", "--log-level", "warn"]);
    let child = serve.stdin(Stdio::null()).spawn();
    let mut child = child.map_err(|error| format!("cannot run unshare: {error}"))?;
    let answer = answer(&mut child, port);
    // Fails if it has ended by itself; `answer` then reports that.
    let _ = child.kill();
    let _ = child.wait();
    let answer = answer?;
    match answer.ends_with(&[192, 0, 2, 7]) {
        true => {
            println!("{} answers from an empty root", program.display());
            Ok(())
        }
        false => Err(format!("{}: wrong answer {answer:02x?}", program.display())),
    }
}

/// Copies the emulator into the root if the program is for another processor, and returns its path there. The
/// emulator is also linked statically.
fn emulator(processor: &Processor, root: &Path) -> io::Result<Option<&'static str>> {
    if processor.is_native() {
        return Ok(None);
    }
    let path = PathBuf::from("/usr/bin").join(processor.emulator);
    fs::copy(path, root.join("emulator"))?;
    Ok(Some("/emulator"))
}

/// Repeats the query until there is an answer.
fn answer(child: &mut Child, port: u16) -> Result<Vec<u8>, Failure> {
    let failed = |error: io::Error| format!("127.0.0.1:{port}: {error}");
    let socket = UdpSocket::bind("127.0.0.1:0").map_err(failed)?;
    socket.connect(("127.0.0.1", port)).map_err(failed)?;
    socket
        .set_read_timeout(Some(Duration::from_millis(200)))
        .map_err(failed)?;
    let begun = Instant::now();
    while begun.elapsed() < TIMEOUT {
        if let Some(status) = child.try_wait().map_err(failed)? {
            return Err(format!("the program ended before it answered: {status}"));
        }
        let mut response = [0; 512];
        let sent = socket.send(QUERY);
        match sent.and_then(|_| socket.recv(&mut response)) {
            Ok(length) => return Ok(response[..length].to_vec()),
            // The program does not listen yet. The kernel reports that at once, so wait.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                std::thread::sleep(Duration::from_millis(50))
            }
            Err(_) => {}
        }
    }
    Err(format!(
        "no answer from 127.0.0.1:{port} in {} s",
        TIMEOUT.as_secs()
    ))
}
