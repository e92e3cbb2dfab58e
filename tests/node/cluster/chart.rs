//! The Helm chart: what its values produce, and which it refuses.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use harness::guests::root;
use harness::tools::output;
use harness::{proxy, until};

use super::manifests::{PROXY, WEBHOOK, composed_of, valid};
use super::service_entries::apply_schema;
use super::{kubectl, state};

/// Values of the chart, as `--set` takes them.
const VARIANTS: [&[&str]; 20] = [
    &[],
    &["mode=link-local"],
    &["mode=local-redirect", "pods.enabled=true"],
    &["mode=ipvs", "teardown=true"],
    &["pods.enabled=true"],
    &[
        "serviceEntries.enabled=true",
        "serviceEntries.range=null",
        "serviceEntries.namespaces=null",
    ],
    &[
        "multicluster.domains={clusterset.local,other.example}",
        "mode=ipvs",
    ],
    &[
        "pods.enabled=true",
        "serviceEntries.enabled=true",
        "serviceEntries.range={240.240.0.0/16,2001:db8:f0f0::/96}",
        "multicluster.domains={clusterset.local}",
        "multicluster.memory=64MiB",
    ],
    &[
        "mode=ipvs",
        "clusterDNS={10.96.0.10,fd00:96::10}",
        "localAddress={169.254.20.10,fd00:20::10}",
    ],
    &["mode=no-kube-proxy"],
    &[
        "admin=0.0.0.0:9253",
        "podLabels.team=dns",
        "podAnnotations.note=it",
    ],
    &["admin=[::1]:9253", "imagePullSecrets[0].name=secret"],
    &[
        "filterConfigMaps={first,second}",
        "filterImages[0].name=policy",
        "filterImages[0].reference=policy:1",
    ],
    &[
        "image.digest=sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "config=listen \"127.0.0.1\"; admin \"127.0.0.1:9253\"",
    ],
    &["mode=local-redirect", "config=admin \"0.0.0.0:9253\""],
    // The port that `admin` has by default.
    &["config=listen \"127.0.0.1\"; admin \"127.0.0.1\""],
    &["mode=link-local", "webhook.enabled=true"],
    &[
        "webhook.enabled=true",
        "webhook.optionsOnly=true",
        "webhook.options={ndots:2}",
    ],
    &[
        "webhook.enabled=true",
        "webhook.optionsOnly=true",
        "webhook.options={use-vc,timeout:1}",
        "webhook.dryRun=true",
        "webhook.namespaceLabel=dns.example.org/local=yes",
    ],
    &[
        "mode=no-kube-proxy",
        "clusterDNS={10.96.0.10}",
        "webhook.enabled=true",
        "webhook.replicas=3",
        "webhook.ndots=2",
        "webhook.includeNamespaces={kube-public}",
        "webhook.certificate.secret=webhook-tls",
        "webhook.certificate.caBundle=eA==",
        "webhook.certificate.annotations.note=it",
        "imagePullSecrets[0].name=secret",
    ],
];

/// Values, the objects that they produce, and text in the manifests.
type Said = (
    &'static [&'static str],
    &'static [&'static str],
    &'static [&'static str],
);

