//! Checks that the faults of `cargo xtask simulate --planted` still apply. A change that makes a patch stale
//! must also fix the patch.

use std::path::Path;
use std::process::Command;

#[test]
fn planted_faults_apply() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let folder = root.join("tests/box/planted");
    let mut stale = String::new();
    for entry in folder.read_dir().expect("the folder of planted faults") {
        let patch = entry.expect("a planted fault").path();
        let check = Command::new("git")
            .args(["apply", "--check"])
            .arg(&patch)
            .current_dir(&root)
            .output()
            .expect("git runs");
        if !check.status.success() {
            stale += &String::from_utf8_lossy(&check.stderr);
        }
    }
    assert!(
        stale.is_empty(),
        "planted faults that do not apply any more:\n{stale}"
    );
}
