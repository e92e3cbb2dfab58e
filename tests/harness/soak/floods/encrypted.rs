//! Clients that begin requests over TLS and QUIC, and do not complete them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::super::super::PATIENCE;
use super::super::super::client::try_connect_from;
use super::super::super::encrypted::{TlsClient, first_datagram, post, preface, trusting_for};
use super::stages::NAME;
use super::{Stage, at_rate, client, socket};

/// Connections of one client, and requests on each.
const CONNECTIONS: usize = 100;
const REQUESTS: u32 = 90;

/// Connections to the webhook: more than it accepts.
const SILENT: usize = 200;

/// How long the API server waits for our webhook (`timeoutSeconds`).
const REVIEW: Duration = Duration::from_secs(2);

/// Source addresses can be forged: these datagrams have the calm client's address.
pub(super) fn first_datagrams(stage: &Stage, stop: &AtomicBool) {
    let socket = socket([127, 0, 0, 1].into());
    let config = trusting_for(&stage.authority, &["doq"]);
    at_rate(500, stop, |number| {
        let _ = socket.send_to(&first_datagram(&config, NAME, number), stage.encrypted);
    });
}

pub(super) fn bodies(stage: &Stage, stop: &AtomicBool) {
    let mut open = std::collections::VecDeque::new();
    while !stop.load(Ordering::Relaxed) {
        if let Some(connection) = unfinished(stage) {
            open.push_back(connection);
        }
        if open.len() > CONNECTIONS {
            open.pop_front();
        }
    }
}

/// Opens a connection with as many requests as it may have, none of them complete.
fn unfinished(stage: &Stage) -> Option<TlsClient> {
    let config = trusting_for(&stage.authority, &["h2"]);
    let stream = try_connect_from(client(14, 0), stage.encrypted).ok()?;
    let mut client = TlsClient::over(stream, NAME, config).ok()?;
    client.try_write(&preface(&[0, 4, 0, 0, 0, 0])).ok()?;
    for number in 0..REQUESTS {
        client.try_write(&post(2 * number + 1)).ok()?;
    }
    Some(client)
}

/// Opens silent connections, during which the API server, at another address, must get an answer in time.
pub(super) fn webhook(stage: &Stage, stop: &AtomicBool) {
    let mut open = std::collections::VecDeque::new();
    while !stop.load(Ordering::Relaxed) {
        for number in 0..SILENT {
            if open.len() >= SILENT {
                open.pop_front();
            }
            open.extend(try_connect_from(client(15, number), stage.webhook).ok());
        }
        let begun = Instant::now();
        review(stage);
        let took = begun.elapsed();
        assert!(took < PATIENCE, "a review took {took:?}");
        if took > REVIEW {
            eprintln!("a review took {took:?}");
        }
    }
}

fn review(stage: &Stage) {
    let config = trusting_for(&stage.authority, &["http/1.1"]);
    let mut client = TlsClient::connect(stage.webhook, NAME, config);
    let pod = r#"{"metadata":{"name":"web"},"spec":{"dnsPolicy":"ClusterFirst"}}"#;
    let body = format!(
        r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"u-1","namespace":"team","operation":"CREATE","resource":{{"group":"","version":"v1","resource":"pods"}},"object":{pod}}}}}"#
    );
    let head = format!(
        "POST /inject HTTP/1.1\r\nhost: {NAME}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    client.write(&[head.as_bytes(), body.as_bytes()].concat());
    let answer = String::from_utf8(client.read_to_end()).expect("text");
    assert!(answer.contains(r#""allowed":true"#), "{answer}");
}
