//! Test cases of a filter: its inputs, and snapshots of its results.
//!
//! ```kdl
//! config { block "ads.example" }
//! query "banner.ads.example" "A" client="192.0.2.7" {
//!     refuse "NXDOMAIN"
//!     count "blocked" 1
//! }
//! ```
//!
//! [`TestCases`] holds one file. [`run`](run()) runs its cases in order on one instance and compares the
//! results; [`load_filter`] loads a filter for the proxy and refuses one whose results differ. The words of a
//! [`Snapshot`] are used wherever a verdict is shown.

mod compare;
mod file;
mod given;
mod lookups;
mod read;
mod recorded;
mod run;
mod snapshot;
mod values;

pub use compare::Difference;
pub use file::{Case, TestCases};
pub use recorded::{Asked, Masks};
pub use run::{CaseResult, ask_again, load_filter, refresh, run};
pub use snapshot::{Snapshot, response_verdict_lines, verdict_lines};
