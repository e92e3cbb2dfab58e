//! The released image and Debian package, built by the program behind `cargo xtask image` and `package`, and
//! used as a recipient would.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use wit_component::{DecodedWasm, WitPrinter};
use wit_parser::{PackageId, Resolve};

use crate::harness::guests::root;
use crate::harness::process::Process;
use crate::harness::proxy::{program, try_get};
use crate::harness::registry::{Registry, TOOLS};
use crate::harness::tools::{command, output};
use crate::harness::{Message, address, ask, needs, until};

/// The programs that are shipped, in one folder.
const PROGRAMS: [&str; 4] = ["dnsweir", "dnsweir-artifacts", "dnsweir-top", "dnsweir-webhook"];

/// Builds an image or a package in a folder of its own.
fn made(what: &str) -> tempfile::TempDir {
    made_under("022", what)
}

/// Builds it under this umask.
fn made_under(umask: &str, what: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let packaging = program().with_file_name("dnsweir-packaging");
    let mut command = Command::new("sh");
    command
        .args(["-c", "umask $0 && exec \"$@\"", umask])
        .arg(packaging);
    command.arg("--program").arg(program());
    output(command.arg("--out").arg(folder.path()).arg(what));
    folder
}

/// The only file in a folder with this name ending.
fn only(folder: &Path, end: &str) -> PathBuf {
    let entries = fs::read_dir(folder).expect("a folder");
    let mut files = entries.map(|entry| entry.expect("a file").path());
    let found = files.find(|path| path.to_string_lossy().ends_with(end));
    found.unwrap_or_else(|| panic!("no {end} in {}", folder.display()))
}

/// Builds twice, with different rights for new files, and compares byte by byte.
#[track_caller]
fn same_twice(what: &str, end: &str) -> tempfile::TempDir {
    let [first, second] = ["022", "077"].map(|umask| made_under(umask, what));
    let read = |folder: &tempfile::TempDir| fs::read(only(folder.path(), end)).expect("what was packed");
    assert!(read(&first) == read(&second), "two runs of `{what}` differ");
    first
}

