//! A stand-in for a Kubernetes API server for tests of faults: lists and watches of a few objects, and any
//! reply that a test makes up.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;

use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};

use super::certificates::Certificate;

/// A made-up reply to a request: all of it, including status line and headers.
type Fault = Box<dyn Fn(&str) -> Option<Vec<u8>> + Send>;

/// A server. It listens for as long as the process lives.
#[derive(Clone)]
pub struct ApiServer {
    /// Its address, without TLS unless it has a certificate.
    pub address: SocketAddr,
    shared: Arc<(Mutex<State>, Condvar)>,
}

#[derive(Default)]
struct State {
    /// By kind and `namespace/name`.
    objects: BTreeMap<(String, String), Value>,
    version: u64,
    /// The events, each with its version and kind.
    events: Vec<(u64, String, Value)>,
    /// Versions before this one are forgotten.
    oldest: u64,
    fault: Option<Fault>,
    /// How often all connections were cut.
    cuts: u64,
    requests: Vec<String>,
    tls: Option<Arc<ServerConfig>>,
    groups: Vec<Value>,
}

/// What a server had at one time.
pub struct Backup {
    objects: BTreeMap<(String, String), Value>,
    version: u64,
}

impl ApiServer {
    /// Starts a server with the namespace `zoo`.
    pub fn start() -> ApiServer {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let server = ApiServer {
            address: listener.local_addr().expect("its address"),
            shared: Arc::default(),
        };
        server.put("namespaces", "zoo", json!({}));
        let this = server.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let this = this.clone();
                thread::spawn(move || this.accept(stream));
            }
        });
        server
    }

    /// Returns a kubeconfig for it, with this token.
    pub fn kubeconfig(&self, token: &str) -> String {
        self.kubeconfig_for(&json!({"server": format!("http://{}", self.address)}), token)
    }

    /// Returns a kubeconfig for use over TLS, with the file of the authority's certificate.
    pub fn kubeconfig_over_tls(&self, token: &str, authority: &Path) -> String {
        let server = format!("https://{}", self.address);
        self.kubeconfig_for(
            &json!({"server": server, "certificate-authority": authority}),
            token,
        )
    }

    fn kubeconfig_for(&self, cluster: &Value, token: &str) -> String {
        let user = json!({"token": token});
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "test", "user": user}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        })
        .to_string()
    }

    /// Creates or replaces an object: `NAMESPACE/NAME`, or the name of one without a namespace.
    pub fn put(&self, kind: &str, name: &str, mut object: Value) {
        let mut state = self.state();
        state.version += 1;
        let known = (kind.to_owned(), name.to_owned());
        match name.split_once('/') {
            Some((namespace, name)) => {
                object["metadata"]["namespace"] = namespace.into();
                object["metadata"]["name"] = name.into();
            }
            None => object["metadata"]["name"] = name.into(),
        }
        object["metadata"]["resourceVersion"] = state.version.to_string().into();
        let what = if state.objects.contains_key(&known) {
            "MODIFIED"
        } else {
            "ADDED"
        };
        state.objects.insert(known, object.clone());
        state.happened(kind, what, object);
        self.shared.1.notify_all();
    }

    /// Adds an API group with these versions, the preferred one first.
    pub fn serve_group(&self, group: &str, versions: &[&str]) {
        let version =
            |version: &&str| json!({"groupVersion": format!("{group}/{version}"), "version": version});
        let versions: Vec<Value> = versions.iter().map(version).collect();
        let group = json!({"name": group, "versions": versions, "preferredVersion": versions.first()});
        self.state().groups.push(group);
    }

    /// Creates or replaces a service with this address.
    pub fn put_service(&self, name: &str, address: &str) {
        let spec = json!({"clusterIP": address, "clusterIPs": [address], "ports": [{"port": 80}]});
        self.put("services", &format!("zoo/{name}"), json!({"spec": spec}));
    }

    /// Deletes an object.
    pub fn delete(&self, kind: &str, name: &str) {
        let mut state = self.state();
        state.version += 1;
        let mut object = state
            .objects
            .remove(&(kind.to_owned(), name.to_owned()))
            .expect("an object");
        object["metadata"]["resourceVersion"] = state.version.to_string().into();
        state.happened(kind, "DELETED", object);
        self.shared.1.notify_all();
    }

    /// Sends this event to every watch of a kind, as it is.
    pub fn say(&self, kind: &str, event: Value) {
        let mut state = self.state();
        state.version += 1;
        let version = state.version;
        state.events.push((version, kind.to_owned(), event));
        self.shared.1.notify_all();
    }

    /// Cuts all connections, and then answers by `fault` where it returns something; it sees requests in
    /// lowercase.
    pub fn fail(&self, fault: impl Fn(&str) -> Option<Vec<u8>> + Send + 'static) {
        let mut state = self.state();
        state.fault = Some(Box::new(fault));
        state.cuts += 1;
        self.shared.1.notify_all();
    }

    /// Speaks TLS from now on, with this certificate, and cuts all connections.
    pub fn present(&self, certificate: &Certificate) {
        let mut state = self.state();
        state.tls = Some(certificate.server(None));
        state.cuts += 1;
        self.shared.1.notify_all();
    }

    /// Stops answering with faults.
    pub fn recover(&self) {
        self.state().fault = None;
    }

    /// Forgets all events so far, so that existing clients must list again.
    pub fn forget(&self) {
        let mut state = self.state();
        state.oldest = state.version + 1;
        state.version += 1;
        state.cuts += 1;
        self.shared.1.notify_all();
    }

    /// Returns what it has now.
    pub fn back_up(&self) -> Backup {
        let state = self.state();
        Backup {
            objects: state.objects.clone(),
            version: state.version,
        }
    }

    /// Goes back to a backup, whose version is lower, and cuts all connections.
    pub fn restore(&self, backup: Backup) {
        let mut state = self.state();
        (state.objects, state.version) = (backup.objects, backup.version);
        state.events.retain(|(version, ..)| *version <= backup.version);
        state.oldest = state.oldest.min(backup.version);
        state.cuts += 1;
        self.shared.1.notify_all();
    }

    /// Returns how many requests contained this.
    pub fn count(&self, part: &str) -> usize {
        self.state()
            .requests
            .iter()
            .filter(|request| request.contains(part))
            .count()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.0.lock().expect("no panic")
    }

    fn accept(&self, stream: TcpStream) -> Option<()> {
        let tls = self.state().tls.clone();
        match &tls {
            Some(with) => {
                let server = ServerConnection::new(Arc::clone(with)).ok()?;
                self.converse(StreamOwned::new(server, stream), &tls)
            }
            None => self.converse(stream, &tls),
        }
    }

    /// Serves the requests of one connection, one after the other. A client that disconnects is no error.
    fn converse(&self, stream: impl Read + Write, tls: &Option<Arc<ServerConfig>>) -> Option<()> {
        let mut reader = BufReader::new(stream);
        loop {
            let mut request = String::new();
            while !request.ends_with("\r\n\r\n") {
                match reader.read_line(&mut request) {
                    Ok(1..) => (),
                    _ => return None,
                }
            }
            let request = request.to_lowercase();
            let stream = reader.get_mut();
            let fault = {
                let mut state = self.state();
                // Drops connections from before a change of certificate.
                state.presents(tls).then_some(())?;
                state.requests.push(request.clone());
                state.fault.as_ref().and_then(|fault| fault(&request))
            };
            if let Some(octets) = fault {
                return stream.write_all(&octets).ok();
            }
            let path = request.split(' ').nth(1)?.to_owned();
            let (path, query) = path.split_once('?').unwrap_or((&path, ""));
            if path == "/apis" {
                let groups =
                    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": self.state().groups});
                stream.write_all(&reply("200 OK", &groups.to_string())).ok()?;
                continue;
            }
            let kind = path.rsplit('/').next()?;
            match query.contains("watch=true") {
                true => return self.watch(stream, tls, kind, query),
                false => stream.write_all(&self.list(kind, query)).ok()?,
            }
        }
    }

    fn list(&self, kind: &str, query: &str) -> Vec<u8> {
        let state = self.state();
        let items = state.objects.iter().filter(|((of, _), _)| of == kind);
        let items = items.map(|(_, object)| object);
        let items: Vec<&Value> = items.filter(|object| is_selected(query, object)).collect();
        let version = state.version.to_string();
        reply(
            "200 OK",
            &json!({"metadata": {"resourceVersion": version}, "items": items}).to_string(),
        )
    }

    fn watch(
        &self,
        stream: &mut impl Write,
        tls: &Option<Arc<ServerConfig>>,
        kind: &str,
        query: &str,
    ) -> Option<()> {
        let from = query
            .split('&')
            .find_map(|pair| pair.strip_prefix("resourceversion="));
        let mut from: u64 = from?.parse().ok()?;
        stream
            .write_all(
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n",
            )
            .ok()?;
        let mut state = self.state();
        state.presents(tls).then_some(())?;
        let cuts = state.cuts;
        if from + 1 < state.oldest {
            let status = json!({"kind": "Status", "status": "Failure", "code": 410, "reason": "Expired", "message": "too old"});
            return chunk(stream, &json!({"type": "ERROR", "object": status}));
        }
        loop {
            if state.cuts != cuts {
                return None;
            }
            let news: Vec<Value> = state
                .events
                .iter()
                .filter(|(version, of, _)| *version > from && of == kind)
                .map(|(_, _, event)| event.clone())
                .filter(|event| is_selected(query, &event["object"]))
                .collect();
            let seen = state.version;
            // Like a real one, a watch from the future is silent until then.
            from = from.max(seen);
            drop(state);
            for event in news {
                chunk(stream, &event)?;
            }
            let state_now = self.state();
            state = match state_now.version == seen && state_now.cuts == cuts {
                true => self.shared.1.wait(state_now).expect("no panic"),
                false => state_now,
            };
        }
    }
}

