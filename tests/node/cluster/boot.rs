//! A booting node: in whatever order its parts start, it ends up working, and meanwhile reports its state.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use harness::tools::output;
use harness::{proxy, until};

use super::{CleanUp, PROXY, admin, await_proxy, await_started, kubectl, node, processes, state};

/// kube-proxy of `node`, stopped until it is started again.
struct KubeProxy {
    /// Its PID file.
    file: PathBuf,
    /// The program that starts it.
    program: PathBuf,
}

impl KubeProxy {
    /// Ends it and removes all of its rules.
    fn stop() -> KubeProxy {
        let kube_proxy = KubeProxy {
            file: state().join("pid/proxy-node"),
            program: state().join("kube-proxy-node"),
        };
        let id = std::fs::read_to_string(&kube_proxy.file).expect("kube-proxy");
        output(Command::new("kill").arg(id.trim()));
        until("kube-proxy's end", || !proxy_is_healthy());
        output(Command::new(&kube_proxy.program).arg("--cleanup"));
        kube_proxy
    }

    /// Starts it, and waits until it has written its rules.
    fn start(&self) {
        let log = std::fs::File::create(state().join("log/proxy-node-again")).expect("a log");
        #[expect(
            clippy::zombie_processes,
            reason = "it goes with the nodes, whose script ends it"
        )]
        let child = Command::new(&self.program)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a log"))
            .stderr(log)
            .spawn()
            .expect("kube-proxy");
        std::fs::write(&self.file, child.id().to_string()).expect("its number");
        until("kube-proxy's rules", proxy_is_healthy);
    }
}

fn proxy_is_healthy() -> bool {
    let health = "127.0.0.1:10256".parse().expect("an address");
    let asked = node("node").within(move || proxy::try_get(health, "/healthz"));
    asked
        .join()
        .expect("a client")
        .is_some_and(|(status, _)| status == 200)
}

fn scale(replicas: u8) {
    let replicas = format!("--replicas={replicas}");
    kubectl(&["-n", "kube-system", "scale", "deployment/coredns", &replicas]);
}

#[test]
#[ignore = "needs Kubernetes nodes: cargo xtask test cluster"]
fn proxy_first_kube_proxy_later_the_clusters_dns_last() {
    await_started();
    let _dns = CleanUp(|| scale(1));
    scale(0);
    let gone = [
        "-n",
        "kube-system",
        "wait",
        "--for=delete",
        "pod",
        "-l",
        "k8s-app=kube-dns",
        "--timeout=60s",
    ];
    kubectl(&gone);
    let kube_proxy = KubeProxy::stop();
    let _running = CleanUp(|| {
        if !proxy_is_healthy() {
            kube_proxy.start();
        }
    });
    let before = processes(PROXY);
    let label = "app.kubernetes.io/name=dnsweir";
    let pods = [
        "delete",
        "pod",
        "-l",
        label,
        "--field-selector",
        "spec.nodeName=node",
    ];
    kubectl(&[&["-n", "kube-system"], &pods[..]].concat());
    until("the proxy to live", || {
        processes(PROXY).iter().any(|id| !before.contains(id)) && admin("/health") == Some(200)
    });
    assert_eq!(admin("/ready"), Some(503), "kube-proxy translates nothing yet");
    kube_proxy.start();
    assert_eq!(admin("/ready"), Some(503), "nobody is there to answer yet");
    scale(1);
    await_proxy();
    until("the proxy to be ready", || admin("/ready") == Some(200));
}