/// The value of a JSON document at a path of keys and indices.
fn at(file: &Path, path: &[&str]) -> String {
    let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let mut value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    for key in path {
        value = match key.parse::<usize>() {
            Ok(index) => value[index].take(),
            Err(_) => value[*key].take(),
        };
    }
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The image contains a whole system for the program: everything in it starts, and it needs nothing else.
#[test]
fn the_image_has_what_the_program_calls() {
    if !needs(&["root", "xtables-nft-multi", "nft", "tar"]) {
        return;
    }
    let folder = same_twice("image", ".tar");
    let image = folder.path().join("image");
    let blob = |digest: &str| image.join("blobs").join(digest.replace(':', "/"));
    let manifest = blob(&at(&image.join("index.json"), &["manifests", "0", "digest"]));
    let config = blob(&at(&manifest, &["config", "digest"]));
    assert_eq!(at(&config, &["config", "Entrypoint", "0"]), "/usr/bin/dnsweir");
    let version = at(&config, &["config", "Labels", "org.opencontainers.image.version"]);
    assert_eq!(version, env!("CARGO_PKG_VERSION"));

    let system = folder.path().join("system");
    fs::create_dir(&system).expect("a folder");
    let layer = blob(&at(&manifest, &["layers", "0", "digest"]));
    output(command("tar").arg("-xf").arg(layer).arg("-C").arg(&system));
    // As a runtime adds it to every container.
    fs::write(system.join("etc/resolv.conf"), "nameserver 192.0.2.53\n").expect("a file");
    let inside = |arguments: &[&str]| output(command("chroot").arg(&system).args(arguments));
    // The same files that the tests run.
    for name in PROGRAMS {
        let same = fs::read(system.join("usr/bin").join(name)).expect("a program")
            == fs::read(program().with_file_name(name)).expect("a program");
        assert!(same, "the image has another {name}");
    }
    // They start, and refuse to work for anyone but the proxy.
    for name in &PROGRAMS[1..] {
        let mut started = command("chroot");
        started.arg(&system).arg(format!("/usr/bin/{name}"));
        let said = started.output().expect("chroot").stderr;
        let said = String::from_utf8_lossy(&said);
        assert!(said.contains("is a part of dnsweir"), "{name}: {said}");
    }
    let said = inside(&["/usr/bin/dnsweir", "--version"]);
    assert!(said.starts_with(&format!("dnsweir {version}")), "{said}");
    assert!(inside(&["/usr/bin/dnsweir", "check", "/etc/dnsweir/dnsweir.kdl"]).contains("valid"));
    for family in ["iptables", "ip6tables"] {
        for (backend, shown) in [("", "nf_tables"), ("-legacy", "legacy")] {
            let name = format!("/usr/sbin/{family}{backend}");
            let said = inside(&[&name, "--version"]);
            assert!(said.contains(shown), "{name}: {said}");
        }
    }
    let compiled = fs::read_dir(system.join("usr/lib/dnsweir/compiled")).expect("compiled filters");
    assert!(compiled.count() > 1);
    assert!(inside(&["/usr/sbin/nft", "--version"]).contains("nftables"));
    // A rule as dnsweir writes it: its match is in a separate file. Only parsed, since a test must not add
    // rules.
    let said = inside(&["/usr/sbin/iptables", "-m", "socket", "--help"]);
    assert!(said.contains("nowildcard"), "{said}");

    let has = |path: &str| system.join(path).exists();
    assert!(!has("bin/sh") && !has("usr/bin/sh") && !has("usr/bin/apt"));
    assert_documented(&system);
}

/// Asserts that an image has the licences of what is in it, and a bill of materials.
fn assert_documented(system: &Path) {
    let documents = system.join("usr/share/doc/dnsweir");
    for document in ["LICENSE", "THIRD-PARTY-LICENSES", "sbom.spdx.json"] {
        assert!(documents.join(document).exists(), "{document}");
    }
    let bill = fs::read_to_string(documents.join("sbom.spdx.json")).expect("a bill");
    for part in [
        "pkg:cargo/wasmtime@48",
        "pkg:cargo/tokio@1",
        "pkg:deb/debian/iptables@",
        "pkg:deb/debian/libc6@",
    ] {
        assert!(bill.contains(part), "no {part}");
    }
    assert!(!bill.contains("proptest"), "what only tests need is not linked");
    let licences = fs::read_to_string(documents.join("THIRD-PARTY-LICENSES")).expect("licences");
    assert!(licences.contains("wasmtime 48") && licences.contains("Apache License"));
}

/// Installs and removes the package on this machine's system with an overlay.
#[test]
fn the_package_comes_and_goes() {
    if !needs(&["root", "dpkg-deb", "dpkg"]) {
        return;
    }
    let folder = same_twice("package", ".deb");
    let package = only(folder.path(), ".deb");
    let listed = output(command("dpkg-deb").arg("--contents").arg(&package));
    for path in [
        "./usr/bin/dnsweir",
        "./usr/bin/dnsweir-artifacts",
        "./usr/bin/dnsweir-top",
        "./usr/bin/dnsweir-webhook",
        "./usr/share/man/man1/dnsweir.1.gz",
        "./usr/share/man/man1/dnsweir-check.1.gz",
        "./usr/share/bash-completion/completions/dnsweir",
        "./lib/systemd/system/dnsweir.service",
        "./usr/share/doc/dnsweir/copyright",
        "./usr/share/doc/dnsweir/sbom.spdx.json",
    ] {
        assert!(
            listed.lines().any(|line| line.ends_with(path)),
            "no {path} in\n{listed}"
        );
    }
    assert!(listed.lines().all(|line| line.contains("root/root")), "{listed}");
    let modes = ["drwxr-xr-x ", "-rwxr-xr-x ", "-rw-r--r-- "];
    let is_usual = |line: &str| modes.iter().any(|mode| line.starts_with(mode));
    assert!(listed.lines().all(is_usual), "{listed}");

    let script = root().join("tests/packaging/install.sh");
    let mut isolated = command("unshare");
    isolated.args(["--mount", "--propagation", "private", "--net"]);
    let said = output(
        isolated
            .arg("sh")
            .arg("-eu")
            .arg(script)
            .arg(&package)
            .arg(folder.path()),
    );
    assert!(said.ends_with("all as it should be\n"), "{said}");
}

/// systemd accepts the unit, and reports how much of the system is exposed.
#[test]
fn the_unit_is_valid() {
    if !needs(&["systemd-analyze"]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let unit = fs::read_to_string(root().join("packaging/debian/dnsweir.service")).expect("a unit");
    // The program is not installed here.
    let unit = unit.replace("/usr/bin/dnsweir", &program().display().to_string());
    let file = folder.path().join("dnsweir.service");
    fs::write(&file, unit.replace("man:dnsweir(1) ", "")).expect("a unit");
    let mut verify = command("systemd-analyze");
    let verified = verify
        .args(["verify", "--man=no"])
        .arg(&file)
        .output()
        .expect("systemd-analyze");
    let said = String::from_utf8_lossy(&verified.stderr).into_owned();
    let ours: Vec<&str> = said.lines().filter(|line| line.contains("dnsweir")).collect();
    assert!(verified.status.success() && ours.is_empty(), "{said}");
    let mut exposure = command("systemd-analyze");
    exposure
        .args(["security", "--offline=true", "--threshold=30"])
        .arg(&file);
    output(&mut exposure);
}

/// Under the unit's system call filter, the program starts, compiles a filter and answers. What the filter
/// allows depends on systemd's version, and with 252 the groups alone were not enough.
#[test]
fn the_unit_allows_the_calls_that_are_made() {
    if !needs(&["systemd-analyze", "python3"]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (server, admin) = (address::fresh_socket(), address::fresh_socket());
    let config = format!(
        "listen \"{server}\"\nadmin \"{admin}\"\nawait-upstreams \"0s\"\n\
         filter \"names\" {{ module \"builtin:hosts\"; config {{ host \"www.example\" \"192.0.2.1\" }} }}\n\
         zone \".\" {{ use \"names\"; forward \"127.0.0.1:9\" }}\n"
    );
    fs::write(folder.path().join("dnsweir.kdl"), config).expect("a file");
    let unit = root().join("packaging/debian/dnsweir.service");
    let text = fs::read_to_string(&unit).expect("a unit");
    let start = text.lines().find_map(|line| line.strip_prefix("ExecStart="));
    let mut start = start.expect("a command").to_owned();
    for path in ["/etc/dnsweir", "/var/cache/dnsweir", "/run/dnsweir"] {
        start = start.replace(path, &folder.path().display().to_string());
    }
    let (_, arguments) = start.split_once(' ').expect("arguments");
    let mut filtered = command("python3");
    filtered
        .arg(root().join("tests/packaging/filtered.py"))
        .arg(&unit)
        .arg(program())
        .args(arguments.split_whitespace());
    let mut process = Process::start(&mut filtered);
    until("the program to be ready", || {
        assert!(process.running(), "it ended: {:#?}", process.stderr());
        try_get(admin, "/ready").is_some_and(|(status, _)| status == 200)
    });
    let answer = ask(server, &Message::query("www.example", "A"));
    assert_eq!(answer.answers(), ["www.example. A 192.0.2.1"]);
    // Nothing was compiled before.
    only(&folder.path().join("compiled"), ".cwasm");
    process.signal("TERM");
    assert!(process.ended().success(), "{:#?}", process.stderr());
}

/// The SDK's crate is complete without the rest of the repository, with everything that a registry requires.
#[test]
fn the_sdk_is_ready_to_be_published() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut package = Command::new("cargo");
    package
        .current_dir(root())
        .args([
            "package",
            "--offline",
            "--allow-dirty",
            "--package",
            "dnsweir-filter",
            "--target-dir",
        ])
        .arg(folder.path());
    let done = package.output().expect("cargo");
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success() && !said.contains("warning"), "{said}");
}

/// A release's checksums, signed with a throwaway key: the program itself verifies them, and detects changes.
#[test]
fn a_release_is_verified_by_the_program() {
    if !needs(&["openssl"]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = |name: &str| folder.path().join(name);
    for name in ["private.pem", "other.pem"] {
        let mut key = command("openssl");
        key.args(["ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out"]);
        output(key.arg(path(name)));
        let mut public = command("openssl");
        public.args(["pkey", "-pubout", "-in"]).arg(path(name));
        output(public.arg("-out").arg(path(&format!("{name}.pub"))));
    }
    let release = path("release");
    fs::create_dir(&release).expect("a folder");
    for name in ["a.deb", "b.tar.gz"] {
        fs::write(release.join(name), name).expect("a file");
    }
    let packaging = || {
        let mut command = Command::new(program().with_file_name("dnsweir-packaging"));
        command.arg("--out").arg(&release);
        command
    };
    output(packaging().arg("sums"));
    output(packaging().arg("sign").arg("--key").arg(path("private.pem")));
    let verify = |key: &str| {
        let mut verify = Command::new(program());
        verify.arg("verify").arg(release.join("SHA256SUMS"));
        let done = verify.arg("--key").arg(path(key)).output().expect("dnsweir");
        let said = [done.stdout, done.stderr].concat();
        (done.status.code(), String::from_utf8_lossy(&said).into_owned())
    };
    fs::remove_file(release.join("b.tar.gz")).expect("a file");
    let (status, said) = verify("private.pem.pub");
    assert_eq!(status, Some(0), "{said}");
    assert!(
        said.contains("a.deb: as it was signed\nb.tar.gz: not here\n"),
        "{said}"
    );
    let (status, said) = verify("other.pem.pub");
    assert_eq!(status, Some(64), "{said}");
    assert!(said.contains("by another key"), "{said}");
    fs::write(release.join("a.deb"), "another").expect("a file");
    let (status, said) = verify("private.pem.pub");
    assert_eq!(status, Some(64), "{said}");
    assert!(said.contains("a.deb: not what was signed"), "{said}");
}

/// An index with an image, a chart, provenance, checksums, and their signatures.
fn signed(packaging: impl Fn(&[&str]) -> Command, folder: &Path, host: &str, key: &Path) {
    let path = |path: &Path| path.display().to_string();
    let (image, key) = (path(&folder.join("image")), path(key));
    let name = format!("{host}/dnsweir");
    for words in [
        &["index", "--name", &name, &image][..],
        &["chart", "--registry", host],
        &["provenance", "--builder", "https://builder.example/1"],
        &["sums"],
        &["sign", "--registry", host, "--key", &key],
    ] {
        output(&mut packaging(words));
    }
}

/// Pushes image and chart to a registry with signatures, SBOM and provenance, only once.
#[test]
fn a_release_is_pushed_once() {
    if !needs(&[TOOLS, &["skopeo", "xtables-nft-multi", "nft"]].concat()) {
        return;
    }
    let (registry, folder) = (Registry::start(), made("image"));
    let key = folder.path().join("private.pem");
    let mut generate = command("openssl");
    generate.args(["ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out"]);
    output(generate.arg(&key));
    let host = format!("{}/dns", registry.address);
    let packaging = |arguments: &[&str]| {
        let mut command = Command::new(program().with_file_name("dnsweir-packaging"));
        command.env("REGISTRY_AUTH_FILE", registry.credentials());
        command.arg("--repository").arg("https://git.example/dnsweir");
        command.arg("--out").arg(folder.path()).args(arguments);
        command
    };
    signed(packaging, folder.path(), &host, &key);
    let push = ["push", "--registry", &host];
    let pushed = output(&mut packaging(&push));
    let there = |name: &str| {
        let mut inspect = command("skopeo");
        inspect.env("REGISTRY_AUTH_FILE", registry.credentials());
        inspect.args(["inspect", "--raw", "--tls-verify=false"]);
        let text = output(inspect.arg(format!("docker://{host}/{name}")));
        serde_json::from_str::<serde_json::Value>(&text).expect("a manifest")
    };
    // The type of the artifact attached to an image.
    let about = |name: &str, tag: &str| {
        let referrer = there(&format!("{name}:{tag}"))["manifests"][0]["digest"].clone();
        let manifest = there(&format!("{name}@{}", referrer.as_str().expect("a digest")));
        manifest["artifactType"].as_str().expect("a type").to_owned()
    };
    for (name, line) in ["dnsweir", "charts/dnsweir"].into_iter().zip(pushed.lines()) {
        let (tagged, digest) = line.split_once(" sha256:").expect("a digest");
        let version = env!("CARGO_PKG_VERSION");
        assert_eq!(tagged, format!("{host}/{name}:{version}"));
        there(&format!("{name}@sha256:{digest}"));
        let signature = there(&format!("{name}:sha256-{digest}.sig"));
        assert!(signature["layers"][0]["annotations"]["dev.cosignproject.cosign/signature"].is_string());
        let said = about(name, &format!("sha256-{digest}"));
        assert_eq!(said, "application/vnd.in-toto+json");
    }
    let of_processor = there(&format!("dnsweir:{}", env!("CARGO_PKG_VERSION")))["manifests"][0].clone();
    let digest = of_processor["digest"]
        .as_str()
        .expect("a digest")
        .replace(':', "-");
    assert_eq!(about("dnsweir", &digest), "application/spdx+json");

    // Pushing the same again changes nothing; something else under the same version is refused.
    output(&mut packaging(&push));
    output(&mut packaging(&["chart", "--registry", "other.example"]));
    let refused = packaging(&push).output().expect("dnsweir-packaging");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.status.success() && said.contains("is something else"),
        "{said}"
    );
}

/// The interface's package, in a separate folder.
fn packed_interface() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut command = Command::new(program().with_file_name("dnsweir-packaging"));
    command.current_dir(root()).arg("--out").arg(folder.path());
    output(command.arg("interface"));
    folder
}

