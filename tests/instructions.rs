//! What a cached answer costs in instructions, which callgrind counts: the same on every machine, however busy.
//!
//! Only the proxy's own part is counted, from the octets of a query to those of its reply, with the guests'
//! code; what the kernel does is not.

use std::process::Stdio;

use crate::harness::tools::{command, output};
use crate::harness::{needs, proxy::program};

/// Instructions for one hit, in batches of 32. Whoever makes it cheaper lowers the figure; whoever makes it dearer
/// by a tenth is told so here, and says in the commit what it is spent on.
const HIT: [(&str, f64); 2] = [("bare", 1763.0), ("remembered", 4728.0)];

/// Instructions that callgrind counts in `hit` for this many queries and for what comes before them.
fn instructions(filters: &str, count: u64) -> f64 {
    let mut valgrind = command("valgrind");
    valgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
    valgrind.arg("--toggle-collect=*HitPath*answer*");
    valgrind.arg(program().with_file_name("dnsweir-bench"));
    valgrind.args(["hit", "--filters", filters, "--count", &count.to_string()]);
    valgrind.stdin(Stdio::null());
    let run = valgrind.output().expect("valgrind");
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{said}");
    let collected = said.lines().find_map(|line| line.split_once("Collected :"));
    let collected = collected.and_then(|(_, count)| count.trim().parse().ok());
    collected.unwrap_or_else(|| panic!("callgrind counted nothing:\n{said}"))
}

#[test]
fn a_hit_does_not_grow_by_a_tenth() {
    if !needs(&["valgrind"]) {
        return;
    }
    eprintln!("{}", output(command("valgrind").arg("--version")).trim());
    for (filters, before) in HIT {
        // What is counted beside the queries is the same in both.
        let (few, many) = (3_200, 35_200);
        let each = (instructions(filters, many) - instructions(filters, few)) / (many - few) as f64;
        eprintln!("{filters}: {each:.1} instructions a hit, {before} before");
        assert!(
            each < before * 1.1,
            "{filters}: a hit takes {each:.1} instructions; it took {before}"
        );
        assert!(
            each > before * 0.9,
            "{filters}: a hit takes only {each:.1} instructions: write that down here instead of {before}"
        );
    }
}
