//! `dnsweir import`: translates Corefiles.

use std::path::Path;
use std::process::Output;

use crate::harness::certificates::Authority;
use crate::harness::{Proxy, proxy};

pub fn import(corefile: &Path) -> Output {
    let mut command = proxy::command();
    command.arg("import").arg(corefile);
    command.output().expect("dnsweir import")
}

/// The same for a Corefile of the corpus, and the text of the result. The files that it names in /etc/coredns are
/// in a folder beside it.
fn import_of_corpus(path: &Path) -> (Output, String) {
    let folder = path.parent().expect("the corpus");
    let beside = format!("{}/coredns/", folder.display());
    let text = std::fs::read_to_string(path).expect("a Corefile");
    let done = match text.contains("/etc/coredns/") {
        true => {
            let elsewhere = tempfile::tempdir().expect("a temporary folder");
            let corefile = elsewhere.path().join(path.file_name().expect("a name"));
            std::fs::write(&corefile, text.replace("/etc/coredns/", &beside)).expect("a Corefile");
            import(&corefile)
        }
        false => import(path),
    };
    let said = match done.status.success() {
        true => &done.stdout,
        false => &done.stderr,
    };
    let text = String::from_utf8_lossy(said)
        .replace(&beside, "/etc/coredns/")
        .replace(&format!("{}/", folder.display()), "");
    (done, text)
}

/// The translation of a Corefile, which must be valid.
pub fn imported(text: &str) -> String {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let corefile = folder.path().join("Corefile");
    std::fs::write(&corefile, text).expect("a Corefile");
    let done = import(&corefile);
    assert!(
        done.status.success(),
        "{text}\n{}",
        String::from_utf8_lossy(&done.stderr)
    );
    String::from_utf8_lossy(&done.stdout).into_owned()
}

/// The error for a Corefile.
pub fn refused(text: &str) -> String {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let corefile = folder.path().join("Corefile");
    std::fs::write(&corefile, text).expect("a Corefile");
    let done = import(&corefile);
    assert_eq!(done.status.code(), Some(64), "{text}");
    String::from_utf8_lossy(&done.stderr).into_owned()
}

/// Every Corefile of the corpus is translated to the configuration next to it, or refused with the error next
/// to it. `BLESS=1` rewrites these files.
#[test]
fn the_corpus_is_translated() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corefiles");
    let mut wrong = Vec::new();
    let mut count = 0;
    for entry in std::fs::read_dir(&folder).expect("the corpus").flatten() {
        let path = entry.path();
        if path.extension().is_none_or(|extension| extension != "Corefile") {
            continue;
        }
        count += 1;
        let (done, text) = import_of_corpus(&path);
        let extension = if done.status.success() { "kdl" } else { "refusal" };
        let beside = path.with_extension(extension);
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(&beside, &text).expect("a result");
        }
        if std::fs::read_to_string(&beside).unwrap_or_default() != text {
            wrong.push(format!("{}:\n{text}", beside.display()));
        }
    }
    assert!(count >= 10, "{count} Corefiles");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The defaults of platforms: each is translated to a valid configuration, exactly as in the corpus.
#[test]
fn the_defaults_of_platforms_are_imported() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corefiles");
    for platform in [
        "kubeadm",
        "k3s",
        "kops",
        "eks",
        "aks",
        "aks-localdns",
        "gke",
        "openshift",
        "talos",
        "deckhouse",
        "rke2",
        "microk8s",
        "minikube",
        "kind",
        "nodelocaldns",
    ] {
        let (done, text) = import_of_corpus(&folder.join(format!("{platform}.Corefile")));
        assert!(done.status.success(), "{platform}: {text}");
    }
}

