//! Modules from registries: `module "oci://REGISTRY/NAME:TAG@sha256:DIGEST"`.
//!
//! [`Deliveries`] provides a configuration's modules. What is not [kept on disk](kept) is [pulled](pull()), checked
//! against [its digests](artifact) and [signatures](policy), and kept. [`push()`] is for authors. The program
//! `dnsweir-artifacts` asks registries and verifies signatures, in [processes](process) with limits. It finds registries
//! by the system's resolver (`/etc/resolv.conf` where this process runs), never by the proxy itself, which may be waiting
//! for the answer.

pub mod artifact;
mod credentials;
mod deliveries;
pub mod job;
mod kept;
pub mod key;
pub mod policy;
mod process;
mod pull;
mod push;

use crate::config::{Config, Diagnostic, Report, Span};
use crate::private_folder::PrivateFolder;

pub use artifact::{Artifact, digest};
pub use credentials::Credentials;
pub use deliveries::Deliveries;
pub use process::{Error, PULL_MEMORY, Work};
pub use pull::{Pulled, pull};
pub use push::push;

/// Loads the code of each filter of `config` whose module is an artifact. Blocks; must not be called within a
/// runtime.
///
/// # Errors
/// One for each module that cannot be had, or is refused.
pub fn deliver_now(config: &mut Config, folder: Option<PrivateFolder>) -> Result<(), Report> {
    if !deliveries::has_artifacts(config) {
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| {
        let problem = format!("modules cannot be pulled: {error}");
        config.report(vec![Diagnostic::new(Span::default(), problem)])
    })?;
    runtime.block_on(Deliveries::new(folder).deliver(config))
}
