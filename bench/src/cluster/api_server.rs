//! A stand-in for the API server: lists, paged if the client asks for it, and watches, of objects in both
//! encodings that clients ask for, at a rate that the real one does not reach here. It speaks HTTP without
//! TLS or compression.

use std::collections::HashMap;
use std::io::{self, BufRead as _, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use serde_json::json;

use super::objects::{self, Kind, NAMESPACES, Object, SERVICES_KIND, SLICES};
use super::protobuf;

/// A server, which listens for as long as the process lives.
#[derive(Clone)]
pub struct ApiServer {
    pub address: SocketAddr,
    state: Arc<Mutex<State>>,
}

/// A watch: its kind, its encoding, and the channel for its events.
type Watch = (Kind, Form, Sender<Arc<Vec<u8>>>);

struct State {
    kinds: Vec<(Kind, Vec<Object>)>,
    version: u64,
    watches: Vec<Watch>,
    /// Full lists that clients have begun, by path.
    lists: HashMap<&'static str, u32>,
}

/// The encoding that a client asks for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Json,
    Protobuf,
}

impl ApiServer {
    /// Starts a server with this many services.
    pub fn start(services: u32) -> io::Result<ApiServer> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let namespaces = (0..objects::namespaces(services)).map(objects::namespace);
        let slice = |number| objects::slice(number, objects::endpoint_address(number, 0), 1);
        let all = |kind: Kind, values: &mut dyn Iterator<Item = serde_json::Value>| {
            (kind, values.map(|value| kind.object(&value)).collect())
        };
        let state = State {
            kinds: vec![
                all(NAMESPACES, &mut namespaces.into_iter()),
                all(SERVICES_KIND, &mut (0..services).map(objects::service)),
                all(SLICES, &mut (0..services).map(slice)),
            ],
            version: 1,
            watches: Vec::new(),
            lists: HashMap::new(),
        };
        let server = ApiServer {
            address: listener.local_addr()?,
            state: Arc::new(Mutex::new(state)),
        };
        let this = server.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let this = this.clone();
                // A client that disconnects is no error.
                thread::spawn(move || this.converse(stream));
            }
        });
        Ok(server)
    }

    /// Returns a kubeconfig for it.
    pub fn kubeconfig(&self) -> String {
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "bench",
            "clusters": [{"name": "bench", "cluster": {"server": format!("http://{}", self.address)}}],
            "users": [{"name": "bench", "user": {"token": "bench"}}],
            "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
        })
        .to_string()
    }

    /// Sets the address of a service's first endpoint, and notifies the watches.
    pub fn change(&self, service: u32, address: Ipv4Addr) {
        let mut state = self.state();
        state.version += 1;
        let object = SLICES.object(&objects::slice(service, address, state.version));
        let mut written: Vec<(Form, Arc<Vec<u8>>)> = Vec::new();
        state.watches.retain(|(kind, form, watch)| {
            if *kind != SLICES {
                return true;
            }
            let known = written.iter().find(|(known, _)| known == form);
            let event = known.map(|(_, event)| Arc::clone(event)).unwrap_or_else(|| {
                let event = Arc::new(form.event(*kind, "MODIFIED", &object));
                written.push((*form, Arc::clone(&event)));
                event
            });
            watch.send(event).is_ok()
        });
        let slices = state.kinds.iter_mut().find(|(kind, _)| *kind == SLICES);
        if let Some((_, slices)) = slices {
            slices[service as usize] = object;
        }
    }

    /// Ends all watches, and resets the count of lists.
    pub fn hang_up(&self) {
        let mut state = self.state();
        state.watches.clear();
        state.lists.clear();
    }

    /// Returns the number of kinds that are watched.
    pub fn watched(&self) -> usize {
        let state = self.state();
        let watched = |kind: &Kind| state.watches.iter().any(|(watched, _, _)| watched == kind);
        state.kinds.iter().filter(|(kind, _)| watched(kind)).count()
    }

    /// Returns the largest number of full lists of any kind.
    pub fn lists(&self) -> u32 {
        self.state().lists.values().copied().max().unwrap_or_default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves the requests of one connection, one after the other.
    fn converse(&self, stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let mut reader = BufReader::new(stream);
        loop {
            let mut request = String::new();
            while !request.ends_with("\r\n\r\n") {
                if reader.read_line(&mut request)? == 0 {
                    return Ok(());
                }
            }
            let target = request.split(' ').nth(1).unwrap_or_default();
            let (path, query) = target.split_once('?').unwrap_or((target, ""));
            let request = request.to_lowercase();
            let form = match request.contains("\r\naccept: application/vnd.kubernetes.protobuf") {
                true => Form::Protobuf,
                false => Form::Json,
            };
            let kind = [NAMESPACES, SERVICES_KIND, SLICES]
                .into_iter()
                .find(|kind| kind.path == path);
            let stream = reader.get_mut();
            match kind {
                None => stream.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")?,
                Some(kind) if parameter(query, "watch").is_some() => {
                    return self.watch(stream, kind, form, query);
                }
                Some(kind) => stream.write_all(&self.list(kind, form, query))?,
            }
        }
    }

    fn list(&self, kind: Kind, form: Form, query: &str) -> Vec<u8> {
        let mut state = self.state();
        let from = parameter(query, "continue")
            .and_then(|from| from.parse().ok())
            .unwrap_or(0);
        if from == 0 {
            *state.lists.entry(kind.path).or_default() += 1;
        }
        let all = state.of(kind);
        let limit = parameter(query, "limit")
            .and_then(|limit| limit.parse().ok())
            .filter(|limit| *limit > 0);
        let to = limit.map_or(all.len(), |limit: usize| all.len().min(from + limit));
        let rest = if to < all.len() {
            to.to_string()
        } else {
            String::new()
        };
        let body = form.list(kind, &all[from.min(to)..to], state.version, &rest);
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: {}\r\ncontent-length: {}\r\n\r\n",
            form.name(""),
            body.len()
        );
        [head.into_bytes(), body].concat()
    }

    /// Sends events until the client is gone. A watch from an earlier version would need past events, which
    /// are not kept: nothing changes before all watches exist.
    fn watch(&self, stream: &mut TcpStream, kind: Kind, form: Form, query: &str) -> io::Result<()> {
        let (tell, told) = mpsc::channel();
        let first = {
            let mut state = self.state();
            let from = parameter(query, "resourceVersion").and_then(|version| version.parse::<u64>().ok());
            let first = match parameter(query, "sendInitialEvents") {
                Some("true") => {
                    *state.lists.entry(kind.path).or_default() += 1;
                    form.initial_events(kind, state.of(kind), state.version)
                }
                _ if from.is_none_or(|version| version >= state.version) => Vec::new(),
                _ => {
                    return stream.write_all(b"HTTP/1.1 410 Gone\r\ncontent-length: 0\r\n\r\n");
                }
            };
            state.watches.push((kind, form, tell));
            first
        };
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: {}\r\ntransfer-encoding: chunked\r\n\r\n",
            form.name(";stream=watch")
        );
        stream.write_all(head.as_bytes())?;
        // As large as a server's buffers.
        for part in first.chunks(1 << 16) {
            write_chunk(stream, part)?;
        }
        pass_on(stream, &told)
    }
}