#[test]
fn what_cannot_be_said_is_underlined() {
    let shown = refused(
        ". {\n    etcd skydns.local\n    forward . grpc://192.0.2.1 {\n        resolver x\n    }\n    nonsense\n}\n",
    );
    for part in [
        "`etcd` is not supported",
        "Corefile:2:5",
        "over grpc://",
        "`resolver` is not supported",
        "`nonsense` is not a plugin of CoreDNS",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
}

/// The document contains the table that the program prints.
#[test]
fn the_document_has_the_table() {
    let mut command = proxy::command();
    let printed = command
        .args(["import", "--table"])
        .output()
        .expect("dnsweir import --table");
    let table = String::from_utf8_lossy(&printed.stdout).into_owned();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/corefile.md");
    let document = std::fs::read_to_string(path).expect("docs/reference/corefile.md");
    assert!(
        document.contains(&table),
        "docs/reference/corefile.md needs this table:\n{table}"
    );
}

/// A cluster's records, followed by the rest of the block only for zones that fall through.
#[test]
fn the_records_of_a_cluster_are_translated() {
    let text = imported(
        ". {\n kubernetes cluster.local in-addr.arpa ip6.arpa {\n pods insecure\n ttl 30\n fallthrough in-addr.arpa ip6.arpa\n \
         namespaces a b\n labels app in (x, y)\n ignore empty_service\n endpoint_pod_names\n startup_timeout 7s\n \
         apiserver_qps 5\n }\n cache 30 {\n disable success cluster.local\n disable denial cluster.local\n }\n \
         forward . 192.0.2.1\n}\n",
    );
    let cluster = text
        .split("zone \"cluster.local.\"")
        .nth(1)
        .unwrap()
        .split("\n}")
        .next()
        .unwrap();
    for part in [
        "domain \"cluster.local.\"",
        "pods \"insecure\"",
        "ttl \"30s\"",
        "namespaces \"a\" \"b\"",
        "labels \"app in (x, y)\"",
        "ignore-empty-services",
        "endpoint-pod-names",
        "wait \"7s\"",
    ] {
        assert!(cluster.contains(part), "{part}: {text}");
    }
    assert!(
        !cluster.contains("cache") && !cluster.contains("forward"),
        "{text}"
    );
    let reverse = text.split("zone \"in-addr.arpa.\" \"ip6.arpa.\"").nth(1).unwrap();
    let reverse = reverse.split("\n}").next().unwrap();
    for part in ["cache", "fallthrough", "forward \"192.0.2.1\""] {
        assert!(reverse.contains(part), "{part}: {text}");
    }
    for (options, expected) in [
        ("endpoint https://192.0.2.1", "write a kubeconfig"),
        ("pods some", "`pods` needs disabled, insecure or verified"),
    ] {
        let shown = refused(&format!(
            ". {{\n kubernetes cluster.local {{\n {options}\n }}\n}}\n"
        ));
        assert!(shown.contains(expected), "{shown}");
    }
    let text =
        imported(". {\n bind 127.0.0.1\n cache {\n disable success a.example\n }\n forward . 192.0.2.1\n}\n");
    let own = text.split("zone \"a.example.\"").nth(1).expect("a zone");
    assert!(
        own.contains("success min=\"5s\" max=\"3600s\" store=#false"),
        "{own}"
    );
    assert_eq!(text.matches("store=#false").count(), 1, "{text}");
}

/// The result of a search for one pod is not cached for others.
#[test]
fn autopath_stands_above_the_cache() {
    let searching = imported(
        ". {\n autopath @kubernetes\n cache\n kubernetes cluster.local {\n pods verified\n fallthrough\n }\n forward . 192.0.2.1\n}\n",
    );
    let cluster = searching.split("zone \"cluster.local.\"").nth(1).unwrap();
    let places = ["autopath \"/etc/resolv.conf\"", "cache", "forward"].map(|part| cluster.find(part));
    assert!(places.is_sorted() && places[0].is_some(), "{searching}");
    for (autopath, pods) in [("@kubernetes", "insecure"), ("/etc/resolv.conf", "verified")] {
        let shown = refused(&format!(
            ". {{\n autopath {autopath}\n kubernetes cluster.local {{\n pods {pods}\n }}\n}}\n"
        ));
        assert!(shown.contains("`autopath`"), "{shown}");
    }
}

/// Both follow the same cluster, each with its own TTL.
#[test]
fn outside_addresses_get_a_zone() {
    let text = imported(
        ". {\n kubernetes cluster.local {\n pods verified\n ttl 7\n }\n k8s_external example.org {\n apex names\n headless\n \
         ttl 9\n fallthrough\n }\n forward . 192.0.2.1\n}\n",
    );
    let zone = text.split("zone \"example.org.\"").nth(1).unwrap();
    let zone = zone.split("\n}").next().unwrap();
    for part in [
        "domain \"cluster.local.\"",
        "pods \"verified\"",
        "ttl \"9s\"",
        "external \"example.org.\" apex=\"names\" headless=#true",
        "fallthrough",
        "forward",
    ] {
        assert!(zone.contains(part), "{part}: {text}");
    }
    assert!(!zone.contains("7s"), "{text}");
}

#[test]
fn services_of_several_clusters_are_translated() {
    let text = imported(
        ". {\n kubernetes clusterset.local cluster.local {\n multicluster clusterset.local\n }\n forward . 192.0.2.1\n}\n",
    );
    for part in [
        "zone \"cluster.local.\" \"clusterset.local.\"",
        "domain \"cluster.local.\"",
        "multicluster \"clusterset.local.\"",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// Server blocks on different addresses each answer only for their own names there.
#[test]
fn blocks_answer_where_they_are_bound() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let hosts = |address: &str| {
        format!(
            "hosts {} {{\n {address} a.example\n ttl 77\n fallthrough\n }}",
            folder.path().join("none").display()
        )
    };
    let text = format!(
        "example:5301 {{\n bind 127.0.0.1\n {}\n}}\nexample:5302 b.example:5301 {{\n bind 127.0.0.1\n {}\n}}\n",
        hosts("192.0.2.1"),
        hosts("192.0.2.2"),
    );
    let ours = imported(&text);
    let own = ours
        .replace("127.0.0.1:5301", "$LISTEN")
        .replace("127.0.0.1:5302", "127.0.0.9:5302");
    assert!(
        own.contains("on \"$LISTEN\"") && own.contains("on \"127.0.0.9:5302\""),
        "{own}"
    );
    let proxy = Proxy::start(&own.replace("listen \"$LISTEN\"", "admin \"$ADMIN\"\nlisten \"$LISTEN\""));
    let first = proxy.query("a.example", "A");
    assert_eq!(
        (first.answers(), first.ttl()),
        (vec!["a.example. A 192.0.2.1".to_owned()], 77)
    );
    let query = crate::harness::Message::query("a.example", "A");
    let second = crate::harness::ask("127.0.0.9:5302".parse().expect("an address"), &query);
    assert_eq!(second.answers(), ["a.example. A 192.0.2.2"]);
    // The zone of the other address is not served here.
    assert_eq!(proxy.query("x.b.example", "A").rcode(), "REFUSED");
    assert_eq!(proxy.query("org", "A").rcode(), "REFUSED");
}

/// A block for clients over TLS: CoreDNS's `tls` names the certificate.
#[test]
fn blocks_for_tls_are_listeners_for_tls() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (certificate, key) = Authority::new()
        .issue(&["dns.example"])
        .write(folder.path(), "server");
    let (certificate, key) = (certificate.display(), key.display());
    let text = format!(
        ".:5301 {{\n bind 127.0.0.1\n forward . 192.0.2.1\n}}\n\
         tls://. {{\n bind 127.0.0.1\n tls {certificate} {key}\n forward . 192.0.2.2\n}}\n"
    );
    let ours = imported(&text);
    for part in [
        "listen \"127.0.0.1:5301\" \"tls://127.0.0.1:853\"".to_owned(),
        format!("certificate \"{certificate}\" key=\"{key}\""),
        "on \"tls://127.0.0.1:853\"".to_owned(),
    ] {
        assert!(ours.contains(&part), "{part}: {ours}");
    }
    let bare = refused("tls://. {\n bind 127.0.0.1\n forward . 192.0.2.2\n}\n");
    assert!(bare.contains("tls:// needs a certificate"), "{bare}");
}

/// Blocks for some clients: each client gets the answers of its own, and the cache keeps them separate.
#[test]
fn views_answer_their_clients() {
    let upstream = |address: &'static str| {
        crate::harness::Upstream::start(move |asked| {
            asked.answer(&[&format!("{} 300 A {address}", asked.name())])
        })
    };
    let upstreams = [
        upstream("192.0.2.1"),
        upstream("192.0.2.2"),
        upstream("192.0.2.3"),
    ];
    let views = [
        "view one {\n expr incidr(client_ip(), '127.1.0.0/16') || incidr(client_ip(), '127.3.0.0/16')\n }",
        "view two {\n expr incidr(client_ip(), '127.2.0.0/16')\n }",
        "",
    ];
    let blocks = views.iter().zip(&upstreams).map(|(view, upstream)| {
        let address = upstream.address;
        format!("example:5301 {{\n bind 127.0.0.1\n {view}\n cache\n forward . {address}\n}}\n")
    });
    let text = imported(&blocks.collect::<String>()).replace("127.0.0.1:5301", "$LISTEN");
    let proxy = Proxy::start(&text.replace("listen \"$LISTEN\"", "admin \"$ADMIN\"\nlisten \"$LISTEN\""));
    let query = crate::harness::Message::query("a.example", "A");
    for _ in 0..2 {
        for (client, answer) in [
            ("127.1.0.1", "192.0.2.1"),
            ("127.2.0.1", "192.0.2.2"),
            ("127.3.0.1", "192.0.2.1"),
            ("127.0.0.1", "192.0.2.3"),
        ] {
            let client = client.parse().expect("an address");
            let said = crate::harness::client::ask_from(client, proxy.address, &query);
            assert_eq!(said.answers(), [format!("a.example. A {answer}")], "{client}");
        }
    }
    assert_eq!(
        upstreams.each_ref().map(|upstream| upstream.count("a.example")),
        [1; 3]
    );
    let shown = refused(". {\n view x {\n  expr name() == 'a.'\n }\n forward . 192.0.2.1\n}\n");
    assert!(
        shown.contains("this is not a network of clients") && shown.contains("Corefile:3:"),
        "{shown}"
    );
}

