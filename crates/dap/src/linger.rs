//! After the end of a session: its client is told, and says goodbye when it gets round to that.
//!
//! debugpy's own adapter stays for as long as its client does, and clients wait for the answer to their `disconnect`,
//! which can come many seconds after `terminated` (a dialog is open, a laptop is busy). So the client is kept for a while,
//! when the worker is gone and the breakpoint is given back; nothing is held for it but its connection.

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

/// How long a client that was told of the end may take to say goodbye.
const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// How long the head is asked why a worker is gone, when the client knows that it is.
const DEATH_CAUSE_TIMEOUT: Duration = Duration::from_secs(2);

/// A client whose session is over.
pub(super) struct Linger<S> {
    pub(super) client: Conversation<S>,
    /// The goodbye that it has said already, where no worker has answered it.
    pub(super) asked: Option<Request>,
    /// The end, where the client has not been told yet why it came.
    pub(super) unexplained: Option<Unexplained>,
}

/// An end whose reason is still asked for.
pub(super) struct Unexplained {
    /// The hold with which it can be asked for; given back then.
    pub(super) worker: Attached,
    /// The connection to the worker's debugger ended, which is worth a word even where the reason is not known.
    pub(super) closed: bool,
}

impl<S: PeerStream> Linger<S> {
    /// Answers the client until it has said goodbye, its time is over, or the relay ends.
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
        if let Some(asked) = self.asked.take() {
            match timeout_at(until, self.answer(&asked)).await {
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
            // A client that reads nothing cannot be told.
            let told = timeout_at(until, async {
                match &step {
                    FarewellStep::Answer(Some(request)) => self.answer(request).await,
                    FarewellStep::Tell(Some(line)) => self.client.send(line).await.map(|()| false),
                    FarewellStep::Answer(None) | FarewellStep::Tell(None) => Ok(false),
                }
            });
            match told.await {
                Ok(Ok(false)) => {}
                Ok(Ok(true)) => break,
                Ok(Err(_)) | Err(_) => return,
            }
        }
        hang_up(self.client).await;
    }

    /// Whether that was the last word.
    async fn answer(&mut self, request: &Request) -> Result<bool, Closed> {
        let answer = match request.leaves() {
            true => request.success(Value::Null),
            false => {
                let mut answer = request
                    .failure("this session has ended, and its worker is no longer reachable");
                // It is an echo of what the client did before it knew, and no news to a person.
                show_dialog(&mut answer, false);
                answer
            }
        };
        self.client.send(&answer).await?;
        // Helix says `terminate` first, and `disconnect` when that has come to its end.
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

/// Why a worker is gone, in a line for the client.
pub(super) fn gone(context: &Context, breakpoint: &Breakpoint, why: &str) -> Value {
    let end = WorkerEnd::explained(&context.registry.snapshot(), breakpoint, why);
    notice(&end.sentence, !end.intended)
}

/// A node that is cut off or killed is noticed by Ray only after ten seconds or more.
fn lost(title: &str) -> Value {
    let text = format!(
        "the debugger of {title} closed the connection, and the head does not say why; its node may be lost"
    );
    notice(&text, true)
}
