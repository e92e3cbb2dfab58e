//! dnstap output, read by other programs: BIND's `dnstap-read`, and `fstrm_capture` by the format's authors.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixListener;
use std::path::Path;

use crate::harness::process::Process;
use crate::harness::{Message, Proxy, Upstream, client, forward_once, needs, tools, until};

fn start(place: &str, more: &str) -> (Proxy, Upstream) {
    let upstream = Upstream::zone(&["www.example. 300 A 192.0.2.1"]);
    let forward = forward_once(upstream.address);
    let proxy = Proxy::start(&format!(
        "dnstap \"{place}\" {{ identity \"node-1\"; {more} }}\nzone \".\" {{ cache; {forward} }}\n"
    ));
    (proxy, upstream)
}

/// The output of BIND's reader for a file, by line.
fn read(file: &Path) -> Vec<String> {
    let text = tools::output(tools::command("dnstap-read").arg(file));
    text.lines().map(str::to_owned).collect()
}

/// The kinds of messages, in order: `CQ`, `CR`, `FQ` and `FR`.
fn kinds(lines: &[String]) -> Vec<&str> {
    lines.iter().filter_map(|line| line.split(' ').nth(2)).collect()
}

/// The lines about a name. Each worker writes in order; the order between workers is undefined.
fn about(lines: &[String], name: &str) -> Vec<String> {
    let end = format!(" {name}/IN/A");
    lines
        .iter()
        .filter(|line| line.ends_with(&end))
        .cloned()
        .collect()
}

/// A reader that listens on a Unix socket and writes messages to a file.
fn capture(socket: &Path, file: &Path) -> Process {
    let mut command = tools::command("fstrm_capture");
    command.args(["-t", "protobuf:dnstap.Dnstap", "-u"]).arg(socket);
    let process = Process::start(command.arg("-w").arg(file));
    until("the reader listens", || socket.exists());
    process
}

fn stop(mut proxy: Proxy) {
    proxy.process.signal("TERM");
    assert!(proxy.process.ended().success());
}

#[test]
fn a_file_holds_what_clients_and_upstreams_said() {
    if !needs(&["dnstap-read"]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("messages.tap");
    let (proxy, upstream) = start(&file.display().to_string(), "");
    proxy.query("www.example", "A");
    proxy.query("www.example", "A");
    let over_tcp = proxy.connect().ask(&Message::query("www.example", "A"));
    assert_eq!(over_tcp.answers(), ["www.example. A 192.0.2.1"]);
    let (listener, behind) = (proxy.address, upstream.address);
    stop(proxy);

    let lines = read(&file);
    let seen: Vec<&str> = kinds(&lines);
    // On a miss, the upstream's answer precedes the client's; the readiness check queries upstreams only.
    let of = |kind: &str| seen.iter().filter(|seen| **seen == kind).count();
    assert_eq!(
        [of("CQ"), of("CR"), of("FQ"), of("FR")],
        [3, 3, 1, 1],
        "{lines:#?}"
    );
    let sizes_and_question = |line: &&String| line.ends_with("b www.example/IN/A");
    assert_eq!(
        lines.iter().filter(sizes_and_question).count(),
        lines.len(),
        "{lines:#?}"
    );
    let asked = format!("-> {listener} UDP");
    let told = lines
        .iter()
        .filter(|line| line.contains(" CQ ") && line.contains(&asked));
    assert_eq!(told.count(), 2, "{lines:#?}");
    assert!(
        lines
            .iter()
            .any(|line| line.contains(" CR ") && line.contains(" TCP "))
    );
    assert!(
        lines
            .iter()
            .any(|line| line.contains(" FQ ") && line.contains(&behind.to_string()))
    );

    // Complete messages, with their source and time.
    let yaml = tools::output(tools::command("dnstap-read").arg("-y").arg(&file));
    for line in [
        "identity: node-1",
        "version: dnsweir ",
        "opcode: QUERY",
        "'www.example. 300 IN A 192.0.2.1'",
        "response_time: ",
    ] {
        assert!(yaml.contains(line), "no {line:?} in {yaml}");
    }
    let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&file).expect("the file"));
    assert_eq!(mode & 0o777, 0o600, "what clients ask is nobody else's business");
}

