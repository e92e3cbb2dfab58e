//! Tests of the client against servers on loopback.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use tokio::net::UdpSocket;

use super::*;
use crate::config::{Access, Location, parse};
use crate::private_folder::PrivateFolder;
use crate::web::{WebServer, authority, page};

/// A server, and the location that a client fetches from it.
struct Place {
    folder: tempfile::TempDir,
    server: WebServer,
    location: Location,
}

impl Place {
    fn over_tls(name: &str) -> Place {
        let server = WebServer::over_tls(name);
        let url = format!("https://lists.example:{}/ads", server.address.port());
        Place::at(server, &url)
    }

    fn plain() -> Place {
        let server = WebServer::plain();
        let url = format!("http://{}/ads", server.address);
        Place::at(server, &url)
    }

    fn at(server: WebServer, url: &str) -> Place {
        let folder = tempfile::tempdir().unwrap();
        let ca = folder.path().join("ca.pem");
        fs::write(&ca, authority()).unwrap();
        let location = Location {
            url: url.parse().unwrap(),
            access: Access {
                ca: Some(ca),
                address: Some(Ipv4Addr::LOCALHOST.into()),
                size: 1 << 20,
                time: Duration::from_secs(30),
                ..Access::default()
            },
        };
        Place {
            folder,
            server,
            location,
        }
    }

    fn copies(&self) -> std::path::PathBuf {
        self.folder.path().join("copies")
    }

    fn client(&self) -> Client {
        Client::new(
            Upstreams::default(),
            Some(Copies::new(PrivateFolder::open(&self.copies()).unwrap())),
        )
    }

    async fn fetch(&self) -> Result<String, String> {
        fetch(&self.client(), &self.location).await
    }
}

async fn fetch(client: &Client, location: &Location) -> Result<String, String> {
    let fetched = client.fetch(location).await.map_err(|error| error.to_string())?;
    Ok(String::from_utf8(fetched.to_vec()).unwrap())
}

fn found(text: &str) -> Result<String, String> {
    Ok(text.to_owned())
}

#[tokio::test]
async fn what_did_not_change_is_not_sent_again() {
    let place = Place::over_tls("lists.example");
    place.server.serve("one", "a");
    assert_eq!(place.fetch().await, found("one"));
    assert_eq!(place.fetch().await, found("one"));
    place.server.serve("two", "b");
    assert_eq!(place.fetch().await, found("two"));
    // A new version with the same contents.
    place.server.serve("two", "c");
    assert_eq!(place.fetch().await, found("two"));
    let requests = place.server.requests();
    assert!(!requests[0].contains("if-none-match"));
    assert!(requests[3].contains("if-none-match: \"b\""));
    assert!(requests[3].contains("accept-encoding: identity"));
}

#[tokio::test]
async fn a_server_without_tags_is_asked_by_the_time() {
    let place = Place::plain();
    place.server.answer(
        |request| match request.contains("if-modified-since: sun, 06 nov 1994") {
            true => page("304 Not Modified", "", ""),
            false => page(
                "200 OK",
                "last-modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n",
                "one",
            ),
        },
    );
    assert_eq!(place.fetch().await, found("one"));
    assert_eq!(place.fetch().await, found("one"));
}

#[tokio::test]
async fn the_last_good_copy_is_there_when_the_server_is_not() {
    let place = Place::over_tls("lists.example");
    assert!(place.client().last_good(&place.location).is_none());
    place.server.serve("one", "a");
    place.fetch().await.unwrap();
    place
        .server
        .answer(|_| page("503 Service Unavailable", "", "sorry"));
    let error = place.fetch().await.unwrap_err();
    assert_eq!(error, "the server answered 503 Service Unavailable");
    // Another process, later.
    let copy = place.client().last_good(&place.location).unwrap();
    assert_eq!(&copy[..], b"one");
    let mut smaller = place.location.clone();
    smaller.access.size = 2;
    assert!(place.client().last_good(&smaller).is_none());
}

#[tokio::test]
async fn a_damaged_copy_is_none() {
    let place = Place::plain();
    place.server.serve("one", "a");
    place.fetch().await.unwrap();
    let files = fs::read_dir(place.copies())
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let contents: Vec<_> = files.filter(|path| path.extension().is_none()).collect();
    fs::write(&contents[0], "forged").unwrap();
    assert!(place.client().last_good(&place.location).is_none());
    assert_eq!(place.fetch().await, found("one"));
    assert_eq!(&place.client().last_good(&place.location).unwrap()[..], b"one");
}

