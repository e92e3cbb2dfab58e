//! `dnsweir filter info` and `dnsweir filter test`.

use std::fs;
use std::path::Path;

use super::{dnsweir, said, sample};
use crate::harness::guests::{example, guest, verdicts};

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

/// The snapshots in a new filter's folder match its module.
#[test]
fn the_test_cases_of_a_new_filter_match() {
    let (folder, module) = sample();
    let cases = folder.join("sample/sample.test-cases.kdl");
    let arguments = ["filter", "test", text(&module), "--test-cases", text(&cases)];
    let report = said(folder, &arguments);
    assert!(report.ends_with("all match their snapshots\n"), "{report}");
    assert_eq!(
        report,
        said(folder, &arguments),
        "the same every time, instructions and all"
    );
    assert!(report.contains(" instructions, "), "{report}");
}

#[test]
fn a_change_is_shown_and_can_be_accepted() {
    let folder = tempfile::tempdir().expect("a folder");
    let cases = folder.path().join("hosts.kdl");
    let recorded = "// kept\nconfig { host \"a.example\" \"192.0.2.1\" }\n\n\
                    query \"a.example\" \"A\" {\n    refuse \"NXDOMAIN\"\n}\nquery \"b.example\" \"A\"\n";
    fs::write(&cases, recorded).expect("a file");
    let test = ["filter", "test", "builtin:hosts", "--test-cases", text(&cases)];
    let output = dnsweir(folder.path(), &test);
    assert_eq!(output.status.code(), Some(1));
    let report = String::from_utf8_lossy(&output.stdout).into_owned();
    for line in [
        "        - refuse \"NXDOMAIN\"",
        "        + answer \"NOERROR\" authoritative=#true {",
        "        +     record \"a.example.\" 3600 \"A\" \"192.0.2.1\"",
        " new  query \"b.example\" \"A\"",
        "        + not-called",
        "2 of 2 differ",
    ] {
        assert!(
            report.lines().any(|found| found.starts_with(line)),
            "no {line:?} in\n{report}"
        );
    }
    assert_eq!(
        fs::read_to_string(&cases).expect("a file"),
        recorded,
        "nothing is written unasked"
    );

    said(folder.path(), &[&test[..], &["--bless"]].concat());
    let blessed = fs::read_to_string(&cases).expect("a file");
    assert!(blessed.starts_with("// kept\nconfig { host"), "{blessed}");
    assert!(
        said(folder.path(), &test).ends_with("all match their snapshots\n"),
        "{blessed}"
    );

    // The cost is recorded as well: a different number is reported, but is no failure.
    let cost = blessed
        .lines()
        .find(|line| line.contains("cost instructions="))
        .expect("a cost");
    fs::write(
        &cases,
        blessed.replace(cost, "    cost instructions=1 memory=\"64KiB\""),
    )
    .expect("a file");
    let report = said(folder.path(), &test);
    assert!(
        report.contains("cost instructions=1 memory=\"64KiB\", now instructions="),
        "{report}"
    );
}

/// Snapshots include log lines, counters and failures; a filter is restarted after a failure.
#[test]
fn events_lines_and_failures_are_recorded() {
    let folder = tempfile::tempdir().expect("a folder");
    let cases = folder.path().join("log.kdl");
    fs::write(
        &cases,
        "config { format \"{name} {type} {rcode} {duration}\" }\n\
         event \"www.example\" \"AAAA\" rcode=\"NXDOMAIN\" took=\"15ms\" {\n    called\n    print \"www.example. AAAA NXDOMAIN 0.015s\"\n}\n",
    )
    .expect("a file");
    let output = dnsweir(
        folder.path(),
        &["filter", "test", "builtin:log", "--test-cases", text(&cases)],
    );
    let report = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{report}{}",
        String::from_utf8_lossy(&output.stderr)
    );

    let module = guest("trap");
    let cases = folder.path().join("trap.kdl");
    let query =
        "query \"trap.example\" \"A\" {\n    fail \"trap\"\n}\nquery \"a.example\" \"A\" {\n    pass\n}\n";
    let text_of_file = format!("config {{ queries }}\n{}", query.repeat(2));
    fs::write(&cases, text_of_file).expect("a file");
    let test = ["filter", "test", text(&module), "--test-cases", text(&cases)];
    let output = dnsweir(folder.path(), &test);
    let report = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(report.contains("told to panic at trap.example."), "{report}");
    assert!(
        report.contains("2 of 4 differ"),
        "only the log lines were not foreseen: {report}"
    );
    said(folder.path(), &[&test[..], &["--bless"]].concat());
    let report = said(folder.path(), &test);
    assert!(report.contains("it failed: "), "{report}");
}