impl State {
    fn of(&self, kind: Kind) -> &[Object] {
        let known = self.kinds.iter().find(|(known, _)| *known == kind);
        known.map_or(&[], |(_, objects)| objects)
    }
}

/// Sends each event in its own chunk, as the API server does.
fn pass_on(stream: &mut TcpStream, told: &Receiver<Arc<Vec<u8>>>) -> io::Result<()> {
    while let Ok(event) = told.recv() {
        write_chunk(stream, &event)?;
    }
    Ok(())
}

fn write_chunk(stream: &mut TcpStream, octets: &[u8]) -> io::Result<()> {
    let head = format!("{:x}\r\n", octets.len());
    stream.write_all(&[head.as_bytes(), octets, b"\r\n"].concat())
}

fn parameter<'a>(query: &'a str, name: &str) -> Option<&'a str> {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.find(|(known, _)| *known == name).map(|(_, value)| value)
}

impl Form {
    fn name(self, stream: &str) -> String {
        match self {
            Form::Json => "application/json".to_owned(),
            Form::Protobuf => format!("application/vnd.kubernetes.protobuf{stream}"),
        }
    }

    fn list(self, kind: Kind, objects: &[Object], version: u64, rest: &str) -> Vec<u8> {
        let name = format!("{}List", kind.name);
        match self {
            Form::Json => {
                let items: Vec<&str> = objects.iter().map(|object| &*object.json).collect();
                let meta = json!({"resourceVersion": version.to_string(), "continue": rest});
                let (version, items) = (kind.version, items.join(","));
                format!("{{\"kind\":\"{name}\",\"apiVersion\":\"{version}\",\"metadata\":{meta},\"items\":[{items}]}}").into()
            }
            Form::Protobuf => {
                let (mut meta, mut list) = (Vec::new(), Vec::new());
                protobuf::octets(&mut meta, 2, version.to_string().as_bytes());
                protobuf::octets(&mut meta, 3, rest.as_bytes());
                protobuf::octets(&mut list, 1, &meta);
                objects
                    .iter()
                    .for_each(|object| protobuf::octets(&mut list, 2, &object.protobuf));
                protobuf::envelope(kind.version, &name, &list)
            }
        }
    }

    fn event(self, kind: Kind, what: &str, object: &Object) -> Vec<u8> {
        match self {
            Form::Json => format!("{{\"type\":\"{what}\",\"object\":{}}}\n", object.json).into(),
            Form::Protobuf => {
                let object = protobuf::envelope(kind.version, kind.name, &object.protobuf);
                protobuf::event(what, &object)
            }
        }
    }

    /// Encodes all objects as just created, and the bookmark that ends them.
    fn initial_events(self, kind: Kind, objects: &[Object], version: u64) -> Vec<u8> {
        let mut out: Vec<u8> = Vec::new();
        for object in objects {
            out.extend(self.event(kind, "ADDED", object));
        }
        let end = json!({
            "kind": kind.name, "apiVersion": kind.version,
            "metadata": {"resourceVersion": version.to_string(), "annotations": {"k8s.io/initial-events-end": "true"}},
        });
        out.extend(self.event(kind, "BOOKMARK", &kind.object(&end)));
        out
    }
}