impl State {
    /// Whether a connection that began with this certificate may go on.
    fn presents(&self, tls: &Option<Arc<ServerConfig>>) -> bool {
        self.tls.as_ref().map(Arc::as_ptr) == tls.as_ref().map(Arc::as_ptr)
    }

    fn happened(&mut self, kind: &str, what: &str, object: Value) {
        let event = json!({"type": what, "object": object});
        self.events.push((self.version, kind.to_owned(), event));
    }
}

/// Whether a query, in lower case, selects an object by its name or its node, or selects all.
fn is_selected(query: &str, object: &Value) -> bool {
    let is = |field: &str, value: &Value| {
        let wanted = query
            .split_once(field)
            .map(|(_, rest)| rest.split('&').next().unwrap_or(rest));
        wanted.is_none_or(|wanted| value.as_str().is_some_and(|value| value == wanted))
    };
    is("fieldselector=metadata.name%3d", &object["metadata"]["name"])
        && is("fieldselector=spec.nodename%3d", &object["spec"]["nodeName"])
}

/// Returns a whole reply.
pub fn reply(status: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}")
        .into()
}

/// Returns a failure in the API server's form.
pub fn failure(code: u16, reason: &str, retry_after: u32) -> Vec<u8> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": reason,
        "details": {"retryAfterSeconds": retry_after},
    });
    reply(&format!("{code} {reason}"), &status.to_string())
}

fn chunk(stream: &mut impl Write, event: &Value) -> Option<()> {
    let line = format!("{event}\n");
    write!(stream, "{:x}\r\n{line}\r\n", line.len()).ok()?;
    stream.flush().ok()
}