#[tokio::test]
async fn without_a_folder_everything_is_sent_each_time() {
    let place = Place::plain();
    place.server.serve("one", "a");
    let client = Client::new(Upstreams::default(), None);
    for _ in 0..2 {
        assert_eq!(fetch(&client, &place.location).await, found("one"));
    }
}

#[tokio::test]
async fn only_the_right_certificate_is_trusted() {
    let other = Place::over_tls("other.example");
    other.server.serve("forged", "a");
    let error = other.fetch().await.unwrap_err();
    assert!(
        error.contains("certificate not valid for name \"lists.example\""),
        "{error}"
    );
    let mut unknown = Place::over_tls("lists.example");
    unknown.server.serve("forged", "a");
    let strangers = rcgen::generate_simple_self_signed(["lists.example".to_owned()]).unwrap();
    fs::write(unknown.location.access.ca.as_ref().unwrap(), strangers.cert.pem()).unwrap();
    let error = unknown.fetch().await.unwrap_err();
    assert!(error.contains("invalid peer certificate"), "{error}");
    fs::write(unknown.location.access.ca.as_ref().unwrap(), "nothing").unwrap();
    let error = unknown.fetch().await.unwrap_err();
    assert!(error.ends_with("it has no certificate in PEM"), "{error}");
    unknown.location.access.ca = Some("/nowhere/ca.pem".into());
    let error = unknown.fetch().await.unwrap_err();
    assert!(error.starts_with("/nowhere/ca.pem: No such file"), "{error}");
    assert!(unknown.server.requests().is_empty());
}

#[tokio::test]
async fn a_token_is_read_each_time_and_told_to_nobody_else() {
    let mut place = Place::plain();
    let token = place.folder.path().join("token");
    place.location.access.token = Some(token.clone());
    let error = place.fetch().await.unwrap_err();
    assert!(error.contains("token: No such file"), "{error}");
    place.server.serve("one", "a");
    for written in ["secret\n", "renewed"] {
        fs::write(&token, written).unwrap();
        place.fetch().await.unwrap();
        let expected = format!("authorization: bearer {}\r\n", written.trim());
        assert!(place.server.requests().last().unwrap().contains(&expected));
    }
    let stranger = WebServer::plain();
    stranger.serve("two", "b");
    let elsewhere = format!("location: http://{}/\r\n", stranger.address);
    place.server.answer(move |_| page("302 Found", &elsewhere, ""));
    assert_eq!(place.fetch().await, found("two"));
    assert!(!stranger.requests()[0].contains("authorization"));
    fs::write(&token, "two\nlines").unwrap();
    let error = place.fetch().await.unwrap_err();
    assert!(error.ends_with("this is not a token"), "{error}");
}

#[tokio::test]
async fn redirects_are_bounded_and_keep_to_their_scheme() {
    let place = Place::over_tls("lists.example");
    let plain = WebServer::plain();
    plain.serve("forged", "a");
    let elsewhere = format!("location: http://{}/\r\n", plain.address);
    place.server.answer(move |_| page("302 Found", &elsewhere, ""));
    let error = place.fetch().await.unwrap_err();
    assert!(error.contains("it redirects to another scheme"), "{error}");
    assert!(plain.requests().is_empty());
    place
        .server
        .answer(|_| page("302 Found", "location: /again\r\n", ""));
    let error = place.fetch().await.unwrap_err();
    assert!(error.contains("too many redirects"), "{error}");
    assert_eq!(place.server.requests().len(), 1 + 1 + 5);
}

/// List authors must not reach what only the node can (a cloud's metadata service, a kubelet), by address or
/// by name.
#[tokio::test]
async fn redirects_lead_to_no_private_address() {
    let mut place = Place::plain();
    place.location.url = format!("http://lists.example:{}/", place.server.address.port())
        .parse()
        .unwrap();
    let inside = WebServer::plain();
    inside.serve("secret", "a");
    let port = inside.address.port();
    let text = format!(
        "listen \"127.0.0.1\"\nzone \".\" {{ forward \"{}\" }}",
        upstream(Ipv4Addr::LOCALHOST.into()).await
    );
    let config = parse("test", &text, Path::new("/"), &[]).unwrap();
    let client = Client::new(Upstreams::of(&config), None);
    for host in [
        "127.0.0.1",
        "[::ffff:127.0.0.1]",
        "0.0.0.0",
        "metadata.example",
        "localhost",
    ] {
        let elsewhere = format!("location: http://{host}:{port}/\r\n");
        place.server.answer(move |_| page("302 Found", &elsewhere, ""));
        let error = fetch(&client, &place.location).await.unwrap_err();
        assert!(
            error.contains("only a host that the configuration names"),
            "{host}: {error}"
        );
        assert!(inside.requests().is_empty(), "{host}");
    }
    // The same host, on another port, is in the configuration.
    let elsewhere = format!("location: http://lists.example:{port}/\r\n");
    place.server.answer(move |_| page("302 Found", &elsewhere, ""));
    assert_eq!(fetch(&client, &place.location).await, found("secret"));
}

