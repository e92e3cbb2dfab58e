//! Queries whose answers are the proxy's own work, and other work that clients cause.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::super::query;
use super::{Stage, at_rate, client, salt, socket};

/// Asks the same question over and over, over UDP, without EDNS and with the largest payload size.
fn ask(stage: &Stage, stop: &AtomicBool, flood: u8, name: &str, qtype: &str) {
    let socket = socket(client(flood, 0));
    socket.set_nonblocking(true).expect("a socket");
    let small = query(name, qtype);
    let large = super::super::super::Message::query(name, qtype)
        .edns(65_535)
        .encode();
    at_rate(500, stop, |number| {
        let query = if number % 2 == 0 { &small } else { &large };
        let _ = socket.send_to(query, stage.address());
        while socket.recv(&mut [0; 512]).is_ok() {}
    });
}

pub(super) fn srv_sets(stage: &Stage, stop: &AtomicBool) {
    ask(stage, stop, 9, "wide.own.test", "SRV");
}

pub(super) fn wide_slices(stage: &Stage, stop: &AtomicBool) {
    ask(stage, stop, 10, "wide.zoo.svc.cluster.test", "SRV");
}

pub(super) fn edits(stage: &Stage, stop: &AtomicBool) {
    super::super::warm_over_tcp(stage, "wide.edited.test");
    ask(stage, stop, 11, "wide.edited.test", "A");
}

/// Asks for each name once, from many clients: each failing call is for another client.
pub(super) fn traps(stage: &Stage, stop: &AtomicBool) {
    let salt = salt();
    let sockets: Vec<_> = (0..250).map(|number| socket(client(12, number * 256))).collect();
    at_rate(500, stop, |number| {
        let query = query(&format!("trap{number}.{salt}.test"), "A");
        let _ = sockets[number as usize % sockets.len()].send_to(&query, stage.address());
    });
}

/// Reloads an unchanged configuration and a broken one in turn, as fast as they are taken.
pub(super) fn reloads(stage: &Stage, stop: &AtomicBool) {
    for number in 0_u64.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let mistake = ["", "\nzone \"own.test\" { cahce }"][(number % 2) as usize];
        // A difference forces a reload.
        stage
            .proxy
            .rewrite(&format!("{}\n// {number}{mistake}", stage.text));
        stage.proxy.process.signal("HUP");
        std::thread::sleep(Duration::from_millis(20));
    }
    stage.proxy.rewrite(&stage.text);
    stage.proxy.process.signal("HUP");
}
