//! Waits for upstreams: for their first answers, and for unreachable ones to recover.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::sleep;

use crate::source::forward;
use crate::state::State;

/// The least time that failures are cached, even if an upstream comes and goes (RFC 9520 section 3.2).
const RECOVERY: Duration = Duration::from_secs(1);

/// Drops cached failures whenever an unreachable upstream answers again.
pub(super) async fn follow(state: Arc<State>) {
    loop {
        forward::recovered().await;
        state.shared.forget_failures();
        sleep(RECOVERY).await;
    }
}

/// Waits until an upstream of each zone has answered, but at most as long as configured. A node whose
/// upstreams are broken must start in the end, and report it.
pub(super) async fn await_first(state: Arc<State>) {
    let generation = Arc::clone(&state.generation.read());
    let limit = generation.config.await_upstreams;
    let answers = async {
        for source in &generation.sources {
            source.upkeep().ready().await;
        }
    };
    if tokio::time::timeout(limit, answers).await.is_err() && !limit.is_zero() {
        for why in generation
            .sources
            .iter()
            .filter_map(|source| source.not_ready(true))
        {
            tracing::warn!(
                "{why}; since `await-upstreams` is over, this alone no longer keeps the proxy from being ready"
            );
        }
    }
    state.awaiting.store(false, Ordering::Relaxed);
}
