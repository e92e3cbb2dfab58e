//! Commands that are programs of their own: `dnsweir` runs them from its own folder, in its own version.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::harness::proxy::program;

/// The programs, each with a command that it runs, but cannot fulfil.
const PROGRAMS: [(&str, &[&str]); 2] = [
    ("dnsweir-top", &["top", "--once", "--admin", "127.0.0.1:9"]),
    ("dnsweir-webhook", &["webhook", "--options-only"]),
];

/// The exit codes for a configuration that is not valid, and for an error of this machine.
const EX_USAGE: i32 = 64;
const EX_OSERR: i32 = 71;

/// Runs a program, and returns its exit code, its output and its errors.
fn run(program: &Path, words: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(program).args(words).output().expect("a program");
    let text = |octets: &[u8]| String::from_utf8_lossy(octets).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_missing_program_is_named_with_its_folder() {
    let folder = tempfile::tempdir().expect("a folder");
    let alone = folder.path().join("dnsweir");
    fs::copy(program(), &alone).expect("a copy of the program");
    for (name, words) in PROGRAMS {
        let (code, _, said) = run(&alone, words);
        let path = folder.path().join(name);
        let expected = format!("dnsweir: {} is missing: ", path.display());
        assert!(said.starts_with(&expected), "{said}");
        assert_eq!(code, Some(EX_OSERR), "{said}");
        // The help is complete without it.
        let (code, help, _) = run(&alone, &[words[0], "--help"]);
        assert_eq!(code, Some(0));
        assert!(help.contains(&format!("Usage: dnsweir {} ", words[0])), "{help}");
    }
}

/// As after half an upgrade. A program that nothing of ours has started does nothing, either.
#[test]
fn a_program_of_another_version_does_nothing() {
    for (name, words) in PROGRAMS {
        let path = program().with_file_name(name);
        let other = [&["--for", "0.0.9"][..], &words[1..]].concat();
        let version = env!("CARGO_PKG_VERSION");
        let of_version = format!("is of version {version}, but dnsweir 0.0.9 runs: ");
        for (words, expected) in [
            (&other[..], &*of_version),
            (
                &words[1..],
                "is a part of dnsweir: start the program `dnsweir` instead",
            ),
        ] {
            let (code, _, said) = run(&path, words);
            assert!(
                said.starts_with(&format!("dnsweir: {} {expected}", path.display())),
                "{said}"
            );
            assert_eq!(code, Some(EX_OSERR), "{said}");
        }
    }
}

#[test]
fn a_command_ends_as_its_program_does() {
    let (code, _, said) = run(&program(), PROGRAMS[0].1);
    assert!(said.starts_with("dnsweir: cannot read 127.0.0.1:9: "), "{said}");
    assert_eq!(code, Some(EX_OSERR), "{said}");
    // The arguments are not valid in ways that only the program sees, and that the command sees, too.
    let (code, _, said) = run(&program(), PROGRAMS[1].1);
    assert!(
        said.ends_with("dnsweir: with --options-only, write --ndots or --option\n"),
        "{said}"
    );
    assert_eq!(code, Some(EX_USAGE), "{said}");
    for (words, expected) in [
        (["top", "--interval", "0"], "--interval"),
        (["webhook", "--opt-out", "=x"], "write a label"),
    ] {
        let (code, _, said) = run(&program(), &words);
        assert!(said.contains(expected), "{said}");
        assert_eq!(code, Some(2), "{said}");
    }
}
