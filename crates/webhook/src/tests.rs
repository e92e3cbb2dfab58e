use dnsweir_flags::DnsOption;
use serde_json::{Value, json};

use super::injection::{Change, Injection, Reason, Resolvers};
use super::review::Request;

fn pointing() -> Injection {
    let addresses = ["169.254.20.10", "10.96.0.10"];
    Injection {
        resolvers: Some(Resolvers {
            nameservers: addresses.map(|address| address.parse().unwrap()).to_vec(),
            domain: "cluster.local".into(),
        }),
        options: vec![DnsOption::new("ndots", Some("5"))],
        opt_out: ("node-local-dns-injection".into(), "disabled".into()),
        included: Vec::new(),
    }
}

fn adding_options() -> Injection {
    Injection {
        resolvers: None,
        options: vec![
            DnsOption::new("ndots", Some("2")),
            DnsOption::new("use-vc", None),
            DnsOption::new("single-request-reopen", None),
        ],
        ..pointing()
    }
}

/// The change to a pod in a namespace.
fn change(injection: &Injection, pod: &Value, namespace: &str) -> Result<Change, Reason> {
    let request = Request::read(&serde_json::to_vec(&review(pod, namespace)).unwrap()).unwrap();
    injection.change(request.created_pod().unwrap(), request.namespace())
}

fn review(pod: &Value, namespace: &str) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002", "namespace": namespace, "operation": "CREATE",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "object": pod,
        }
    })
}

/// The pod's `spec` after a patch that only adds to objects.
fn patched(pod: &Value, change: &Change) -> Value {
    let mut pod = pod.clone();
    for operation in change.patch.as_array().unwrap() {
        assert_eq!(operation["op"], "add", "{}", change.patch);
        let (parent, field) = operation["path"].as_str().unwrap().rsplit_once('/').unwrap();
        let parent = pod.pointer_mut(parent).unwrap().as_object_mut().unwrap();
        parent.insert(field.to_owned(), operation["value"].clone());
    }
    pod["spec"].take()
}

const SEARCHES: [&str; 3] = ["team.svc.cluster.local", "svc.cluster.local", "cluster.local"];

#[test]
fn pods_that_ask_the_cluster_are_pointed_at_the_node() {
    for spec in [
        json!({}),
        json!({"dnsPolicy": "ClusterFirst", "dnsConfig": null, "hostNetwork": null, "os": {"name": "linux"}}),
        json!({"dnsPolicy": "ClusterFirst", "hostNetwork": false, "dnsConfig": {}}),
        json!({"dnsPolicy": "ClusterFirstWithHostNet", "hostNetwork": true}),
        json!({"dnsPolicy": "ClusterFirstWithHostNet"}),
    ] {
        let pod = json!({"metadata": {"generateName": "web-"}, "spec": spec});
        let change = change(&pointing(), &pod, "team").unwrap();
        let after = patched(&pod, &change);
        assert_eq!(after["dnsPolicy"], "None", "{spec}");
        let expected = json!({
            "nameservers": ["169.254.20.10", "10.96.0.10"],
            "searches": SEARCHES,
            "options": [{"name": "ndots", "value": "5"}],
        });
        assert_eq!(after["dnsConfig"], expected, "{spec}");
        assert!(change.warnings.is_empty());
    }
}

#[test]
fn other_pods_stay_as_they_are() {
    let named = |key: &str, value: &str| json!({"metadata": {"labels": {key: value}}, "spec": {}});
    let of = |spec: Value| json!({"metadata": {}, "spec": spec});
    let mirror = json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "1"}}, "spec": {}});
    for (pod, namespace, expected) in [
        (of(json!({})), "kube-system", Some(Reason::SystemNamespace)),
        (of(json!({})), "kube-public", Some(Reason::SystemNamespace)),
        (
            named("node-local-dns-injection", "disabled"),
            "team",
            Some(Reason::OptedOut),
        ),
        (named("node-local-dns-injection", "enabled"), "team", None),
        (of(json!({"dnsPolicy": "Default"})), "team", Some(Reason::Policy)),
        (of(json!({"dnsPolicy": "None"})), "team", Some(Reason::Policy)),
        (
            of(json!({"dnsPolicy": "ClusterFirst", "hostNetwork": true})),
            "team",
            Some(Reason::Policy),
        ),
        (of(json!({"hostNetwork": true})), "team", Some(Reason::Policy)),
        (
            of(json!({"os": {"name": "windows"}})),
            "team",
            Some(Reason::Windows),
        ),
        (mirror, "team", Some(Reason::Mirror)),
    ] {
        for injection in [pointing(), adding_options()] {
            assert_eq!(
                change(&injection, &pod, namespace).err(),
                expected,
                "{pod} in {namespace}"
            );
        }
    }
    let included = Injection {
        included: vec!["kube-system".into()],
        ..pointing()
    };
    assert!(change(&included, &of(json!({})), "kube-system").is_ok());
    let reason = change(&included, &of(json!({})), "kube-public").unwrap_err();
    assert_eq!(reason, Reason::SystemNamespace);
}