/// A filter that reads messages and details gets those that a case gives, and they are kept when the result
/// is recorded.
#[test]
fn cases_give_messages_and_details() {
    let folder = tempfile::tempdir().expect("a folder");
    let cases = folder.path().join("given.kdl");
    let given = "given listener=\"127.0.0.1:53\" {\n        option 8 \"000118\" \"c00002\"\n        option 10 \"ab\"\n    }";
    let text_of_file = format!("query \"shown.example\" \"A\" edns=1232 {{\n    {given}\n}}\n");
    fs::write(&cases, &text_of_file).expect("a file");
    let module = verdicts();
    let test = ["filter", "test", text(&module), "--test-cases", text(&cases)];
    let new = dnsweir(folder.path(), &test);
    let report = String::from_utf8_lossy(&new.stdout).into_owned();
    assert_eq!(new.status.code(), Some(1), "{report}");
    let seen = "+ print \"query shown.example. at 127.0.0.1:53 [8=000118c00002 10=ab] subnet 000118c00002\"";
    assert!(report.contains(seen), "{report}");
    said(folder.path(), &[&test[..], &["--bless"]].concat());
    let blessed = fs::read_to_string(&cases).expect("a file");
    assert!(
        blessed.contains(&format!("{{\n    {given}\n    pass\n")),
        "{blessed}"
    );
    said(folder.path(), &test);

    let records =
        "record \"a.example.\" 300 \"A\" \"192.0.2.1\"; record \"a.example.\" 60 \"A\" \"10.0.0.1\"";
    let stripped =
        "edit error=17 error-text=\"private address\" {\n        remove section=\"answer\" index=1\n    }";
    let text_of_file = format!(
        "response \"a.example\" \"A\" {{\n    given {{ {records} }}\n    pass\n    {stripped}\n    count \"stripped\" 1\n}}\n"
    );
    fs::write(&cases, text_of_file).expect("a file");
    said(
        folder.path(),
        &[
            "filter",
            "test",
            "builtin:rebinding",
            "--test-cases",
            text(&cases),
        ],
    );

    // A mistake in `given` is reported at its place.
    fs::write(&cases, "query \"a.example\" \"A\" { given { option 8 \"0\" } }").expect("a file");
    let refused = dnsweir(folder.path(), &test);
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(error.contains("is not a string of bytes"), "{error}");
}

/// A filter that remembers a verdict, but gives another one for another client, remembers too much.
#[test]
fn a_verdict_for_one_client_alone_is_warned_of() {
    let folder = tempfile::tempdir().expect("a folder");
    let cases = folder.path().join("verdicts.kdl");
    let case = |label: &str, client: &str| {
        format!(
            "query \"{label}.example\" \"A\" client=\"{client}\" {{\n    refuse \"NXDOMAIN\"\n    remember \"1s\"\n}}\n"
        )
    };
    let text_of_file = [case("refuse", "192.0.2.7"), case("steer", "192.0.2.7")].concat();
    fs::write(&cases, text_of_file).expect("a file");
    let module = verdicts();
    let report = said(
        folder.path(),
        &["filter", "test", text(&module), "--test-cases", text(&cases)],
    );
    let warning =
        "warning: query \"steer.example\" \"A\" client=\"192.0.2.7\": this verdict may be remembered";
    let lines: Vec<&str> = report.lines().filter(|line| line.contains("warning: ")).collect();
    assert!(lines.len() == 1 && lines[0].starts_with(warning), "{report}");
    for line in ["        - refuse \"NXDOMAIN\"", "        + pass"] {
        assert!(
            report.lines().any(|found| found == line),
            "no {line:?} in\n{report}"
        );
    }
}

