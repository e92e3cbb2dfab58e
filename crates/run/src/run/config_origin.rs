//! Where a configuration comes from: our own file, node-cache's, or none.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::config::{self, Config, Report};
use crate::privileges::Needs;
use crate::{filter, nodecache};

/// The configuration of `dnsweir run` without `--config`.
const DEFAULT: &str = include_str!("../default.kdl");

/// Where a configuration comes from.
#[derive(Debug, Clone)]
pub enum ConfigOrigin {
    /// The built-in configuration.
    Demonstration,
    /// Our own configuration file.
    File(PathBuf),
    /// node-cache's command line and files.
    NodeCache(Arc<nodecache::Options>),
}

impl ConfigOrigin {
    /// Returns what the process may need. A file that cannot be read now may have a `node` section a moment
    /// later, and dropped capabilities do not come back.
    pub fn needs(&self) -> Needs {
        let network = match self {
            ConfigOrigin::Demonstration => false,
            ConfigOrigin::File(file) => config::keeps_network(file).unwrap_or(true),
            ConfigOrigin::NodeCache(options) => options.keeps_network(),
        };
        if network { Needs::Network } else { Needs::Port }
    }

    /// Returns our own configuration file, if it is one, which names the admin addresses.
    pub(super) fn file(&self) -> Option<&Path> {
        match self {
            ConfigOrigin::File(file) => Some(file),
            ConfigOrigin::Demonstration | ConfigOrigin::NodeCache(_) => None,
        }
    }

    /// Loads the configuration; `start` means that no running one could continue instead.
    pub(super) fn load(&self, without_test_cases: bool, start: bool) -> Result<Config, Report> {
        let mut config = match self {
            ConfigOrigin::File(file) => config::load(file, filter::BUILTINS),
            ConfigOrigin::NodeCache(options) => options.load(filter::BUILTINS, start),
            ConfigOrigin::Demonstration => {
                config::parse("the embedded default", DEFAULT, Path::new("/"), filter::BUILTINS)
            }
        }?;
        if without_test_cases {
            for filter in &mut config.filters {
                filter.test_cases = None;
            }
        }
        Ok(config)
    }
}