#[tokio::test]
async fn what_is_too_large_is_not_taken() {
    let mut place = Place::plain();
    place.location.access.size = 3;
    place.server.serve("abc", "a");
    assert_eq!(place.fetch().await, found("abc"));
    place.server.serve("abcd", "b");
    let expected = "it is larger than 3B: raise `size` if it may be";
    assert_eq!(place.fetch().await.unwrap_err(), expected);
    // A response without a length.
    place.server.answer(|_| {
        let chunks = "2\r\nab\r\n".repeat(1 << 16);
        format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{chunks}0\r\n\r\n").into()
    });
    assert_eq!(place.fetch().await.unwrap_err(), expected);
    assert_eq!(&place.client().last_good(&place.location).unwrap()[..], b"abc");
}

#[tokio::test]
async fn what_is_not_whole_is_not_taken() {
    let place = Place::plain();
    place.server.serve("one", "a");
    place.fetch().await.unwrap();
    place
        .server
        .answer(|_| b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf".to_vec());
    let error = place.fetch().await.unwrap_err();
    assert!(
        error.contains("end of file before message length reached"),
        "{error}"
    );
    assert_eq!(&place.client().last_good(&place.location).unwrap()[..], b"one");
    // The contents and their description; nothing unfinished.
    assert_eq!(fs::read_dir(place.copies()).unwrap().count(), 2);
}

#[tokio::test]
async fn a_server_that_says_nothing_costs_its_time() {
    let mut place = Place::plain();
    // It accepts connections but never answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    place.location.url = format!("http://{}/", silent.local_addr().unwrap())
        .parse()
        .unwrap();
    place.location.access.time = Duration::from_millis(100);
    assert_eq!(place.fetch().await.unwrap_err(), "it took longer than 100ms");
}

#[tokio::test]
async fn a_proxy_is_asked_if_there_is_one() {
    let mut place = Place::plain();
    let proxy = WebServer::plain();
    proxy.serve("by proxy", "a");
    place.location.access.proxy = Some(format!("http://{}", proxy.address).parse().unwrap());
    place.location.url = "http://lists.example/ads".parse().unwrap();
    assert_eq!(place.fetch().await, found("by proxy"));
    assert!(proxy.requests()[0].starts_with("get http://lists.example/ads http/1.1"));
}

/// Upstreams, one per zone, that return one address for every name.
async fn upstream(address: IpAddr) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let at = socket.local_addr().unwrap();
    tokio::spawn(async move {
        let mut buffer = [0; 512];
        while let Ok((length, client)) = socket.recv_from(&mut buffer).await {
            let query = hickory_proto::op::Message::from_vec(&buffer[..length]).unwrap();
            let asked = &query.queries[0];
            // After the question comes an OPT record without options (RFC 6891 section 6.1.2).
            let end = length - 11;
            let mut answer = crate::dns::build::empty(&buffer[12..end], 0);
            answer[..2].copy_from_slice(&buffer[..2]);
            if let (IpAddr::V4(address), 1) = (address, u16::from(asked.query_type())) {
                let owner = &buffer[12..end - 4];
                crate::dns::build::push_record(&mut answer, 6, owner, 1, 1, 60, &address.octets());
            }
            socket.send_to(&answer, client).await.unwrap();
        }
    });
    at
}

#[tokio::test]
async fn addresses_are_asked_of_the_upstreams_of_the_zone() {
    let (right, wrong) = (Ipv4Addr::LOCALHOST.into(), [192, 0, 2, 1].into());
    let text = format!(
        "listen \"127.0.0.1\"\nzone \".\" {{ cache; forward \"{}\" }}\nzone \"example\" {{ forward \"{}\" }}",
        upstream(wrong).await,
        upstream(right).await
    );
    let config = parse("test", &text, Path::new("/"), &[]).unwrap();
    let mut place = Place::over_tls("lists.example");
    place.location.access.address = None;
    place.server.serve("one", "a");
    let client = Client::new(Upstreams::of(&config), None);
    assert_eq!(fetch(&client, &place.location).await, found("one"));
    let nobody = Client::new(Upstreams::default(), None);
    let error = fetch(&nobody, &place.location).await.unwrap_err();
    assert!(
        error.contains("no zone of the configuration forwards this name"),
        "{error}"
    );
}
