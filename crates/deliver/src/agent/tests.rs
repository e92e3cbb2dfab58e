use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;

use hyper::Method;

use super::*;
use crate::tls::{Authorities, Trust};
use crate::web::{WebServer, authority, page};

fn route(written: &[&str]) -> Route {
    Route {
        resolver: Resolver::System,
        address: None,
        written: Some(written.iter().map(ToString::to_string).collect()),
        proxy: None,
        trust: Trust::default(),
        keeps_scheme: false,
    }
}

/// Sends a request with a password.
async fn ask(route: Route, method: Method, url: &str) -> Result<Response<Incoming>, String> {
    let mut request = Request::new(Full::from("body"));
    *request.method_mut() = method;
    let headers = request.headers_mut();
    headers.insert(AUTHORIZATION, HeaderValue::from_static("Basic c2VjcmV0"));
    let answer = Agent::new(route).send(&url.parse().unwrap(), request).await;
    Ok(answer.map_err(|error| error.to_string())?.1)
}

#[tokio::test]
async fn private_addresses_are_led_to_if_they_are_written() {
    let server = WebServer::plain();
    server.serve("one", "a");
    let port = server.address.port();
    for (host, shown) in [
        ("127.0.0.1", "127.0.0.1"),
        ("localhost", "localhost"),
        ("[::ffff:127.0.0.1]", "[::ffff:7f00:1]"),
        ("0.0.0.0", "0.0.0.0"),
    ] {
        let url = format!("http://{host}:{port}/token");
        let problem = ask(route(&["registry.example"]), Method::GET, &url).await;
        assert_eq!(
            problem.unwrap_err(),
            format!(
                "it leads to {shown}: only a host that the configuration names may have a private address"
            )
        );
    }
    assert!(server.requests().is_empty());
    for (written, host) in [("localhost", "LOCALHOST"), ("127.0.0.1", "127.0.0.1")] {
        let url = format!("http://{host}:{port}/v2/");
        let response = ask(route(&[written]), Method::GET, &url).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
    }
}

#[tokio::test]
async fn an_address_in_the_configuration_is_not_looked_up() {
    let server = WebServer::plain();
    server.serve("one", "a");
    let url = format!("http://server.example:{}/", server.address.port());
    let mut route = route(&["server.example"]);
    route.address = Some(("server.example".into(), server.address.ip()));
    assert!(ask(route, Method::GET, &url).await.is_ok());
}

#[tokio::test]
async fn credentials_stay_with_their_server() {
    let (server, other) = (WebServer::plain(), WebServer::plain());
    other.serve("two", "b");
    let url = format!("http://{}/", server.address);
    let elsewhere = format!("location: http://{}/b?c#d\r\n", other.address);
    server.answer(move |request| match request.starts_with("get / ") {
        true => page("302 Found", "location: a\r\n", ""),
        false => page("302 Found", &elsewhere, ""),
    });
    ask(route(&["127.0.0.1"]), Method::GET, &url).await.unwrap();
    let requests = server.requests();
    assert!(requests[1].starts_with("get /a "), "{requests:?}");
    assert!(
        requests.iter().all(|request| request.contains("authorization: ")),
        "{requests:?}"
    );
    let requests = other.requests();
    assert!(requests[0].starts_with("get /b?c "), "{requests:?}");
    assert!(!requests[0].contains("authorization: "), "{requests:?}");
}

#[tokio::test]
async fn only_redirects_that_keep_the_method_are_followed() {
    let server = WebServer::plain();
    let url = format!("http://{}/", server.address);
    for (status, followed) in [("307 Temporary Redirect", true), ("303 See Other", false)] {
        server.answer(move |request| match request.starts_with("put / ") {
            true => page(status, "location: /a\r\n", ""),
            false => page("201 Created", "", ""),
        });
        let response = ask(route(&["127.0.0.1"]), Method::PUT, &url).await.unwrap();
        assert_eq!(response.status() == StatusCode::CREATED, followed, "{status}");
    }
    let requests = server.requests();
    assert!(requests[1].starts_with("put /a ") && requests[1].ends_with("body"));
    server.answer(|_| page("302 Found", "location: http://[\r\n", ""));
    let problem = ask(route(&["127.0.0.1"]), Method::GET, &url).await.unwrap_err();
    assert_eq!(problem, "it redirects to something that is not a URL");
}

/// Connects the first client to a server, as an HTTP proxy. What it was asked is sent to the receiver.
fn tunnel_to(server: SocketAddr) -> (SocketAddr, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (tell, asked) = mpsc::channel();
    thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let (mut head, mut octet) = (Vec::new(), [0]);
        while !head.ends_with(b"\r\n\r\n") {
            client.read_exact(&mut octet).unwrap();
            head.extend(octet);
        }
        tell.send(String::from_utf8(head).unwrap()).unwrap();
        client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
        let mut server = TcpStream::connect(server).unwrap();
        let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
        thread::spawn(move || io::copy(&mut from, &mut to));
        let _ = io::copy(&mut server, &mut client);
    });
    (address, asked)
}

#[tokio::test]
async fn a_proxy_leads_to_servers_with_tls_for_its_credentials() {
    let server = WebServer::over_tls("server.example");
    server.serve("one", "a");
    let (proxy, asked) = tunnel_to(server.address);
    let url = format!("http://us%40er:sec%3Aret@{proxy}");
    let mut route = route(&["127.0.0.1"]);
    route.proxy = Some(url.parse().unwrap());
    route.trust.authorities = Some(Authorities::from_pem(authority().as_bytes()).unwrap());
    let response = ask(route, Method::GET, "https://server.example/a").await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let request = asked.recv().unwrap();
    assert!(
        request.starts_with("CONNECT server.example:443 HTTP/1.1\r\n"),
        "{request}"
    );
    // us@er:sec:ret
    assert!(
        request.contains("proxy-authorization: Basic dXNAZXI6c2VjOnJldA==\r\n"),
        "{request}"
    );
    let requests = server.requests();
    assert!(requests[0].starts_with("get /a http/1.1\r\n"), "{requests:?}");
    assert!(!requests[0].contains("proxy-authorization"), "{requests:?}");
}
