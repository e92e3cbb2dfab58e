//! Test cases of a filter: what it is asked, and a snapshot of what it said.
//!
//! ```kdl
//! config { block "ads.example" }
//! query "banner.ads.example" "A" client="192.0.2.7" {
//!     refuse "NXDOMAIN"
//!     count "blocked" 1
//! }
//! ```
//!
//! A file of them is read into [`TestCases`]. [`run`](run()) has a filter answer them one after the other, all by one
//! instance, and compares; [`load_filter`] loads a filter for the proxy and refuses one that says something else. The words
//! of a [`Snapshot`] are those in which a verdict is shown everywhere.

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
