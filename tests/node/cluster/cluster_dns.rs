//! The proxy's Deployment in place of CoreDNS: pods get answers, changes appear, and an absent API server
//! costs no query.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use harness::guests::root;
use harness::tools::output;
use harness::{Message, ask, until};

use super::{CleanUp, PROXY, apply_zoo, client, delete_afterwards, ended, kubectl, node, processes, state};

/// How soon the Deployment must serve a change once the API server has accepted it.
const TOLD: Duration = Duration::from_millis(100);

/// The name of a service whose address changes.
const WATCHED: &str = "watched.default.svc.cluster.local.";

fn deploy(verb: &[&str]) {
    let folder = root().join("deploy/cluster-dns").display().to_string();
    kubectl(&[verb, &["-k", &folder]].concat());
}

fn scale_coredns(replicas: u8) {
    let replicas = format!("--replicas={replicas}");
    kubectl(&["-n", "kube-system", "scale", "deployment/coredns", &replicas]);
}

/// The IPv4 addresses behind the cluster's DNS service.
fn servers() -> Vec<IpAddr> {
    let path =
        "jsonpath={range .items[*]}{range .endpoints[?(@.conditions.ready)]}{.addresses[0]} {end}{end}";
    let selector = "kubernetes.io/service-name=kube-dns";
    let all = kubectl(&[
        "-n",
        "kube-system",
        "get",
        "endpointslices",
        "-l",
        selector,
        "-o",
        path,
    ]);
    all.split_whitespace()
        .filter_map(|address| address.parse().ok())
        .filter(IpAddr::is_ipv4)
        .collect()
}

/// Returns the last record's address in a server's answer to the client pod, or the rcode.
fn told(server: IpAddr, name: &'static str) -> String {
    let asked = client().within(move || ask(SocketAddr::new(server, 53), &Message::query(name, "A")));
    let answer = asked.join().expect("a client");
    match answer.answers().last() {
        Some(record) => record.rsplit(' ').next().unwrap_or_default().to_owned(),
        None => answer.rcode(),
    }
}

/// Writes a manifest of a service without pods; returns its path.
fn watched(address: &str) -> String {
    let text = format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: watched}}\nspec: {{clusterIP: {address}, ports: [{{port: 1}}]}}\n"
    );
    let file = state().join("watched.yaml");
    std::fs::write(&file, text).expect("a file");
    file.display().to_string()
}

/// Queries each server until stopped, and counts the queries and the wrong answers.
struct Asking {
    stop: Arc<AtomicBool>,
    clients: Vec<thread::JoinHandle<(usize, usize)>>,
}

impl Asking {
    fn start(servers: &[IpAddr]) -> Asking {
        let stop = Arc::new(AtomicBool::new(false));
        let clients = servers.iter().map(|&server| {
            let stop = Arc::clone(&stop);
            client().within(move || {
                let (mut count, mut wrong) = (0, 0);
                while !stop.load(Ordering::Relaxed) {
                    let query = Message::query("kube-dns.kube-system.svc.cluster.local.", "A");
                    let answer = ask(SocketAddr::new(server, 53), &query);
                    count += 1;
                    wrong += usize::from(
                        answer.answers() != ["kube-dns.kube-system.svc.cluster.local. A 10.96.0.10"],
                    );
                    // Paces the load.
                    thread::sleep(Duration::from_millis(5));
                }
                (count, wrong)
            })
        });
        Asking {
            clients: clients.collect(),
            stop: Arc::clone(&stop),
        }
    }

    fn stop(self) -> (usize, usize) {
        self.stop.store(true, Ordering::Relaxed);
        let all = self
            .clients
            .into_iter()
            .map(|client| client.join().expect("a client"));
        all.fold((0, 0), |(count, wrong), (more, others)| {
            (count + more, wrong + others)
        })
    }
}

/// The cluster's API server, killed until it is started again.
struct ApiServer {
    file: PathBuf,
    command: Vec<String>,
}

