//! Takes over debugger connections of a previous process that was killed, or that ended while a keeper ran. Their
//! sessions are held again before any client is served.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};
use tracing::{info, warn};

use super::essential::Essential;
use ray_relay_debugger::keeper::UnclaimedConnection;
use ray_relay_session::context::Context;
use ray_relay_session::upstream::park;
use ray_relay_session::upstream::restored::Restored;

/// How long the Ray heads may take to list the workers before clients are served anyway.
const CLAIM_TIMEOUT: Duration = Duration::from_secs(15);

/// Capacity of the queue for connections that arrive later.
const MAX_QUEUED_CONNECTIONS: usize = 1024;

/// Parks the sessions of `inherited` connections again, for at most [`CLAIM_TIMEOUT`], and continues with connections
/// that the keeper hands over later.
pub(super) async fn run(
    context: &Arc<Context>,
    inherited: Vec<UnclaimedConnection>,
    essential: &mut Essential,
) {
    let Some(keeper) = context.keeper.clone() else {
        return;
    };
    let (handed_over, later) = mpsc::channel(MAX_QUEUED_CONNECTIONS);
    essential.spawn("the link with the keeper", keeper.run(handed_over));
    if !inherited.is_empty() {
        info!(
            connections = inherited.len(),
            "the previous process has left connections to debuggers"
        );
        let until = Instant::now() + CLAIM_TIMEOUT;
        if timeout_at(until, context.registry.refreshed())
            .await
            .is_err()
        {
            warn!(
                "a Ray head has not listed its paused workers yet: connections of the previous process are restored once it answers"
            );
        }
        let tasks = &context.shutdown.tasks;
        let claims = inherited.into_iter().map(Restored::decode);
        let claims = claims.map(|restored| restore(context, restored));
        let mut claims: JoinSet<()> = claims.map(|claim| tasks.track_future(claim)).collect();
        // Claims that are not done by then continue in the background.
        while let Ok(Some(_)) = timeout_at(until, claims.join_next()).await {}
        claims.detach_all();
    }
    let run = take_up(Arc::clone(context), later);
    essential.spawn("what is left later", run);
}

/// Parks the session of each connection that arrives in `coming`.
async fn take_up(context: Arc<Context>, mut coming: mpsc::Receiver<UnclaimedConnection>) {
    while let Some(connection) = coming.recv().await {
        let restored = Restored::decode(connection);
        context.shutdown.tasks.spawn(restore(&context, restored));
    }
}

/// Resolves when the worker of `restored` is held, or unavailable. A task of the relay runs its park.
fn restore(
    context: &Arc<Context>,
    restored: Option<Restored>,
) -> impl Future<Output = ()> + Send + 'static {
    let context = Arc::clone(context);
    async move {
        let Some(restored) = restored else {
            return;
        };
        if let Some(claimed) = Box::pin(restored.claim(&context)).await {
            let tasks = context.shutdown.tasks.clone();
            tasks.spawn(async move { park::restored::run(&context, claimed).await });
        }
    }
}
