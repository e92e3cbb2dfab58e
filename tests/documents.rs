//! The documents: all configurations in them are valid, and all options of filters are shown.
//!
//! A fence marked `kdl` is checked as a file. Whatever the example leaves out is added: a zone around stages,
//! a zone that uses filters, and the modules or resolv.conf that exist only on the reader's machine.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::harness::guests::{EXAMPLES, example, guest, root};
use crate::harness::proxy;

/// A configuration in a document.
struct Example {
    /// The file and line of the fence.
    place: String,
    text: String,
}

#[test]
fn every_example_is_a_valid_configuration() {
    let examples: Vec<Example> = documents(&root())
        .iter()
        .flat_map(|file| examples(file))
        .collect();
    assert!(
        examples.len() >= 5,
        "only {} examples: is this the right folder?",
        examples.len()
    );
    let mut failures = Vec::new();
    for example in &examples {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("example.kdl");
        fs::write(&file, completed(&example.text, folder.path())).expect("a file");
        let output = proxy::check(&file);
        if !output.status.success() {
            let said = [output.stdout, output.stderr].concat();
            failures.push(format!("{}\n{}", example.place, String::from_utf8_lossy(&said)));
        }
    }
    assert!(
        failures.is_empty(),
        "{} of {} examples:\n{}",
        failures.len(),
        examples.len(),
        failures.join("\n")
    );
}

/// The document about RFCs names the test for each, and each of these tests exists.
#[test]
fn what_is_said_of_rfcs_is_tested() {
    let text = fs::read_to_string(root().join("docs/reference/dns.md")).expect("a document");
    let (_, table) = text.split_once("## RFC by RFC").expect("the table");
    let rows: Vec<&str> = table
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| RFC"))
        .collect();
    assert!(rows.len() >= 40, "only {} rows", rows.len());
    for row in rows {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let [_, rfc, _, obeyed, otherwise, shown, _] = cells[..] else {
            panic!("not five cells: {row}")
        };
        assert!(["obeyed", "partly", "not"].contains(&obeyed), "{rfc}: {obeyed}");
        // A requirement that is not met has a reason, and one that is met has a test.
        assert!(
            if obeyed == "obeyed" {
                !shown.is_empty()
            } else {
                !otherwise.is_empty()
            },
            "{row}"
        );
        for test in shown.split('`').filter(|test| test.contains(".rs: ")) {
            let (file, name) = test.split_once(": ").expect("a file and a test");
            let places = [root().join(file), root().join("tests").join(file)];
            let source = places.iter().find_map(|place| fs::read_to_string(place).ok());
            let source = source.unwrap_or_else(|| panic!("{rfc}: there is no {file}"));
            assert!(
                source.contains(&format!("fn {name}(")),
                "{rfc}: {file} has no test {name}"
            );
        }
    }
}

/// The Rust code in the document about filters is that of an SDK test, which compiles and runs it.
#[test]
fn what_is_shown_in_rust_is_run() {
    // Regardless of line breaks.
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let run = fs::read_to_string(root().join("guest-sdk/tests/documented.rs")).expect("a test");
    let run = words(&run);
    let shown = fences(&root().join("docs/filters.md"), "```rust");
    assert!(shown.len() >= 4, "only {} fences", shown.len());
    for fence in shown {
        for method in fence.text.split("\n\n") {
            assert!(
                run.contains(&words(method)),
                "{}: not run:\n{method}",
                fence.place
            );
        }
    }
}

/// The test cases in the document about filters hold for their filters.
#[test]
fn what_is_shown_of_test_cases_holds() {
    let shown = fences(&root().join("docs/filters.md"), "```kdl test-cases");
    assert_eq!(shown.len(), 2, "each needs its filter here");
    let modules = [crate::authors::new_filter(), example("dns-lists")];
    for (fence, module) in shown.iter().zip(modules) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("test-cases.kdl");
        fs::write(&file, &fence.text).expect("a file");
        let mut test = proxy::command();
        let test = test.args(["filter", "test"]).arg(&module).arg("--test-cases");
        let output = test.arg(&file).output().expect("dnsweir filter test");
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        // Some are shown without a snapshot.
        assert!(
            said.contains("test cases of") && !said.contains("DIFF"),
            "{}: {said}",
            fence.place
        );
    }
}

const BUILT_IN: [&str; 11] = [
    "log",
    "rewrite",
    "nodecache",
    "hosts",
    "template",
    "acl",
    "rebinding",
    "rotation",
    "dns64",
    "minimal",
    "whoami",
];

