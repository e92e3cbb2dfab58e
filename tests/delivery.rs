//! Filters from a registry: pushed, signed, pulled, run, and swapped by their tag; an invalid one changes
//! nothing.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;

use serde_json::json;

use crate::authors::swapping::build;
use crate::harness::registry::{AUTH, CONFIG, LAYER, MANIFEST, Registry, Signer, TOOLS};
use crate::harness::tools::Perf;
use crate::harness::web::{WebServer, page};
use crate::harness::{PATIENCE, Proxy, Upstream, address, needs, proxy, until};

mod beside;
mod identities;

/// Runs a command of the program with the settings for the registry.
fn run(registry: &Registry, folder: &Path, arguments: &[&str]) -> Output {
    let mut command: Command = proxy::command();
    command
        .args(arguments)
        .args(registry.options())
        .current_dir(folder);
    command.stdin(Stdio::null()).output().expect("dnsweir")
}

/// The standard output of a command that must succeed.
#[track_caller]
fn said(registry: &Registry, folder: &Path, arguments: &[&str]) -> String {
    let output = run(registry, folder, arguments);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {complaint}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Puts a build of the filter into the registry, signs it, and returns its digest.
fn publish(registry: &Registry, number: u32, key: &Signer) -> String {
    let digest = registry.put("team/chain", "1", CONFIG, &[(LAYER, &build(number))]);
    registry.sign("team/chain", &digest, key);
    digest
}

/// Pushes the first build with the program, and returns its digest.
fn push(registry: &Registry, folder: &Path, key: &Signer) -> String {
    fs::write(folder.join("chain.wasm"), build(0)).expect("a module");
    let reference = registry.reference("team/chain:1");
    let printed = said(registry, folder, &["filter", "push", "chain.wasm", &reference]);
    let named = printed.lines().next().unwrap_or_default();
    let digest = named.split_once('@').expect("a digest").1.to_owned();
    assert_eq!(named, format!("{reference}@{digest}"));
    registry.sign("team/chain", &digest, key);
    digest
}

/// Two filters of one module that only answer together.
fn text(registry: &Registry, reference: &str, key: &Signer, upstream: &Upstream) -> String {
    let filter = |role: &str| {
        format!(
            "filter \"{role}\" {{ module \"{reference}\"; signed-by \"team\"; on-error \"servfail\"; limits time=\"1s\"\n\
             config {{ {role} }} }}\n"
        )
    };
    format!(
        "{}signatures {{ key \"team\" \"{}\" }}\n{}{}zone \".\" {{ use \"first\"; use \"last\"; forward \"{}\" }}",
        registry.section("interval \"1s\""),
        key.key().display(),
        filter("first"),
        filter("last"),
        upstream.address
    )
}

fn status(proxy: &Proxy) -> serde_json::Value {
    serde_json::from_str(&proxy.get("/status").1).expect("JSON")
}

/// The commands report what the registry has.
fn is_told(registry: &Registry, folder: &Path, first: &str, key: &Signer) {
    let reference = registry.reference("team/chain:1");
    let pulled = said(
        registry,
        folder,
        &["filter", "pull", &reference, "-o", "pulled.wasm"],
    );
    assert!(pulled.contains(first), "{pulled}");
    assert!(fs::read(folder.join("pulled.wasm")).expect("a module") == build(0));
    let public = key.key().display().to_string();
    let verified = said(
        registry,
        folder,
        &["filter", "verify", &reference, "--key", &public],
    );
    assert!(
        verified.contains(first) && verified.contains(&public),
        "{verified}"
    );
    let info = said(registry, folder, &["filter", "info", &reference]);
    assert!(
        info.contains(&format!("artifact  {first}, 1 signatures")),
        "{info}"
    );
}

/// The life of a filter: pushed, signed, checked, run, swapped under load by moving its tag, and available
/// without the registry.
#[test]
fn a_filter_comes_from_a_registry_and_outlasts_it() {
    if !needs(&[TOOLS, &["dnsperf"]].concat()) {
        return;
    }
    let (mut registry, key) = (Registry::start(), Signer::new());
    let upstream = Upstream::zone(&["test. 300 SOA ns.test. root.test. 1 2 3 4 5"]);
    let folder = tempfile::tempdir().expect("a folder");
    let first = push(&registry, folder.path(), &key);
    let reference = registry.reference("team/chain:1");

    is_told(&registry, folder.path(), &first, &key);
    let cache = folder.path().join("cache").display().to_string();
    let text = text(&registry, &reference, &key, &upstream);
    let mut proxy = Proxy::start_with(&text, &["--compiled-cache", &cache]);
    let checked = proxy::check(&proxy.file);
    let notes = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert!(
        notes.contains(&format!("{first}, signed with \"team\"")),
        "{notes}"
    );

    let questions: String = (0..100).map(|number| format!("{number}.test A\n")).collect();
    let load = Perf::start(proxy.address, &questions, 2_000);
    let mut last = first;
    for number in 1..=5 {
        let generation = proxy.generation();
        last = publish(&registry, number, &key);
        until("the new module to be in force", || {
            proxy.generation() > generation
        });
    }
    let load = load.stop();
    eprintln!("5 swaps by tag: {load:?}");
    assert_eq!((load.lost, load.noerror), (0, load.completed), "{load:?}");
    let filter = &status(&proxy)["filters"][0];
    assert_eq!(
        (&filter["artifact"], &filter["signed_by"]),
        (&last.clone().into(), &"team".into()),
        "{filter}"
    );

    registry.process.stop();
    until("the registry to be missed", || {
        proxy
            .metrics()
            .sum("dnsweir_module_pulls_total", &[("result", "failed")])
            > 0.0
    });
    assert_eq!(proxy.query("www.test", "A").answers(), ["www.test. A 192.0.2.1"]);
    let error = status(&proxy)["filters"][0]["pull_error"].to_string();
    assert!(error.contains("the tag cannot be checked"), "{error}");
    // Another process afterwards.
    proxy.process.stop();
    let proxy = Proxy::start_with(&text, &["--compiled-cache", &cache]);
    assert_eq!(proxy.query("www.test", "A").answers(), ["www.test. A 192.0.2.1"]);
    assert_eq!(status(&proxy)["filters"][0]["artifact"], last);

    registry.restart();
    let newest = publish(&registry, 6, &key);
    until("the registry's return to be noticed", || {
        status(&proxy)["filters"][0]["artifact"] == newest
    });
}

/// A command that checks a configuration with one filter from a registry.
fn check_command(folder: &Path, section: &str, reference: &str) -> Command {
    let file = folder.join("dnsweir.kdl");
    let text = format!(
        "listen \"127.0.0.1\"\n{section}\nfilter \"f\" {{ module \"{reference}\" }}\n\
         zone \".\" {{ use \"f\"; forward \"192.0.2.1\" }}\n"
    );
    fs::write(&file, text).expect("a file");
    let mut command = proxy::command();
    // Without anything pulled before.
    command
        .env("XDG_CACHE_HOME", folder.join("cache"))
        .arg("check")
        .arg(&file);
    command
}

/// What `check` says of such a configuration.
fn check(section: &str, reference: &str) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let output = check_command(folder.path(), section, reference).output();
    mistake(&output.expect("dnsweir check"))
}

