//! Builds what is embedded in the proxy: its filters, which are ordinary guest crates, compiled by another cargo in a target
//! folder of its own (this one's is locked by the cargo that waits for us).

use std::path::{Path, PathBuf};
use std::process::{Command, exit};
use std::{env, fs};

/// Folders in `filters/`, which `src/filter/builtin.rs` embeds.
const FILTERS: [&str; 11] = [
    "acl",
    "dns64",
    "hosts",
    "log",
    "minimal",
    "nodecache",
    "rebinding",
    "rewrite",
    "rotation",
    "template",
    "whoami",
];

/// Folders in `examples/languages/`, which `dnsweir filter new --lang` copies.
const LANGUAGES: [&str; 4] = ["c", "go", "javascript", "python"];

const TARGET: &str = "wasm32-unknown-unknown";

/// What the waiting cargo set for the host's own crates and what would be wrong for guests: flags for another
/// machine, a linter in the compiler's place, another target or target folder.
const NOT_FOR_GUESTS: [&str; 8] = [
    "CARGO_ENCODED_RUSTFLAGS",
    "RUSTFLAGS",
    "RUSTC_WORKSPACE_WRAPPER",
    "CARGO_BUILD_TARGET",
    "CARGO_BUILD_RUSTFLAGS",
    "CARGO_BUILD_TARGET_DIR",
    "CARGO_TARGET_DIR",
    "CARGO_UNSTABLE_BUILD_STD",
];

/// Small and fast; a panic is a trap anyway. The sections that say which interface a module has survive
/// stripping.
const PROFILE: [(&str, &str); 6] = [
    ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "3"),
    ("CARGO_PROFILE_RELEASE_LTO", "fat"),
    ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1"),
    ("CARGO_PROFILE_RELEASE_PANIC", "abort"),
    ("CARGO_PROFILE_RELEASE_DEBUG", "none"),
    ("CARGO_PROFILE_RELEASE_STRIP", "symbols"),
];

fn main() {
    let workspace = Path::new(&variable("CARGO_MANIFEST_DIR")).join("..");
    let out = PathBuf::from(variable("OUT_DIR"));
    // One for all builds of this crate (quick, release, for clippy), since the filters are the same in each: beside the
    // folder of build scripts, in which cargo has made `out`.
    let target = out.ancestors().nth(3).unwrap_or(&out).join("filters");
    for input in ["filters", "guest-sdk", "wit", "Cargo.lock", "Cargo.toml"] {
        println!("cargo::rerun-if-changed={}", workspace.join(input).display());
    }
    write_sdk(&workspace);
    let mut cargo = Command::new(variable("CARGO"));
    cargo
        .current_dir(&workspace)
        .args(["build", "--release", "--lib", "--target", TARGET]);
    cargo.arg("--target-dir").arg(&target);
    for filter in FILTERS {
        cargo.arg("--package").arg(format!("dnsweir-filter-{filter}"));
    }
    for name in NOT_FOR_GUESTS {
        cargo.env_remove(name);
    }
    cargo.envs(PROFILE);
    match cargo.status() {
        Ok(status) if status.success() => {}
        Ok(_) if !has_target() => fail(&format!(
            "the compiler has no {TARGET}, which the built-in filters are compiled for; \
             run `cargo xtask setup` or `rustup target add {TARGET}`"
        )),
        Ok(_) => fail("the built-in filters do not compile; cargo's messages are above"),
        Err(error) => fail(&format!("cannot run cargo for the built-in filters: {error}")),
    }
    for filter in FILTERS {
        let name = format!("dnsweir_filter_{filter}.wasm");
        let module = target.join(TARGET).join("release").join(&name);
        // Another checkout may share the target folder; what is embedded is this one's.
        let embedded = out.join(&name);
        if let Err(error) = fs::copy(&module, &embedded) {
            fail(&format!("cannot copy {}: {error}", module.display()));
        }
        println!(
            "cargo::rustc-env=DNSWEIR_FILTER_{}={}",
            filter.to_uppercase(),
            embedded.display()
        );
    }
}