/// The interface's package is a component with its text, and reproducible.
#[test]
fn the_interface_is_a_package() {
    let pack = || fs::read(packed_interface().path().join("dnsweir-filter-0.1.0.wasm")).expect("a package");
    let package = pack();
    let decoded = wit_component::decode(&package).expect("a package");
    let DecodedWasm::WitPackage(inside, id) = decoded else {
        panic!("a component that is no package");
    };
    let mut here = Resolve::default();
    let (own, _) = here.push_dir(root().join("wit")).expect("the interface");
    assert_eq!(
        interface_text(&inside, id).replace("\n\n", "\n"),
        interface_text(&here, own).replace("\n\n", "\n")
    );
    assert!(package == pack(), "two runs differ");
}

/// Header and module are packed with a filter that builds where it is unpacked, reproducibly.
#[test]
fn the_languages_are_packed() {
    for (language, tools) in [("c", &["tar", "clang", "wasm-ld"][..]), ("go", &["tar", "go"])] {
        if !needs(tools) {
            continue;
        }
        let folder = packed_interface();
        let name = format!("dnsweir-filter-{language}-0.1.0");
        let archive = |folder: &Path| fs::read(folder.join(format!("{name}.tar"))).expect("an archive");
        assert!(
            archive(folder.path()) == archive(packed_interface().path()),
            "two runs differ"
        );
        let mut unpack = command("tar");
        output(
            unpack
                .arg("-xf")
                .arg(format!("{name}.tar"))
                .current_dir(folder.path()),
        );
        let unpacked = folder.path().join(name);
        output(command("sh").arg("build.sh").current_dir(&unpacked));
        assert!(unpacked.join("target/names.wasm").is_file());
    }
}

/// The text of a package with comments, split into sorted interfaces and worlds, whose order is not fixed.
fn interface_text(resolve: &Resolve, package: PackageId) -> String {
    let mut printer = WitPrinter::default();
    printer.print(resolve, package, &[]).expect("text");
    let text = printer.output.to_string();
    let mut parts: Vec<&str> = text.split("\n}\n").collect();
    parts.sort_unstable();
    parts.join("\n}\n")
}
