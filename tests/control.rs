//! `control`: commands for the running process.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Output;

use crate::harness::{Proxy, Upstream, forward_once, proxy};

fn configured(upstream: &Upstream) -> String {
    let forward = forward_once(upstream.address);
    format!("control \"control\"\nzone \".\" {{ cache; {forward} }}\n")
}

fn anything() -> Upstream {
    Upstream::start(|asked| match asked.name().starts_with("none") {
        true => asked.denial("NXDOMAIN", Some("test. 90 SOA ns.test. root.test. 1 2 3 4 90")),
        false => asked.answer(&[&format!("{} 300 A 192.0.2.1", asked.name())]),
    })
}

fn socket(proxy: &Proxy) -> PathBuf {
    proxy.folder().join("control")
}

/// The output of a command, which must succeed.
#[track_caller]
fn told(socket: &Path, words: &[&str]) -> String {
    let done = tell(socket, words);
    assert!(
        done.status.success(),
        "{words:?}: {}",
        String::from_utf8_lossy(&done.stderr)
    );
    String::from_utf8_lossy(&done.stdout).into_owned()
}

fn tell(socket: &Path, words: &[&str]) -> Output {
    let mut command = proxy::command();
    command.args(words).arg("--control").arg(socket);
    command.output().expect("dnsweir")
}

#[test]
fn a_process_says_that_it_is_well() {
    let upstream = anything();
    let proxy = Proxy::start(&configured(&upstream));
    assert_eq!(told(&socket(&proxy), &["health"]), "well\n");
    let none = tell(&proxy.folder().join("none"), &["health"]);
    assert!(!none.status.success());
}

/// The kernel confines the process to the folders of its first configuration.
#[test]
fn a_socket_in_another_folder_takes_a_restart() {
    let upstream = anything();
    let proxy = Proxy::start(&configured(&upstream));
    if !proxy.is_kept_in() {
        return;
    }
    let elsewhere = tempfile::tempdir().expect("a folder");
    let path = elsewhere.path().join("control");
    proxy.rewrite(&configured(&upstream).replace("\"control\"", &format!("{path:?}")));
    proxy
        .process
        .logged("not reloaded; the previous configuration stays in use");
    proxy.process.logged("restart dnsweir");
    assert_eq!(proxy.generation(), 1.0);
    assert!(!path.exists());
    told(&socket(&proxy), &["health"]);
}

#[test]
fn cached_answers_are_shown_and_flushed() {
    let upstream = anything();
    let proxy = Proxy::start(&configured(&upstream));
    let socket = socket(&proxy);
    for name in ["a.test", "b.a.test", "none.test"] {
        proxy.query(name, "A");
        proxy.query(name, "A");
    }
    let dump = told(&socket, &["cache", "dump"]);
    let entry = dump
        .lines()
        .find(|line| line.starts_with("; a.test. A: success"))
        .expect(&dump);
    assert!(entry.ends_with("s left, used 1 times"), "{entry}");
    let record = dump
        .lines()
        .find(|line| line.starts_with("a.test. "))
        .expect(&dump);
    let ttl: u32 = record
        .split(' ')
        .nth(1)
        .and_then(|ttl| ttl.parse().ok())
        .expect(record);
    assert!(
        (200..=300).contains(&ttl) && record.ends_with(" IN A 192.0.2.1"),
        "{record}"
    );
    assert!(dump.contains("; none.test. A: denial"), "{dump}");
    assert!(
        dump.contains("test. ") && dump.contains(" SOA ns.test. root.test. 1 2 3 4 90"),
        "{dump}"
    );
    assert!(dump.ends_with("; 3 answers\n"), "{dump}");

    assert_eq!(told(&socket, &["cache", "flush", "A.test"]), "forgot 1 answer\n");
    proxy.query("a.test", "A");
    proxy.query("b.a.test", "A");
    assert_eq!((upstream.count("a.test"), upstream.count("b.a.test")), (2, 1));
    assert_eq!(
        told(&socket, &["cache", "flush", "a.test", "--below"]),
        "forgot 2 answers\n"
    );
    proxy.query("b.a.test", "A");
    assert_eq!(upstream.count("b.a.test"), 2);
    assert_eq!(
        told(&socket, &["cache", "flush", ".", "--below"]),
        "forgot 2 answers\n"
    );
    assert_eq!(told(&socket, &["cache", "dump"]), "; 0 answers\n");

    let wrong = tell(&socket, &["cache", "flush", "a..test"]);
    let said = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(
        !wrong.status.success() && said.contains("a..test is not a domain name"),
        "{said}"
    );
}

