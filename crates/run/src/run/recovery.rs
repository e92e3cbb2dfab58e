//! What the process waits for of upstreams: their first answers, and those of one that could not be reached.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::sleep;

use crate::source::forward;
use crate::state::State;

/// How long failures are kept at least, where an upstream comes and goes all the time (RFC 9520 section 3.2).
const RECOVERY: Duration = Duration::from_secs(1);

/// Has what failed asked anew as soon as an upstream answers that could not be reached.
pub(super) async fn follow(state: Arc<State>) {
    loop {
        forward::recovered().await;
        state.shared.forget_failures();
        sleep(RECOVERY).await;
    }
}

/// Waits until an upstream of each zone has answered, or as long as the configuration says. A node whose upstreams are
/// broken is to start in the end, and to say so.
pub(super) async fn await_first(state: Arc<State>) {
    let generation = Arc::clone(&state.generation.read());
    let limit = generation.config.await_upstreams;
    let answers = async {
        for source in &generation.sources {
            source.ready().await;
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
