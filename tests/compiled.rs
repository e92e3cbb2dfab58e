//! Compiled filters on disk make startup faster, and never do harm.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::Proxy;
use crate::harness::proxy::{command, program};
use crate::harness::tools::output;

const CONFIG: &str = "filter \"f\" { module \"builtin:hosts\"; config { host \"a.test\" \"192.0.2.7\" } }\nzone \"test\" { use \"f\" }";

fn start(cache: &Path) -> Proxy {
    let proxy = Proxy::start_with(CONFIG, &["--compiled-cache", &cache.display().to_string()]);
    assert_eq!(proxy.query("a.test", "A").answers(), ["a.test. A 192.0.2.7"]);
    proxy
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").path())
        // Fetched and pulled files are in subfolders.
        .filter(|path| path.is_file())
        .collect();
    files.sort();
    files
}

/// The second start uses what the first one compiled; a truncated or replaced file is compiled again.
#[test]
fn what_was_compiled_is_kept_and_checked() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let cache = folder.path().join("compiled");
    start(&cache);
    let kept = files(&cache);
    assert!(!kept.is_empty());
    let whole: Vec<Vec<u8>> = kept
        .iter()
        .map(|file| std::fs::read(file).expect("a file"))
        .collect();
    start(&cache);
    assert_eq!(files(&cache), kept);

    type Damage = fn(&[u8]) -> Vec<u8>;
    let damages: [Damage; 4] = [
        |_| Vec::new(),
        |whole| whole[..whole.len() / 2].to_vec(),
        |whole| whole.iter().rev().copied().collect(),
        |whole| {
            let mut changed = whole.to_vec();
            changed[whole.len() / 2] ^= 1;
            changed
        },
    ];
    for damage in damages {
        for (file, whole) in kept.iter().zip(&whole) {
            std::fs::write(file, damage(whole)).expect("a file");
        }
        start(&cache);
    }
    for (file, whole) in kept.iter().zip(&whole) {
        assert_eq!(
            std::fs::read(file).expect("a file").len(),
            whole.len(),
            "compiled again, and kept"
        );
    }
}

/// Also what `dnsweir check` and `dnsweir explain` compiled.
#[test]
fn tools_keep_what_they_compiled() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let config = folder.path().join("dnsweir.kdl");
    std::fs::write(&config, format!("listen \"127.0.0.1:9\"\n{CONFIG}")).expect("a file");
    for arguments in ["check", "explain a.test --config"] {
        let cache = folder.path().join(&arguments[..2]);
        let mut tool = command();
        tool.args(arguments.split(' ')).arg(&config);
        output(tool.arg("--compiled-cache").arg(&cache));
        let kept = files(&cache);
        assert!(!kept.is_empty(), "{arguments}");
        start(&cache);
        assert_eq!(files(&cache), kept, "{arguments}");
    }
}

/// A file written without the key, or under another module's name, is compiled again.
#[test]
fn what_another_key_says_is_not_taken() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let caches = ["one", "other"].map(|name| folder.path().join(name));
    let code = |cache: &Path| {
        let kept = files(cache);
        let file = kept
            .into_iter()
            .find(|file| file.extension().is_some_and(|extension| extension == "cwasm"));
        file.expect("a compiled filter")
    };
    let begin = |cache: &Path| std::fs::read(code(cache)).expect("a file")[..32].to_vec();
    let [ours, theirs] = caches.each_ref().map(|cache| {
        start(cache);
        begin(cache)
    });
    let [own, other] = caches.each_ref().map(|cache| code(cache));
    assert_eq!(own.file_name(), other.file_name(), "the same module");
    assert_ne!(ours, theirs);
    std::fs::copy(&other, &own).expect("a copy");
    start(&caches[0]);
    assert_eq!(begin(&caches[0]), ours, "compiled again");
}

/// Compiled code is executable: a folder that others can write to is not used.
#[test]
fn a_folder_that_others_can_write_to_is_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).expect("permissions");
    let arguments = ["--compiled-cache", &folder.path().display().to_string()];
    let mut proxy = Proxy::launch("zone \".\" { forward \"127.0.0.1:9\" }", &arguments);
    assert!(!proxy.process.ended().success());
    proxy.process.logged(&folder.path().display().to_string());
}

/// Code installed with the program is trusted like the program, and not compiled; unless others could write
/// to it.
#[test]
fn what_was_installed_with_the_program_is_taken() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let own = folder.path().join("bin/dnsweir");
    let installed = folder.path().join("lib/dnsweir/compiled");
    std::fs::create_dir(folder.path().join("bin")).expect("a folder");
    std::fs::copy(program(), &own).expect("a copy");
    output(Command::new(&own).arg("precompile-builtins").arg(&installed));
    let compiled = |cache: &str| {
        let cache = folder.path().join(cache);
        let shell = format!(
            "export XDG_CACHE_HOME='{}'; exec '{}' \"$@\"",
            cache.display(),
            own.display()
        );
        let proxy = Proxy::start_after(&shell, CONFIG);
        assert_eq!(proxy.query("a.test", "A").answers(), ["a.test. A 192.0.2.7"]);
        let is_code = |file: &PathBuf| file.extension().is_some_and(|extension| extension == "cwasm");
        files(&cache.join("dnsweir")).iter().any(is_code)
    };
    assert!(!compiled("one"), "it compiled what was installed");
    std::fs::set_permissions(&installed, std::fs::Permissions::from_mode(0o777)).expect("permissions");
    assert!(compiled("other"), "it took what others can write");
}
