//! Servers on loopback that answer as written.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::HeaderValue;
use hyper::{Request, StatusCode};
use tokio::time::timeout;

use super::*;
use dnsweir_config::tls::Trust;
use dnsweir_os::plain_text::with_causes;

const PATIENCE: Duration = Duration::from_secs(20);

/// A session with a server that answers as [`listener`] says.
fn server(connections: Vec<Vec<&'static str>>) -> (Session, mpsc::Receiver<String>) {
    let (address, asked) = listener(connections);
    let url = format!("http://{address}/").parse().unwrap();
    let endpoint = Endpoint::new(&url, &Trust::default(), None).unwrap();
    (Session::new(endpoint), asked)
}

/// Answers the requests of successive connections as listed, one list for each, and then closes it. What was asked is
/// sent to the receiver.
fn listener(connections: Vec<Vec<&'static str>>) -> (SocketAddr, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (tell, asked) = mpsc::channel();
    thread::spawn(move || {
        for answers in connections {
            let (mut stream, _) = listener.accept().unwrap();
            for answer in answers {
                let _ = tell.send(String::from_utf8(head(&mut stream)).unwrap());
                stream.write_all(answer.as_bytes()).unwrap();
            }
        }
    });
    (address, asked)
}

/// Reads the head of a request, octet by octet: what follows is left in the stream.
fn head(stream: &mut TcpStream) -> Vec<u8> {
    let (mut head, mut octet) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut octet).unwrap() > 0 {
        head.extend(octet);
    }
    head
}

fn get(path: &str) -> Request<Full<Bytes>> {
    Request::get(path).body(Full::default()).unwrap()
}

fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async { timeout(PATIENCE, future).await.unwrap() })
}

const SHORT: &str = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nshort";

#[test]
fn one_connection_serves_several_requests() {
    let (mut session, asked) = server(vec![vec![SHORT, SHORT]]);
    run(async {
        for path in ["/a?b=c", "/d"] {
            let response = session.send(get(path)).await.unwrap();
            assert_eq!(collect(response.into_body(), 5).await.unwrap(), b"short");
            let request = asked.recv().unwrap().to_lowercase();
            assert!(
                request.starts_with(&format!("get {path} http/1.1\r\n")),
                "{request}"
            );
            assert!(request.contains("host: 127.0.0.1:"), "{request}");
        }
    });
}

/// A server closes idle connections whenever it likes.
#[test]
fn a_closed_connection_is_replaced() {
    let (mut session, _asked) = server(vec![vec![SHORT], vec![SHORT]]);
    run(async {
        for _ in 0..2 {
            let response = session.send(get("/")).await.unwrap();
            assert_eq!(collect(response.into_body(), 5).await.unwrap(), b"short");
        }
    });
}

/// It may also close one while a request is on its way, with part of it unread, which resets the connection.
#[test]
fn a_request_that_changes_nothing_is_repeated_after_a_reset() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap())
        .parse()
        .unwrap();
    let endpoint = Endpoint::new(&url, &Trust::default(), None).unwrap();
    let mut session = Session::new(endpoint);
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        head(&mut stream);
        stream.write_all(SHORT.as_bytes()).unwrap();
        // The next request has begun; the rest of it is never read.
        stream.read_exact(&mut [0]).unwrap();
        drop(stream);
        let (mut stream, _) = listener.accept().unwrap();
        assert!(stream.read(&mut [0; 1024]).unwrap() > 0);
        stream.write_all(SHORT.as_bytes()).unwrap();
    });
    run(async {
        for _ in 0..2 {
            let response = session.send(get("/")).await.unwrap();
            assert_eq!(collect(response.into_body(), 5).await.unwrap(), b"short");
        }
    });
    server.join().unwrap();
}

/// The rest of a body that nobody reads does not become the next answer.
#[test]
fn an_unread_body_ends_its_connection() {
    let (mut session, _asked) = server(vec![
        vec!["HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\nHTTP/1.1 500 No\r\n\r\n"],
        vec![SHORT],
    ]);
    run(async {
        drop(session.send(get("/")).await.unwrap());
        let response = session.send(get("/")).await.unwrap();
        assert_eq!(collect(response.into_body(), 5).await.unwrap(), b"short");
    });
}

#[test]
fn bodies_have_a_bound() {
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nabcd\r\n4\r\nefgh\r\n0\r\n\r\n";
    for answer in [SHORT, chunked] {
        let (mut session, _asked) = server(vec![vec![answer]]);
        let refused = run(async {
            let response = session.send(get("/")).await.unwrap();
            collect(response.into_body(), 4).await
        });
        assert!(matches!(refused, Err(Error::TooLarge(4))), "{refused:?}");
    }
}