/// The block with the longest zone answers among those for the client, also where another block treats some
/// names differently.
#[test]
fn names_of_some_clients_are_those_of_their_block() {
    let upstreams = ["192.0.2.1", "192.0.2.2", "192.0.2.3"].map(|address| {
        crate::harness::Upstream::start(move |asked| {
            asked.answer(&[&format!("{} 300 A {address}", asked.name())])
        })
    });
    let [one, two, three] = upstreams.each_ref().map(|upstream| upstream.address);
    let view = |network: &str| {
        format!(" bind 127.0.0.1\n view v {{\n  expr incidr(client_ip(), '{network}')\n }}\n")
    };
    for (text, answers) in [
        (
            format!(
                "b.example:5301 {{\n{} forward . {one}\n}}\n\
                 .:5301 {{\n bind 127.0.0.1\n forward b.example {two}\n forward x.b.example {two}\n forward . {three}\n}}\n",
                view("127.1.0.0/16")
            ),
            [
                ("127.1.0.1", "b.example", "192.0.2.1"),
                ("127.1.0.1", "a.x.b.example", "192.0.2.1"),
                ("127.1.0.1", "example", "192.0.2.3"),
                ("127.0.0.1", "b.example", "192.0.2.2"),
                ("127.0.0.1", "a.x.b.example", "192.0.2.2"),
                ("127.0.0.1", "example", "192.0.2.3"),
            ],
        ),
        (
            format!(
                ".:5301 {{\n{} forward . {one}\n}}\n.:5301 {{\n{} forward corp.example {two}\n forward . {three}\n}}\n",
                view("127.1.0.0/16"),
                view("127.0.0.0/8")
            ),
            [
                ("127.1.0.1", "corp.example", "192.0.2.1"),
                ("127.1.0.1", "a.corp.example", "192.0.2.1"),
                ("127.1.0.1", "example", "192.0.2.1"),
                ("127.2.0.1", "corp.example", "192.0.2.2"),
                ("127.2.0.1", "a.corp.example", "192.0.2.2"),
                ("127.2.0.1", "example", "192.0.2.3"),
            ],
        ),
    ] {
        let ours = imported(&text).replace("127.0.0.1:5301", "$LISTEN");
        let proxy = Proxy::start(&ours.replace("listen \"$LISTEN\"", "admin \"$ADMIN\"\nlisten \"$LISTEN\""));
        for (client, name, answer) in answers {
            let query = crate::harness::Message::query(name, "A");
            let from = client.parse().expect("an address");
            let said = crate::harness::client::ask_from(from, proxy.address, &query);
            assert_eq!(
                said.answers(),
                [format!("{name}. A {answer}")],
                "{client} {name}\n{ours}"
            );
        }
    }
}
