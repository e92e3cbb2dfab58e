//! `dnsweir filter new`: the folder builds, its tests pass, and the proxy accepts the module.

use std::fs;

use std::path::Path;
use std::process::Command;

use super::{alone_with_cargo, cargo, dnsweir, said, sample, target};
use crate::harness::tools::{needs, output};
use crate::harness::{Proxy, proxy};

#[test]
fn a_new_filter_answers() {
    let (_, module) = sample();
    let proxy = Proxy::start(&format!(
        r#"filter "new" {{
               module "{}"
               config {{ answer "hello.example" "192.0.2.7"; block "ads.example" }}
           }}
           zone "." {{ use "new"; forward "127.0.0.1:9" }}"#,
        module.display()
    ));
    let answer = proxy.query("hello.example", "A");
    assert_eq!(answer.answers(), ["hello.example. A 192.0.2.7"]);
    assert_eq!(proxy.query("x.ads.example", "A").rcode(), "NXDOMAIN");
    proxy.await_metric("dnsweir_filter_counter_total", &[("name", "blocked")], 1.0);
}

#[test]
fn its_own_tests_pass() {
    let (folder, _) = sample();
    let _alone = alone_with_cargo();
    let tested = cargo(&folder.join("sample"), &["test"]);
    let text = String::from_utf8_lossy(&tested.stdout);
    assert!(
        tested.status.success(),
        "{text}{}",
        String::from_utf8_lossy(&tested.stderr)
    );
    assert!(text.contains("3 passed"), "{text}");
}

/// `cargo doc` documents the filters' target, on which tests do not run: the test module must still be
/// included.
#[test]
fn the_documentation_has_what_tests_are_written_with() {
    let (folder, _) = sample();
    let pages = target().join("wasm32-unknown-unknown/doc/dnsweir_filter");
    let _alone = alone_with_cargo();
    drop(fs::remove_dir_all(&pages));
    let documented = cargo(
        &folder.join("sample"),
        &["doc", "--no-deps", "--package", "dnsweir-filter"],
    );
    let told = String::from_utf8_lossy(&documented.stderr);
    assert!(documented.status.success() && !told.contains("warning"), "{told}");
    let page = fs::read_to_string(pages.join("test/index.html")).expect("a page about `test`");
    for function in ["fn.query.html", "fn.start.html", "struct.Running.html"] {
        assert!(page.contains(function), "{function}");
    }
}

#[test]
fn nothing_is_written_over() {
    let folder = tempfile::tempdir().expect("a folder");
    let there = folder.path().join("there");
    fs::create_dir(&there).expect("a folder");
    let output = dnsweir(folder.path(), &["filter", "new", "there"]);
    assert_eq!(output.status.code(), Some(64));
    assert_eq!(fs::read_dir(&there).expect("a folder").count(), 0);
    for name in ["Loud", "self", "a b", "1st"] {
        let output = dnsweir(folder.path(), &["filter", "new", name]);
        assert_eq!(output.status.code(), Some(64), "{name}");
    }
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);
}

/// What a workspace shares is not written over what a folder has for something else.
#[test]
fn a_workspace_takes_no_folder_of_others() {
    let folder = tempfile::tempdir().expect("a folder");
    let ignored = folder.path().join(".gitignore");
    fs::write(&ignored, "theirs\n").expect("a file");
    let output = dnsweir(folder.path(), &["filter", "new", "sample", "--workspace"]);
    assert_eq!(output.status.code(), Some(64));
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(
        told.contains(".gitignore") && told.contains("nothing was changed"),
        "{told}"
    );
    assert_eq!(fs::read_to_string(&ignored).expect("a file"), "theirs\n");
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);
}

