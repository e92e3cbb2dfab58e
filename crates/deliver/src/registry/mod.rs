//! Modules from registries: `module "oci://REGISTRY/NAME:TAG@sha256:DIGEST"`.
//!
//! [`Deliveries`] provides a configuration's modules. What is not [kept on disk](kept) is [pulled](pull()) by
//! a [child process](child), checked against [its digests](artifact) and [signatures](signature), and kept.
//! Both ask with a [`Client`](client). [`push`] is for authors. Registries are found by the system's resolver (`/etc/resolv.conf` where this
//! process runs), never by the proxy itself, which may be waiting for the answer.

mod artifact;
mod challenge;
mod child;
mod client;
mod credentials;
mod deliveries;
mod error;
mod job;
mod kept;
mod pull;
mod push;
mod referrers;
mod signature;

use crate::config::{Config, Module, Report};
use crate::private_folder::PrivateFolder;

pub use artifact::{Artifact, digest};
pub use child::serve as pull_for_parent;
pub use deliveries::Deliveries;
pub use pull::{PULL_MEMORY, Pulled, pull};
pub use push::push;
pub use signature::{Policy, has_signed};

/// Loads the code of each filter of `config` whose module is an artifact. Blocks; must not be called within a
/// runtime.
///
/// # Errors
/// One for each module that cannot be had, or is refused.
pub fn deliver_now(config: &mut Config, folder: Option<PrivateFolder>) -> Result<(), Report> {
    let artifacts = config
        .filters
        .iter()
        .any(|filter| matches!(filter.module, Module::Artifact(_)));
    if !artifacts {
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| {
        let problem = format!("modules cannot be pulled: {error}");
        config.report(vec![crate::config::Diagnostic::new(
            crate::config::Span::default(),
            problem,
        )])
    })?;
    runtime.block_on(Deliveries::new(folder).deliver(config))
}
