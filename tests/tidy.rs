//! The source itself: which part may name which, what files may be called, how long they are.
//!
//! The rules are those of ARCHITECTURE.md; this is what keeps them true.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The parts of the host, and which others each may use. `main` may use all of them, and nobody uses
/// `main`. A part is a file or folder at the top of `host/src`, or both.
const ARROWS: &[(&str, &[&str])] = &[
    ("config", &[]),
    ("dns", &[]),
    ("cache", &["config", "dns"]),
    ("admission", &[]),
    ("netstat", &[]),
    ("output", &[]),
    ("source", &["admission", "config", "dns"]),
    ("filter", &["output", "config", "dns"]),
    (
        "serve",
        &["admission", "filter", "cache", "source", "config", "dns"],
    ),
    ("listen", &["netstat", "serve", "filter", "config", "dns"]),
    ("node", &["netstat", "config"]),
    ("ceiling", &["listen", "serve", "filter", "config"]),
    ("state", &["ceiling", "listen", "node", "serve"]),
    (
        "metrics",
        &[
            "ceiling", "state", "node", "output", "serve", "filter", "cache", "source", "listen", "config",
            "dns",
        ],
    ),
    (
        "admin",
        &[
            "ceiling", "metrics", "state", "netstat", "serve", "filter", "cache", "source", "listen",
            "config", "dns",
        ],
    ),
    ("args", &[]),
    ("tools", &["run", "serve", "filter", "config", "dns"]),
    (
        "fuzzing",
        &["listen", "serve", "filter", "cache", "config", "dns"],
    ),
    (
        "run",
        &[
            "ceiling", "admin", "metrics", "state", "node", "output", "listen", "serve", "filter", "cache",
            "source", "config", "dns",
        ],
    ),
];

/// What only some parts may name: crates and modules, and the parts.
const OUTSIDE: &[(&str, &[&str])] = &[
    ("wasmtime", &["filter"]),
    ("wit_component", &["filter"]),
    ("kdl", &["config"]),
    ("miette", &["config", "main"]),
    ("clap", &["args", "main"]),
    ("hyper", &["admin"]),
    ("hyper_util", &["admin"]),
    ("http_body_util", &["admin"]),
    ("prometheus_client", &["metrics", "admin"]),
    ("socket2", &["listen", "source", "admin"]),
    ("notify", &["run", "tools"]),
];

/// Types that open a socket, by the last part of their path.
const SOCKETS: &[&str] = &["UdpSocket", "TcpStream", "TcpListener", "TcpSocket"];

/// Who may.
const WITH_SOCKETS: &[&str] = &["listen", "source", "admin"];

/// What a file or module must not be called: a name that says nothing collects everything.
const EMPTY_NAMES: &[&str] = &[
    "util", "utils", "helper", "helpers", "common", "misc", "manager", "shared", "stuff",
];

