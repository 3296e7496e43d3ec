//! The cluster session: the relay itself is the debugger, and every worker that pauses becomes a child session.
//!
//! [`Announcer`] is the pure part: it decides which worker is announced when. The client dials the same address again
//! for each, as a session of its own. The parent must stay open while children live, or VS Code's Call Stack view
//! empties.

mod all_tasks;
mod announcer;
mod armed;
mod conversation;
mod folded;
mod greeting;
mod jobs;
mod ranks;
mod rounds;
mod standing;
mod together;

use std::time::Duration;

use serde_json::Value;
use tracing::debug;

pub(super) use self::announcer::Announcer;
pub(super) use self::conversation::Asker;
use self::conversation::{ClusterConversation, Leaving};
pub(super) use self::jobs::JobName;
pub(super) use self::together::{Joined, StopsTogether, Together};
use super::attach_selector::OnClose;
use super::refusal::hang_up;
use ray_relay_access::identity::Principal;
use ray_relay_access::telemetry::metrics::Outcome;
use ray_relay_base::wire::dap::conversation::{Closed, Conversation};
use ray_relay_base::wire::dap::message::{event, notice};
use ray_relay_base::wire::dap::names::Event;
use ray_relay_base::wire::peer_stream::PeerStream;
use ray_relay_session::context::Context;
use ray_relay_session::session::GroupRoot;
use ray_relay_session::session::parks::longest;

/// How long the final message may take to a client whose credential expired or was revoked.
const FAREWELL_DELAY: Duration = Duration::from_millis(500);

/// Runs the session to its end, with the workers that `asker` may attach to. Its child sessions end with it, for
/// whatever reason, unless the client restarts it.
pub(super) async fn run<'a, S>(
    context: &'a Context,
    mut client: Conversation<S>,
    announcer: Announcer,
    together: Together<'a>,
    mut parent: GroupRoot,
    on_close: Option<OnClose>,
    asker: Asker<'a>,
) -> Outcome
where
    S: PeerStream,
{
    let park_for = match on_close {
        Some(OnClose::Continue) => Duration::ZERO,
        Some(OnClose::Park) | None => longest(asker.principal, context.config.park.r#for),
    };
    let leaving = Leaving { on_close, park_for };
    let principal = asker.principal;
    let conversation = ClusterConversation::new(
        context,
        &mut client,
        announcer,
        together,
        &mut parent,
        leaving,
        asker,
    );
    let related = tokio::select! {
        related = conversation.run() => related,
        // A client that does not read cannot be notified.
        () = overdue(principal) => return Outcome::Revoked,
    };
    let gone = match &related {
        Err(Closed::ByPeer | Closed::Broken(_)) => true,
        Ok(Outcome::Client) => parent.all_disconnect().await,
        _ => false,
    };
    if gone && !park_for.is_zero() {
        parent.client_lost(park_for);
    }
    // Before waiting for the client to close.
    drop(parent);
    match related {
        Ok(ending) => {
            hang_up(client).await;
            ending
        }
        Err(Closed::Malformed(why)) => {
            let _ = client
                .send(&notice(&format!("this session ends, because {why}"), true))
                .await;
            let _ = client.send(&event(Event::Terminated, Value::Null)).await;
            hang_up(client).await;
            Outcome::Failed
        }
        Err(over) => {
            debug!(%over, "cluster session over");
            Outcome::Client
        }
    }
}

async fn overdue(principal: &Principal) {
    principal.ended().await;
    tokio::time::sleep(FAREWELL_DELAY).await;
}

#[cfg(test)]
mod tests;
