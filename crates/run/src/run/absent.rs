//! What a configuration names and this machine does not have yet: addresses to listen on, interfaces.
//!
//! The others are served meanwhile. The kernel tells of links and addresses, and then what is absent is tried once more.

use std::net::SocketAddr;

use super::worker::Command;
use super::{Doors, Proxy, bind, port};
use crate::config::Config;
use crate::listen::Address;
use crate::node::News;

/// Resolves with the next news, if any are waited for.
pub(super) async fn news(news: &mut Option<News>) {
    match news {
        Some(news) => news.come().await,
        None => std::future::pending().await,
    }
}

impl Proxy {
    /// Hears of links and addresses from now on if this configuration waits for any, and says which.
    pub(super) fn await_links(&mut self, config: &Config) {
        let waits = !self.state.absent.read().is_empty()
            || !config.interfaces.is_empty()
            || self.absent_admin(config).next().is_some();
        self.news = match (self.news.take(), waits) {
            (_, false) => None,
            (Some(news), true) => Some(news),
            (None, true) => News::open()
                .inspect_err(|error| {
                    tracing::warn!(%error, "cannot watch links and addresses: reload with SIGHUP when they appear");
                })
                .ok(),
        };
    }

    /// Says what cannot be used, or not yet.
    pub(super) fn tell_notes(&self) {
        let notes = self.state.notes();
        notes.iter().for_each(|note| tracing::warn!("{note}"));
    }

    /// Admin addresses that are not served.
    fn absent_admin<'a>(&self, config: &'a Config) -> impl Iterator<Item = &'a SocketAddr> {
        let served: Vec<SocketAddr> = self.admin.iter().map(|(served, _)| *served).collect();
        config
            .admin
            .addresses
            .iter()
            .filter(move |address| !served.contains(address))
    }

    /// Takes what has come. The reason to load the configuration anew, if there is one.
    pub(super) async fn look_at_links(&mut self) -> Option<&'static str> {
        let generation = self.state.generation.read().clone();
        let interfaces = generation.config.interfaces_now();
        // If nothing came of it the last time, nothing will now.
        let tried = std::mem::replace(&mut self.interfaces, interfaces);
        if self.interfaces != generation.config.interfaces && self.interfaces != tried {
            return Some("an interface in the configuration was added, removed or recreated");
        }
        self.take_absent().await;
        None
    }

    /// Listens on addresses that have come.
    pub(super) async fn take_absent(&mut self) {
        let generation = self.state.generation.read().clone();
        let config = &generation.config;
        let absent: Vec<Address> = self.state.absent.read().clone();
        if absent.is_empty() && self.absent_admin(config).next().is_none() {
            return;
        }
        let bound = match bind(&self.state.shared, &absent, self.workers.len(), port(config)) {
            Ok(bound) => bound,
            Err(error) => return tracing::warn!("{error}"),
        };
        let came = bound.absent.len() < absent.len();
        if came && let Err(stop) = self.register(bound.sockets).await {
            return tracing::warn!("{stop}");
        }
        if came {
            for worker in &self.workers {
                worker.send(Command::Join);
            }
            let taken = absent.iter().filter(|address| !bound.absent.contains(address));
            let taken: Vec<String> = taken.map(|(address, _)| address.to_string()).collect();
            tracing::info!(
                listen = taken.join(" "),
                "an address has appeared: listening on it, too"
            );
        }
        let admin = self.bind_admin(config).unwrap_or_else(|error| {
            tracing::warn!("{error}");
            Vec::new()
        });
        let doors = Doors {
            admin,
            control: None,
            absent: bound.absent,
        };
        self.open(doors, config);
        self.await_links(config);
    }
}