#[test]
fn parts_use_only_what_their_arrows_say() {
    let mut wrong = Vec::new();
    for file in host_files() {
        let part = part(&file);
        let Some((_, allowed)) = ARROWS.iter().find(|(name, _)| *name == part) else {
            continue;
        };
        for (number, line) in code_lines(&file) {
            for used in crate_paths(&line) {
                let known = ARROWS.iter().any(|(name, _)| *name == used);
                if known && used != part && !allowed.contains(&used.as_str()) {
                    wrong.push(format!("{}:{number}: {part} uses {used}", file.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// A part that nobody wrote down is one that nobody thought about.
#[test]
fn every_part_has_its_place() {
    let above = ["main", "lib"];
    let parts: Vec<String> = host_files().iter().map(|file| part(file)).collect();
    assert!(parts.len() > 10, "{parts:?}: is this the right folder?");
    let unknown: Vec<&String> = parts
        .iter()
        .filter(|part| !above.contains(&part.as_str()) && !ARROWS.iter().any(|(name, _)| name == *part))
        .collect();
    assert!(unknown.is_empty(), "parts without arrows: {unknown:?}");
}

#[test]
fn dependencies_stay_in_their_parts() {
    let mut wrong = Vec::new();
    for file in host_files() {
        let part = part(&file);
        for (number, line) in code_lines(&file) {
            for (dependency, allowed) in OUTSIDE {
                if names(&line, dependency) && !allowed.contains(&part.as_str()) {
                    wrong.push(format!("{}:{number}: {part} names {dependency}", file.display()));
                }
            }
            for socket in SOCKETS {
                if line.contains(socket) && !WITH_SOCKETS.contains(&part.as_str()) {
                    wrong.push(format!(
                        "{}:{number}: {part} opens a socket: {socket}",
                        file.display()
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Filters and their SDK know nothing of the host, in code and in what they depend on.
#[test]
fn filters_do_not_know_the_host() {
    let mut wrong = Vec::new();
    for folder in ["filters", "guest-sdk", "examples"] {
        for file in files(&root().join(folder), &["rs", "toml"]) {
            for (number, line) in code_lines(&file) {
                let path = line.contains("../host")
                    || line.contains("dnsweir.workspace")
                    || line.contains("dnsweir =");
                if path || names(&line, "dnsweir") {
                    wrong.push(format!("{}:{number}: {line}", file.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn names_say_something() {
    let mut wrong = Vec::new();
    for file in files(&root(), &["rs"]) {
        let relative = file.strip_prefix(root()).unwrap_or(&file);
        let empty = relative.iter().any(|name| {
            let name = Path::new(name)
                .file_stem()
                .and_then(|stem| stem.to_str())
                .unwrap_or_default();
            EMPTY_NAMES.contains(&name)
        });
        if empty {
            wrong.push(relative.display().to_string());
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// Every module begins with what it is for; the tests of one in a file of their own need not.
#[test]
fn modules_say_what_they_are_for() {
    let silent: Vec<String> = files(&root(), &["rs"])
        .iter()
        .filter(|file| !file.ends_with("tests.rs"))
        .filter(|file| {
            let text = read(file);
            let first = text
                .lines()
                .find(|line| !line.is_empty() && !line.starts_with("#!["));
            !first.is_some_and(|line| line.starts_with("//!"))
        })
        .map(|file| file.strip_prefix(root()).unwrap_or(file).display().to_string())
        .collect();
    assert!(silent.is_empty(), "no `//!` at the top of {silent:#?}");
}

/// Unsafe code stands where it has to, each time with its reasons.
#[test]
fn unsafe_code_gives_its_reasons() {
    let mut wrong = Vec::new();
    for file in ["host", "guest-sdk", "filters", "examples"]
        .iter()
        .flat_map(|folder| files(&root().join(folder), &["rs"]))
    {
        let text = read(&file);
        let lines: Vec<&str> = text.lines().collect();
        for (index, line) in lines.iter().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            if !(code.contains("unsafe {") || code.contains("unsafe impl")) {
                continue;
            }
            let above = lines[..index].iter().rev().take(12);
            if !above
                .into_iter()
                .any(|line| line.trim_start().starts_with("// SAFETY:"))
            {
                wrong.push(format!("{}:{}", file.display(), index + 1));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "unsafe without `// SAFETY:`\n{}",
        wrong.join("\n")
    );
}

/// Not a rule, but a look at oneself: lengths of files without their tests and comments. Beyond 600 it is a rule.
#[test]
fn files_are_short() {
    let mut lengths: BTreeMap<usize, PathBuf> = BTreeMap::new();
    let mut all = Vec::new();
    for file in files(&root(), &["rs"]) {
        let length = code_lines(&file).len();
        all.push(length);
        lengths.insert(length, file);
    }
    all.sort_unstable();
    println!("{} files, median {} lines of code", all.len(), all[all.len() / 2]);
    for (length, file) in lengths.iter().rev().take(10) {
        println!(
            "{length:6} {}",
            file.strip_prefix(root()).unwrap_or(file).display()
        );
    }
    let (longest, file) = lengths.last_key_value().expect("files");
    assert!(
        *longest <= 600,
        "{} has {longest} lines of code: cut it along a seam",
        file.display()
    );
}

// --- Reading source

/// The workspace's root.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

fn host_files() -> Vec<PathBuf> {
    files(&root().join("host/src"), &["rs"])
}

/// The part of the host that a file belongs to: its folder, or its own name at the top.
fn part(file: &Path) -> String {
    let relative = file.strip_prefix(root().join("host/src")).unwrap_or(file);
    let first = relative.iter().next().map(Path::new).unwrap_or(relative);
    first
        .file_stem()
        .and_then(|stem| stem.to_str())
        .unwrap_or_default()
        .to_owned()
}

/// Files below a folder with one of these extensions, in order.
fn files(folder: &Path, extensions: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let Ok(entries) = fs::read_dir(folder) else {
        return found;
    };
    for entry in entries {
        let path = entry.expect("an entry").path();
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        if path.is_dir() {
            if !name.starts_with('.') && name != "target" {
                found.extend(files(&path, extensions));
            }
        } else if extensions
            .iter()
            .any(|extension| path.extension().is_some_and(|found| found == *extension))
        {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn read(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// Lines that are code, numbered: no comments, no blank lines, no attributes, and no items that only tests are
/// built with, wherever in the file they stand.
fn code_lines(file: &Path) -> Vec<(usize, String)> {
    let text = read(file);
    let mut lines = (1..).zip(text.lines());
    let mut code_lines = Vec::new();
    while let Some((number, line)) = lines.next() {
        if line.trim_start().starts_with("#[cfg(test)]") {
            skip_item(&mut lines, line.len() - line.trim_start().len());
            continue;
        }
        let code = line.split("//").next().unwrap_or_default().trim_end();
        if !code.trim().is_empty() && !code.trim_start().starts_with('#') {
            code_lines.push((number, code.to_owned()));
        }
    }
    code_lines
}

/// Passes over one item. As rustfmt writes it, the item ends with the first line of its own indentation that ends it.
fn skip_item<'a>(lines: &mut impl Iterator<Item = (usize, &'a str)>, indentation: usize) {
    for (_, line) in lines {
        let own = line.len() - line.trim_start().len() == indentation;
        if own && !line.trim_start().starts_with('#') && line.ends_with(['}', ';', ',']) {
            return;
        }
    }
}

/// The parts that a line names by `crate::PART`, in a group as well: `crate::{dns, cache::Cache}`.
fn crate_paths(line: &str) -> Vec<String> {
    let mut used = Vec::new();
    for rest in line.split("crate::").skip(1) {
        let group = rest
            .strip_prefix('{')
            .map(|group| group.split('}').next().unwrap_or(group));
        for item in group.map_or_else(|| vec![rest], |group| group.split(',').collect()) {
            let name: String = item
                .trim()
                .chars()
                .take_while(|c| c.is_ascii_alphanumeric() || *c == '_')
                .collect();
            if !name.is_empty() {
                used.push(name);
            }
        }
    }
    used
}

/// Whether a line names a crate: in a path or an import.
fn names(line: &str, dependency: &str) -> bool {
    let path = format!("{dependency}::");
    line.match_indices(&path).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':')
    }) || line.trim() == format!("use {dependency};")
}