#[test]
fn what_a_pod_says_itself_is_kept() {
    let own = json!({
        "nameservers": ["10.96.0.10", "192.0.2.1"],
        "searches": ["svc.cluster.local", "example.org"],
        "options": [{"name": "ndots", "value": "1"}, {"name": "edns0"}],
        "later": "kept",
    });
    let pod = json!({"metadata": {}, "spec": {"dnsConfig": own}});
    let change = change(&pointing(), &pod, "team").unwrap();
    let config = patched(&pod, &change)["dnsConfig"].take();
    assert_eq!(
        config["nameservers"],
        json!(["169.254.20.10", "10.96.0.10", "192.0.2.1"])
    );
    let [namespace, services, cluster] = SEARCHES;
    assert_eq!(
        config["searches"],
        json!([namespace, services, cluster, "example.org"])
    );
    assert_eq!(config["options"], own["options"]);
    assert_eq!(config["later"], "kept");
    assert!(change.warnings.is_empty());
}

#[test]
fn kubernetes_limits_are_kept() {
    let numbered: Vec<String> = (0..32).map(|number| format!("d{number}.example")).collect();
    let long: Vec<String> = (0..11)
        .map(|number| {
            format!(
                "{number:0>3}.{}",
                ["x".repeat(60), "y".repeat(60), "z".repeat(60)].join(".")
            )
        })
        .collect();
    for (own, nameservers, searches, warnings) in [
        (json!({"nameservers": ["192.0.2.1", "192.0.2.2"]}), 3, 3, 1),
        (json!({"searches": &numbered[..29]}), 2, 32, 0),
        (json!({"searches": &numbered[..30]}), 2, 32, 1),
        (
            json!({"searches": numbered, "nameservers": ["::1", "::2", "::3"]}),
            3,
            32,
            2,
        ),
        (json!({"searches": &long[..10]}), 2, 13, 0),
        (json!({"searches": long}), 2, 13, 1),
    ] {
        let pod = json!({"metadata": {}, "spec": {"dnsConfig": own}});
        let change = change(&pointing(), &pod, "team").unwrap();
        let config = patched(&pod, &change)["dnsConfig"].take();
        let count = |field: &str| config[field].as_array().unwrap().len();
        assert_eq!(
            (count("nameservers"), count("searches")),
            (nameservers, searches),
            "{own}"
        );
        let searches = config["searches"].as_array().unwrap().iter();
        let characters: Vec<&str> = searches.map(|search| search.as_str().unwrap()).collect();
        assert!(characters.join(" ").len() <= 2048, "{own}");
        assert_eq!(change.warnings.len(), warnings, "{:?}", change.warnings);
    }
}

#[test]
fn options_alone_leave_the_policy_alone() {
    let pod = json!({"metadata": {}, "spec": {"dnsPolicy": "ClusterFirst"}});
    let after = patched(&pod, &change(&adding_options(), &pod, "team").unwrap());
    let options =
        json!([{"name": "ndots", "value": "2"}, {"name": "use-vc"}, {"name": "single-request-reopen"}]);
    assert_eq!(
        after,
        json!({"dnsPolicy": "ClusterFirst", "dnsConfig": {"options": options}})
    );
    // A pod that has all options, or other values for them, is left alone; one that has some gets the others.
    let own = json!([{"name": "use-vc"}, {"name": "single-request-reopen"}, {"name": "ndots", "value": "7"}]);
    let pod = json!({"metadata": {}, "spec": {"dnsConfig": {"options": own}}});
    assert_eq!(change(&adding_options(), &pod, "team"), Err(Reason::Same));
    let pod = json!({"metadata": {}, "spec": {"dnsConfig": {"nameservers": ["::1"], "options": [{"name": "use-vc"}]}}});
    let after = patched(&pod, &change(&adding_options(), &pod, "team").unwrap());
    assert_eq!(after["dnsConfig"]["nameservers"], json!(["::1"]));
    assert_eq!(after["dnsConfig"]["options"].as_array().unwrap().len(), 3);
}

