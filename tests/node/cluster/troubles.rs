//! What pods lose when something breaks: with dnsweir, with dnsweir in node-cache's place, and with
//! node-cache on the same node. It measures without judging, for `bench/troubles.sh`. Results are kept in a
//! file and not measured again.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use harness::guests::root;
use harness::tools::output;

use super::drop_in::{DROP_IN, OURS, end_drop_in, start_drop_in};
use super::ending::keep_the_network;
use super::migration::{
    NODE_CACHE, await_rules, await_within, end_dnsweir, end_node_cache, start_dnsweir, start_node_cache,
    stock_manifest,
};
use super::{
    Load, PROXY, Protocol, await_started, client, ended, kubectl, node, processes, script, signal, state,
};

/// Queries that take longer are slow.
const SLOW: Duration = Duration::from_millis(500);

/// Within this time, node-cache checks what it keeps on a node.
const INTERVAL: Duration = Duration::from_secs(65);

/// What answers on the node.
struct Subject {
    name: &'static str,
    daemonset: &'static str,
    label: &'static str,
    process: &'static str,
    /// The config map, and the file in it.
    map: (&'static str, &'static str),
    link: &'static str,
    /// The text that marks its rules' comments.
    comment: &'static str,
    /// How long until it has checked its network.
    looks: Duration,
    servers: &'static [&'static str],
    start: fn(),
    end: fn(),
}

const DNSWEIR: Subject = Subject {
    name: "dnsweir",
    daemonset: "dnsweir",
    label: "app.kubernetes.io/name=dnsweir",
    process: PROXY,
    map: ("dnsweir", "dnsweir.kdl"),
    link: "nodelocaldns-dw",
    comment: "dnsweir: ",
    looks: Duration::from_secs(5),
    servers: &["10.96.0.10", "169.254.20.10", "fd00:96::10"],
    start: || {
        start_dnsweir();
        await_started();
    },
    end: end_dnsweir,
};

const KEPT: Subject = Subject {
    name: "dnsweir, skip-teardown",
    start: || {
        start_dnsweir();
        keep_the_network();
    },
    ..DNSWEIR
};

const NODE_CACHES: Subject = Subject {
    name: "node-cache",
    daemonset: "node-local-dns",
    label: "k8s-app=node-local-dns",
    process: NODE_CACHE,
    map: ("node-local-dns", "Corefile"),
    link: "nodelocaldns",
    comment: "NodeLocal DNS Cache",
    looks: INTERVAL,
    servers: &["10.96.0.10", "169.254.20.10"],
    start: || {
        start_node_cache();
        await_rules();
    },
    end: end_node_cache,
};

const IN_ITS_PLACE: Subject = Subject {
    name: "dnsweir by its image",
    process: DROP_IN,
    start: || start_drop_in(&stock_manifest(OURS)),
    end: end_drop_in,
    ..NODE_CACHES
};