impl ApiServer {
    fn kill() -> ApiServer {
        let file = state().join("pid/apiserver");
        let id = std::fs::read_to_string(&file).expect("the API server");
        let line = std::fs::read_to_string(format!("/proc/{}/cmdline", id.trim())).expect("its command line");
        output(Command::new("kill").args(["-9", id.trim()]));
        let id = id.trim().parse().expect("a number");
        until("the API server's end", || ended(id));
        ApiServer {
            file,
            command: line.split_terminator('\0').map(str::to_owned).collect(),
        }
    }

    fn start(&self) {
        let log = std::fs::File::create(state().join("log/apiserver-again")).expect("a log");
        #[expect(
            clippy::zombie_processes,
            reason = "it goes with the nodes, whose script ends it"
        )]
        let child = Command::new("nsenter")
            .arg(format!("--net={}", node("node").0.display()))
            .args(&self.command)
            .current_dir(state())
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a log"))
            .stderr(log)
            .spawn()
            .expect("the API server");
        std::fs::write(&self.file, child.id().to_string()).expect("its number");
        until("the API server to be back", || {
            let mut ready = Command::new(state().join("kubectl"));
            ready
                .args(["get", "--raw", "/readyz"])
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            ready.status().is_ok_and(|status| status.success())
        });
    }
}

/// Checks that pods still resolve through their node's proxy, and that StatefulSet peers find each other.
fn pods_resolve() {
    let name = "kubernetes.default.svc.cluster.local";
    kubectl(&["exec", "client", "--", "/bin/busybox", "nslookup", name]);
    let _zoo = apply_zoo();
    until("peers to find each other", || {
        let lookup = [
            "exec",
            "member-0",
            "--",
            "/bin/busybox",
            "nslookup",
            "member-1.set.zoo.svc.cluster.local",
        ];
        let mut found = Command::new(state().join("kubectl"));
        found
            .args(["-n", "zoo"])
            .args(lookup)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        found.status().is_ok_and(|status| status.success())
    });
}

/// Returns how long after the API server accepts a change the server answers it.
fn told_after(server: IpAddr, address: &'static str) -> Duration {
    let waiting = thread::spawn(move || {
        until("the change", || told(server, WATCHED) == address);
        Instant::now()
    });
    kubectl(&["apply", "-f", &watched(address)]);
    let taken = Instant::now();
    waiting.join().expect("a client").saturating_duration_since(taken)
}

#[test]
#[ignore = "needs Kubernetes nodes: cargo xtask test cluster"]
fn the_deployment_takes_the_place_of_coredns() {
    super::await_started();
    let _coredns = CleanUp(|| {
        scale_coredns(1);
        kubectl(&[
            "-n",
            "kube-system",
            "rollout",
            "status",
            "deployment/coredns",
            "--timeout=90s",
        ]);
        deploy(&["delete", "--ignore-not-found"]);
        until("the end of the Deployment", || processes(PROXY).len() == 1);
    });
    let _watched = delete_afterwards(&["service", "watched"]);
    deploy(&["apply", "--validate=strict"]);
    kubectl(&[
        "-n",
        "kube-system",
        "rollout",
        "status",
        "deployment/cluster-dns",
        "--timeout=120s",
    ]);
    scale_coredns(0);
    until("the Deployment alone to be behind the service", || {
        servers().len() == 2
    });
    let servers = servers();
    pods_resolve();
    let after = told_after(servers[0], "10.96.7.1");
    println!("a change is told after {after:?}");
    assert!(after < TOLD, "{after:?}");
    kubectl(&["delete", "service", "watched"]);

    let asking = Asking::start(&servers);
    let api_server = ApiServer::kill();
    // Long enough for a client to notice.
    thread::sleep(Duration::from_secs(3));
    api_server.start();
    let back = Instant::now();
    kubectl(&["apply", "-f", &watched("10.96.7.2")]);
    until("the change", || {
        servers.iter().all(|&server| told(server, WATCHED) == "10.96.7.2")
    });
    println!(
        "what changed is told {:?} after the API server is back",
        back.elapsed()
    );
    let (count, wrong) = asking.stop();
    println!("{wrong} of {count} queries were answered wrongly while the API server was away");
    assert!(count > 1000 && wrong == 0, "{wrong} of {count}");
}
