//! SIGTERM: stop listening, finish what is in flight, exit 0, all in a bounded time.

use std::io::Read as _;
use std::time::{Duration, Instant};

use socket2::SockRef;

use crate::harness::guests::guest;
use crate::harness::proxy::try_get;
use crate::harness::upstream::{Gate, Reply};
use crate::harness::{Message, Proxy, Upstream, ask, client, until};

#[test]
fn sigterm_ends_an_idle_proxy_with_success() {
    for signal in ["TERM", "INT"] {
        let mut proxy = Proxy::start("zone \".\" { forward \"127.0.0.1:9\" }");
        proxy.process.signal(signal);
        assert_eq!(
            proxy.process.ended().code(),
            Some(0),
            "SIG{signal}: {:#?}",
            proxy.process.stderr()
        );
    }
}

#[test]
fn sigterm_lets_queries_in_flight_finish() {
    let gate = Gate::default();
    let behind = gate.clone();
    let upstream = Upstream::start(move |asked| {
        Reply::Behind(
            behind.clone(),
            Box::new(asked.answer(&["slow.example. 300 A 192.0.2.1"])),
        )
    });
    let mut proxy = Proxy::start(&format!("zone \".\" {{ forward \"{}\" }}", upstream.address));
    let address = proxy.address;
    let over_udp = std::thread::spawn(move || ask(address, &Message::query("slow.example", "A")));
    let mut stream = proxy.connect();
    let over_tcp = Message::query("slow.example", "AAAA");
    stream.send(&[&over_tcp]);
    upstream.await_count("slow.example", 2);

    proxy.process.signal("TERM");
    // Draining is visible: connections are refused while the process still runs.
    crate::harness::until("the listeners to close", || {
        std::net::TcpStream::connect(address).is_err()
    });
    assert!(proxy.process.running(), "{:#?}", proxy.process.stderr());
    gate.open();

    assert_eq!(
        over_udp.join().expect("an answer").answers(),
        ["slow.example. A 192.0.2.1"]
    );
    assert_eq!(stream.receive().map(|answer| answer.id), Some(over_tcp.id));
    assert_eq!(proxy.process.ended().code(), Some(0));
}

/// A client that reads slowly gets the whole of what it was being sent.
#[test]
fn sigterm_lets_replies_leave() {
    let text = "x".repeat(200);
    let records = (0..200).map(|number| format!("large.example. 300 TXT \"{number}{text}\""));
    let records: Vec<String> = records.collect();
    let upstream = Upstream::start(move |asked| {
        let records: Vec<&str> = records.iter().map(String::as_str).collect();
        asked.answer(&records)
    });
    let mut proxy = Proxy::start(&format!(
        "zone \".\" {{ cache; forward \"{}\" }}",
        upstream.address
    ));
    let query = Message::query("large.example", "TXT");
    let mut stream = proxy.connect();
    let size = SockRef::from(stream.socket()).recv_buffer_size().expect("a size");
    stream.ask(&query);
    // More than the kernel's buffers take.
    stream.send(&vec![&query; 8 + 4 * size / 40_000]);
    until("replies that are not taken", || {
        proxy.metrics().sum("dnsweir_tcp_bytes", &[]) > 0.0
    });
    proxy.process.signal("TERM");
    until("the listeners to close", || {
        std::net::TcpStream::connect(proxy.address).is_err()
    });
    let mut octets = Vec::new();
    stream.socket().read_to_end(&mut octets).expect("whole replies");
    let mut rest = &octets[..];
    while let Some((length, after)) = rest.split_first_chunk() {
        rest = &after[usize::from(u16::from_be_bytes(*length))..];
    }
    assert!(rest.is_empty() && octets.len() > size);
    assert_eq!(proxy.process.ended().code(), Some(0));
}

/// An upstream that never answers does not delay the exit for long.
#[test]
fn sigterm_is_bounded() {
    let upstream = Upstream::start(|_| Reply::Silence);
    let mut proxy = Proxy::start(&format!(
        "zone \".\" {{ forward \"{}\" {{ timeout \"30s\"; deadline \"30s\" }} }}",
        upstream.address
    ));
    let socket = client::socket(proxy.address);
    socket
        .send(&Message::query("never.example", "A").encode())
        .expect("a sent query");
    upstream.await_count("never.example", 1);
    let begun = Instant::now();
    proxy.process.signal("TERM");
    assert_eq!(proxy.process.ended().code(), Some(0));
    assert!(
        begun.elapsed() < Duration::from_secs(20),
        "it took {:?}",
        begun.elapsed()
    );
}

/// A module that takes minutes to load: it has a hundred test cases that never finish.
fn slow(folder: &std::path::Path) -> String {
    let cases = folder.join("slow.test-cases.kdl");
    let each = |number| format!("query \"spin{number}.example\" \"A\" {{ fail \"time\" }}\n");
    std::fs::write(&cases, (0..100).map(each).collect::<String>()).expect("test cases");
    format!(
        "filter \"slow\" {{ module \"{}\"; test-cases \"{}\" }}\n\
         zone \".\" {{ use \"slow\"; forward \"127.0.0.1:9\" }}",
        guest("spin").display(),
        cases.display()
    )
}

/// On SIGTERM, a starting proxy does not finish loading first.
#[test]
fn sigterm_ends_a_start_that_takes_long() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for signal in ["TERM", "INT"] {
        let mut proxy = Proxy::launch(&slow(folder.path()), &[]);
        // From here on, it is loading.
        until("the admin address to be served", || {
            try_get(proxy.admin, "/health").is_some()
        });
        proxy.process.signal(signal);
        assert_eq!(proxy.process.ended().code(), Some(0), "{signal}");
        let said = proxy.process.stderr();
        assert!(
            !said.iter().any(|line| line.contains("answering queries")),
            "{said:#?}"
        );
    }
}

/// Nor does it finish reading files: a zone of four million names takes minutes.
#[test]
fn sigterm_ends_a_start_that_reads() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let zone = folder.path().join("zone");
    let lines: String = (0..64)
        .map(|at| format!("$GENERATE 0-65535 a$.b{at} A 192.0.2.1\n"))
        .collect();
    std::fs::write(&zone, format!("@ 60 SOA ns admin 1 2 3 4 5\n{lines}")).expect("a zone file");
    let zone = zone.display();
    let config = format!("zone \"test\" {{ file \"{zone}\" {{ memory \"64GiB\" }} }}");
    let mut proxy = Proxy::launch(&config, &[]);
    let status = format!("/proc/{}/status", proxy.process.id());
    until("SIGTERM to be waited for", || {
        let status = std::fs::read_to_string(&status).unwrap_or_default();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        caught.is_some_and(|mask| mask & 1 << (15 - 1) != 0)
    });
    proxy.process.signal("TERM");
    assert_eq!(proxy.process.ended().code(), Some(0));
}

/// During a reload, it answers until it has stopped.
#[test]
fn sigterm_ends_a_reload_that_takes_long() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for signal in ["TERM", "INT"] {
        let mut proxy = Proxy::start("zone \".\" { forward \"127.0.0.1:9\" }");
        proxy.rewrite(&slow(folder.path()));
        proxy.process.logged("loading");
        proxy.process.signal(signal);
        assert_eq!(proxy.process.ended().code(), Some(0), "{signal}");
        let said = proxy.process.stderr();
        assert!(!said.iter().any(|line| line.contains("reloaded")), "{said:#?}");
    }
}
