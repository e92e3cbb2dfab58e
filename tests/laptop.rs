//! A machine whose addresses, links and name servers come and go.

mod day;

use std::fs;
use std::net::UdpSocket;

use crate::harness::namespace::Namespace;
use crate::harness::process::Process;
use crate::harness::{Proxy, Upstream, address, needs, proxy, tools, until};

/// The notes of `/status`: what cannot be used, or not yet.
fn notes(proxy: &Proxy) -> Vec<String> {
    let (_, page) = proxy.get("/status");
    let status: serde_json::Value = serde_json::from_str(&page).expect("JSON");
    let notes = status["notes"].as_array().expect("notes").iter();
    notes
        .map(|note| note.as_str().unwrap_or_default().to_owned())
        .collect()
}

/// A server on port 53, which resolv.conf implies; none if the tests may not use that port.
fn name_server() -> Option<Upstream> {
    let server = std::net::SocketAddr::new(address::fresh().into(), 53);
    if UdpSocket::bind(server).is_err() {
        assert!(!needs(&["root"]), "port 53 of {server} is taken");
        return None;
    }
    let answer = |asked: &crate::harness::upstream::Asked| {
        asked.answer(&[&format!("{} 60 A 192.0.2.1", asked.name())])
    };
    Some(Upstream::start_at(server, answer))
}

#[test]
fn an_address_that_is_not_there_keeps_no_other_from_being_served() {
    let text = "listen \"$LISTEN\" \"192.0.2.77:5300\"\nadmin \"$ADMIN\"\n\
                filter \"table\" { module \"builtin:hosts\"; config { host \"a.test\" \"192.0.2.7\" } }\n\
                zone \".\" { use \"table\" }";
    let proxy = Proxy::start(text);
    assert_eq!(proxy.query("a.test", "A").answers(), ["a.test. A 192.0.2.7"]);
    assert_eq!(
        notes(&proxy),
        ["192.0.2.77:5300: no link of this machine has the address yet"]
    );
    // Nor does it prevent a reload.
    proxy.reload(&text.replace("192.0.2.7\"", "192.0.2.8\""));
    assert_eq!(proxy.query("a.test", "A").answers(), ["a.test. A 192.0.2.8"]);
    // If there is no other address, it is a mistake.
    let mut alone = Proxy::launch(
        "listen \"192.0.2.77:5300\" // $LISTEN\nzone \".\" { forward \"127.0.0.1:9\" }",
        &[],
    );
    assert_eq!(alone.process.ended().code(), Some(71));
    alone.process.logged("no link of this machine has the address");
}

/// The kernel reports new addresses.
#[test]
fn an_address_is_listened_on_when_it_comes() {
    if !needs(&["root", "ip", "nsenter", "dig"]) {
        return;
    }
    let network = Namespace::new();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("dnsweir.kdl");
    let text = "listen \"127.0.0.1\" \"192.0.2.77\" \"2001:db8::77\"\nadmin \"192.0.2.77\"\n\
                filter \"table\" { module \"builtin:hosts\"; config { host \"a.test\" \"192.0.2.7\" } }\n\
                zone \".\" { use \"table\" }\n";
    fs::write(&file, text).expect("a configuration file");
    let mut process = Process::start(proxy::command_in(&network).arg("run").arg("--config").arg(&file));
    let mut answers = |server: &str| {
        until(&format!("an answer from {server}"), || {
            assert!(process.running(), "the proxy ended: {:#?}", process.stderr());
            let mut dig = network.tool("dig");
            dig.arg(format!("@{server}"))
                .args(["+notcp", "+tries=1", "+time=1", "+short", "a.test"]);
            dig.output().is_ok_and(|output| output.stdout == b"192.0.2.7\n")
        });
    };
    answers("127.0.0.1");
    let ip = |arguments: &str| tools::output(network.tool("ip").args(arguments.split(' ')));
    ip("addr add 192.0.2.77/32 dev lo");
    answers("192.0.2.77");
    ip("-6 addr add 2001:db8::77/128 dev lo nodad");
    answers("2001:db8::77");
    // The socket of an address that went away works when the address returns.
    ip("addr del 192.0.2.77/32 dev lo");
    ip("addr add 192.0.2.77/32 dev lo");
    answers("192.0.2.77");
}

#[test]
fn an_admin_address_that_is_not_there_is_named() {
    let text = "admin \"$ADMIN\" \"192.0.2.77\"\nzone \".\" { forward \"127.0.0.1:9\" }";
    let proxy = Proxy::start(text);
    let note = "admin 192.0.2.77:9253: no link of this machine has the address yet";
    let notes = notes(&proxy);
    assert!(notes.iter().any(|known| known == note), "{notes:#?}");
}

