//! Some seconds of each flood that `cargo xtask soak` runs for minutes: a calm client loses nothing, and
//! memory and descriptors stay within the documented limits.

use std::time::Duration;

use crate::harness::needs;
use crate::harness::soak::{Soak, floods};
use crate::harness::tools::RELEASE;

const EACH: Duration = Duration::from_secs(3);

/// Floods that hold much but do little.
const LIGHT: [&str; 2] = ["one byte per second", "random names"];

#[test]
fn floods_cost_a_calm_client_nothing() {
    if !needs(&[RELEASE]) {
        return;
    }
    let mut soak = Soak::start();
    let mut rows: Vec<_> = floods::ALL
        .into_iter()
        .map(|flood| soak.phase(Some(flood), EACH))
        .collect();
    for row in &rows {
        assert_eq!(row.seen.hits.failed, 0, "{row}");
    }
    // All floods together need a machine of their own, so the tests run only those that need little CPU time.
    let light = floods::ALL
        .iter()
        .filter(|flood| LIGHT.contains(&flood.name))
        .copied();
    rows.push(soak.all_at_once(&light.collect::<Vec<_>>(), 2 * EACH));
    let ceiling = soak
        .stage
        .proxy
        .metrics()
        .sum("dnsweir_memory_ceiling_bytes", &[]);
    for row in &rows {
        eprintln!("{row}");
        assert_eq!(row.seen.lost, 0, "{row}");
        assert!((row.peak as f64) < ceiling, "{row}: more than {ceiling} octets");
    }
    assert!(
        soak.settles(),
        "{} descriptors",
        soak.stage.proxy.process.descriptors()
    );
}