#[test]
fn filters_share_a_workspace() {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["all/first-shared", "all/second-shared"] {
        said(folder.path(), &["filter", "new", name, "--workspace"]);
    }
    let all = folder.path().join("all");
    let _alone = alone_with_cargo();
    let built = cargo(&all, &["build"]);
    let told = String::from_utf8_lossy(&built.stderr).into_owned();
    assert!(built.status.success() && !told.contains("warning"), "{told}");
    // Each of them finds its module where cargo puts it by default.
    for name in ["first", "second"] {
        let config = fs::read_to_string(all.join(format!("{name}-shared/dnsweir.kdl"))).expect("a file");
        let module = format!("wasm32-unknown-unknown/debug/{name}_shared.wasm");
        assert!(
            config.contains(&format!("module \"../target/{module}\"")),
            "{config}"
        );
        assert!(target().join(&module).is_file(), "{module}");
    }
    assert!(cargo(&all.join("second-shared"), &["test"]).status.success());
}

/// Builds the output of `filter new --lang` as its README says, and queries it.
fn a_new_filter_in(language: &str, tools: &[&str]) {
    if !needs(tools) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let name = format!("in-{language}");
    said(folder.path(), &["filter", "new", &name, "--lang", language]);
    let folder = folder.path().join(&name);
    // Downloads of the build are kept for the next time.
    let into = Path::new(env!("CARGO_TARGET_TMPDIR")).join(&name);
    output(Command::new("sh").arg("build.sh").arg(&into).current_dir(&folder));
    let config = fs::read_to_string(folder.join("dnsweir.kdl")).expect("a configuration");
    let listen = "listen \"127.0.0.1:15353\"\n";
    assert!(config.contains(listen), "{config}");
    let config = config
        .replace(listen, "")
        .replace("target/", &format!("{}/", into.display()))
        .replace("/etc/resolv.conf", "127.0.0.1:9");
    // This compiles the module, however long that takes on a slow machine; the start finds it compiled.
    let file = folder.join("tried.kdl");
    fs::write(&file, format!("{listen}{config}")).expect("a configuration");
    let checked = proxy::check(&file);
    assert!(
        checked.status.success(),
        "{}",
        String::from_utf8_lossy(&checked.stderr)
    );
    let proxy = Proxy::start(&config);
    proxy.process.logged("filter is ready");
    let answer = proxy.query("hello.example", "A");
    assert_eq!(answer.answers(), ["hello.example. A 192.0.2.1"]);
    assert_eq!(proxy.query("x.ads.example", "A").rcode(), "NXDOMAIN");
}

#[test]
fn a_new_filter_in_c() {
    a_new_filter_in("c", &["clang", "wasm-ld"]);
}

#[test]
fn a_new_filter_in_go() {
    a_new_filter_in("go", &["go"]);
}

#[test]
fn a_new_filter_in_javascript() {
    a_new_filter_in("javascript", &["node", "npm"]);
}

#[test]
fn a_new_filter_in_python() {
    a_new_filter_in("python", &["python3", "pip3"]);
}

/// A missing tool is named, with its source.
#[test]
fn a_missing_tool_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let empty = folder.path().join("bin");
    fs::create_dir(&empty).expect("a folder");
    for (language, words) in [
        ("c", "apt-get install clang lld"),
        ("go", "https://go.dev/dl"),
        ("javascript", "https://nodejs.org"),
        ("python", "apt-get install python3-pip"),
    ] {
        said(folder.path(), &["filter", "new", language, "--lang", language]);
        let built = Command::new("/bin/sh")
            .arg("build.sh")
            .current_dir(folder.path().join(language))
            .env("PATH", &empty)
            .output()
            .expect("a shell");
        let told = String::from_utf8_lossy(&built.stderr).into_owned();
        assert!(!built.status.success() && told.contains(words), "{told}");
    }
    // For Rust, it is most often the target.
    said(folder.path(), &["filter", "new", "untargeted"]);
    let rustc = empty.join("rustc");
    fs::write(&rustc, "#!/bin/sh\necho /nowhere\n").expect("a program");
    fs::set_permissions(&rustc, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("a program");
    let dev = proxy::command()
        .arg("dev")
        .current_dir(folder.path().join("untargeted"))
        .env("PATH", &empty)
        .output()
        .expect("dnsweir");
    let told = String::from_utf8_lossy(&dev.stderr).into_owned();
    assert!(
        told.contains("rustup target add wasm32-unknown-unknown"),
        "{told}"
    );
    assert_eq!(dev.status.code(), Some(71));
    assert!(dev.stdout.is_empty(), "nothing was built");
}
