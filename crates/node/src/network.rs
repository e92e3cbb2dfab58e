//! Access to the kernel: puts a plan in place and removes it.

use std::io;
use std::net::IpAddr;
use std::pin::Pin;

use futures_util::{Stream, StreamExt as _};
use rtnetlink::packet_core::NetlinkPayload;
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::{Handle, MulticastGroup};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::error::{Error, Kind};
use super::outcome::Outcome;
use super::plan::{Link, Plan, Rule};
use super::self_test::pair;
use super::{link, program, rules, table};

/// What to do with the pair of links for the self-test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pair {
    /// Create what is missing.
    Whole,
    /// Recreate it: an existing pair may be an earlier process's, or broken.
    Anew,
}

/// Unsolicited kernel messages. The stream ends when the [`Network`] is no longer open.
pub type News = Pin<Box<dyn Stream<Item = NetlinkPayload<RouteNetlinkMessage>> + Send + Sync>>;

/// Access to the kernel.
pub struct Network {
    /// For requests.
    pub handle: Handle,
    /// The task that reads what the kernel sends.
    connection: JoinHandle<()>,
}

impl Drop for Network {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

impl Network {
    pub fn open() -> Result<Network, Error> {
        Network::listen(&[]).map(|(network, _)| network)
    }

    /// Like `open`, and subscribes to the news of these groups.
    pub fn listen(groups: &[MulticastGroup]) -> Result<(Network, News), Error> {
        let (connection, handle, messages) =
            rtnetlink::new_multicast_connection(groups).map_err(no_netlink)?;
        let network = Network {
            handle,
            connection: tokio::spawn(connection),
        };
        Ok((network, Box::pin(messages.map(|(message, _)| message.payload))))
    }

    /// Returns whether requests are still possible. If one cannot be sent, it and all later ones fail.
    pub fn is_open(&self) -> bool {
        !self.connection.is_finished()
    }

    /// Runs a request to the kernel with a deadline. If the connection closes in the middle of a list, the
    /// list merely looks shorter, so a result is only trusted if the connection is still open.
    pub(crate) async fn ask<T>(&self, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let said = in_time(work).await?;
        match self.is_open() {
            true => Ok(said),
            false => Err(no_netlink(io::ErrorKind::BrokenPipe.into())),
        }
    }

    /// Adds link, addresses and the pair of links for the self-test. Removes nothing.
    pub async fn carry(&self, plan: &Plan, pair: Pair) -> Outcome {
        let mut outcome = match &plan.link {
            Some(link) => self.carry_addresses(plan, link).await,
            None => Outcome::default(),
        };
        if let Some(test) = &plan.self_test {
            let raised = pair::raise(&self.handle, &test.sources, pair == Pair::Anew);
            match self.ask(async { raised.await.map_err(no_pair) }).await {
                Ok(true) => outcome.done.push(format!("created {test}")),
                Ok(false) => {}
                // Pods get answers without it.
                Err(error) => outcome.untested = Some(error.to_string()),
            }
        }
        outcome
    }

    async fn carry_addresses(&self, plan: &Plan, link: &Link) -> Outcome {
        let mut outcome = Outcome::default();
        let difference = match self.ask(link::compare(&self.handle, link)).await {
            Ok(difference) => difference,
            Err(error) => return error.into(),
        };
        // The node's queries use the address as their source as soon as it has it, so these rules come first.
        let leaving = plan.leaving();
        if difference.adds() && !leaving.is_empty() {
            match rules::compare(&leaving, &plan.listening_ips()).await {
                Ok(difference) => outcome.extend(rules::settle(&difference.without_stale()).await),
                Err(error) => outcome.errors.push(error),
            }
        }
        outcome.add(self.ask(link::raise(&self.handle, link, &difference)).await);
        outcome
    }

    /// Writes the rules, and removes whatever is ours on the link or about `ips` but not wanted.
    pub async fn guard(&self, plan: &Plan, ips: &[IpAddr]) -> Outcome {
        let mut outcome = Outcome::default();
        let mut ips = ips.to_vec();
        if let Some(link) = &plan.link {
            match self.ask(link::compare(&self.handle, link)).await {
                Ok(difference) => {
                    ips.extend(&difference.stale);
                    outcome.add(self.ask(link::tidy(&self.handle, link, &difference)).await);
                    outcome.spare(difference.spared);
                }
                Err(error) => outcome.errors.push(error),
            }
        }
        match rules::compare(&plan.rules, &ips).await {
            Ok(difference) => {
                outcome.packets = Some(difference.packets);
                outcome.extend(settle_rules(difference).await);
            }
            Err(error) => outcome.errors.push(error),
        }
        match table::compare(&table::lines(plan), &ips).await {
            Ok(difference) => {
                outcome.unheard = Some(difference.unheard);
                outcome.extend(table::settle(&difference).await);
            }
            Err(error) => outcome.errors.push(error),
        }
        outcome
    }