#[test]
fn a_module_says_what_it_wants() {
    let (folder, module) = sample();
    let config = folder.join("config.kdl");
    fs::write(
        &config,
        "block \"ads.example\"\nanswer \"a.example\" \"192.0.2.1\"\n",
    )
    .expect("a file");
    let arguments = [
        "filter",
        "info",
        text(&module),
        "--config",
        text(&config),
        "--json",
    ];
    let info: serde_json::Value = serde_json::from_str(&said(folder, &arguments)).expect("JSON");
    assert_eq!(info["kind"], "module");
    assert_eq!(info["bytes"], fs::metadata(&module).expect("a module").len());
    assert_eq!(info["imports"][0]["name"], "dnsweir:filter/host@0.1.0");
    assert_eq!(info["imports"][0]["functions"][0], "log");
    assert_eq!(info["exports"][1]["functions"][0], "on-queries");
    let suffixes = info["manifest"]["suffixes"].as_array().expect("names");
    assert!(suffixes.iter().any(|name| name == "ads.example."), "{suffixes:?}");
    assert_eq!(info["manifest"]["phases"], serde_json::json!(["query"]));
    assert!(info["manifest"]["configure_instructions"].as_u64() > Some(1000));

    let text = said(folder, &arguments[..5]);
    assert!(
        text.contains("a core module, which the proxy makes a component"),
        "{text}"
    );

    // A mistake in its configuration is underlined in that file.
    fs::write(&config, "block \"ads.example\"\nblok \"x\"\n").expect("a file");
    let text = said(folder, &arguments[..5]);
    assert!(text.contains("config.kdl:2:1"), "{text}");
    assert!(text.contains("this filter knows no `blok`"), "{text}");
}

/// Requests of a manifest beyond phases, types and names.
#[test]
fn a_module_says_what_else_it_wants() {
    let folder = tempfile::tempdir().expect("a folder");
    let info = |module: &str, config: &str, arguments: &[&str]| {
        let file = folder.path().join("config.kdl");
        fs::write(&file, config).expect("a file");
        let all = ["filter", "info", module, "--config", text(&file)];
        said(folder.path(), &[&all[..], arguments].concat())
    };
    let of = |name: &str, config: &str| info(text(&example(name)), config, &[]);
    let traffic = of("traffic", "");
    for table in ["names", "failing", "slow", "clients"] {
        let line = format!("    table     {table}, up to 524288 bytes, shown in the metrics\n");
        assert!(traffic.contains(&line), "{traffic}");
    }
    let limit = info(text(&example("rate-limit")), "rate 1", &["--json"]);
    let limit: serde_json::Value = serde_json::from_str(&limit).expect("JSON");
    let table = serde_json::json!([{"name": "clients", "bytes": 2_080_000, "shown": false}]);
    assert_eq!(limit["manifest"]["tables"], table);
    let egress = of("egress-names", "annotation \"example.com/egress\"");
    let line = "    details   namespace-annotation example.com/egress\n";
    assert!(egress.contains(line), "{egress}");
    let log = info("builtin:log", "class \"error\"", &[]);
    assert!(log.contains("    events    of error\n"), "{log}");
    let verdicts = info(text(&verdicts()), "via \"eu\"", &[]);
    assert!(verdicts.contains("    sources   eu\n"), "{verdicts}");
}

#[test]
fn what_is_no_module_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("x.wasm"), "text").expect("a file");
    for file in ["x.wasm", "missing.wasm", "builtin:nothing"] {
        let output = dnsweir(folder.path(), &["filter", "info", file]);
        assert_eq!(output.status.code(), Some(64), "{file}");
    }
    let output = dnsweir(folder.path(), &["filter", "test"]);
    assert_eq!(output.status.code(), Some(64), "nothing to ask");
}