/// Writes `sdk.rs`, which `src/tools/new.rs` includes: everything that a filter's author needs of this workspace.
fn write_sdk(workspace: &Path) {
    let sdk = texts(&workspace.join("guest-sdk/src"), "src/");
    let wit = texts(&workspace.join("wit"), "wit/");
    let examples: Vec<_> = LANGUAGES
        .iter()
        .map(|language| {
            (
                language,
                texts(&workspace.join("examples/languages").join(language), ""),
            )
        })
        .collect();
    let manifest = read(&workspace.join("Cargo.toml"));
    let bindgen = manifest.lines().find(|line| line.starts_with("wit-bindgen = "));
    let bindgen = bindgen.unwrap_or_else(|| fail("the workspace's Cargo.toml names no wit-bindgen"));
    let manifest = read(&workspace.join("guest-sdk/Cargo.toml"));
    let dependencies = manifest
        .split_once("[features]")
        .and_then(|(_, rest)| rest.split_once("[package.metadata"));
    let Some((dependencies, _)) = dependencies else {
        fail("guest-sdk/Cargo.toml has no `[features]` before `[package.metadata`");
    };
    let dependencies = dependencies
        .trim()
        .replace("wit-bindgen.workspace = true", bindgen);
    let interface = read(&workspace.join("wit/types.wit"));
    let interface = interface
        .lines()
        .find_map(|line| line.strip_prefix("package dnsweir:filter@")?.strip_suffix(';'));
    let interface = interface.unwrap_or_else(|| fail("wit/types.wit has no `package dnsweir:filter@…;`"));
    let mut text = format!(
        "const SDK: &[(&str, &str)] = &{sdk:?};\nconst DEPENDENCIES: &str = {dependencies:?};\n\
         const INTERFACE: &str = {interface:?};\nconst WIT: &[(&str, &str)] = &{wit:?};\n\
         const EXAMPLES: &[(&str, &[(&str, &str)])] = &["
    );
    for (language, files) in examples {
        text.push_str(&format!("({language:?}, &{files:?}),"));
    }
    text.push_str("];\n");
    let path = PathBuf::from(variable("OUT_DIR")).join("sdk.rs");
    if let Err(error) = fs::write(&path, text) {
        fail(&format!("cannot write {}: {error}", path.display()));
    }
}

/// Paths below a folder, in order, and what the files hold; cargo is told to look at them. Not what was built there.
fn texts(folder: &Path, prefix: &str) -> Vec<(String, String)> {
    let entries = fs::read_dir(folder);
    let entries = entries.unwrap_or_else(|error| fail(&format!("{}: {error}", folder.display())));
    let mut files = Vec::new();
    for entry in entries.flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        let name = format!("{prefix}{}", name.to_string_lossy());
        if name == "target" {
            continue;
        }
        if path.is_dir() {
            files.extend(texts(&path, &format!("{name}/")));
        } else {
            println!("cargo::rerun-if-changed={}", path.display());
            files.push((name, read(&path)));
        }
    }
    files.sort();
    files
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| fail(&format!("cannot read {}: {error}", path.display())))
}

/// Whether the compiler's sysroot holds the target's standard library. Asked only when the build has failed, so
/// that compilers which keep it elsewhere are not refused.
fn has_target() -> bool {
    let printed = Command::new(variable("RUSTC"))
        .args(["--print", "target-libdir", "--target", TARGET])
        .output();
    printed.is_ok_and(|printed| Path::new(String::from_utf8_lossy(&printed.stdout).trim()).is_dir())
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|error| fail(&format!("cargo did not set {name}: {error}")))
}

fn fail(message: &str) -> ! {
    println!("cargo::error={message}");
    exit(1)
}
