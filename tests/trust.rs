//! The documents' statements about trust: each has its test, and some tests are here.

use std::collections::BTreeMap;
use std::fs;

use crate::harness::guests::{guest, root};
use crate::harness::{Proxy, Upstream};

#[test]
fn every_sentence_has_a_test_that_exists() {
    let page = fs::read_to_string(root().join("docs/trust.md")).expect("docs/trust.md");
    let mut sources = BTreeMap::new();
    let mut wrong = Vec::new();
    let mut named = 0;
    for sentence in items(&page) {
        let tests: Vec<(&str, &str)> = sentence
            .split('`')
            .skip(1)
            .step_by(2)
            .filter_map(|code| code.split_once(".rs::"))
            .collect();
        if tests.is_empty() {
            wrong.push(format!("no test: {sentence}"));
        }
        for (file, test) in tests {
            named += 1;
            let source = sources.entry(file.to_owned()).or_insert_with(|| {
                fs::read_to_string(root().join(file).with_extension("rs")).unwrap_or_default()
            });
            if !has_test(source, test) {
                wrong.push(format!("no such test: {file}.rs::{test}"));
            }
        }
    }
    assert!(named > 30, "only {named}: is this the right page?");
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Whether a source file has a test with this name.
fn has_test(source: &str, name: &str) -> bool {
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    let begin = format!("fn {name}(");
    lines.windows(2).any(|pair| {
        let is_test = ["#[test]", "#[tokio::test]"].contains(&pair[0]);
        is_test && pair[1].trim_start_matches("async ").starts_with(&begin)
    })
}

/// The items in the lists of a document.
fn items(text: &str) -> Vec<String> {
    let mut items: Vec<String> = Vec::new();
    let mut open = false;
    for line in text.lines() {
        if let Some(item) = line.strip_prefix("- ") {
            items.push(item.to_owned());
            open = true;
        } else if let (true, Some(more), Some(item)) = (open, line.strip_prefix("  "), items.last_mut()) {
            item.push(' ');
            item.push_str(more);
        } else {
            open = false;
        }
    }
    items
}

/// Roles list and watch; only the webhook has objects of its own. Workloads that need nothing of the node
/// meet Pod Security's level *restricted*.
#[test]
fn manifests_ask_for_no_more_than_is_used() {
    let read = |path: &str| fs::read_to_string(root().join("deploy").join(path)).expect(path);
    for path in [
        "cluster-dns/rbac.yaml",
        "components/pods/rbac.yaml",
        "components/multicluster/kustomization.yaml",
        "components/service-entries/kustomization.yaml",
        "components/verified-pods/kustomization.yaml",
        "helm/dnsweir/templates/rbac.yaml",
    ] {
        let text = read(path);
        let verbs: Vec<&str> = text.split("verbs: ").skip(1).collect();
        assert!(!verbs.is_empty(), "{path}");
        assert!(
            verbs.iter().all(|verbs| verbs.starts_with("[list, watch]}")),
            "{path}"
        );
    }
    assert!(
        !read("cluster-dns/rbac.yaml").contains("pods]"),
        "for verified-pods alone"
    );
    for path in [
        "cluster-dns/deployment.yaml",
        "overlays/local-redirect/daemonset.yaml",
        "webhook/deployment.yaml",
    ] {
        let text = read(path);
        for word in [
            "runAsNonRoot: true",
            "seccompProfile: {type: RuntimeDefault}",
            "allowPrivilegeEscalation: false",
            "capabilities: {drop: [ALL]}",
        ] {
            assert!(text.contains(word), "{path}: {word}");
        }
        for word in ["hostNetwork", "hostPath", "hostPID", "privileged: true"] {
            assert!(!text.contains(word), "{path}: {word}");
        }
    }
    let capabilities = "capabilities: {drop: [ALL], add: [NET_ADMIN, NET_RAW, NET_BIND_SERVICE]}";
    for path in ["base/daemonset.yaml", "helm/dnsweir/templates/daemonset.yaml"] {
        assert!(read(path).contains(capabilities), "{path}");
    }
}

/// A workload's violations of Pod Security's levels *baseline* and *restricted*, from its manifest.
fn not_met(manifest: &str) -> [Vec<String>; 2] {
    let lines = manifest
        .lines()
        .map(|line| line.split(" #").next().unwrap_or(line));
    let lines = lines.filter(|line| !line.trim_start().starts_with('#'));
    let text: String = lines.map(|line| format!("{line}\n")).collect();
    let has = |word: &str| text.contains(word);
    let mut baseline = Vec::new();
    for word in ["hostNetwork", "hostPID", "hostIPC", "privileged"] {
        if has(&format!("{word}: true")) {
            baseline.push(word.to_owned());
        }
    }
    let added = text
        .split("add: [")
        .skip(1)
        .filter_map(|rest| rest.split(']').next());
    let added = added.flat_map(|all| all.split(',')).map(str::trim);
    // The only one of our capabilities that both levels allow.
    let added = added.filter(|capability| *capability != "NET_BIND_SERVICE");
    baseline.extend(added.map(str::to_owned));
    for word in ["hostPath", "hostPort", "procMount", "Unconfined"] {
        if has(&format!("{word}:")) || has(&format!(": {word}")) {
            baseline.push(word.to_owned());
        }
    }
    // The safe sysctl that we set: the first unprivileged port.
    let sysctls = text.split("sysctls: ").skip(1);
    if sysctls
        .into_iter()
        .any(|rest| !rest.starts_with("[{name: net.ipv4.ip_unprivileged_port_start,"))
    {
        baseline.push("sysctls".to_owned());
    }
    let probes = text
        .split("httpGet: {")
        .skip(1)
        .filter_map(|rest| rest.lines().next());
    if probes.into_iter().any(|probe| probe.contains("host: ")) {
        baseline.push("probe host".to_owned());
    }
    let mut restricted = Vec::new();
    for (word, met) in [
        ("runAsNonRoot", has("runAsNonRoot: true") && !has("runAsUser: 0")),
        ("allowPrivilegeEscalation", has("allowPrivilegeEscalation: false")),
        ("seccompProfile", has("seccompProfile: {type: RuntimeDefault}")),
        ("capabilities", has("drop: [ALL]")),
    ] {
        if !met {
            restricted.push(word.to_owned());
        }
    }
    [baseline, restricted]
}

/// The table lists exactly the violations of each manifest with pods.
#[test]
fn what_pod_security_does_not_allow_is_said() {
    let page = fs::read_to_string(root().join("docs/kubernetes.md")).expect("docs/kubernetes.md");
    let begin = page.find("| manifest | *baseline* |").expect("the table");
    let words = |cell: &str| -> Vec<String> {
        let words = cell.split('`').skip(1).step_by(2);
        words.map(str::to_owned).collect()
    };
    let mut told = BTreeMap::new();
    for row in page[begin..]
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'))
    {
        let cells: Vec<&str> = row.split('|').collect();
        let [_, manifests, baseline, restricted, why, _] = cells[..] else {
            panic!("{row}");
        };
        let said = [words(baseline), words(restricted)];
        assert_eq!(why.trim().is_empty(), said.iter().all(Vec::is_empty), "{row}");
        for manifest in words(manifests) {
            told.insert(manifest, said.clone());
        }
    }
    let mut found = BTreeMap::new();
    let mut folders = vec![root().join("deploy")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder").flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = fs::read_to_string(&path).unwrap_or_default();
            let has_pods = ["DaemonSet", "Deployment"]
                .iter()
                .any(|kind| text.lines().any(|line| line == format!("kind: {kind}")));
            if has_pods {
                let name = path.strip_prefix(root().join("deploy")).expect("below it");
                found.insert(name.display().to_string(), not_met(&text));
            }
        }
    }
    assert_eq!(told, found);
}

#[test]
fn a_filter_sees_its_own_zones_only() {
    let upstream = Upstream::start(|asked| asked.answer(&[&format!("{} 300 A 192.0.2.1", asked.name())]));
    let proxy = Proxy::start(&format!(
        "filter \"curious\" {{ module \"{module}\"; on-error \"servfail\"; limits time=\"1s\" }}\n\
         zone \"seen.test\" {{ use \"curious\"; forward \"{upstream}\" }}\n\
         zone \".\" {{ forward \"{upstream}\" }}",
        module = guest("trap").display(),
        upstream = upstream.address,
    ));
    // This filter would trap on the name if it saw it.
    assert_eq!(proxy.query("trap.unseen.test", "A").rcode(), "NOERROR");
    assert_eq!(proxy.query("a.seen.test", "A").rcode(), "NOERROR");
    proxy.await_metric(
        "dnsweir_filter_items_total",
        &[("filter", "curious"), ("phase", "query")],
        1.0,
    );
}
