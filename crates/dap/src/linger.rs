//! Waits after the end of a session until its client has been notified and disconnects.
//!
//! debugpy's own adapter stays as long as its client does, and clients wait for the answer to their `disconnect`. It
//! can come many seconds after `terminated` (a dialog is open, a laptop is busy). So the client is kept for a while
//! after the worker is gone and the breakpoint released; only its connection is held.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::refusal::hang_up;
use ray_relay_access::identity::Principal;
use ray_relay_base::wire::dap::conversation::{Closed, Conversation};
use ray_relay_base::wire::dap::message::{Request, notice, show_dialog};
use ray_relay_base::wire::dap::names::Command;
use ray_relay_base::wire::peer_stream::PeerStream;
use ray_relay_ray::ray::registry::Breakpoint;
use ray_relay_session::context::Context;
use ray_relay_session::session::{Attached, WorkerEnd};

/// Deadline for a notified client to disconnect.
const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// Deadline of the query why a worker is gone, once the client knows that it is.
const DEATH_CAUSE_TIMEOUT: Duration = Duration::from_secs(2);

/// A client whose session is over.
pub(super) struct Linger<S> {
    pub(super) client: Conversation<S>,
    /// Its disconnect request, if no worker has answered it.
    pub(super) pending: Option<Request>,
    /// The end, if its reason is still unknown to the client.
    pub(super) unexplained: Option<Unexplained>,
}

/// An end whose reason is still queried.
pub(super) struct Unexplained {
    /// The hold that allows the query; released afterwards.
    pub(super) worker: Attached,
    /// Whether the connection to the worker's debugger ended, which is reported even without a reason.
    pub(super) closed: bool,
}

impl<S: PeerStream> Linger<S> {
    /// Answers the client until it disconnects, its deadline passes, or the relay shuts down.
    pub(super) async fn wait(mut self, context: &Context, principal: &Principal) {
        let until = Instant::now() + DISCONNECT_TIMEOUT;
        let unexplained = self.unexplained.take();
        let why = async {
            match unexplained {
                Some(unexplained) => unexplained.ask(context).await,
                None => None,
            }
        };
        let mut why = pin!(why);
        let mut explained = false;
        if let Some(request) = self.pending.take() {
            match timeout_at(until, self.answer(&request)).await {
                Ok(Ok(false)) => {}
                Ok(Ok(true)) => return hang_up(self.client).await,
                Ok(Err(_)) | Err(_) => return,
            }
        }
        loop {
            let step = tokio::select! {
                message = self.client.read() => match message {
                    Ok(mut message) => FarewellStep::Answer(Request::read(&mut message)),
                    Err(_) => return,
                },
                why = &mut why, if !explained => {
                    explained = true;
                    FarewellStep::Tell(why)
                }
                _ = principal.ended() => break,
                () = context.shutdown.drain.cancelled() => break,
                () = sleep_until(until) => break,
            };
            // A client that does not read cannot be notified.
            let sent = timeout_at(until, async {
                match &step {
                    FarewellStep::Answer(Some(request)) => self.answer(request).await,
                    FarewellStep::Tell(Some(line)) => self.client.send(line).await.map(|()| false),
                    FarewellStep::Answer(None) | FarewellStep::Tell(None) => Ok(false),
                }
            });
            match sent.await {
                Ok(Ok(false)) => {}
                Ok(Ok(true)) => break,
                Ok(Err(_)) | Err(_) => return,
            }
        }
        hang_up(self.client).await;
    }

    /// Answers `request`; returns whether it was the last one.
    async fn answer(&mut self, request: &Request) -> Result<bool, Closed> {
        let answer = match request.leaves() {
            true => request.success(Value::Null),
            false => {
                let mut answer = request
                    .failure("this session has ended, and its worker is no longer reachable");
                // A leftover of the client's activity before it knew, and no news to its user.
                show_dialog(&mut answer, false);
                answer
            }
        };
        self.client.send(&answer).await?;
        // Helix sends `terminate` first, and `disconnect` when that has finished.
        Ok(request.known() == Some(Command::Disconnect))
    }
}

enum FarewellStep {
    Answer(Option<Request>),
    Tell(Option<Value>),
}

impl Unexplained {
    async fn ask(mut self, context: &Context) -> Option<Value> {
        let breakpoint = Arc::clone(self.worker.breakpoint());
        match self.worker.ask_why_died(DEATH_CAUSE_TIMEOUT).await {
            Some(why) => Some(gone(context, &breakpoint, &why)),
            None => self.closed.then(|| lost(&breakpoint.title())),
        }
    }
}

/// A console line on why a worker is gone.
pub(super) fn gone(context: &Context, breakpoint: &Breakpoint, why: &str) -> Value {
    let end = WorkerEnd::explained(&context.registry.snapshot(), breakpoint, why);
    notice(&end.sentence, !end.intended)
}

/// A console line without a reason: Ray notices an isolated or killed node only after ten seconds or more.
fn lost(title: &str) -> Value {
    let text = format!(
        "the debugger of {title} closed the connection, and the head does not say why; its node may be lost"
    );
    notice(&text, true)
}
