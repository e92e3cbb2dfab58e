//! An API server with some services and changing moods, and a client that asks the program for their
//! addresses and knows the truth.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use super::message::{A, NXDOMAIN, SERVFAIL, first_address, query};
use crate::net::{Event, Net, News, Number};
use crate::report::Report;
use crate::scenario::Scenario;
use crate::seed::Random;

const SECOND: u64 = 1_000_000_000;

/// How often it acts: sends events, may change a service, asks.
const TICK: u64 = SECOND / 5;

/// How often a watch gets a bookmark.
const BOOKMARK: u64 = 60 * SECOND;

/// The delay of events while the server lags.
const LAG: u64 = 20 * SECOND;

/// How stale an answer may be while the server is well.
const FRESH: u64 = 5 * SECOND;

/// How long the server must have been well for that: a watch that died silently is given up after 150 s, and
/// retried within 10.
const RECOVERED: u64 = 180 * SECOND;

/// The longest that an answer may take.
const IN_TIME: u64 = 8 * SECOND;

/// How many services there may be.
const SERVICES: u64 = 12;

/// The longest request head in bytes.
const HEAD: usize = 16 << 10;

/// The behaviour of the server for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mood {
    Fine,
    /// Events are delayed.
    Lagging,
    /// Connections are reset, one by one.
    Breaking,
    /// It forgets its history (410), and resets all connections.
    Forgetting,
    /// Existing connections are dead without being closed; new ones work.
    Deaf,
    /// No connection gets any answer.
    Silent,
    /// It answers 500 or 429.
    Failing,
    /// Connections are reset.
    Gone,
}

/// A service's address; `None` if it was deleted.
type Address = Option<[u8; 4]>;

/// A change to a service.
struct Happened {
    version: u64,
    at: u64,
    service: u64,
    /// `ADDED`, `MODIFIED` or `DELETED`.
    what: &'static str,
    address: [u8; 4],
}

/// The state of a connection.
#[derive(Default)]
struct Connection {
    head: Vec<u8>,
    /// The last version sent to a watch of services; `None` if it is no watch.
    watched: Option<u64>,
    /// The version that the watch began with. Nothing is sent that is not newer, even if that is in the future,
    /// where versions from before a restored backup are.
    begun: u64,
    /// When its next bookmark is due.
    bookmark: u64,
    /// Whether everything written to it is lost.
    dead: bool,
}

/// The API server and its client.
pub struct Cluster {
    actor: usize,
    ip: IpAddr,
    server: SocketAddr,
    mood: Mood,
    chance: Random,
    connections: BTreeMap<Number, Connection>,
    version: u64,
    /// Versions below this one are forgotten.
    forgotten: u64,
    services: BTreeMap<u64, ([u8; 4], u64)>,
    happened: Vec<Happened>,
    /// The version and services in the backup.
    backup: (u64, BTreeMap<u64, ([u8; 4], u64)>),
    /// The history of each service: addresses, and since when.
    truth: BTreeMap<u64, Vec<(u64, Address)>>,
    /// Pending queries by port: which service, since when.
    asked: BTreeMap<u16, (u64, u64)>,
    port: u16,
    up: u64,
    down: u64,
    well: u64,
}

impl Cluster {
    pub fn new(actor: usize, ip: IpAddr, server: SocketAddr, scenario: &Scenario, chance: Random) -> Cluster {
        Cluster {
            actor,
            ip,
            server,
            mood: Mood::Fine,
            chance,
            connections: BTreeMap::new(),
            version: 100,
            forgotten: 0,
            services: BTreeMap::new(),
            happened: Vec::new(),
            backup: (100, BTreeMap::new()),
            truth: BTreeMap::new(),
            asked: BTreeMap::new(),
            port: 1024,
            up: scenario.up,
            down: scenario.down,
            well: scenario.well.0 + RECOVERED,
        }
    }

    pub fn told(&mut self, news: News, net: &mut Net, report: &mut Report) {
        match news {
            News::Wakes { .. } => {
                self.change(net.now);
                self.speak(net);
                self.ask(net, report);
                net.after(
                    TICK,
                    Event::Wakes {
                        actor: self.actor,
                        why: 0,
                    },
                );
            }
            News::Datagram { datagram, .. } => {
                if let Some((service, at)) = self.asked.remove(&datagram.to.port()) {
                    report.count("answers about services");
                    self.judge(service, at, &datagram.octets, net.now, report);
                }
            }
            News::Accepted { socket, .. } if self.mood == Mood::Gone => net.abort(socket),
            News::Accepted { socket, .. } => {
                self.connections.insert(socket, Connection::default());
            }
            News::Came { socket, octets, .. } => self.came(socket, &octets, net, report),
            News::Ended { socket, .. } => {
                if self.connections.remove(&socket).is_some() {
                    net.close(socket);
                }
            }
            News::Connected { .. } => {}
        }
    }