/// The name of a trouble, and what causes it.
type Row = (&'static str, fn(&Subject));

const ROWS: [Row; 15] = [
    ("kill -9", killed),
    ("out of memory", out_of_memory),
    ("SIGSTOP", stopped),
    ("rollout", rollout),
    ("the pod is deleted", deleted),
    ("its rules are flushed", flushed),
    ("all rules are flushed", all_flushed),
    ("its link is deleted", |subject| {
        script(&format!("ip link del {}", subject.link));
        thread::sleep(subject.looks);
    }),
    ("the cluster's DNS is away for 90 s", without_cluster_dns),
    ("the API server stands still for 20 s", without_api_server),
    ("a wrong config map, kill -9, corrected", wrong_map),
    ("conntrack's table is full for 5 s", full_conntrack),
    ("a second DaemonSet comes and goes", beside_another),
    (MIGRATION, |_| {
        start_node_cache();
        end_dnsweir();
        await_rules();
        start_dnsweir();
        end_node_cache();
    }),
    ("the DaemonSet is deleted", |subject| (subject.end)()),
];

/// The row that only dnsweir has.
const MIGRATION: &str = "to node-cache, and back";

fn in_system(arguments: &[&str]) -> String {
    kubectl(&[&["-n", "kube-system"], arguments].concat())
}

impl Subject {
    fn running(&self) -> Option<libc::pid_t> {
        processes(self.process).first().copied()
    }

    /// Waits until another process runs, and gives it time to answer.
    fn await_other(&self, than: libc::pid_t) {
        await_within(Duration::from_secs(300), "another process", || {
            ended(than) && self.running().is_some_and(|id| id != than)
        });
        thread::sleep(Duration::from_secs(5));
    }

    fn rolled_out(&self) {
        in_system(&[
            "rollout",
            "status",
            &format!("daemonset/{}", self.daemonset),
            "--timeout=300s",
        ]);
        await_within(Duration::from_secs(300), "the old pod's end", || {
            processes(self.process).len() == 1
        });
    }

    /// Replaces the text in the config map.
    fn write_map(&self, text: &str) {
        let (name, file) = self.map;
        let patch = serde_json::json!({ "data": { file: text } }).to_string();
        in_system(&["patch", "configmap", name, "--type=merge", "--patch", &patch]);
    }
}

fn killed(subject: &Subject) {
    let id = subject.running().expect("it runs");
    signal(id, libc::SIGKILL);
    subject.await_other(id);
}

/// Has the kernel kill it: another process uses up the memory of its cgroup.
fn out_of_memory(subject: &Subject) {
    let id = subject.running().expect("it runs");
    script(&format!(
        "path=$(sed -n 's|^[0-9]*:memory:||p; s|^0::||p' /proc/{id}/cgroup | head -n 1)
         group=/sys/fs/cgroup/memory$path limit=memory.limit_in_bytes used=memory.usage_in_bytes
         [ -e $group ] || {{ group=/sys/fs/cgroup$path limit=memory.max used=memory.current; }}
         echo $(($(cat $group/$used) + 8388608)) > $group/$limit
         echo 1000 > /proc/{id}/oom_score_adj
         echo $$ > $group/cgroup.procs
         python3 -c 'bytearray(1 << 25)' || true"
    ));
    subject.await_other(id);
}

fn stopped(subject: &Subject) {
    let id = subject.running().expect("it runs");
    signal(id, libc::SIGSTOP);
    subject.await_other(id);
}

fn rollout(subject: &Subject) {
    in_system(&["rollout", "restart", &format!("daemonset/{}", subject.daemonset)]);
    subject.rolled_out();
}

fn deleted(subject: &Subject) {
    let here = ["--field-selector", "spec.nodeName=node", "--timeout=60s"];
    in_system(&[&["delete", "pod", "--selector", subject.label], &here[..]].concat());
    subject.rolled_out();
}

/// Removes the subject's own rules.
fn flushed(subject: &Subject) {
    script(&format!(
        "for family in iptables ip6tables; do
             $family-save | grep -v -e '^-A.*{}' | $family-restore
         done
         nft delete table inet dnsweir 2> /dev/null || true",
        subject.comment
    ));
    thread::sleep(subject.looks);
}

/// Flushes all rules. kube-proxy checks twice a minute that a chain of its own is still there.
fn all_flushed(subject: &Subject) {
    script(
        "for family in iptables ip6tables; do
             for table in raw mangle nat filter; do $family -w -t $table -F && $family -w -t $table -X; done
         done
         nft delete table inet dnsweir 2> /dev/null || true",
    );
    thread::sleep(INTERVAL.max(subject.looks));
}

fn without_cluster_dns(_: &Subject) {
    in_system(&["scale", "deployment/coredns", "--replicas=0"]);
    thread::sleep(Duration::from_secs(90));
    in_system(&["scale", "deployment/coredns", "--replicas=1"]);
    in_system(&["rollout", "status", "deployment/coredns", "--timeout=90s"]);
    thread::sleep(Duration::from_secs(10));
}

fn without_api_server(_: &Subject) {
    let id = fs::read_to_string(state().join("pid/apiserver")).expect("the API server");
    let id: libc::pid_t = id.trim().parse().expect("a number");
    signal(id, libc::SIGSTOP);
    thread::sleep(Duration::from_secs(20));
    signal(id, libc::SIGCONT);
    thread::sleep(Duration::from_secs(5));
}

fn wrong_map(subject: &Subject) {
    let (name, file) = subject.map;
    let map = in_system(&["get", "configmap", name, "--output", "json"]);
    let map: serde_json::Value = serde_json::from_str(&map).expect("JSON");
    let right = map["data"][file].as_str().expect("the file");
    subject.write_map("this is {\n no configuration");
    // Lets the kubelet deliver it.
    thread::sleep(Duration::from_secs(100));
    let id = subject.running().expect("it runs");
    signal(id, libc::SIGKILL);
    thread::sleep(Duration::from_secs(20));
    subject.write_map(right);
    await_within(Duration::from_secs(400), "it to start with what is right", || {
        let ready = in_system(&[
            "get",
            "pods",
            "--selector",
            subject.label,
            "--field-selector",
            "spec.nodeName=node",
            "--output",
            "jsonpath={.items[*].status.containerStatuses[*].ready}",
        ]);
        ready == "true"
    });
    thread::sleep(Duration::from_secs(10));
}

/// Installs its DaemonSet a second time, under another name, and removes that again.
fn beside_another(subject: &Subject) {
    let set = in_system(&["get", "daemonset", subject.daemonset, "--output", "json"]);
    let mut set: serde_json::Value = serde_json::from_str(&set).expect("JSON");
    let name = format!("{}-again", subject.daemonset);
    set["metadata"] = serde_json::json!({ "name": name, "namespace": "kube-system" });
    for labels in ["/spec/selector/matchLabels", "/spec/template/metadata/labels"] {
        set.pointer_mut(labels).expect("labels")["installed"] = "again".into();
    }
    for container in set["spec"]["template"]["spec"]["containers"]
        .as_array_mut()
        .expect("containers")
    {
        // Otherwise it would not be scheduled, since the ports of the node are taken.
        container.as_object_mut().expect("a container").remove("ports");
    }
    let file = state().join("again.json");
    fs::write(&file, set.to_string()).expect("a file");
    kubectl(&["apply", "-f", &file.display().to_string()]);
    await_within(Duration::from_secs(60), "the second process", || {
        processes(subject.process).len() > 1
    });
    // Longer than node-cache takes to write its rules.
    thread::sleep(INTERVAL.max(subject.looks));
    in_system(&["delete", "daemonset", &name, "--timeout=90s"]);
    await_within(Duration::from_secs(120), "its end", || {
        processes(subject.process).len() == 1
    });
    thread::sleep(INTERVAL.max(subject.looks));
}

fn full_conntrack(_: &Subject) {
    let file = Path::new("/proc/sys/net/netfilter/nf_conntrack_max");
    let before = fs::read_to_string(file).expect("conntrack");
    fs::write(file, "1").expect("a smaller table");
    thread::sleep(Duration::from_secs(5));
    fs::write(file, before).expect("the table's size");
    thread::sleep(Duration::from_secs(3));
}

/// Makes node-cache's link again whenever it is missing, as node-cache does on kernels with dummy links: a bridge
/// in its place, which node-cache accepts.
struct Link(Child);

impl Link {
    fn keep() -> Link {
        let process = Command::new("sh").args(["-c", KEEP_LINK]).spawn();
        Link(process.expect("a shell"))
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const KEEP_LINK: &str = "while sleep 0.05; do
    for node in node other; do
        ip -n dnsweir-$node link show nodelocaldns || ip -n dnsweir-$node link add nodelocaldns type bridge
    done
done > /dev/null 2>&1";

/// A program that queries through a C library's resolver.
struct Resolver {
    name: &'static str,
    process: Child,
}

impl Resolver {
    /// Compiles it and starts it in the pod's network; `None` without the compiler.
    fn start(name: &'static str, compiler: &[&str], folder: &Path) -> Option<Resolver> {
        let program = folder.join(name);
        let source = root().join("tests/node/cluster/resolve.c");
        let mut compile = Command::new(compiler[0]);
        compile
            .args(&compiler[1..])
            .arg("-O1")
            .arg(source)
            .arg("-o")
            .arg(&program);
        if !compile.status().is_ok_and(|status| status.success()) {
            println!("{name}: {} is missing", compiler[0]);
            return None;
        }
        let conf = folder.join("resolv.conf");
        fs::write(&conf, "nameserver 10.96.0.10\n").expect("a file");
        let ask = format!(
            "mount --bind {} /etc/resolv.conf && exec {} www.example",
            conf.display(),
            program.display()
        );
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", client().0.display()));
        command
            .args(["unshare", "--mount", "sh", "-c", &ask])
            .stdout(Stdio::piped());
        let process = command.spawn().expect("a client");
        Some(Resolver { name, process })
    }

    /// Ends it; returns the numbers asked, lost and slow.
    fn stop(self) -> String {
        signal(self.process.id().cast_signed(), libc::SIGTERM);
        let output = self.process.wait_with_output().expect("a client");
        String::from_utf8(output.stdout)
            .expect("numbers")
            .trim()
            .replace(' ', ";")
    }
}

/// Lines `subject;row;client;asked;lost;slow`.
struct Table(PathBuf);

impl Table {
    fn has(&self, subject: &Subject, row: &str) -> bool {
        let text = fs::read_to_string(&self.0).unwrap_or_default();
        text.contains(&format!("{};{row};", subject.name))
    }

    fn measure(&self, subject: &Subject, (row, event): Row) {
        let client = client();
        let folder = tempfile::tempdir().expect("a folder");
        let resolvers = [
            Resolver::start("glibc", &["cc"], folder.path()),
            Resolver::start("musl", &["musl-gcc", "-static"], folder.path()),
        ];
        let each = |&server| [Protocol::Udp, Protocol::Tcp].map(|protocol| (server, protocol));
        let loads = subject.servers.iter().flat_map(each).map(|(server, protocol)| {
            let name = format!("{protocol:?} {server}");
            (name, Load::start(&client, server, protocol))
        });
        let loads: Vec<(String, Load)> = loads.collect();
        thread::sleep(Duration::from_secs(2));
        event(subject);
        thread::sleep(Duration::from_secs(2));
        let mut lines = String::new();
        for (name, load) in loads {
            let fates = load.stop();
            let counts =
                [fates.count(), fates.lost(), fates.slower_than(SLOW)].map(|count| count.to_string());
            lines += &format!("{};{row};{name};{}\n", subject.name, counts.join(";"));
        }
        for resolver in resolvers.into_iter().flatten() {
            let name = resolver.name;
            lines += &format!("{};{row};{name};{}\n", subject.name, resolver.stop());
        }
        print!("{lines}");
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.0)
            .expect("the table");
        file.write_all(lines.as_bytes()).expect("the table");
    }
}

#[test]
#[ignore = "needs Kubernetes nodes: cargo xtask test cluster"]
fn what_pods_lose() {
    let Some(file) = std::env::var_os("DNSWEIR_TROUBLES") else {
        println!("bench/troubles.sh measures it");
        return;
    };
    let (table, wanted) = (Table(file.into()), std::env::var("ROWS").unwrap_or_default());
    await_started();
    end_dnsweir();
    for subject in [&DNSWEIR, &KEPT, &IN_ITS_PLACE, &NODE_CACHES] {
        let missing = |(row, _): &Row| {
            let of_kept = ["the pod is deleted", "the DaemonSet is deleted"];
            (wanted.is_empty() || wanted.split('|').any(|name| name == *row))
                && (subject.name != KEPT.name || of_kept.contains(row))
                && (subject.name == DNSWEIR.name || *row != MIGRATION)
                && !table.has(subject, row)
        };
        let rows: Vec<Row> = ROWS.into_iter().filter(missing).collect();
        if rows.is_empty() {
            continue;
        }
        let link = (subject.name == NODE_CACHES.name).then(Link::keep);
        (subject.start)();
        for row in rows {
            println!("{}: {}", subject.name, row.0);
            // Also ready: while Kubernetes waits for its start, it does not probe its liveness.
            subject.rolled_out();
            table.measure(subject, row);
        }
        if subject.running().is_some() {
            (subject.end)();
        }
        drop(link);
        // Cleans up what `skip-teardown` and the flushes left.
        output(Command::new("nsenter").args([&format!("--net={}", node("node").0.display()), "sh", "-c",
            "ip link del nodelocaldns-dw; nft delete table inet dnsweir; iptables-save | grep -v dnsweir: | iptables-restore; ip6tables-save | grep -v dnsweir: | ip6tables-restore; true"]));
    }
    start_dnsweir();
    await_started();
}
