//! A second process on the same address is refused with the first one's ID, unless it is meant to take over.

use std::net::SocketAddr;

use crate::harness::{Proxy, address, proxy, until};

/// A configuration with this listener and a separate admin address.
fn text(listen: SocketAddr) -> String {
    format!("listen \"{listen}\" // $LISTEN\nzone \".\" {{ forward \"127.0.0.1:9\" }}")
}

/// Only the first one runs: the second would get half of its queries.
#[test]
fn a_second_process_is_refused_with_the_first_ones_id() {
    let taken = address::fresh_socket();
    let first = Proxy::start(&text(taken));
    let mut second = Proxy::launch(&text(taken), &[]);
    assert_eq!(second.process.ended().code(), Some(71));
    let said = second.process.logged(&taken.to_string());
    let named = format!("process {} (dnsweir)", first.process.id());
    assert!(said.contains(&named), "{named}: {said}");
    assert_eq!(first.get("/ready").0, 200);
}

/// The admin address of another process cannot be shared either.
#[test]
fn an_admin_address_is_not_shared() {
    let first = Proxy::start("zone \".\" { forward \"127.0.0.1:9\" }");
    let text = format!(
        "admin \"{}\" // $ADMIN\nzone \".\" {{ forward \"127.0.0.1:9\" }}",
        first.admin
    );
    let mut second = Proxy::launch(&text, &[]);
    assert_eq!(second.process.ended().code(), Some(71));
    let said = second.process.logged("cannot serve admin");
    assert!(
        said.contains(&format!("process {}", first.process.id())),
        "{said}"
    );
}

/// Whichever starts first, and however close together.
#[test]
fn of_two_that_start_at_once_one_stays() {
    for _ in 0..5 {
        let taken = address::fresh_socket();
        let mut both: Vec<Proxy> = (0..2).map(|_| Proxy::launch(&text(taken), &[])).collect();
        until("one of them to end and one to be ready", || {
            let running = both
                .iter_mut()
                .filter_map(|one| one.process.running().then_some(one.admin));
            let running: Vec<SocketAddr> = running.collect();
            assert!(!running.is_empty(), "both have ended");
            let is_ready = |admin| proxy::try_get(admin, "/ready").is_some_and(|(status, _)| status == 200);
            running.len() == 1 && is_ready(running[0])
        });
    }
}

/// As soon as the first one has ended, the next one starts.
#[test]
fn an_address_is_free_when_its_process_has_ended() {
    let taken = address::fresh_socket();
    let mut first = Proxy::start(&text(taken));
    // A connection that our side closes lingers in the kernel.
    drop(std::net::TcpStream::connect(taken).expect("a connection"));
    first.process.signal("TERM");
    assert!(first.process.ended().success());
    Proxy::start(&text(taken));
}
