//! Tests for sources of all kinds.

use std::time::Duration;

use tokio::net::TcpListener;

use super::*;
use crate::config;

/// Three unreachable sources delay startup as long as one: each begins before the first is given up.
#[tokio::test]
async fn sources_are_waited_for_side_by_side() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let config = SourceConfig::Secondary(config::Secondary {
        primaries: vec![silent.local_addr().unwrap()],
        origins: vec!["example.".into()],
        key: None,
        fallthrough: Vec::new(),
        memory: 1 << 20,
        time: Duration::from_secs(60),
        wait: Duration::from_secs(60),
        transfer: None,
    });
    let sources =
        [1, 2, 3].map(|_| Source::new(&config, Key::of_zone(&config, &Name::ROOT), 1, &Served::default()));
    let all_ask = async {
        let mut asking = Vec::new();
        while asking.len() < 3 {
            asking.push(silent.accept().await.unwrap());
        }
    };
    tokio::select! {
        () = bring_up(&sources) => panic!("nobody has answered"),
        () = all_ask => {}
    }
}
