//! Tests on whole files: rendered mistakes, the documentation, and arbitrary text.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use proptest::prelude::*;
use tempfile::TempDir;

use super::words::Word;
use super::*;

const BUILTINS: module::Builtins<'static> =
    &[("log", b""), ("rewrite", b""), ("nodecache", b""), ("hosts", b"")];

/// Parses `text`; relative paths start at `folder`.
pub(super) fn parse_in(folder: &Path, text: &str) -> Result<Config, Report> {
    parse("test.kdl", text, folder, BUILTINS)
}

/// The configuration in the valid text `text`.
pub(super) fn config(text: &str) -> Config {
    parse_in(Path::new("/nonexistent"), text).unwrap_or_else(|report| panic!("{text}\n{report}"))
}

/// The mistakes in `text`.
pub(super) fn problems(text: &str) -> Vec<String> {
    let report = parse_in(Path::new("/nonexistent"), text).err();
    let found = report.iter().flat_map(|report| report.diagnostics());
    found.map(|diagnostic| diagnostic.message.clone()).collect()
}

/// Writes files into a folder, by name and content.
fn write(folder: &Path, files: &[(&str, &str)]) {
    for (name, content) in files {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
}

/// A temporary folder with these files.
pub(super) fn folder_with(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), files);
    folder
}

/// A file with one zone that has these `stages`.
pub(super) fn in_zone(stages: &str) -> String {
    format!("listen \"127.0.0.1\"\nzone \".\" {{\n{stages}\n}}\n")
}