/// The mistake that `check` found.
fn mistake(output: &Output) -> String {
    assert_eq!(
        output.status.code(),
        Some(64),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
    // Undoes the line wrapping.
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    said.replace(['│', '×'], " ")
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

#[test]
fn what_is_not_right_is_refused_by_name() {
    if !needs(TOOLS) {
        return;
    }
    let (registry, key) = (Registry::start(), Signer::new());
    let module = build(0);
    let good = registry.put("good", "1", CONFIG, &[(LAYER, &module)]);
    registry.put(
        "image",
        "1",
        "application/vnd.oci.image.config.v1+json",
        &[(LAYER, &module)],
    );
    registry.put(
        "layer",
        "1",
        CONFIG,
        &[("application/vnd.oci.image.layer.v1.tar", &module)],
    );
    registry.put("layers", "1", CONFIG, &[(LAYER, &module), (LAYER, b"more")]);
    registry.put("text", "1", CONFIG, &[(LAYER, b"no module")]);
    registry.put("signed", "1", CONFIG, &[(LAYER, &module)]);
    registry.sign("good", &good, &Signer::new());
    let section = registry.section("time \"20s\"");
    let signatures = format!(
        "{section}signatures {{ key \"team\" \"{}\" }}",
        key.key().display()
    );
    let other = format!("good@sha256:{}", "0".repeat(64));
    for (section, name, expected) in [
        (
            &section,
            "image:1",
            "its configuration has the media type \"application/vnd.oci.image.config.v1+json\"",
        ),
        (
            &section,
            "layer:1",
            "its layer has the media type \"application/vnd.oci.image.layer.v1.tar\"",
        ),
        (&section, "layers:1", "it has 2 layers"),
        (&section, "none:1", "manifest unknown"),
        (&section, &other, "manifest unknown"),
        (&signatures, "good:1", "a signature is wrong, or by another key"),
        (&signatures, "layers:1", "it has 2 layers"),
        (&signatures, "text:1", "is not signed, and must be by \"team\""),
    ] {
        let said = check(section, &registry.reference(name));
        assert!(said.contains(expected), "{name}: {said}");
    }
    let said = check(&section, &registry.reference("text:1"));
    assert!(said.contains("WebAssembly"), "{said}");
}

#[test]
fn what_cannot_be_asked_is_told() {
    if !needs(TOOLS) {
        return;
    }
    let registry = Registry::start();
    registry.put("text", "1", CONFIG, &[(LAYER, b"no module")]);
    let (section, reference) = (registry.section(""), registry.reference("text:1"));
    let auths = |auth: serde_json::Value| {
        let path = registry.credentials().with_file_name("other.json");
        let auths = serde_json::json!({ "auths": { registry.address.to_string(): auth } });
        fs::write(&path, auths.to_string()).expect("a file");
        let ca = registry.ca();
        format!(
            "registries {{ credentials \"{}\"; ca \"{}\" }}",
            path.display(),
            ca.display()
        )
    };
    for (auth, expected) in [
        (
            serde_json::json!({ "auth": "dXNlcjp3cm9uZw==" }),
            "Not authorized",
        ),
        (
            serde_json::json!({ "auth": AUTH, "identitytoken": "x" }),
            "`identitytoken`, which is not supported",
        ),
    ] {
        let said = check(&auths(auth), &reference);
        assert!(said.contains(expected), "{said}");
    }
    // An unknown registry, then with a mirror.
    let said = check(&section, "oci://registry.invalid/text:1");
    assert!(said.contains("/etc/resolv.conf"), "{said}");
    let mirror = registry.section(&format!("mirror \"registry.invalid\" \"{}\"", registry.address));
    let said = check(&mirror, "oci://registry.invalid/text:1");
    assert!(said.contains("WebAssembly"), "{said}");
    // An authority that is not configured.
    let said = check("", &reference);
    assert!(said.contains("UnknownIssuer"), "{said}");
}

/// Neither redirects nor token servers may lead there: a private address may be a cloud's metadata service.
#[test]
fn a_registry_leads_to_no_private_address() {
    let (registry, inside) = (WebServer::plain(), WebServer::plain());
    inside.serve("{\"token\": \"secret\"}", "a");
    // The same address under a name that is not configured.
    let elsewhere = format!("http://localhost:{}/token", inside.address.port());
    let plain = format!(
        "registries {{ plain-http \"{}\"; time \"10s\" }}",
        registry.address
    );
    let reference = format!("oci://{}/a:1", registry.address);
    let token = format!("www-authenticate: Bearer realm=\"{elsewhere}\",service=\"s\"\r\n");
    let location = format!("location: {elsewhere}\r\n");
    for (status, header) in [("401 Unauthorized", token), ("307 Temporary Redirect", location)] {
        registry.answer(move |_| page(status, &header, ""));
        let said = check(&plain, &reference);
        assert!(
            said.contains("only a host that the configuration names"),
            "{status}: {said}"
        );
        assert!(inside.requests().is_empty(), "{status}");
    }
}

/// A tag now points to something invalid: the old filter keeps answering, and the reason is reported.
#[test]
fn a_tag_that_moves_to_what_is_not_right_changes_nothing() {
    if !needs(TOOLS) {
        return;
    }
    let (registry, key) = (Registry::start(), Signer::new());
    let upstream = Upstream::zone(&["test. 300 SOA ns.test. root.test. 1 2 3 4 5"]);
    let folder = tempfile::tempdir().expect("a folder");
    let good = publish(&registry, 0, &key);
    let reference = registry.reference("team/chain:1");
    let text = text(&registry, &reference, &key, &upstream);
    let cache = folder.path().join("cache").display().to_string();
    let mut proxy = Proxy::start_with(&text, &["--compiled-cache", &cache]);
    let pull_error = || status(&proxy)["filters"][0]["pull_error"].to_string();

    // First unsigned, then signed with another key.
    let unsigned = registry.put("team/chain", "1", CONFIG, &[(LAYER, &build(1))]);
    until("it to be refused", || {
        pull_error().contains("is not signed, and must be")
    });
    registry.sign("team/chain", &unsigned, &Signer::new());
    until("it to be refused", || pull_error().contains("by another key"));
    let metrics = proxy.metrics();
    assert!(metrics.sum("dnsweir_module_pulls_total", &[("result", "refused")]) >= 2.0);
    assert_eq!(proxy.generation(), 1.0);
    // Signed, but not a filter: the reload fails.
    let broken = registry.put("team/chain", "1", CONFIG, &[(LAYER, b"no module")]);
    registry.sign("team/chain", &broken, &key);
    proxy.await_metric_within("dnsweir_reloads_total", &[("result", "failed")], 1.0..);
    assert_eq!(status(&proxy)["filters"][0]["artifact"], good);
    assert_eq!(proxy.query("www.test", "A").answers(), ["www.test. A 192.0.2.1"]);

    // A new process runs the last good filter, whatever the tag points to.
    proxy.process.stop();
    let proxy = Proxy::start_with(&text, &["--compiled-cache", &cache]);
    assert_eq!(status(&proxy)["filters"][0]["artifact"], good);
    assert_eq!(proxy.query("www.test", "A").answers(), ["www.test. A 192.0.2.1"]);
}

/// A registry that speaks HTTP and answers requests for a manifest with this.
fn odd_registry(answer: impl Fn(&mut TcpStream) + Clone + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind(address::fresh_socket()).expect("a listener");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let answer = answer.clone();
            thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().expect("a stream"));
                let mut stream = stream;
                loop {
                    let (mut first, mut line) = (String::new(), String::new());
                    if reader.read_line(&mut first).unwrap_or(0) == 0 {
                        return;
                    }
                    while reader.read_line(&mut line).is_ok_and(|length| length > 2) {
                        line.clear();
                    }
                    match first.contains("/manifests/") {
                        true => return answer(&mut stream),
                        false => {
                            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
                        }
                    }
                }
            });
        }
    });
    address
}