/// Each filter has a README with the same sections and at least one example. For external filters, it also
/// says what they cannot do and what they cost.
#[test]
fn every_filter_has_a_readme_with_examples() {
    for filter in filters() {
        let file = readme(filter);
        let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        assert!(!examples(&file).is_empty(), "{} has no example", file.display());
        let sections: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("## ")).collect();
        let begin = ["Name", "Description", "Syntax", "Examples"];
        assert!(sections.starts_with(&begin), "{}: {sections:?}", file.display());
        let end = ["Metrics", "Limits", "Cost"];
        assert!(
            BUILT_IN.contains(&filter) || sections.ends_with(&end),
            "{}: {sections:?}",
            file.display()
        );
    }
}

/// The short example filters state their cost, and how it was measured.
#[test]
fn the_gallery_says_how_its_cost_was_measured() {
    for filter in [
        "cname-uncloak",
        "country",
        "dns-lists",
        "dns64",
        "fetched-block-list",
        "maintenance",
        "policy-zones",
        "rate-limit",
        "rebinding",
        "rotation",
        "tenants",
        "traffic",
    ] {
        let text = fs::read_to_string(readme(filter)).expect("a README");
        let cost = text.split("\n## ").find(|section| section.starts_with("Cost\n"));
        let cost = cost.unwrap_or_else(|| panic!("{filter} does not say what it costs"));
        let measured = cost.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            measured.contains("Measured with `bench/benches/examples.rs`"),
            "{filter}: {cost}"
        );
        let index = fs::read_to_string(root().join("examples/README.md")).expect("an index");
        assert!(
            index.contains(&format!("{filter}/README.md")),
            "{filter} is not listed"
        );
    }
}

/// Everything in the Syntax section of a README is used by the tests of that filter.
#[test]
fn every_documented_option_is_exercised() {
    let mut missing = Vec::new();
    for filter in filters() {
        let text = fs::read_to_string(readme(filter)).expect("a README");
        let tests = if BUILT_IN.contains(&filter) {
            format!("tests/builtin/{filter}.rs")
        } else {
            format!("tests/examples/{}.rs", filter.replace('-', "_"))
        };
        let tests = fs::read_to_string(root().join(tests)).expect("tests");
        let options = options(&text);
        assert!(
            !options.is_empty() || text.contains("There are no options."),
            "{filter}"
        );
        missing.extend(
            options
                .into_iter()
                .filter(|option| !tests.contains(option))
                .map(|option| format!("{filter}: {option}")),
        );
    }
    assert!(missing.is_empty(), "documented, and in no test: {missing:#?}");
}

/// A documented bound is only a claim if its test is gone or renamed.
#[test]
fn every_test_that_a_document_names_exists() {
    let functions: BTreeSet<String> = sources(&root())
        .iter()
        .flat_map(|file| {
            let text = fs::read_to_string(file).expect("source");
            let names = text.lines().filter_map(|line| {
                let rest = line
                    .trim_start()
                    .strip_prefix("fn ")
                    .or_else(|| line.trim_start().strip_prefix("async fn "))?;
                Some(rest.split(['(', '<']).next()?.to_owned())
            });
            names.collect::<Vec<_>>()
        })
        .chain(kept())
        .collect();
    let text = fs::read_to_string(root().join("docs/reference/robustness.md")).expect("the document");
    let rows = text
        .lines()
        .filter(|line| line.starts_with("| ") && !line.contains("| test |"));
    let mut missing = Vec::new();
    for row in rows {
        let tests = row
            .trim_end_matches([' ', '|'])
            .rsplit('|')
            .next()
            .unwrap_or_default();
        let named: Vec<&str> = tests.split('`').skip(1).step_by(2).collect();
        assert!(!named.is_empty(), "no test in the last column: {row}");
        for test in named {
            if !functions.contains(test.rsplit("::").next().unwrap_or(test)) {
                missing.push(test.to_owned());
            }
        }
    }
    assert!(
        missing.is_empty(),
        "docs/reference/robustness.md names tests that there are not: {missing:#?}"
    );
}