/// Calls `look` with each word of the configuration, and with the words around it.
pub(super) fn each_word(look: &mut impl FnMut(&[&'static Word], &'static Word)) {
    fn inside(
        around: &mut Vec<&'static Word>,
        words: &'static [Word],
        look: &mut impl FnMut(&[&'static Word], &'static Word),
    ) {
        for word in words {
            look(around, word);
            around.push(word);
            inside(around, word.words, look);
            around.pop();
        }
    }
    inside(&mut Vec::new(), whole::FILE.words, look);
}

#[test]
fn what_is_not_written_has_a_default() {
    let config = config("listen \"127.0.0.1\"\nzone \".\" { forward \"192.0.2.1\" }");
    assert!((1..=4).contains(&config.workers));
    assert_eq!(config.cache_memory, 32 << 20);
    assert_eq!(config.waiting_queries, 8192);
    assert!(config.admin.addresses.is_empty() && config.node.is_none());
    assert!(config.filters.is_empty() && config.files.is_empty());
}

#[test]
fn a_file_is_loaded_with_what_it_names() {
    let folder = folder_with(&[
        ("resolv.conf", "nameserver 192.0.2.1\n"),
        ("dnsweir.kdl", &in_zone("forward \"./resolv.conf\"")),
    ]);
    let path = folder.path().join("dnsweir.kdl");
    let config = load(&path, BUILTINS).unwrap();
    assert_eq!(config.files, [path.clone(), folder.path().join("./resolv.conf")]);
    assert_eq!(config.source.name(), path.display().to_string());

    fs::write(&path, b"listen \"::1\"\n// \xff\n").unwrap();
    let report = load(&path, BUILTINS).unwrap_err();
    assert_eq!(report.lines(), [2]);
    assert!(report.to_string().contains("not UTF-8"), "{report}");

    fs::write(&path, "\n".repeat(syntax::MAX_TEXT + 7)).unwrap();
    assert!(load(&path, BUILTINS).unwrap_err().to_string().contains("at most"));

    for unreadable in [folder.path().to_owned(), folder.path().join("missing.kdl")] {
        let report = load(&unreadable, BUILTINS).unwrap_err().to_string();
        assert!(
            report.contains("cannot be read") && report.contains(&unreadable.display().to_string()),
            "{report}"
        );
    }
}

/// Compares a file with a text. With `UPDATE=1` in the environment, writes the text instead, so that changes
/// can be reviewed as a diff.
pub(super) fn compare(path: &Path, expected: &str) {
    if std::env::var_os("UPDATE").is_some_and(|value| value == "1") {
        fs::write(path, expected).unwrap();
    }
    let found = fs::read_to_string(path).unwrap_or_default();
    let mut lines = found.lines().zip(expected.lines());
    let differs = lines.find(|(found, expected)| found != expected);
    assert!(
        found == expected,
        "{} is to have another text (UPDATE=1 writes it): {differs:#?}\n{expected}",
        path.display()
    );
}

/// The files with this extension in a folder of `testdata`.
fn testdata(folder: &str, extension: &str) -> Vec<PathBuf> {
    // Tests run in the package's folder; a relative path makes the output the same everywhere.
    let mut files: Vec<PathBuf> = fs::read_dir(Path::new("src/testdata").join(folder))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .collect();
    files.sort();
    assert!(!files.is_empty());
    files
}

/// Every file in `testdata/bad` is rejected with the contents of its `.txt` file.
#[test]
fn mistakes_are_rendered_as_expected() {
    for path in testdata("bad", "kdl") {
        match load(&path, BUILTINS) {
            Ok(_) => panic!("{} is valid", path.display()),
            Err(report) => compare(&path.with_extension("txt"), &report.to_string()),
        }
    }
}

/// Compares the lines below each text in the files of a folder of `testdata` with those that `found` returns
/// for the name of the file, a folder and the text. A file starts with what is around its texts, with `…` in
/// place of them; before it may be files for the folder, each a paragraph behind `== NAME`. Returns the number
/// of texts.
fn compare_texts(folder: &str, mut found: impl FnMut(&str, &Path, &str) -> Vec<String>) -> usize {
    let mut count = 0;
    for path in testdata(folder, "txt") {
        let section = path.file_stem().unwrap().to_str().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = fs::read_to_string(&path).unwrap();
        let mut paragraphs = file.trim_end().split("\n\n").peekable();
        let mut expected = String::new();
        while let Some(named) = paragraphs.next_if(|paragraph| paragraph.starts_with("== ")) {
            let written = named[3..].split_once('\n').unwrap_or((&named[3..], ""));
            write(folder.path(), &[written]);
            expected += &format!("{named}\n\n");
        }
        let around = paragraphs.next().unwrap();
        expected += around;
        for paragraph in paragraphs {
            let lines = paragraph.lines().map_while(|line| line.strip_prefix("    "));
            let text = lines.collect::<Vec<_>>().join("\n");
            expected += &format!("\n\n    {}", text.replace('\n', "\n    "));
            for line in found(section, folder.path(), &around.replace('…', &text)) {
                expected += &format!("\n{line}");
            }
            count += 1;
        }
        let place = folder.path().display().to_string();
        compare(&path, &(expected.replace(&place, "/nonexistent") + "\n"));
    }
    count
}

/// Every text in `testdata/mistakes` produces the mistakes and help below it.
#[test]
fn mistakes_are_found() {
    let count = compare_texts("mistakes", |_, folder, text| {
        let report = parse_in(folder, text).expect_err(text);
        let found = report.diagnostics().iter();
        let lines = found.map(|found| format!("{} | {}", found.message, found.help));
        lines
            .map(|line| line.trim_end_matches(" | ").to_owned())
            .collect()
    });
    assert!(count > 200, "only {count}");
}

/// Every text in `testdata/underlined` has the mistakes below it, each behind its place and the text that is
/// underlined. Those in a file of this machine, which may be otherwise on another, are marked as `local`.
#[test]
fn mistakes_are_underlined() {
    let count = compare_texts("underlined", |_, folder, text| {
        let report = parse_in(folder, text).expect_err(text);
        let source = report.source();
        let lines = report.diagnostics().iter().map(|found| {
            let (start, line) = (found.span.start, source.line(found.span));
            let (name, part) = source.part(start);
            let before = source.text()[part.start..start].rsplit('\n').next();
            let column = 1 + before.map_or(0, str::len);
            let underlined = &source.text()[start..found.span.end()];
            let (message, help) = (&found.message, &found.help);
            let local = if found.local { " | local" } else { "" };
            format!("{name}:{line}:{column} {underlined:?} | {message} | {help}{local}")
        });
        lines.collect()
    });
    assert!(count > 12, "only {count}");
}

/// Every text in `testdata/files` is invalid, and depends on the files below it: the mistakes may be in any of
/// them, or be that one is not there yet.
#[test]
fn the_files_of_an_invalid_configuration_are_known() {
    let count = compare_texts("files", |_, folder, text| {
        write(folder, &[("main.kdl", text)]);
        let report = load(&folder.join("main.kdl"), BUILTINS).expect_err(text);
        let files = report.files().iter();
        files.map(|file| file.display().to_string()).collect()
    });
    assert!(count > 7, "only {count}");
}

/// Every text in `testdata/read` is valid, and read as the lines below it say: below the first text of a file
/// all of them, below the others those that differ.
#[test]
fn words_are_read() {
    let mut first = (String::new(), Vec::new());
    let count = compare_texts("read", |section, folder, text| {
        let config = parse_in(folder, text).unwrap_or_else(|report| panic!("{text}\n{report}"));
        let mut fields = fields(&part(&config, section));
        if first.0 == section {
            fields.retain(|field| !first.1.contains(field));
        } else {
            first = (section.to_owned(), fields.clone());
        }
        fields
    });
    assert!(count > 80, "only {count}");
}

/// The part of a configuration that the file `section` of `testdata/read` is about.
fn part(config: &Config, section: &str) -> String {
    let stage = || &config.zones[0].stages[0];
    let filters = config.filters.iter();
    match section {
        "admin" => format!("{:#?}", config.admin),
        "clients" => format!("{:#?}", config.clients),
        "clients-of-a-listener" => format!("{:#?}", config.listen.clients),
        "files" => {
            let read = filters.map(|filter| (&filter.name, &filter.module, &filter.code, filter.on_error));
            format!("{:#?}", (read.collect::<Vec<_>>(), &config.files))
        }
        "filter" => format!("{:#?}", config.filters[0]),
        "listen" => format!("{:#?}", config.listen),
        "hosts" => {
            let sources = config.filters[0]
                .refresh
                .iter()
                .flat_map(|refresh| &refresh.sources);
            let hosts = sources.map(|source| match &source.origin {
                RefreshOrigin::Location(location) => location.url.host_str(),
                RefreshOrigin::Path(_) => None,
            });
            format!("{:#?}", hosts.collect::<Vec<_>>())
        }
        "include" => {
            let zones = config.zones.iter().map(|zone| (&zone.names, zone.stages.len()));
            format!(
                "{:#?}",
                (zones.collect::<Vec<_>>(), config.workers, &config.files)
            )
        }
        "node" => format!("{:#?}", config.node),
        "pods" => format!("{:#?}", config.pods),
        "references" => match &config.filters[0].module {
            Module::Artifact(reference) => {
                format!("{:#?}", (reference.to_string(), reference.is_movable()))
            }
            other => other.to_string(),
        },
        "refresh" => format!("{:#?}", config.filters[0].refresh),
        "registries" => format!("{:#?}", config.registries),
        "resolv-conf" => format!("{:#?}", (stage(), &config.unusable)),
        "signatures" => format!("{:#?}", (&config.signatures, &config.filters[0].signed_by)),
        "source" => {
            let names: Vec<&String> = config.sources.iter().map(|named| &named.name).collect();
            format!("{:#?}", (names, config.sources().count()))
        }
        "wasi" => {
            let wasi = &config.filters[0].wasi;
            let paths: Vec<&PathBuf> = wasi.folders.iter().map(|folder| &folder.path).collect();
            format!("{:#?}", (wasi.words(), paths))
        }
        "zone" => format!("{:#?}", config.zones),
        "zone-file" => format!("{:#?}", (stage(), &config.files)),
        _ => format!("{:#?}", stage()),
    }
}

/// The fields in an output of `{:#?}`, without spans: one per line, behind the names of those around it.
fn fields(output: &str) -> Vec<String> {
    let (mut around, mut fields) = (Vec::new(), Vec::new());
    for line in output.lines().map(|line| line.trim().trim_end_matches(',')) {
        if let Some(opened) = line.strip_suffix(['{', '[', '(']) {
            around.push(opened.trim_end());
        } else if matches!(line, "}" | "]" | ")") {
            around.pop();
        } else {
            // What is outside of the first named field is the whole.
            let names = around.iter().skip_while(|name| !name.contains(':'));
            let names = names.filter(|name| !name.is_empty()).chain([&line]);
            fields.push(names.copied().collect::<Vec<_>>().join(" "));
        }
    }
    fields.retain(|field| !field.contains("span"));
    fields
}

/// Files that examples in the reference name.
const NAMED: [&str; 9] = [
    "trusted_root.json",
    "platform.pub",
    "team.pub",
    "rewrite.wasm",
    "block-list.wasm",
    "block-list.txt",
    "big-block-list.wasm",
    "fetched-block-list.wasm",
    "big-block-list.txt",
];

/// Every example in the reference is a complete configuration, unless its fence says that it is a `fragment`
/// of a file or zone, or that it `fails`.
#[test]
fn the_documentation_is_right() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let documents =
        ["configuration.md", "delivery.md"].map(|name| fs::read_to_string(docs.join(name)).unwrap());
    let text = documents.concat();
    let folder = tempfile::tempdir().unwrap();
    write_named(folder.path());

    let examples = fences(&text);
    assert!(examples.len() > 20, "{} examples", examples.len());
    for (line, kind, example) in examples {
        // The examples name absolute paths; in this test, the files are in the folder of the configuration.
        let example = example
            .replace("/etc/dnsweir/filters/", "./")
            .replace("/etc/dnsweir/", "./")
            .replace("/etc/resolv.conf", "./resolv.conf");
        let Some(whole) = with_what_is_around(kind, &example) else {
            panic!("line {line}: what is ```{kind}?")
        };
        match (kind, parse_in(folder.path(), &whole)) {
            ("kdl fails", Ok(_)) => panic!("line {line}: this example does not fail"),
            ("kdl fails", Err(_)) | (_, Ok(_)) => {}
            (_, Err(report)) => panic!("line {line}: {report}"),
        }
    }
}

/// The whole configuration for an example, by the attributes of its fence.
fn with_what_is_around(kind: &str, example: &str) -> Option<String> {
    const FORWARD: &str = "forward \"192.0.2.1\"";
    let unless_written = |word: &str, rest: &'static str| if example.contains(word) { "" } else { rest };
    let stage = |word: &str, below: &str| in_zone(&format!("{word} {{\n{example}\n}}\n{below}"));
    Some(match kind {
        "kdl" | "kdl fails" => example.to_owned(),
        "kdl fragment=file" => format!("{example}\n{}", in_zone(FORWARD)),
        "kdl fragment=listen" => format!("{example}\nzone \".\" {{ {FORWARD} }}"),
        "kdl fragment=zone" => in_zone(example),
        "kdl fragment=forward" if example.contains("next ") => stage(FORWARD, "forward \"192.0.2.2\""),
        "kdl fragment=forward" => stage(FORWARD, ""),
        "kdl fragment=file-stage" => stage("file \"zone\"", FORWARD),
        "kdl fragment=filter" => {
            let module = unless_written("module ", "module \"builtin:log\"");
            let used = in_zone(&format!("use \"f\"; {FORWARD}"));
            format!("filter \"f\" {{\n{module}\n{example}\n}}\n{used}")
        }
        "kdl fragment=node" => {
            let rules = unless_written("iptables", "iptables");
            format!("node {{\n{example}\n{rules}\n}}\n{}", in_zone(FORWARD))
        }
        _ => stage(kind.strip_prefix("kdl fragment=")?, FORWARD),
    })
}

/// Creates the files that the examples name, with suitable contents.
fn write_named(folder: &Path) {
    write(folder, &NAMED.map(|file| (file, "abc")));
    let made = rcgen::generate_simple_self_signed(["dns.example".to_owned()]).unwrap();
    let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    write(
        folder,
        &[
            ("resolv.conf", "nameserver 192.0.2.1\n"),
            ("conf.d/listen.kdl", "listen \"127.0.0.1\"\n"),
            ("zone", "@ 60 SOA ns admin 1 2 3 4 5\n"),
            ("stages.kdl", "cache; forward \"192.0.2.1\"\n"),
            ("ca.pem", &certificate),
            ("client.pem", &certificate),
            ("client.key", &key),
            ("tls.crt", &certificate),
            ("tls.key", &key),
        ],
    );
}

/// The KDL examples in a Markdown text: line, attributes of the fence, and content.
fn fences(text: &str) -> Vec<(usize, &str, String)> {
    let mut found = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let Some(kind) = line.strip_prefix("```") else {
            continue;
        };
        let content: Vec<&str> = lines
            .by_ref()
            .map(|(_, line)| line)
            .take_while(|line| *line != "```")
            .collect();
        if kind.starts_with("kdl") {
            found.push((number + 1, kind, content.join("\n")));
        }
    }
    found
}