#[test]
fn lines_are_independent_of_chunks() {
    let answer = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n\
        2\r\nab\r\n5\r\nc\n\nde\r\n1\r\n\n\r\n1\r\nf\r\n0\r\n\r\n";
    let (mut session, _asked) = server(vec![vec![answer]]);
    run(async {
        let mut lines = Lines::new(session.send(get("/")).await.unwrap().into_body(), 3);
        for expected in [Some("abc"), Some(""), Some("de"), Some("f"), None] {
            let line = lines.next().await.unwrap();
            assert_eq!(line.as_deref(), expected.map(str::as_bytes));
        }
    });
}

#[test]
fn lines_have_a_bound() {
    let answer = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\na\nbc\r\n4\r\ndefg\r\n";
    let (mut session, _asked) = server(vec![vec![answer]]);
    run(async {
        let mut lines = Lines::new(session.send(get("/")).await.unwrap().into_body(), 3);
        assert_eq!(lines.next().await.unwrap().unwrap(), b"a");
        assert!(matches!(lines.next().await, Err(Error::TooLarge(3))));
    });
}

#[test]
fn failures_name_the_server_and_the_cause() {
    let endpoint = Endpoint::new(&"http://127.0.0.1:1/".parse().unwrap(), &Trust::default(), None).unwrap();
    let failed = run(async { Session::new(endpoint).send(get("/")).await.unwrap_err() });
    let told = with_causes(&failed);
    assert!(
        told.starts_with("cannot connect to 127.0.0.1:1: Connection refused"),
        "{told}"
    );
}

fn session_by(url: &str, way: Way) -> Session {
    let endpoint = Endpoint::new(&url.parse().unwrap(), &Trust::default(), None).unwrap();
    Session::new(endpoint.by(way))
}

#[test]
fn given_addresses_are_tried_in_turn() {
    let nobody = "127.0.0.1:1".parse().unwrap();
    let (address, asked) = listener(vec![vec![SHORT]]);
    let mut session = session_by("http://server.example/", Way::Addresses(vec![nobody, address]));
    run(async { session.send(get("/")).await.unwrap() });
    let request = asked.recv().unwrap().to_lowercase();
    assert!(request.contains("host: server.example\r\n"), "{request}");
    let mut session = session_by("http://server.example/", Way::Addresses(vec![nobody]));
    let failed = run(async { session.send(get("/")).await.unwrap_err() });
    let told = with_causes(&failed);
    assert!(
        told.starts_with("cannot connect to server.example: Connection refused"),
        "{told}"
    );
}

/// `localhost` has an IPv6 address on most machines, where the server does not listen.
#[test]
fn a_hosts_addresses_are_tried_in_turn() {
    let (address, _asked) = listener(vec![vec![SHORT]]);
    let url = format!("http://localhost:{}/", address.port());
    let mut session = session_by(&url, Way::Resolver);
    run(async { session.send(get("/")).await.unwrap() });
}

#[test]
fn a_proxy_gets_whole_urls_of_servers_without_tls() {
    let (address, asked) = listener(vec![vec![SHORT]]);
    let authorization = HeaderValue::from_static("Basic dXNlcjpzZWNyZXQ=");
    let way = Way::Proxy(vec![address], Some(authorization));
    let mut session = session_by("http://server.example:8080/", way);
    run(async { session.send(get("/a?b")).await.unwrap() });
    let request = asked.recv().unwrap().to_lowercase();
    assert!(
        request.starts_with("get http://server.example:8080/a?b http/1.1\r\n"),
        "{request}"
    );
    assert!(request.contains("host: server.example:8080\r\n"), "{request}");
    assert!(
        request.contains("proxy-authorization: basic dxnlcjpzzwnyzxq=\r\n"),
        "{request}"
    );
}

#[test]
fn a_proxy_may_refuse_a_tunnel() {
    let (address, asked) = listener(vec![vec![
        "HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n",
    ]]);
    let mut session = session_by("https://[2001:db8::1]/", Way::Proxy(vec![address], None));
    let failed = run(async { session.send(get("/")).await.unwrap_err() });
    let expected = StatusCode::PROXY_AUTHENTICATION_REQUIRED;
    assert!(
        matches!(&failed, Error::Proxy { status, .. } if *status == expected),
        "{failed:?}"
    );
    let request = asked.recv().unwrap().to_lowercase();
    assert!(
        request.starts_with("connect [2001:db8::1]:443 http/1.1\r\nhost: [2001:db8::1]:443\r\n"),
        "{request}"
    );
    assert!(!request.contains("proxy-authorization"), "{request}");
}

#[test]
fn urls_are_checked() {
    for (url, problem) in [
        ("/path", "is not a URL"),
        ("ftp://a/", "neither http"),
        ("https://a..b/", "no valid host"),
    ] {
        let wrong = Endpoint::new(&url.parse().unwrap(), &Trust::default(), None).unwrap_err();
        assert!(wrong.contains(problem), "{url}: {wrong}");
    }
}
