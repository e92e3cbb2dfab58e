//! Access to the kernel: what is planned is put in place and taken away.

use std::io;
use std::net::IpAddr;

use rtnetlink::Handle;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::error::{Error, Kind};
use super::outcome::Outcome;
use super::plan::{Link, Plan, Rule};
use super::self_test::pair;
use super::table::{self, Line};
use super::{link, program, rules};

/// How the pair of links for the self-test is looked after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pair {
    /// What is missing of it is made.
    Whole,
    /// It is made anew: the one that is there may be an earlier process's, or what fails.
    Anew,
}

/// Access to the kernel.
pub struct Network {
    /// For requests.
    pub handle: Handle,
    /// Reads what the kernel says.
    pub connection: JoinHandle<()>,
}

impl Drop for Network {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

impl Network {
    pub fn open() -> Result<Network, Error> {
        let (connection, handle, _) = rtnetlink::new_connection().map_err(no_netlink)?;
        Ok(Network {
            handle,
            connection: tokio::spawn(connection),
        })
    }

    /// Link and addresses, and the pair of links for the self-test; nothing is taken away.
    pub async fn carry(&self, plan: &Plan, pair: Pair) -> Outcome {
        let mut outcome = match &plan.link {
            Some(link) => self.carry_addresses(plan, link).await,
            None => Outcome::default(),
        };
        if let Some(test) = &plan.self_test {
            let raised = pair::raise(&self.handle, &test.sources, pair == Pair::Anew);
            match in_time(async { raised.await.map_err(no_pair) }).await {
                Ok(true) => outcome.done.push(format!("created {test}")),
                Ok(false) => {}
                // Pods get their answers without it.
                Err(error) => outcome.untested = Some(error.to_string()),
            }
        }
        outcome
    }

    async fn carry_addresses(&self, plan: &Plan, link: &Link) -> Outcome {
        let mut outcome = Outcome::default();
        let difference = match in_time(link::compare(&self.handle, link)).await {
            Ok(difference) => difference,
            Err(error) => return error.into(),
        };
        // From the moment on at which the node has the address, its queries bear it.
        let leaving = plan.leaving();
        if difference.adds() && !leaving.is_empty() {
            match rules::compare(&leaving, &plan.listening_ips()).await {
                Ok(difference) => outcome.extend(rules::settle(&difference.without_stale()).await),
                Err(error) => outcome.errors.push(error),
            }
        }
        outcome.add(in_time(link::raise(&self.handle, link, &difference)).await);
        outcome
    }

    /// Rules, and away with what is ours on the link or about `ips`, and not wanted.
    pub async fn guard(&self, plan: &Plan, ips: &[IpAddr]) -> Outcome {
        let mut outcome = Outcome::default();
        let mut ips = ips.to_vec();
        if let Some(link) = &plan.link {
            match in_time(link::compare(&self.handle, link)).await {
                Ok(difference) => {
                    ips.extend(&difference.stale);
                    outcome.add(in_time(link::tidy(&self.handle, link, &difference)).await);
                    outcome.spare(difference.spared);
                }
                Err(error) => outcome.errors.push(error),
            }
        }
        let lines = table::lines(plan);
        outcome.extend(
            self.settle(&plan.rules, &lines, &ips, |difference| difference)
                .await,
        );
        outcome
    }

    /// No rule that is ours about these addresses remains, except those that are wanted still.
    pub async fn forget(&self, wanted: Vec<Rule>, ips: Vec<IpAddr>) -> Outcome {
        self.delete(wanted, ips, |difference| difference).await
    }

    /// Of the rules about addresses that a node-cache serves from now on, those go that it does not know and that are not
    /// wanted.
    pub async fn hand_over(&self, wanted: Vec<Rule>, ips: Vec<IpAddr>) -> Outcome {
        self.delete(wanted, ips, rules::Difference::without_node_caches)
            .await
    }

    /// Rules and lines about these addresses go, except those that are wanted or that `which` leaves out.
    async fn delete(
        &self,
        wanted: Vec<Rule>,
        ips: Vec<IpAddr>,
        which: fn(rules::Difference) -> rules::Difference,
    ) -> Outcome {
        if ips.is_empty() {
            return Outcome::default();
        }
        self.settle(&wanted, &[], &ips, |difference| {
            which(difference.without_missing())
        })
        .await
    }

    /// What differs is put right, as far as `which` leaves it, and rules of a node-cache that lives are left alone.
    async fn settle(
        &self,
        rules: &[Rule],
        lines: &[Line],
        ips: &[IpAddr],
        which: impl FnOnce(rules::Difference) -> rules::Difference,
    ) -> Outcome {
        let mut outcome = Outcome::default();
        match rules::compare(rules, ips).await.map(which) {
            Ok(mut difference) => {
                outcome.packets = Some(difference.packets);
                outcome.spare(difference.spare());
                outcome.extend(rules::settle(&difference).await);
            }
            Err(error) => outcome.errors.push(error),
        }
        match table::compare(lines, ips).await {
            Ok(difference) => {
                outcome.unheard = Some(difference.unheard);
                outcome.extend(table::settle(&difference).await);
            }
            Err(error) => outcome.errors.push(error),
        }
        outcome
    }

    /// The pair of links for the self-test goes.
    pub async fn drop_pair(&self, plan: &Plan) -> Outcome {
        let mut outcome = Outcome::default();
        if plan.self_test.is_some() {
            let lowered = pair::lower(&self.handle);
            match in_time(async { lowered.await.map_err(no_pair) }).await {
                Ok(true) => outcome
                    .done
                    .push("deleted the links for the self-test".to_string()),
                Ok(false) => {}
                Err(error) => outcome.errors.push(error),
            }
        }
        outcome
    }

    /// Links go that an earlier configuration called otherwise, of which the planned one carries everything. To be called where no other process
    /// of our kind looks after them.
    pub async fn drop_former(&self, plan: &Plan) -> Outcome {
        let mut outcome = Outcome::default();
        if let Some(link) = &plan.link {
            outcome.add(in_time(link::lower_former(&self.handle, link)).await);
        }
        outcome
    }

    /// The addresses go, except those that another process needs, and with the last one the link.
    pub async fn drop_link(&self, plan: &Plan) -> Outcome {
        let mut outcome = Outcome::default();
        if let Some(link) = &plan.link {
            match in_time(link::lower(&self.handle, link)).await {
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

/// The kernel gave us no way to ask it.
pub fn no_netlink(error: io::Error) -> Error {
    Error {
        kind: Kind::InterfaceCheck,
        text: format!("no netlink socket: {error}"),
    }
}

/// Something is wrong with the links for the self-test.
pub fn no_pair(error: io::Error) -> Error {
    Error {
        kind: Kind::InterfaceCheck,
        text: format!("links for the self-test: {error}"),
    }
}

/// What the kernel does not answer in time is given up.
pub async fn in_time<T>(work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
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