/// Addresses, as they are written.
fn written(addresses: &[SocketAddr]) -> String {
    let written = addresses.iter().map(|address| format!(" \"{address}\""));
    written.collect()
}

/// The content of a string, as it is written: some characters need escapes.
fn escaped(text: &str) -> String {
    let escaped = text.chars().map(|c| match c.is_alphanumeric() || c == ' ' {
        true => c.to_string(),
        false => format!("\\u{{{:x}}}", c as u32),
    });
    escaped.collect()
}

fn addresses(net: [u8; 3]) -> impl Strategy<Value = Vec<SocketAddr>> {
    let v4 = (1..255u8, 1..=u16::MAX)
        .prop_map(move |(host, port)| SocketAddr::from(([net[0], net[1], net[2], host], port)));
    let v6 = (1..=u16::MAX, 1..=u16::MAX).prop_map(move |(host, port)| {
        SocketAddr::from(([0x2001, 0xdb8, net[2].into(), 0, 0, 0, 0, host], port))
    });
    proptest::collection::hash_set(prop_oneof![v4, v6], 1..8).prop_map(|set| set.into_iter().collect())
}

proptest! {
    #[test]
    fn arbitrary_text_never_panics(text in any::<String>()) {
        let _ = parse_in(Path::new("/nonexistent"), &text).map_err(|report| report.to_string());
    }

    #[test]
    fn text_that_looks_like_kdl_never_panics(text in "([a-z]{1,8}|listen|zone|cache|\"[^\"]{0,5}\"|[0-9]{1,3}|[ \n;{}=()#/*\\\\\"-]|#true|é){0,60}") {
        let _ = parse_in(Path::new("/nonexistent"), &text).map_err(|report| report.to_string());
    }

    /// And wherever it is cut, it never panics.
    #[test]
    fn what_is_written_is_what_is_read(
        listen in addresses([192, 0, 2]),
        workers in 1..=256usize,
        cache_memory in 1024..1_000_000usize,
        zones in proptest::collection::hash_set("[a-z][a-z0-9-]{0,20}(\\.[a-z0-9_]{1,20}){0,4}", 1..6),
        success in (0..100u64, 100..604_800u64),
        failure in 1..=300u64,
        percent in 1..=90u8,
        upstreams in addresses([198, 51, 100]),
        timeout in 10..=5000u64,
        attempts in 1..=10u32,
        value in any::<String>(),
        number in any::<i64>(),
        cut in 0..2000usize,
    ) {
        let names: String = zones.iter().map(|name| format!(" {name:?}")).collect();
        let (min, max) = success;
        let text = format!(
            "listen{}\nworkers {workers}\ncache-memory \"{cache_memory}KiB\"\n\
             filter \"f\" {{ module \"builtin:log\"; config {{ node \"{}\" value={number} }} }}\n\
             zone{names} {{\n use \"f\"\n \
             cache {{ success min=\"{min}s\" max=\"{max}s\"; failure \"{failure}s\"; prefetch percent={percent} }}\n \
             forward{} {{ timeout \"{timeout}ms\"; attempts {attempts} }}\n}}\n",
            written(&listen),
            escaped(&value),
            written(&upstreams),
        );
        let config = match parse_in(Path::new("/nonexistent"), &text) {
            Ok(config) => config,
            Err(report) => return Err(TestCaseError::fail(format!("{text}\n{report}"))),
        };
        prop_assert_eq!(&config.listen.addresses, &listen);
        prop_assert_eq!(config.workers, workers);
        prop_assert_eq!(config.cache_memory, cache_memory * 1024);
        let names: Vec<String> = zones.iter().map(|name| format!("{name}.")).collect();
        prop_assert_eq!(&config.zones[0].names, &names);
        let [Stage::Filter(0), Stage::Cache(cache), Stage::Source(SourceConfig::Forward(forward))] = &config.zones[0].stages[..] else {
            return Err(TestCaseError::fail(format!("{config:?}")));
        };
        let bounds = (cache.success.min.as_secs(), cache.success.max.as_secs());
        prop_assert_eq!(bounds, success);
        prop_assert_eq!(cache.failure, Duration::from_secs(failure));
        prop_assert_eq!(cache.prefetch.map(|prefetch| prefetch.percent), Some(percent));
        let asked: Vec<SocketAddr> = forward.upstreams.iter().map(|upstream| upstream.address).collect();
        prop_assert_eq!(&asked, &upstreams);
        prop_assert_eq!(forward.timeout, Duration::from_millis(timeout));
        prop_assert_eq!(forward.attempts, attempts);
        let node = &config.filters[0].config[0];
        prop_assert_eq!(&node.arguments, &[ConfigValue::Text(value.as_str().into())]);
        prop_assert_eq!(&node.properties, &[("value".to_owned(), ConfigValue::Integer(number))]);

        let text: String = text.chars().take(cut).collect();
        let _ = parse_in(Path::new("/nonexistent"), &text).map_err(|report| report.to_string());
    }
}
