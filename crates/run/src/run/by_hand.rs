//! `dnsweir node`: shows and changes the node's network manually.

use std::path::Path;

use super::{Stop, machine};
use crate::config;
use crate::filter;
use crate::node::{self, Finding, Leftover, Outcome, Plan, Turns};

/// Returns the plan that a configuration makes for the node.
pub fn plan(file: &Path) -> Result<Plan, Stop> {
    Ok(Plan::of(&config::load(file, filter::BUILTINS)?))
}

/// Returns what prevents the plan on this node.
pub fn obstacles(plan: &Plan) -> Result<Vec<String>, Stop> {
    let mut found = wait(node::obstacles(plan))?;
    for listener in node::occupied(plan) {
        found.push(format!(
            "another program listens on {listener}. If it is dnsweir running as the same user, it will hand over"
        ));
    }
    Ok(found)
}

/// Sets the network up as planned.
pub fn up(plan: &Plan) -> Result<Outcome, Stop> {
    alone(node::up(plan))
}

/// Removes what is planned and, with `adopt`, what other node caches have left.
pub fn down(plan: &Plan, adopt: bool) -> Result<Outcome, Stop> {
    let leftovers = if adopt { leftovers(plan)? } else { Vec::new() };
    alone(async {
        let mut outcome = node::down(plan).await;
        outcome.extend(node::remove_leftovers(leftovers).await);
        outcome
    })
}

/// Returns what other node caches have left.
pub fn leftovers(plan: &Plan) -> Result<Vec<Leftover>, Stop> {
    wait(node::find_leftovers(plan))?.map_err(machine)
}

/// Compares the network with the plan.
pub fn status(plan: &Plan) -> Result<Vec<Finding>, Stop> {
    wait(node::inspect(plan))?.map_err(machine)
}

/// Makes a change while no running proxy makes any.
fn alone(change: impl Future<Output = Outcome>) -> Result<Outcome, Stop> {
    wait(async {
        let (_turn, error) = Turns::default().take().await;
        if let Some(error) = error {
            tracing::warn!("{error}");
        }
        change.await
    })
}

fn wait<T>(work: impl Future<Output = T>) -> Result<T, Stop> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(machine)?;
    Ok(runtime.block_on(work))
}