#[test]
fn the_log_has_another_level_at_once() {
    let upstream = anything();
    let proxy = Proxy::start(&configured(&upstream));
    let socket = socket(&proxy);
    assert_eq!(
        told(&socket, &["log-level", "debug"]),
        "the log level is now debug\n"
    );
    proxy.process.logged("the log has another level");
    told(&socket, &["log-level", "error"]);
    // Logged at the previous level, and no longer after the change.
    told(&socket, &["cache", "flush", "quiet.test"]);
    told(&socket, &["log-level", "info"]);
    told(&socket, &["cache", "flush", "loud.test"]);
    proxy.process.logged("name=loud.test.");
    let lines = proxy.process.stderr();
    assert!(
        !lines.iter().any(|line| line.contains("quiet.test")),
        "{lines:#?}"
    );
}

#[test]
fn the_socket_is_its_owners_and_goes_with_the_process() {
    let upstream = anything();
    let mut proxy = Proxy::start(&configured(&upstream));
    let socket = socket(&proxy);
    let mode = fs::metadata(&socket).expect("the socket").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // A malformed request, an endless one, and one that ends early: the next one still works.
    for nonsense in ["halt\n", &"x".repeat(1 << 20), ""] {
        let mut stream = UnixStream::connect(&socket).expect("a connection");
        let _ = stream.write_all(nonsense.as_bytes());
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut reply = String::new();
        let _ = stream.read_to_string(&mut reply);
        assert!(reply.is_empty() || reply.starts_with("error: "), "{reply}");
    }
    // The configuration decides where the socket is.
    proxy.reload(&configured(&upstream).replace("control \"control\"", "control \"other\""));
    assert!(!socket.exists());
    let other = proxy.folder().join("other");
    assert!(fs::metadata(&other).expect("the socket").file_type().is_socket());
    told(&other, &["cache", "dump"]);
    let folder = proxy.folder().to_owned();
    proxy.process.signal("TERM");
    proxy.process.ended();
    let left: Vec<_> = fs::read_dir(folder)
        .expect("the folder")
        .flatten()
        .map(|entry| entry.file_name())
        .collect();
    assert!(
        !left.iter().any(|name| name.to_string_lossy().contains("other")),
        "{left:?}"
    );
    let nobody = tell(&other, &["cache", "dump"]);
    let said = String::from_utf8_lossy(&nobody.stderr).into_owned();
    assert!(
        !nobody.status.success() && said.contains("its configuration needs `control"),
        "{said}"
    );
}

/// The stale socket of a killed process is replaced; anything else is left alone.
#[test]
fn what_stands_in_its_place() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let stale = folder.path().join("stale");
    drop(std::os::unix::net::UnixListener::bind(&stale).expect("a socket"));
    let upstream = anything();
    let at = |path: &Path| configured(&upstream).replace("\"control\"", &format!("\"{}\"", path.display()));
    let _proxy = Proxy::start(&at(&stale));
    told(&stale, &["cache", "dump"]);
    let file = folder.path().join("file");
    fs::write(&file, "precious").expect("a file");
    let mut refused = Proxy::launch(&at(&file), &[]);
    refused.process.ended();
    let said = refused.process.stderr().join("\n");
    assert!(
        said.contains("cannot serve the control socket")
            && said.contains("something other than a socket is there"),
        "{said}"
    );
    assert_eq!(fs::read_to_string(&file).expect("the file"), "precious");
}