/// Values that operators set.
const SAID: [Said; 10] = [
    (
        &[
            "affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey=zone",
            "updateStrategy.type=OnDelete",
            "updateStrategy.rollingUpdate=null",
            "priorityClassName=",
            "resources.limits.memory=1Gi",
        ],
        &[],
        &["topologyKey: zone", "type: OnDelete", "memory: 1Gi"],
    ),
    (
        &[
            "log.format=json",
            "log.level=debug",
            "extraArgs={--compiled-cache=/cache}",
            "extraEnv[0].name=A",
            "extraEnv[0].value=b",
            "extraVolumes[0].name=cache",
            "extraVolumes[0].hostPath.path=/cache",
            "extraVolumeMounts[0].name=cache",
            "extraVolumeMounts[0].mountPath=/cache",
        ],
        &[],
        &[
            "- --log-format=json",
            "- --log-level=debug",
            "- \"--compiled-cache=/cache\"",
            "mountPath: /cache",
        ],
    ),
    (
        &["serviceAccount.annotations.note=it", "serviceAccount.name=own"],
        &["serviceaccount/own"],
        &["serviceAccountName: own", "automountServiceAccountToken: false"],
    ),
    (
        &[
            "serviceAccount.create=false",
            "serviceAccount.name=own",
            "pods.enabled=true",
        ],
        &["clusterrolebinding.rbac.authorization.k8s.io/chart-pods"],
        &[
            "serviceAccountName: own",
            "automountServiceAccountToken: true",
            "name: own, namespace: kube-system}]",
        ],
    ),
    (
        &[
            "upstreams={192.0.2.53,192.0.2.54}",
            "clusterDomain=k8s.example",
            "use={table}",
            "zones[0].names={corp.example,10.in-addr.arpa}",
            "zones[0].upstreams={tls://192.0.2.1%dns.corp.example}",
            "zones[0].use={table}",
            "extraConfig=filter \"table\" { module \"builtin:hosts\"; config { host \"a.test\" \"192.0.2.7\" } }",
        ],
        &[],
        &[
            "forward \"192.0.2.53\" \"192.0.2.54\"",
            "zone \"k8s.example\" \"in-addr.arpa\" \"ip6.arpa\" {",
            "zone \"corp.example\" \"10.in-addr.arpa\" {",
            "forward \"tls://192.0.2.1%dns.corp.example\"",
        ],
    ),
    (
        &[
            "multicluster.domains={clusterset.local}",
            "use={table}",
            "extraConfig=filter \"table\" { module \"builtin:hosts\"; config { host \"a.test\" \"192.0.2.7\" } }",
        ],
        &["clusterrolebinding.rbac.authorization.k8s.io/chart-multicluster"],
        &["zone \"clusterset.local\" {\n        use \"table\"\n        kubernetes {"],
    ),
    (
        &[
            "admin=0.0.0.0:9253",
            "metrics.service.enabled=true",
            "metrics.service.annotations.note=it",
        ],
        &["service/chart-metrics"],
        &["clusterIP: None", "targetPort: 9253"],
    ),
    (
        &[
            "mode=local-redirect",
            "upstreams={192.0.2.53}",
            "metrics.podMonitor.enabled=true",
        ],
        &["service/chart-upstream"],
        &[
            "listen \"0.0.0.0\" \"::\"\n",
            "admin \"[::]:9253\" status=#false",
            "(env)\"CHART_UPSTREAM_SERVICE_HOST\"",
            "containerPort: 9253",
            "runAsNonRoot: true",
            "kind: CiliumLocalRedirectPolicy",
        ],
    ),
    (
        &[
            "admin=[::]:9353",
            "metrics.serviceMonitor.enabled=true",
            "metrics.serviceMonitor.labels.release=prometheus",
        ],
        &[
            "service/chart-metrics",
            "servicemonitor.monitoring.coreos.com/chart",
        ],
        &["port: metrics", "targetPort: 9353", "release: prometheus"],
    ),
    (
        &[
            "admin=0.0.0.0:9253",
            "metrics.podMonitor.enabled=true",
            "metrics.podMonitor.interval=30s",
        ],
        &["podmonitor.monitoring.coreos.com/chart"],
        &[
            "replacement: '$1:9253'",
            "replacement: '[$1]:9253'",
            "interval: 30s",
        ],
    ),
];

/// Values that do not exist or are invalid.
const WRONG: [&str; 21] = [
    "log.level=verbose",
    "updateStrategy.type=Recreate",
    "zones[0].names={corp.example}",
    "upstreams={192.0.2.53 192.0.2.54}",
    "metrics.podMonitor.enabled=true",
    "metrics.service.enabled=true",
    "metrics.enabled=true",
    "mode=bypass",
    "clusterDns={10.96.0.10}",
    "clusterDNS={kube-dns}",
    "admin=9253",
    "serviceEntries.range={240.240.0.0}",
    "multicluster.enabled=true",
    "multicluster.domains={clusterset local}",
    "image.digest=latest",
    // The default mode has no address of the node's own.
    "webhook.enabled=true",
    "teardown=later",
    "webhook.replicas=0",
    "webhook.namespaceLabel=enabled",
    "webhook.includeNamespaces={default}",
    "webhook.options={a b}",
];

/// Values that exclude each other, or that would be left out or scraped twice, and what the refusal says.
const REFUSED: [(&[&str], &str); 8] = [
    (
        &["config=admin \"127.0.0.1:9253\"", "use={table}"],
        "config replaces the whole configuration",
    ),
    (
        &["config=listen \"127.0.0.1\""],
        "write admin \"127.0.0.1:9253\" into config",
    ),
    (
        &["serviceAccount.create=false", "pods.enabled=true"],
        "set the name of the existing service account",
    ),
    (
        &[
            "admin=0.0.0.0:9253",
            "metrics.podMonitor.enabled=true",
            "metrics.serviceMonitor.enabled=true",
        ],
        "enable only one",
    ),
    (
        &["mode=local-redirect", "webhook.enabled=true"],
        "set webhook.optionsOnly",
    ),
    (
        &["webhook.enabled=true", "webhook.optionsOnly=true"],
        "set webhook.ndots or webhook.options",
    ),
    (
        &[
            "mode=link-local",
            "webhook.enabled=true",
            "webhook.options={ndots:2}",
        ],
        "set only webhook.ndots",
    ),
    (
        &[
            "webhook.enabled=true",
            "webhook.optionsOnly=true",
            "webhook.options={timeout:1,timeout:2}",
        ],
        "the option timeout is given twice",
    ),
];

/// The modes, each of which has an overlay.
const MODES: [&str; 5] = [
    "cluster-address",
    "link-local",
    "ipvs",
    "no-kube-proxy",
    "local-redirect",
];

/// Returns the helm command that prints the manifests for these values, as release `chart`, since `dnsweir`
/// exists.
fn template(values: &[&str]) -> Command {
    let helm = PathBuf::from(std::env::var_os("KUBE_BIN").expect("KUBE_BIN")).join("helm");
    let mut command = Command::new(helm);
    let chart = root().join("deploy/helm/dnsweir");
    command
        .args(["template", "chart"])
        .arg(chart)
        .args(["--namespace", "kube-system"]);
    for value in values {
        command.args(["--set", value]);
    }
    command
}

