//! What a relay has left that was killed, or that has ended beside a keeper: held again before any client is served.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};
use tracing::{info, warn};

use super::essential::Essential;
use ray_relay_debugger::keeper::LeftConnection;
use ray_relay_session::context::Context;
use ray_relay_session::upstream::park;
use ray_relay_session::upstream::restored::Restored;

/// How long the Ray heads may take to know the workers before clients are served all the same.
const CLAIMED: Duration = Duration::from_secs(15);

/// Connections that are waited for at a time, where they come later.
const LATER: usize = 1024;

/// Parks the sessions of `left` again, for at most [`CLAIMED`], and goes on with connections that the keeper gives later.
pub(super) async fn run(
    context: &Arc<Context>,
    left: Vec<LeftConnection>,
    essential: &mut Essential,
) {
    let Some(keeper) = context.keeper.clone() else {
        return;
    };
    let (leave, later) = mpsc::channel(LATER);
    essential.spawn("the link with the keeper", keeper.run(leave));
    if !left.is_empty() {
        info!(
            connections = left.len(),
            "the previous process has left connections to debuggers"
        );
        let until = Instant::now() + CLAIMED;
        if timeout_at(until, context.registry.refreshed())
            .await
            .is_err()
        {
            warn!(
                "a Ray head has not listed its paused workers yet: connections of the previous process are restored once it answers"
            );
        }
        let tasks = &context.shutdown.tasks;
        let claims = left.into_iter().map(Restored::decode);
        let claims = claims.map(|restored| restore(context, restored));
        let mut claims: JoinSet<()> = claims.map(|claim| tasks.track_future(claim)).collect();
        // Those that are not there by then go on by themselves.
        while let Ok(Some(_)) = timeout_at(until, claims.join_next()).await {}
        claims.detach_all();
    }
    let run = take_up(Arc::clone(context), later);
    essential.spawn("what is left later", run);
}

/// Parks the session of each connection that arrives in `coming`.
async fn take_up(context: Arc<Context>, mut coming: mpsc::Receiver<LeftConnection>) {
    while let Some(left) = coming.recv().await {
        let restored = Restored::decode(left);
        context.shutdown.tasks.spawn(restore(&context, restored));
    }
}

/// Resolves when the worker of what is `restored` is held, or not to be had. What runs on is the relay's own.
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