#[test]
fn a_registry_that_sends_without_end_is_ended() {
    let endless = |stream: &mut TcpStream| {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Type: {MANIFEST}\r\n\r\n");
        let _ = stream.write_all(head.as_bytes());
        while stream.write_all(&[b' '; 1 << 16]).is_ok() {}
    };
    let silent = |stream: &mut TcpStream| {
        // Until the other side closes the connection.
        let _ = stream.read(&mut [0]);
    };
    let (endless, silent) = (odd_registry(endless), odd_registry(silent));
    for (address, time, expected) in [
        (endless, "1m", "its manifest has more than 1MiB"),
        (silent, "1s", "it took more than 1s (`time`)"),
    ] {
        let section = format!("registries {{ plain-http \"{address}\"; time \"{time}\" }}");
        let said = check(&section, &format!("oci://{address}/a:1"));
        assert!(said.contains(expected), "{said}");
    }
}

/// What a registry sends has smaller bounds. The kernel's is the last resort, for which the test lowers it.
#[test]
fn a_pull_ends_at_its_limit_of_memory() {
    const LIMIT: u64 = 128 << 20;
    let registry = WebServer::plain();
    let (asked, asks) = mpsc::channel();
    let (resume, resumes) = mpsc::channel();
    let digest = format!("sha256:{}", "0".repeat(64));
    let part = |media_type: &str| json!({ "mediaType": media_type, "digest": digest, "size": LIMIT / 2 });
    let manifest = json!({ "mediaType": MANIFEST, "config": part(CONFIG), "layers": [part(LAYER)] });
    let manifest = manifest.to_string();
    registry.answer(move |request| {
        if !request.contains("/manifests/") {
            return page("200 OK", "", "");
        }
        let _ = asked.send(());
        let _ = resumes.recv();
        page("200 OK", "", &manifest)
    });
    let folder = tempfile::tempdir().expect("a folder");
    let section = format!("registries {{ plain-http \"{}\" }}", registry.address);
    let reference = format!("oci://{}/a:1", registry.address);
    let mut command = check_command(folder.path(), &section, &reference);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let check = command.spawn().expect("dnsweir check");
    asks.recv_timeout(PATIENCE).expect("a question");
    let pull = child_of(check.id()).expect("a process that pulls");
    assert_eq!(limit_memory(pull, LIMIT / 2), LIMIT);
    resume.send(()).expect("the registry");
    let output = check.wait_with_output().expect("dnsweir check");
    let said = mistake(&output);
    let expected = "what the registry sent takes more than 128MiB of memory";
    assert!(said.contains(expected), "{said}");
}

/// The process that this one has started.
fn child_of(parent: u32) -> Option<u32> {
    let wanted = format!("PPid:\t{parent}");
    let entries = fs::read_dir("/proc").expect("processes").flatten();
    let child = entries.into_iter().find(|entry| {
        let status = fs::read_to_string(entry.path().join("status")).unwrap_or_default();
        status.lines().any(|line| line == wanted)
    });
    child?.file_name().to_str()?.parse().ok()
}

/// Limits the memory of a process, and returns its limit before that.
fn limit_memory(process: u32, octets: u64) -> u64 {
    let process = process.try_into().expect("a process ID");
    let limit = libc::rlimit {
        rlim_cur: octets,
        rlim_max: octets,
    };
    let mut before = limit;
    // SAFETY: both point to limits, which outlive the call.
    let limited = unsafe { libc::prlimit(process, libc::RLIMIT_DATA, &raw const limit, &raw mut before) };
    assert_eq!(limited, 0, "{}", std::io::Error::last_os_error());
    before.rlim_cur
}