    /// Removes our rules about these addresses, except the wanted ones.
    pub async fn forget(&self, wanted: Vec<Rule>, ips: Vec<IpAddr>) -> Outcome {
        self.delete(&wanted, ips, |difference| difference).await
    }

    /// Hands addresses over to a node-cache: removes the rules about them that it does not know and that are
    /// not wanted.
    pub async fn hand_over(&self, wanted: Vec<Rule>, ips: Vec<IpAddr>) -> Outcome {
        self.delete(&wanted, ips, rules::Difference::without_node_caches)
            .await
    }

    /// Removes rules and lines about these addresses, except those that are wanted or left out by `which`.
    async fn delete(
        &self,
        wanted: &[Rule],
        ips: Vec<IpAddr>,
        which: fn(rules::Difference) -> rules::Difference,
    ) -> Outcome {
        let mut outcome = Outcome::default();
        if ips.is_empty() {
            return outcome;
        }
        match rules::compare(wanted, &ips).await {
            Ok(difference) => outcome.extend(settle_rules(which(difference.without_missing())).await),
            Err(error) => outcome.errors.push(error),
        }
        match table::compare(&table::asked(wanted), &ips).await {
            Ok(difference) => outcome.extend(table::settle(&difference.without_missing()).await),
            Err(error) => outcome.errors.push(error),
        }
        outcome
    }

    /// Removes the pair of links for the self-test.
    pub(crate) async fn drop_pair(&self, plan: &Plan) -> Outcome {
        let mut outcome = Outcome::default();
        if plan.self_test.is_some() {
            let lowered = pair::lower(&self.handle);
            match self.ask(async { lowered.await.map_err(no_pair) }).await {
                Ok(true) => outcome
                    .done
                    .push("deleted the links for the self-test".to_string()),
                Ok(false) => {}
                Err(error) => outcome.errors.push(error),
            }
        }
        outcome
    }

    /// Removes links of an earlier configuration under another name, if the planned link has all their
    /// addresses. Call this only if no other process of our kind manages them.
    pub(crate) async fn drop_former(&self, plan: &Plan) -> Outcome {
        let mut outcome = Outcome::default();
        if let Some(link) = &plan.link {
            outcome.add(self.ask(link::lower_former(&self.handle, link)).await);
        }
        outcome
    }

    /// Removes the addresses, except those that another process needs, and the link with the last of them.
    pub async fn drop_link(&self, plan: &Plan) -> Outcome {
        let mut outcome = Outcome::default();
        if let Some(link) = &plan.link {
            match self.ask(link::lower(&self.handle, link)).await {
                Ok((done, spared)) => {
                    outcome.done = done;
                    outcome.spared = spared;
                }
                Err(error) => outcome.errors.push(error),
            }
        }
        outcome
    }
}

/// Repairs all differences, but leaves a live node-cache's rules alone.
async fn settle_rules(mut difference: rules::Difference) -> Outcome {
    let mut outcome = Outcome::default();
    outcome.spare(difference.spare());
    outcome.extend(rules::settle(&difference).await);
    outcome
}

/// The error for a netlink socket that cannot be opened.
pub(crate) fn no_netlink(error: io::Error) -> Error {
    Error {
        kind: Kind::InterfaceCheck,
        text: format!("no netlink socket: {error}"),
    }
}

/// An error of the links for the self-test.
pub(crate) fn no_pair(error: io::Error) -> Error {
    Error {
        kind: Kind::InterfaceCheck,
        text: format!("links for the self-test: {error}"),
    }
}

/// Gives up requests that the kernel does not answer in time.
async fn in_time<T>(work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    match timeout(program::DEADLINE, work).await {
        Ok(done) => done,
        Err(_) => Err(Error {
            kind: Kind::Deadline,
            text: format!(
                "the kernel did not answer within {} s",
                program::DEADLINE.as_secs()
            ),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_believed_that_was_said_over_a_connection_that_ended() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(async {
            let network = Network::open().unwrap();
            assert!(network.ask(async { Ok(()) }).await.is_ok());
            let cut = network.ask(async {
                network.connection.abort();
                tokio::task::yield_now().await;
                Ok(())
            });
            assert!(cut.await.is_err());
        });
    }
}
