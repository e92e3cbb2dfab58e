//! File descriptors: how many the process may have, and how they are divided.
//!
//! A query to an upstream needs a socket just as a client's connection does, and fails if none is left. So
//! all needs are added up before the first descriptor is used, and a configuration that needs too many is
//! refused.

use std::io;

use crate::config::Config;
use crate::source::{self, forward};
use crate::{admin, identity, listen};

/// Open with any configuration: standard streams, the main thread's event loop, netlink, watched folders, the
/// log; and, briefly, files being read.
const BASE: usize = 64;

/// A worker's event loop.
const WORKER: usize = 8;

/// A reload that changes everything briefly has both generations' sockets open.
const GENERATIONS: usize = 2;

/// The fewest client connections when descriptors are short and `tcp-connections` is not set.
const CONNECTIONS_MINIMUM: usize = 64;

/// The fewest sockets to upstreams. When all are in use, queries share the newest ones.
const UPSTREAM_SOCKETS_MINIMUM: usize = 256;

/// How the descriptors are divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Descriptors {
    /// The total.
    pub limit: usize,
    /// Client connections.
    pub connections: usize,
    /// Sockets to upstreams, over all stages and generations.
    pub upstream_sockets: usize,
}

/// A configuration that needs more than the process may have.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the configuration needs {needed} file descriptors, and this process may have {limit}: raise its hard limit \
     (LimitNOFILE= of systemd, `ulimit -Hn` of a shell), or lower `tcp-connections`, `workers` or the number of addresses"
)]
pub struct TooFew {
    needed: usize,
    limit: usize,
}

/// Raises the soft limit to the hard one, and returns it.
pub fn raise() -> io::Result<usize> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the kernel writes one rlimit.
    done(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) })?;
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: the kernel reads one rlimit.
    done(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) })?;
    Ok(usize::try_from(limit.rlim_max).unwrap_or(usize::MAX))
}

fn done(result: libc::c_int) -> io::Result<()> {
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

impl Descriptors {
    /// Divides `limit` descriptors. What is not configured gives way: `tcp-connections`, and how many queries
    /// share a socket.
    ///
    /// # Errors
    /// When there are too few, with the number needed.
    pub fn share(config: &Config, workers: usize, limit: usize) -> Result<Descriptors, TooFew> {
        let (mut kept, mut most) = (0_usize, 0_usize);
        for source in config.sources() {
            let bounds = source::bounds(source, workers);
            kept = kept.saturating_add(bounds.connections);
            most = most.saturating_add(bounds.sockets);
        }
        let listeners = GENERATIONS * listen::LISTENER_DESCRIPTORS * config.listen.addresses.len();
        let of_worker = WORKER + forward::SPARE_SOCKETS + listeners;
        let admin = GENERATIONS * config.admin.addresses.len() * (1 + admin::CONNECTIONS);
        let pods = GENERATIONS * identity::DESCRIPTORS * usize::from(config.pods.is_some());
        let fixed = BASE + pods + forward::PROBE_SOCKETS + workers * of_worker + admin + listen::LEAVING;
        // Enough that kept connections leave as many sockets for queries over UDP.
        let sockets_minimum = most.min(UPSTREAM_SOCKETS_MINIMUM.max(GENERATIONS.saturating_mul(kept)));
        let connections_minimum = match config.listen.tcp_connections_written {
            true => config.listen.tcp_connections,
            false => CONNECTIONS_MINIMUM,
        };
        let needed = (fixed + connections_minimum).saturating_add(sockets_minimum);
        let Some(spare) = limit.checked_sub(needed) else {
            return Err(TooFew { needed, limit });
        };
        // Half of the rest for clients, half for upstreams.
        let wanted = config.listen.tcp_connections;
        let connections = wanted.min(connections_minimum + spare / 2);
        let upstream_sockets = most.min(limit - fixed - connections);
        Ok(Descriptors {
            limit,
            connections,
            upstream_sockets,
        })
    }

    /// Raises the limit of the process, and divides it.
    ///
    /// # Errors
    /// When there are too few.
    pub(crate) fn of_process(config: &Config, workers: usize) -> Result<Descriptors, String> {
        let limit = raise().map_err(|error| format!("the limit of descriptors cannot be read: {error}"))?;
        Descriptors::share(config, workers, limit).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn config(text: &str) -> Config {
        crate::config::parse("test", text, Path::new("/"), &[]).unwrap()
    }

    fn share(options: &str, limit: usize) -> Result<Descriptors, TooFew> {
        let text = format!(
            "listen \"127.0.0.1\" {{ {options} }}\nadmin \"127.0.0.1\"\nzone \".\" {{ forward \"192.0.2.1\" \"192.0.2.2\" }}"
        );
        Descriptors::share(&config(&text), 4, limit)
    }

    #[test]
    fn all_get_what_they_want_where_there_is_enough() {
        let shares = share("", 20_000).unwrap();
        assert_eq!(
            (shares.connections, shares.upstream_sockets),
            (1024, 1024 + 4 * (64 + 2 * 3))
        );
    }

    #[test]
    fn defaults_fit_into_the_usual_hard_limit() {
        let shares = share("", 1024).unwrap();
        assert!(shares.connections >= CONNECTIONS_MINIMUM, "{shares:?}");
        assert!(shares.upstream_sockets >= UPSTREAM_SOCKETS_MINIMUM, "{shares:?}");
    }

    #[test]
    fn connections_to_upstreams_are_counted_once() {
        let share = |connections: usize, limit| {
            let text = format!(
                "listen \"127.0.0.1\"\nzone \".\" {{ forward \"192.0.2.1\" {{ connections {connections} }} }}"
            );
            Descriptors::share(&config(&text), 4, limit)
        };
        let needed = |connections| share(connections, 0).unwrap_err().needed;
        assert_eq!(
            needed(16),
            needed(1),
            "they are among the fewest sockets there may be"
        );
        let many = GENERATIONS * 4 * 60;
        assert_eq!(needed(60) - needed(1), many - UPSTREAM_SOCKETS_MINIMUM);
        assert_eq!(share(60, 20_000).unwrap().upstream_sockets, 1024 + 4 * (64 + 61));
    }

    #[test]
    fn what_is_written_is_kept_or_refused() {
        assert_eq!(
            share("tcp-connections 300", 1024).map(|shares| shares.connections),
            Ok(300)
        );
        let refused = share("tcp-connections 5000", 1024).unwrap_err();
        assert!(refused.needed > 5256, "{refused}");
        // The number reported as needed is enough.
        let shares = share("tcp-connections 5000", refused.needed).unwrap();
        assert_eq!(
            (shares.connections, shares.upstream_sockets),
            (5000, UPSTREAM_SOCKETS_MINIMUM)
        );
        assert!(share("tcp-connections 5000", refused.needed - 1).is_err());
    }
}
