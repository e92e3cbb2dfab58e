//! Transports and origins as the interface has them.
//!
//! A proxy may know more of both than the interface that a filter was written for: each is told as the nearest that there
//! is. `docs/interface.md` says how a later interface tells more.

use super::bindings::dnsweir::filter::types;
use crate::dns::{Origin, Transport};

impl From<Transport> for types::Transport {
    #[inline]
    fn from(transport: Transport) -> types::Transport {
        match transport {
            Transport::Udp => types::Transport::Udp,
            Transport::Tcp => types::Transport::Tcp,
            Transport::Internal => types::Transport::Internal,
        }
    }
}

impl From<Origin> for types::Source {
    #[inline]
    fn from(origin: Origin) -> types::Source {
        match origin {
            Origin::Upstream => types::Source::Upstream,
            Origin::Cache => types::Source::Cache,
            Origin::Stale => types::Source::Stale,
            Origin::Filter => types::Source::Filter,
            Origin::Local => types::Source::Local,
        }
    }
}