#[test]
fn reviews_are_answered_by_their_uid() {
    let pod = json!({"metadata": {}, "spec": {}});
    let request = Request::read(&serde_json::to_vec(&review(&pod, "team")).unwrap()).unwrap();
    let answer: Value = serde_json::from_str(&request.answer(None)).unwrap();
    let uid = "705ab4f5-6393-11e8-b7cc-42010a800002";
    assert_eq!(
        answer,
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": {"uid": uid, "allowed": true}})
    );
    // A request that does not create a pod is allowed unchanged, even if the rules match it.
    for (field, value) in [
        ("operation", json!("UPDATE")),
        ("operation", json!("DELETE")),
        ("subResource", json!("status")),
        (
            "resource",
            json!({"group": "apps", "version": "v1", "resource": "deployments"}),
        ),
        ("object", json!(null)),
    ] {
        let mut other = review(&pod, "team");
        other["request"][field] = value;
        let request = Request::read(&serde_json::to_vec(&other).unwrap()).unwrap();
        assert!(request.created_pod().is_none(), "{other}");
    }
}

#[test]
fn what_is_no_review_is_told() {
    let good = review(&json!({"metadata": {}, "spec": {}}), "team");
    let changed = |path: &str, value: Value| {
        let mut review = good.clone();
        *review.pointer_mut(path).unwrap() = value;
        review.to_string()
    };
    for (text, expected) in [
        (String::new(), "EOF"),
        ("[".repeat(100_000), "invalid type"),
        ("{}".into(), "missing field"),
        (
            changed("/apiVersion", json!("admission.k8s.io/v1beta1")),
            "of admission.k8s.io/v1",
        ),
        (changed("/kind", json!("Pod")), "of admission.k8s.io/v1"),
        (changed("/request", json!(null)), "invalid type"),
        (changed("/request/uid", json!("")), "has no uid"),
        (
            changed("/request/object", json!("x".repeat(10_000))),
            "invalid type",
        ),
        (
            changed(
                "/request/object/spec",
                json!({"dnsConfig": {"nameservers": "::1"}}),
            ),
            "invalid type",
        ),
    ] {
        let problem = Request::read(text.as_bytes()).unwrap_err();
        assert!(problem.contains(expected) && problem.len() < 300, "{problem}");
    }
}

/// A large review with many entries takes little memory, and leaves the pod unchanged.
#[test]
fn of_what_has_many_entries_few_are_read() {
    let many = |entry: Value| Value::Array(vec![entry; super::entries::ENTRIES + 1]);
    let map: serde_json::Map<_, _> = (0..=super::entries::ENTRIES)
        .map(|number| (format!("a{number}"), json!("")))
        .collect();
    for pod in [
        json!({"spec": {"dnsConfig": {"options": many(json!({}))}}}),
        json!({"spec": {"dnsConfig": {"searches": many(json!("a"))}}}),
        json!({"spec": {"dnsConfig": {"nameservers": many(json!("10.0.0.1"))}}}),
        json!({"metadata": {"labels": map}}),
        json!({"metadata": {"annotations": map}}),
    ] {
        assert_eq!(change(&pointing(), &pod, "team").err(), Some(Reason::TooMany));
    }
    let mut fits = json!({"spec": {"dnsConfig": {"options": many(json!({"name": "a"}))}}});
    fits["spec"]["dnsConfig"]["options"].as_array_mut().unwrap().pop();
    let change = change(&pointing(), &fits, "team").unwrap();
    let options = &patched(&fits, &change)["dnsConfig"]["options"];
    assert_eq!(options.as_array().unwrap().len(), super::entries::ENTRIES + 1);
}