    /// Changes the mood. `restored` goes back to the state of the backup, with a mood of fine.
    pub fn become_so(&mut self, name: &str, net: &mut Net) {
        self.mood = match name {
            "lagging" => Mood::Lagging,
            "breaking" => Mood::Breaking,
            "forgetting" => Mood::Forgetting,
            "deaf" => Mood::Deaf,
            "silent" => Mood::Silent,
            "failing" => Mood::Failing,
            "gone" => Mood::Gone,
            _ => Mood::Fine,
        };
        match name {
            "deaf" => self
                .connections
                .values_mut()
                .for_each(|connection| connection.dead = true),
            "gone" | "forgetting" => self.break_all(net),
            "restored" => self.restore(net),
            "backup" => self.backup = (self.version, self.services.clone()),
            _ => {}
        }
        if name == "forgetting" {
            self.version += 1;
            self.forgotten = self.version;
        }
    }

    fn restore(&mut self, net: &mut Net) {
        let now = net.now;
        let before: Vec<u64> = self.services.keys().copied().collect();
        (self.version, self.services) = self.backup.clone();
        self.forgotten = self.forgotten.min(self.version);
        self.happened.retain(|happened| happened.version <= self.version);
        for service in before {
            let address = self.services.get(&service).map(|(address, _)| *address);
            self.is_true(service, address, now);
        }
        let back: Vec<(u64, [u8; 4])> = self
            .services
            .iter()
            .map(|(name, (address, _))| (*name, *address))
            .collect();
        for (service, address) in back {
            self.is_true(service, Some(address), now);
        }
        self.break_all(net);
    }

    fn break_all(&mut self, net: &mut Net) {
        for (socket, _) in std::mem::take(&mut self.connections) {
            net.abort(socket);
        }
    }

    fn is_true(&mut self, service: u64, address: Address, now: u64) {
        self.truth.entry(service).or_default().push((now, address));
    }

    /// Adds, changes or deletes a service at random.
    fn change(&mut self, now: u64) {
        if self.chance.below(8) != 0 {
            return;
        }
        let service = self.chance.below(SERVICES);
        self.version += 1;
        let known = self.services.get(&service).copied();
        let (what, address) = match known {
            Some((address, _)) if self.chance.below(3) == 0 => ("DELETED", address),
            _ => {
                let fresh = [10, 96, service as u8, self.chance.below(256) as u8];
                (if known.is_some() { "MODIFIED" } else { "ADDED" }, fresh)
            }
        };
        match what {
            "DELETED" => self.services.remove(&service),
            _ => self.services.insert(service, (address, self.version)),
        };
        self.is_true(service, (what != "DELETED").then_some(address), now);
        self.happened.push(Happened {
            version: self.version,
            at: now,
            service,
            what,
            address,
        });
    }

    /// Sends events and bookmarks to the watches.
    fn speak(&mut self, net: &mut Net) {
        if self.mood == Mood::Breaking && self.chance.below(40) == 0 {
            let place = self.chance.below(self.connections.len().max(1) as u64) as usize;
            if let Some(socket) = self.connections.keys().nth(place).copied() {
                self.connections.remove(&socket);
                net.abort(socket);
            }
        }
        if self.mood == Mood::Silent {
            return;
        }
        let lag = if self.mood == Mood::Lagging { LAG } else { 0 };
        for (&socket, connection) in &mut self.connections {
            let Some(watched) = connection.watched.filter(|_| !connection.dead) else {
                continue;
            };
            let mut last = watched;
            for happened in self.happened.iter().filter(|happened| happened.version > watched) {
                if happened.at + lag > net.now {
                    break;
                }
                let object = object(happened.service, happened.address, happened.version);
                let event = format!("{{\"type\":\"{}\",\"object\":{object}}}", happened.what);
                let _ = net.write(socket, &chunk(&event));
                last = happened.version;
            }
            connection.watched = Some(last);
            if net.now >= connection.bookmark {
                connection.bookmark = net.now + BOOKMARK;
                // A bookmark goes only as far as the events sent.
                let version = match lag {
                    0 => self.version,
                    _ => last.min(self.version),
                };
                if version <= connection.begun {
                    continue;
                }
                let metadata = format!("{{\"resourceVersion\":\"{version}\"}}");
                let bookmark = format!(
                    "{{\"type\":\"BOOKMARK\",\"object\":{{\"kind\":\"Service\",\"apiVersion\":\"v1\",\"metadata\":{metadata}}}}}"
                );
                let _ = net.write(socket, &chunk(&bookmark));
            }
        }
    }

    /// Handles bytes on a connection: requests, one after the other.
    fn came(&mut self, socket: Number, octets: &[u8], net: &mut Net, report: &mut Report) {
        let silent = self.mood == Mood::Silent;
        let Some(connection) = self.connections.get_mut(&socket) else {
            return;
        };
        connection.head.extend(octets);
        if connection.head.len() > HEAD
            || silent
            || connection.dead
            || !connection.head.ends_with(b"\r\n\r\n")
        {
            return;
        }
        let request = String::from_utf8_lossy(&std::mem::take(&mut connection.head)).into_owned();
        let target = request.split(' ').nth(1).unwrap_or_default();
        let (path, words) = target.split_once('?').unwrap_or((target, ""));
        report.count("requests to the API server");
        if self.mood == Mood::Failing {
            let code = ["500 Internal Server Error", "429 Too Many Requests"][self.chance.below(2) as usize];
            let status =
                r#"{"kind":"Status","apiVersion":"v1","status":"Failure","code":500,"message":"failing"}"#;
            let _ = net.write(socket, &reply(code, status));
            return;
        }
        let kind = path.rsplit('/').next().unwrap_or_default();
        if words.contains("watch=true") {
            self.watch(socket, kind, words, net);
        } else {
            let list = self.list(kind);
            let _ = net.write(socket, &reply("200 OK", &list));
        }
    }

