//! A day: no network, DHCP, a VPN that comes and goes, another network, an IPv6-only network. Two hours of
//! sleep are in the histories of `tests/box`.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::harness::namespace::Namespace;
use crate::harness::process::Process;
use crate::harness::{needs, proxy, tools, until};

/// A name server of a network, with a name that is known only there.
struct Server {
    name: &'static str,
    address: &'static str,
}

const HOME: Server = Server {
    name: "home.example",
    address: "192.0.2.53",
};
const VPN: Server = Server {
    name: "office.example",
    address: "198.51.100.53",
};
const TRAIN: Server = Server {
    name: "train.example",
    address: "203.0.113.53",
};
const SIX: Server = Server {
    name: "six.example",
    address: "2001:db8::53",
};

/// The machine, with the files of its programs.
struct Laptop {
    network: Namespace,
    folder: tempfile::TempDir,
    /// The start of the current step.
    begun: Instant,
    took: Vec<(&'static str, Duration)>,
}

impl Laptop {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn run(&self, name: &str, text: &str) -> Process {
        let file = self.path(name);
        fs::write(&file, text).expect("a configuration file");
        Process::start(
            proxy::command_in(&self.network)
                .arg("run")
                .arg("--config")
                .arg(&file),
        )
    }

    /// A server that answers while the machine is in its network.
    fn serve(&self, server: &Server, port: u16) -> Process {
        let Server { name, address } = server;
        let text = format!(
            "listen \"127.0.0.1:{port}\" \"{address}\"\n\
             filter \"table\" {{ module \"builtin:hosts\"; config {{ host \"{name}\" \"192.0.2.7\"; host \"again.{name}\" \"192.0.2.7\" }} }}\n\
             zone \".\" {{ use \"table\" }}\n"
        );
        self.run(&format!("{name}.kdl"), &text)
    }

    fn ip(&self, script: &str) {
        for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
            tools::output(self.network.tool("ip").args(line.split(' ')));
        }
    }

    /// Replaces the DHCP client's file atomically.
    fn name_server(&self, address: &str) {
        let next = self.path("next");
        fs::write(&next, format!("nameserver {address}\n")).expect("a file");
        fs::rename(next, self.path("resolv.conf")).expect("a file");
    }

    /// Asks like an impatient program on the machine until the answer is right.
    fn answers(&mut self, what: &'static str, name: &str) {
        until(&format!("{what}: an answer for {name}"), || {
            let mut dig = self.network.tool("dig");
            dig.args(["@127.0.0.1", "+tries=1", "+time=1", "+short", name]);
            dig.output().is_ok_and(|output| output.stdout == b"192.0.2.7\n")
        });
        self.took.push((what, self.begun.elapsed()));
    }
}

fn config(resolv_conf: &Path) -> String {
    format!(
        "listen \"127.0.0.1\"\nzone \".\" {{ cache; forward \"{}\" }}\n",
        resolv_conf.display()
    )
}

#[test]
fn every_network_is_used_as_it_comes() {
    if !needs(&["root", "ip", "nsenter", "dig"]) {
        return;
    }
    let mut laptop = Laptop {
        network: Namespace::new(),
        folder: tempfile::tempdir().expect("a temporary folder"),
        begun: Instant::now(),
        took: Vec::new(),
    };
    let _servers = [(&HOME, 5301), (&VPN, 5302), (&TRAIN, 5303), (&SIX, 5304)]
        .map(|(server, port)| laptop.serve(server, port));
    // At boot, there is no network and no file with name servers.
    let mut proxy = laptop.run("dnsweir.kdl", &config(&laptop.path("resolv.conf")));
    proxy.logged("answering queries");

    laptop.begun = Instant::now();
    laptop.ip("link add wlan0 type veth peer name air
               link set air up
               link set wlan0 up
               addr add 192.0.2.10/24 dev wlan0
               addr add 192.0.2.53/32 dev wlan0");
    laptop.name_server(HOME.address);
    laptop.answers("a network by DHCP", HOME.name);

    laptop.begun = Instant::now();
    laptop.ip("link add tun0 type veth peer name far
               link set far up
               link set tun0 up
               addr add 198.51.100.10/24 dev tun0
               addr add 198.51.100.53/32 dev tun0");
    laptop.name_server(VPN.address);
    laptop.answers("a VPN", VPN.name);

    laptop.begun = Instant::now();
    laptop.ip("link del tun0");
    laptop.name_server(HOME.address);
    // The other name is in the cache.
    laptop.answers("the VPN has gone", "again.home.example");

    laptop.begun = Instant::now();
    laptop.ip("addr flush dev wlan0
               addr add 203.0.113.10/24 dev wlan0
               addr add 203.0.113.53/32 dev wlan0");
    laptop.name_server(TRAIN.address);
    laptop.answers("another network", TRAIN.name);

    laptop.begun = Instant::now();
    laptop.ip("addr flush dev wlan0
               -6 addr add 2001:db8::10/64 dev wlan0 nodad
               -6 addr add 2001:db8::53/128 dev wlan0 nodad");
    laptop.name_server(SIX.address);
    laptop.answers("a network of IPv6 alone", SIX.name);

    for (what, took) in &laptop.took {
        println!("{what}: the first right answer after {:.1} s", took.as_secs_f32());
    }
    assert!(proxy.running(), "the proxy ended: {:#?}", proxy.stderr());
}