/// Returns a configuration's lines without comments and indentation.
fn lines(text: &str) -> Vec<String> {
    let lines = text.lines().map(str::trim);
    let kept = lines.filter(|line| !line.is_empty() && !line.starts_with("//"));
    kept.map(str::to_owned).collect()
}

#[test]
#[ignore = "needs Kubernetes nodes: cargo xtask test cluster"]
fn every_variant_of_the_chart_is_valid() {
    for values in VARIANTS {
        let has_webhook = values.contains(&"webhook.enabled=true");
        let webhook = if has_webhook { WEBHOOK } else { &[] };
        let expected = [PROXY, webhook].concat();
        valid(&values.join(" "), &output(&mut template(values)), &expected);
    }
    for wrong in WRONG {
        let refused = template(&[wrong]).output().expect("helm");
        assert!(!refused.status.success(), "{wrong} was taken");
    }
    let _schema = apply_schema("monitors.yaml", "podmonitors.monitoring.coreos.com");
    until("the API server to take monitors", || {
        kubectl(&["api-resources"]).contains("servicemonitors")
    });
    for (values, objects, words) in SAID {
        let name = values.join(" ");
        let manifests = output(&mut template(values));
        for word in words {
            assert!(manifests.contains(word), "{name}: {word}: {manifests}");
        }
        valid(&name, &manifests, &[PROXY, objects].concat());
        checked(&name, &manifests);
    }
    the_overlays_say_the_same();
    the_overlays_take_the_component_of_pods();
}

#[test]
#[ignore = "needs Kubernetes nodes: cargo xtask test cluster"]
fn what_cannot_work_is_refused_with_the_reason() {
    for (values, why) in REFUSED {
        refused(&mut template(values), why);
    }
    let elsewhere = ["--namespace", "dns"];
    refused(template(&[]).args(elsewhere), "set clusterDNS");
    output(template(&["clusterDNS={10.96.0.10}"]).args(elsewhere));
    let redirected = ["mode=local-redirect", "clusterDNS={10.96.0.10}"];
    refused(template(&redirected).args(elsewhere), "where kube-dns is");
    // Its API server does not know `sleep` in `preStop`.
    let older = ["--kube-version", "1.29.0"];
    output(template(&[]).args(older));
    refused(template(&["mode=local-redirect"]).args(older), "Kubernetes 1.30");
    let webhook = ["mode=link-local", "webhook.enabled=true"];
    refused(template(&webhook).args(older), "Kubernetes 1.30");
}

/// Checks that helm refuses, and says why.
#[track_caller]
fn refused(template: &mut Command, why: &str) {
    let refused = template.output().expect("helm");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.status.success() && said.contains(why),
        "{template:?}: {why}: {said}"
    );
}

/// Checks that chart and overlays configure the same.
fn the_overlays_say_the_same() {
    for mode in MODES {
        let chart = output(&mut template(&[&format!("mode={mode}")]));
        let chart = lines(&chart.replace("CHART_UPSTREAM", "DNSWEIR_UPSTREAM"));
        let file = root().join(format!("deploy/overlays/{mode}/dnsweir.kdl"));
        let overlay = lines(&fs::read_to_string(file).expect("a file"));
        let flat = |lines: &[String]| lines.join(" ");
        assert!(flat(&chart).contains(&flat(&overlay)), "{mode}: {chart:#?}");
    }
}

/// Checks that each overlay takes the component that does the same as `pods.enabled` of the chart.
fn the_overlays_take_the_component_of_pods() {
    for mode in MODES {
        let folder = tempfile::tempdir().expect("a folder");
        let overlay = format!("overlays/{mode}");
        composed_of(&overlay, folder.path(), "components: [DEPLOY/components/pods]\n");
        let mut kustomize = Command::new(state().join("kubectl"));
        let manifests = output(kustomize.arg("kustomize").arg(folder.path()));
        assert!(manifests.contains("name: NODE_NAME"), "{mode}: {manifests}");
    }
}

/// Checks the chart's configuration with `dnsweir check`.
#[track_caller]
fn checked(name: &str, manifests: &str) {
    let rest = manifests
        .split("dnsweir.kdl: |\n")
        .nth(1)
        .expect("a configuration");
    let lines = rest.lines().map_while(|line| match line.trim() {
        "" => Some(""),
        _ => line.strip_prefix("    "),
    });
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("dnsweir.kdl");
    fs::write(&file, lines.collect::<Vec<_>>().join("\n")).expect("a file");
    let mut check = proxy::command();
    check.arg("check").arg(&file).envs([
        ("KUBE_DNS_SERVICE_HOST", "10.96.0.10"),
        ("CHART_UPSTREAM_SERVICE_HOST", "10.96.0.11"),
        ("NODE_NAME", "node"),
    ]);
    let said = output(&mut check);
    assert!(said.contains("valid"), "{name}: {said}");
}