    fn list(&self, kind: &str) -> String {
        let items: Vec<String> = match kind {
            "services" => {
                let services = self.services.iter();
                services
                    .map(|(name, (address, version))| object(*name, *address, *version))
                    .collect()
            }
            "namespaces" => vec![r#"{"metadata":{"name":"zoo","resourceVersion":"1"}}"#.to_owned()],
            _ => Vec::new(),
        };
        let items = items.join(",");
        format!(
            "{{\"metadata\":{{\"resourceVersion\":\"{}\"}},\"items\":[{items}]}}",
            self.version
        )
    }

    fn watch(&mut self, socket: Number, kind: &str, words: &str, net: &mut Net) {
        let from = words
            .split('&')
            .find_map(|word| word.strip_prefix("resourceVersion="));
        let from: u64 = from.and_then(|from| from.parse().ok()).unwrap_or(0);
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
        let _ = net.write(socket, head.as_bytes());
        if from < self.forgotten {
            let gone = r#"{"type":"ERROR","object":{"kind":"Status","status":"Failure","code":410,"reason":"Expired","message":"too old"}}"#;
            let _ = net.write(socket, &chunk(gone));
            let _ = net.write(socket, b"0\r\n\r\n");
            return;
        }
        if let Some(connection) = self.connections.get_mut(&socket) {
            connection.bookmark = net.now + BOOKMARK;
            connection.begun = from;
            // Objects of other kinds never change.
            connection.watched = Some(if kind == "services" { from } else { u64::MAX });
        }
    }

    /// Sends a query for a service, over UDP.
    fn ask(&mut self, net: &mut Net, report: &mut Report) {
        let late = self.asked.iter().filter(|(_, (_, at))| net.now > at + IN_TIME);
        let late: Vec<(u16, u64)> = late.map(|(port, (service, _))| (*port, *service)).collect();
        for (port, service) in late {
            self.asked.remove(&port);
            report.violation(net.now, &format!("no answer about service s{service}"));
        }
        if net.now < self.up || net.now + IN_TIME > self.down {
            return;
        }
        let service = self.chance.below(SERVICES);
        self.port = if self.port > 60_000 { 1024 } else { self.port + 1 };
        let id = self.chance.below(1 << 16) as u16;
        let name = format!("s{service}.zoo.svc.cluster.local");
        let from = SocketAddr::new(self.ip, self.port);
        net.inject(0, from, self.server, query(id, &name, A));
        self.asked.insert(self.port, (service, net.now));
    }

    /// Checks an answer against the truth.
    fn judge(&self, service: u64, at: u64, octets: &[u8], now: u64, report: &mut Report) {
        let rcode = octets.get(3).map_or(SERVFAIL, |flags| flags & 15);
        let well = at >= self.well;
        if rcode == SERVFAIL {
            if well {
                report.violation(now, &format!("SERVFAIL for service s{service}"));
            }
            return;
        }
        let said: Address = match rcode {
            NXDOMAIN => None,
            _ => first_address(octets),
        };
        let truth = self.truth.get(&service).map_or(&[][..], Vec::as_slice);
        let since = if well { at.saturating_sub(FRESH) } else { 0 };
        // The address when that time began, and every later one.
        let first = truth.partition_point(|(from, _)| *from <= since);
        let was = first.checked_sub(1).and_then(|before| truth[before].1);
        let is_one = was == said || truth[first..].iter().any(|(_, address)| *address == said);
        if !is_one {
            report.violation(
                now,
                &format!("service s{service} is {was:?}, and the answer says {said:?}"),
            );
        }
    }
}

/// Formats a service as the API server does.
fn object(service: u64, address: [u8; 4], version: u64) -> String {
    let [a, b, c, d] = address;
    let metadata =
        format!("{{\"namespace\":\"zoo\",\"name\":\"s{service}\",\"resourceVersion\":\"{version}\"}}");
    let spec = format!(
        "{{\"clusterIP\":\"{a}.{b}.{c}.{d}\",\"clusterIPs\":[\"{a}.{b}.{c}.{d}\"],\"ports\":[{{\"port\":80}}]}}"
    );
    format!("{{\"metadata\":{metadata},\"spec\":{spec}}}")
}

fn reply(status: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}")
        .into()
}

fn chunk(event: &str) -> Vec<u8> {
    format!("{:x}\r\n{event}\n\r\n", event.len() + 1).into()
}