/// With `skip-teardown`, the address outlasts its process, and the next one if that cannot start.
#[test]
fn an_address_that_is_to_stay_survives_a_start_that_fails() {
    if !needs(&["root", "ip", "nsenter"]) {
        return;
    }
    let network = Namespace::new();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("dnsweir.kdl");
    let start = |admin: &str| {
        let text = format!(
            "listen \"169.254.20.10\"\nadmin \"{admin}\"\n\
             node {{ interface \"dw0\"; skip-teardown; self-test #false }}\n\
             zone \".\" {{ forward \"192.0.2.53\" }}\n"
        );
        fs::write(&file, text).expect("a configuration file");
        Process::start(proxy::command_in(&network).arg("run").arg("--config").arg(&file))
    };
    let is_there = || {
        let shown = network.tool("ip").args(["addr", "show"]).output().expect("ip");
        String::from_utf8_lossy(&shown.stdout).contains("169.254.20.10")
    };
    let mut first = start("127.0.0.1");
    first.logged("answering queries");
    first.signal("TERM");
    assert!(first.ended().success() && is_there());
    let mut second = start("192.0.2.77");
    assert_eq!(second.ended().code(), Some(71));
    second.logged("cannot serve admin on 192.0.2.77:9253");
    assert!(is_there());
}

#[test]
fn servers_of_a_resolv_conf_are_used_as_far_as_they_can_be() {
    let Some(upstream) = name_server() else { return };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("resolv.conf");
    let server = upstream.address.ip();
    let lines = |own: std::net::IpAddr| {
        format!(
            "nameserver {own}\nnameserver fe80::1%nosuchlink\nnameserver dns.example\nnameserver 0.0.0.0\nnameserver {server}\n"
        )
    };
    // Without the file, there is no upstream yet.
    let proxy = Proxy::start(&format!("zone \".\" {{ cache; forward \"{}\" }}", file.display()));
    assert_eq!(notes(&proxy), [format!("{}: not there yet", file.display())]);
    let answer = proxy.query_edns("early.example", "A");
    assert_eq!(
        (answer.rcode(), answer.extended_errors()),
        ("SERVFAIL".into(), vec![22])
    );
    fs::write(&file, lines(proxy.address.ip())).expect("a file");
    until("the servers to be known", || proxy.generation() > 1.0);
    // That there was no upstream was not cached.
    assert_eq!(
        proxy.query("early.example", "A").answers(),
        ["early.example. A 192.0.2.1"]
    );
    let notes = notes(&proxy);
    // The proxy does not listen on port 53 of that address.
    for why in [
        "there is no interface nosuchlink yet",
        "not an IP address",
        "not the address of a server",
    ] {
        assert!(notes.iter().any(|note| note.ends_with(why)), "{why}: {notes:#?}");
    }
}

/// Without a cache folder, modules are compiled again.
#[test]
fn a_folder_that_cannot_be_made_is_no_reason_not_to_start() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("file");
    fs::write(&file, "").expect("a file");
    let inside = file.join("folder").display().to_string();
    let text = "zone \"test\" { forward \"127.0.0.1:9\" }";
    let proxy = Proxy::start_with(text, &["--compiled-cache", &inside]);
    proxy.process.logged("cannot store compiled filters");
}

/// XDG Base Directory Specification: paths that are not absolute must be ignored.
#[test]
fn nothing_is_kept_in_the_working_folder() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("dnsweir.kdl");
    let text = format!(
        "listen \"{}\"\nfilter \"f\" {{ module \"builtin:hosts\"; config {{ host \"a.test\" \"192.0.2.7\" }} }}\n\
         zone \"test\" {{ use \"f\" }}\n",
        address::fresh_socket()
    );
    fs::write(&file, text).expect("a file");
    for home in ["", "relative"] {
        let working = folder.path().join("working");
        fs::create_dir_all(&working).expect("a folder");
        let mut command = proxy::command();
        command
            .current_dir(&working)
            .env("XDG_CACHE_HOME", home)
            .env("HOME", home);
        let mut process = Process::start(command.arg("run").arg("--config").arg(&file));
        process.logged("answering queries");
        assert!(process.running());
        let kept = fs::read_dir(&working).expect("a folder").count();
        assert_eq!(kept, 0, "{home:?}");
    }
}

/// With an explanation instead of an error number.
#[test]
fn addresses_that_cannot_be_listened_on_are_told_before() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("dnsweir.kdl");
    for (address, why) in [
        ("fe80::1", "is a link-local address without its interface"),
        (
            "fe80::1%nosuchlink",
            "names the interface nosuchlink, which there is not",
        ),
    ] {
        fs::write(
            &file,
            format!("listen \"{address}\"\nzone \".\" {{ forward \"192.0.2.1\" }}\n"),
        )
        .expect("a file");
        let checked = proxy::check(&file);
        let said = String::from_utf8_lossy(&[checked.stdout, checked.stderr].concat()).into_owned();
        assert!(!checked.status.success() && said.contains(why), "{said}");
    }
}