/// No link leads to a page or section that was moved or renamed.
#[test]
fn every_link_leads_somewhere() {
    let mut wrong = Vec::new();
    for file in documents(&root()) {
        let text = prose(&fs::read_to_string(&file).expect("a document"));
        let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for target in targets.filter(|target| !target.contains("://")) {
            let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
            let path = match path {
                "" => file.clone(),
                _ => file.with_file_name("").join(path),
            };
            let section = || prose(&fs::read_to_string(&path).unwrap_or_default());
            if !path.exists() || !anchor.is_empty() && !anchors(&section()).contains(anchor) {
                wrong.push(format!("{}: {target}", file.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "links that lead nowhere:\n{}", wrong.join("\n"));
}

/// A document without its fences.
fn prose(text: &str) -> String {
    let mut fenced = false;
    let lines = text.lines().filter(|line| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The link targets of a document: its headings, as GitHub names them, and named anchors.
fn anchors(prose: &str) -> BTreeSet<String> {
    let headings = prose.lines().filter(|line| line.starts_with('#'));
    let names = headings.map(|line| {
        let kept = line.trim_start_matches('#').trim().to_lowercase();
        let kept = kept
            .chars()
            .filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
        kept.collect::<String>().replace(' ', "-")
    });
    let named = prose
        .split("<a id=\"")
        .skip(1)
        .filter_map(|rest| rest.split('"').next());
    names.chain(named.map(str::to_owned)).collect()
}

/// The histories that are run as tests, in a simulated world.
fn kept() -> Vec<String> {
    let folder = root().join("tests/box/histories/kept");
    let entries = fs::read_dir(folder).expect("a folder");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths
        .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
        .collect()
}

/// The Rust files of the tests and of the proxy.
fn sources(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = ["tests", "host", "crates"]
        .map(|folder| root.join(folder))
        .to_vec();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found
}

fn filters() -> impl Iterator<Item = &'static str> {
    BUILT_IN.into_iter().chain(EXAMPLES)
}

fn readme(filter: &str) -> PathBuf {
    let folder = if BUILT_IN.contains(&filter) {
        "filters"
    } else {
        "examples"
    };
    root().join(folder).join(filter).join("README.md")
}

/// The options of a README's Syntax section: the first word of each line of its fences and their properties,
/// and the code in the first column of its tables.
fn options(readme: &str) -> BTreeSet<String> {
    let section = readme
        .split("\n## ")
        .find(|section| section.starts_with("Syntax"))
        .unwrap_or_default();
    let mut options = BTreeSet::new();
    let mut fenced = false;
    for line in section.lines() {
        if line.starts_with("```") {
            fenced = !fenced;
        } else if fenced && !line.starts_with(['{', ' ']) {
            options.extend(line.split_whitespace().next().map(str::to_owned));
            let words = line.split([' ', '[', ']']);
            options.extend(words.filter_map(|word| Some(format!("{}=", word.split_once('=')?.0))));
        } else if let Some(row) = line.strip_prefix("| `") {
            let column = row.split('|').next().unwrap_or_default();
            options.extend(
                column
                    .split('`')
                    .step_by(2)
                    .map(str::to_owned)
                    .filter(|code| !code.trim().is_empty()),
            );
        }
    }
    options
}

/// The Markdown files of the project.
fn documents(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        if path.is_dir() && !name.starts_with('.') && name != "target" {
            found.extend(documents(&path));
        } else if name.ends_with(".md") {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The `kdl` fences of a document.
fn examples(file: &Path) -> Vec<Example> {
    fences(file, "```kdl")
}

/// The fences of a document that start with this.
fn fences(file: &Path, begin: &str) -> Vec<Example> {
    let text = fs::read_to_string(file).expect("a document");
    let mut examples = Vec::new();
    let mut open: Option<Example> = None;
    for (number, line) in (1..).zip(text.lines()) {
        match &mut open {
            None if line.trim() == begin => {
                open = Some(Example {
                    place: format!("{}:{number}", file.display()),
                    text: String::new(),
                });
            }
            None => {}
            Some(_) if line.trim() == "```" => examples.extend(open.take()),
            Some(example) => {
                example.text.push_str(line);
                example.text.push('\n');
            }
        }
    }
    examples
}

/// The example, completed to a whole file.
fn completed(text: &str, folder: &Path) -> String {
    let top = top_nodes(text);
    let has = |name: &str| top.iter().any(|(node, _)| node == name);
    let stages = ["use", "cache", "forward"];
    let mut whole = String::new();
    if stages.iter().any(|stage| has(stage)) {
        for (_, filter) in top.iter().filter(|(node, _)| node == "use") {
            whole.push_str(&format!("filter \"{filter}\" {{ module \"builtin:log\" }}\n"));
        }
        let end = if has("forward") {
            ""
        } else {
            "forward \"192.0.2.53\"\n"
        };
        whole.push_str(&format!("zone \"whole.example\" {{\n{text}{end}}}\n"));
    } else {
        whole.push_str(text);
        let used: Vec<&String> = top
            .iter()
            .filter(|(node, _)| node == "filter")
            .map(|(_, name)| name)
            .collect();
        if !has("zone") {
            let uses: String = used.iter().map(|name| format!("    use \"{name}\"\n")).collect();
            whole.push_str(&format!(
                "zone \"whole.example\" {{\n{uses}    forward \"192.0.2.53\"\n}}\n"
            ));
        }
    }
    if !has("listen") {
        whole.push_str("listen \"127.0.0.1\"\n");
    }
    with_files(&whole, folder)
}

/// The top-level nodes of a document, each with its first argument. Understands just enough KDL: strings,
/// comments and braces.
fn top_nodes(text: &str) -> Vec<(String, String)> {
    let mut nodes = Vec::new();
    let mut depth = 0_usize;
    for line in text.lines() {
        let line = line.split("//").next().unwrap_or_default();
        if depth == 0 {
            let mut words = line.trim().splitn(2, ' ');
            let name = words.next().unwrap_or_default().trim_matches(['{', '}', ';']);
            let argument = words
                .next()
                .and_then(|rest| rest.split('"').nth(1))
                .unwrap_or_default();
            if !name.is_empty() {
                nodes.push((name.to_owned(), argument.to_owned()));
            }
        }
        let mut quoted = false;
        for character in line.chars() {
            match character {
                '"' => quoted = !quoted,
                '{' if !quoted => depth += 1,
                '}' if !quoted => depth = depth.saturating_sub(1),
                _ => {}
            }
        }
    }
    nodes
}

/// The line with a zone file that exists.
fn with_zone(line: String, folder: &Path) -> String {
    let named = line.split("file \"").nth(1);
    let Some(zone) = named.and_then(|rest| rest.split('"').next()) else {
        return line;
    };
    let file = folder.join("zone");
    fs::write(&file, "@ 60 SOA ns admin 1 2 3 4 5\n").expect("a file");
    line.replace(&format!("\"{zone}\""), &format!("\"{}\"", file.display()))
}

/// Creates files that exist only at the reader's site: a resolv.conf, lists of names, modules. Their digests
/// cannot match here.
fn with_files(text: &str, folder: &Path) -> String {
    let resolv_conf = folder.join("resolv.conf");
    fs::write(&resolv_conf, "nameserver 192.0.2.53\n").expect("a file");
    let mut lines = Vec::new();
    for line in text.lines() {
        let mut line = line.replace("\"/etc/resolv.conf\"", &format!("\"{}\"", resolv_conf.display()));
        if line.trim_start().starts_with("sha256 ") {
            line = String::new();
        }
        if let Some(path) = line.trim_start().strip_prefix("include \"") {
            let stages = path.contains("stages.kdl");
            let included = folder.join(if stages { "stages.kdl" } else { "section.kdl" });
            let text = if stages {
                "forward \"192.0.2.53\""
            } else {
                "workers 2"
            };
            fs::write(&included, text).expect("a file");
            line = format!("include \"{}\"", included.display());
        }
        line = with_zone(line, folder);
        let annotated = line
            .split_once("(file)\"")
            .or_else(|| line.split_once("(data)\""));
        if let Some(list) = annotated.and_then(|(_, rest)| rest.split('"').next()) {
            let file = folder.join("list");
            let octets = match Path::new(list).extension().and_then(|end| end.to_str()) {
                Some("zone") => b"$TTL 60\nads CNAME .\n".to_vec(),
                Some("mmdb") => crate::examples::country::database_of("DE"),
                _ => b"ads.example\n".to_vec(),
            };
            fs::write(&file, octets).expect("a file");
            line = line.replace(&format!("\"{list}\""), &format!("\"{}\"", file.display()));
        }
        if let Some(module) = line
            .split("module \"")
            .nth(1)
            .and_then(|rest| rest.split('"').next())
            && module.ends_with(".wasm")
        {
            let name = Path::new(module)
                .file_stem()
                .and_then(|stem| stem.to_str())
                .unwrap_or_default();
            let real = match name {
                "log" | "rewrite" | "nodecache" | "hosts" => format!("builtin:{name}"),
                _ => match name.strip_prefix("example_").map(|name| name.replace('_', "-")) {
                    Some(name) if EXAMPLES.contains(&&*name) => example(&name).display().to_string(),
                    // A module that accepts any configuration.
                    _ => guest("garbage").display().to_string(),
                },
            };
            line = line.replace(&format!("\"{module}\""), &format!("\"{real}\""));
        }
        lines.push(line);
    }
    lines.join("\n") + "\n"
}