/// Queries that no zone or limit lets through are logged as well.
#[test]
fn refused_and_dropped_queries_are_told() {
    if !needs(&["dnstap-read"]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("messages.tap");
    let proxy = Proxy::start(&format!(
        "dnstap \"{}\" {{ messages \"clients\" }}
        zone \"gone.example\" {{ clients {{ allow \"192.0.2.0/24\"; silent }}; forward \"192.0.2.1\" }}
        zone \"here.example\" {{ clients {{ allow \"192.0.2.0/24\" }}; forward \"192.0.2.1\" }}",
        file.display()
    ));
    let silent = client::socket(proxy.address);
    let query = Message::query("gone.example", "A");
    silent.send(&query.encode()).expect("a sent query");
    assert_eq!(proxy.query("here.example", "A").rcode(), "REFUSED");
    assert_eq!(proxy.query("nobodys.test", "A").rcode(), "REFUSED");
    stop(proxy);
    let lines = read(&file);
    for (name, told) in [
        ("gone.example", &["CQ"][..]),
        ("here.example", &["CQ", "CR"]),
        ("nobodys.test", &["CQ", "CR"]),
    ] {
        assert_eq!(kinds(&about(&lines, name)), told, "{lines:#?}");
    }
}

#[test]
fn only_what_is_asked_for_is_told() {
    if !needs(&["dnstap-read"]) {
        return;
    }
    for (whose, told) in [("clients", ["CQ", "CR"]), ("upstreams", ["FQ", "FR"])] {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("messages.tap");
        let (proxy, _upstream) = start(&file.display().to_string(), &format!("messages \"{whose}\""));
        proxy.query("www.example", "A");
        stop(proxy);
        assert_eq!(kinds(&read(&file)), told);
    }
}

/// A reader may connect late, disconnect, and connect again.
#[test]
fn a_reader_on_a_socket_gets_what_comes_while_it_is_there() {
    if !needs(&["dnstap-read", "fstrm_capture"]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("socket");
    let (proxy, _upstream) = start(&format!("unix:{}", socket.display()), "messages \"clients\"");
    let unread = [("reason", "unread")];
    let dropped = || {
        proxy
            .metrics()
            .sum("dnsweir_dnstap_messages_dropped_total", &unread)
    };
    proxy.query("early.example", "A");
    until("a message that nobody reads is counted", || dropped() == 2.0);
    proxy.process.logged("dnstap cannot be written");

    let connections = || {
        let lines = proxy.process.stderr();
        lines
            .iter()
            .filter(|line| line.contains("dnstap is written"))
            .count()
    };
    let found = |times: usize| {
        until("the reader is found", || {
            proxy.query("often.example", "A");
            connections() == times
        });
    };
    let mut first = capture(&socket, &folder.path().join("first"));
    found(1);
    first.signal("KILL");
    first.ended();
    std::fs::remove_file(&socket).expect("the socket");
    let file = folder.path().join("second");
    let mut second = capture(&socket, &file);
    found(2);
    proxy.query("last.example", "A");
    stop(proxy);
    second.signal("TERM");
    assert!(second.ended().success());
    let lines = read(&file);
    assert_eq!(kinds(&about(&lines, "last.example")), ["CQ", "CR"], "{lines:#?}");
    assert_eq!(kinds(&about(&lines, "early.example")), [""; 0], "{lines:#?}");
}

/// A reader that takes nothing, or speaks another protocol, loses its messages and delays nothing.
#[test]
fn readers_that_do_not_read_stop_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("socket");
    let listener = UnixListener::bind(&socket).expect("a socket");
    let (proxy, _upstream) = start(&format!("unix:{}", socket.display()), "");
    proxy.query("www.example", "A");
    // It speaks another protocol.
    let (mut peer, _) = listener.accept().expect("a connection");
    let mut ready = [0; 42];
    peer.read_exact(&mut ready).expect("a frame");
    assert_eq!(ready[..12], [0, 0, 0, 0, 0, 0, 0, 34, 0, 0, 0, 4]);
    peer.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        .expect("an answer");
    drop(peer);
    proxy
        .process
        .logged("it does not answer as a reader of dnstap does");

    // It accepts, and reads nothing afterwards.
    let accept = [
        &[0, 0, 0, 0, 0, 0, 0, 34, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 22][..],
        b"protobuf:dnstap.Dnstap",
    ];
    let stuck = std::thread::spawn(move || {
        let (mut peer, _) = listener.accept().expect("a connection");
        peer.read_exact(&mut ready).expect("a frame");
        peer.write_all(&accept.concat()).expect("an answer");
        (peer, listener)
    });
    let ask = || assert_eq!(proxy.query("www.example", "A").rcode(), "NOERROR");
    until("the reader is found", || {
        ask();
        stuck.is_finished()
    });
    let dropped = || proxy.metrics().sum("dnsweir_dnstap_messages_dropped_total", &[]);
    let before = dropped();
    // It has two seconds; what was being written is lost with it.
    until("messages are dropped", || {
        (0..200).for_each(|_| ask());
        dropped() > before
    });
    assert_eq!(proxy.get("/health").0, 200);
    stop(proxy);
    drop(stuck.join().expect("the reader"));
}

/// Full files are rotated, one at a time.
#[test]
fn files_have_a_size() {
    if !needs(&["dnstap-read"]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("messages.tap");
    let aside = folder.path().join("messages.tap.1");
    let (proxy, _upstream) = start(&file.display().to_string(), "size \"1MiB\"");
    until("a full file", || {
        let mut stream = proxy.connect();
        for _ in 0..200 {
            let answer = stream.ask(&Message::query("www.example", "A"));
            assert_eq!(answer.answers(), ["www.example. A 192.0.2.1"]);
        }
        aside.exists()
    });
    let full = std::fs::metadata(&aside).expect("a file").len();
    assert!((512 << 10..=1 << 20).contains(&full), "{full}");
    stop(proxy);
    assert!(kinds(&read(&aside)).len() > 1000);
    assert!(!read(&file).is_empty());
}

/// A path that is not a plain file is left alone, and queries are answered.
#[test]
fn what_is_no_plain_file_is_not_written() {
    let (proxy, _upstream) = start("/dev/null", "");
    assert_eq!(proxy.query("www.example", "A").rcode(), "NOERROR");
    proxy.process.logged("it is there, and is not a plain file");
    assert!(!Path::new("/dev/null.1").exists());
    stop(proxy);
}

/// The kernel confines the process to the configured folder, not to its name: a symlink in its place leads
/// nowhere.
#[test]
fn nothing_is_written_but_where_the_start_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let [taps, moved, elsewhere] = ["taps", "moved", "elsewhere"].map(|name| folder.path().join(name));
    for made in [&taps, &elsewhere] {
        std::fs::create_dir(made).expect("a folder");
    }
    let upstream = Upstream::zone(&["www.example. 300 A 192.0.2.1"]);
    let proxy = Proxy::start(&format!(
        "dnstap \"{}\" {{ messages \"clients\" }}\nzone \".\" {{ {} }}\n",
        taps.join("messages.tap").display(),
        forward_once(upstream.address)
    ));
    if !proxy.is_kept_in() {
        return;
    }
    std::fs::rename(&taps, &moved).expect("another name");
    std::os::unix::fs::symlink(&elsewhere, &taps).expect("a link");
    proxy.query("www.example", "A");
    stop(proxy);
    let written = |folder: &Path| std::fs::read_dir(folder).expect("a folder").count();
    assert_eq!((written(&elsewhere), written(&moved)), (0, 0));
}

/// A reload without changes in the section keeps the stream; one with changes starts a new one.
#[test]
fn reloads_keep_the_stream() {
    if !needs(&["dnstap-read"]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let [first, second] = ["first.tap", "second.tap"].map(|name| folder.path().join(name));
    let upstream = Upstream::zone(&["www.example. 300 A 192.0.2.1"]);
    let text = |file: &Path, more: &str| {
        let forward = forward_once(upstream.address);
        format!(
            "dnstap \"{}\" {{ messages \"clients\" }}\n{more}\nzone \".\" {{ {forward} }}\n",
            file.display()
        )
    };
    let proxy = Proxy::start(&text(&first, ""));
    proxy.query("www.example", "A");
    proxy.reload(&text(&first, "cache-memory \"2MiB\""));
    proxy.query("www.example", "A");
    proxy.reload(&text(&second, ""));
    proxy.query("www.example", "A");
    stop(proxy);
    assert_eq!(kinds(&read(&first)), ["CQ", "CR", "CQ", "CR"]);
    assert_eq!(kinds(&read(&second)), ["CQ", "CR"]);
    assert!(!folder.path().join("first.tap.1").exists());
}
