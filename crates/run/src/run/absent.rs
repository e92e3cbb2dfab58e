//! Addresses and interfaces that a configuration names, but this machine does not have yet.
//!
//! Everything else is served meanwhile. When the kernel reports a change of links or addresses, the missing
//! ones are tried again.

use std::net::SocketAddr;

use super::worker::Command;
use super::{Doors, Proxy, bind, port};
use crate::config::Config;
use crate::listen::Address;
use crate::node::News;

/// Resolves with the next notification, if any are expected.
pub(super) async fn news(news: &mut Option<News>) {
    match news {
        Some(news) => news.come().await,
        None => std::future::pending().await,
    }
}

impl Proxy {
    /// Subscribes to link and address changes if this configuration waits for any, else unsubscribes.
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

    /// Logs what cannot be used, or not yet.
    pub(super) fn tell_notes(&self) {
        let notes = self.state.notes();
        notes.iter().for_each(|note| tracing::warn!("{note}"));
    }

    /// Returns the admin addresses that are not served.
    pub(super) fn absent_admin<'a>(&self, config: &'a Config) -> impl Iterator<Item = &'a SocketAddr> {
        let served: Vec<SocketAddr> = self.admin.iter().map(|(served, _)| *served).collect();
        config
            .admin
            .addresses
            .iter()
            .filter(move |address| !served.contains(address))
    }

    /// Uses what has appeared. Returns the reason to reload, if there is one.
    pub(super) async fn look_at_links(&mut self) -> Option<&'static str> {
        let generation = self.state.generation.read().clone();
        let interfaces = generation.config.interfaces_now();
        // If a reload for this state has changed nothing, another one will not either.
        let tried = std::mem::replace(&mut self.interfaces, interfaces);
        if self.interfaces != generation.config.interfaces && self.interfaces != tried {
            return Some("an interface in the configuration was added, removed or recreated");
        }
        self.take_absent().await;
        None
    }

    /// Listens on addresses that have appeared.
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
