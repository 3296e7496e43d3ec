//! A prompt on a task that runs and waits at no breakpoint.
//!
//! It is a debugger's session of the relay's own, as `ray-relay debug --running` has one: what it takes, what goes on record,
//! what is shown and what becomes of the task without its client is decided there.

use serde_json::json;
use tokio::io::{AsyncRead, DuplexStream};
use tokio::sync::mpsc;

use super::attached::RUNS_ON;
use super::{Log, TerminalSession};
use crate::lineproto::authenticate::StopRunning;
use crate::lineproto::input::Typed;
use crate::lineproto::output::WorkerOutput;
use crate::lineproto::prompt::{self, OpenedPrompt, PromptOutcome};
use crate::lineproto::running_command::leaves;
use ray_relay_access::recording::CaptureTee;
use ray_relay_access::telemetry::metrics::{Outcome, SessionProtocol};
use ray_relay_base::shutdown::DRAINING;
use ray_relay_debugger::pdb::{Options, Prompt, PromptEnd, PromptError};
use ray_relay_ray::ray::task_end::TaskEnd;
use ray_relay_session::session::state::SessionState;

/// What a client is told that says something else than that it leaves before there is a stop.
const NOT_YET: &str = "the task has not stopped yet; `quit` leaves it running";

/// What comes of opening it.
type Opened = Result<(Box<OpenedPrompt<DuplexStream>>, Option<PromptEnd>), PromptError>;

impl<R: AsyncRead + Unpin> TerminalSession<'_, '_, R> {
    /// Stops the task that `running` names, and is its prompt until either ends.
    pub(super) async fn running(&mut self, running: &StopRunning) -> Outcome {
        let links = &self.context.peers.links;
        let Some(near) = links.dial(&self.principal, self.connection.peer).await else {
            self.out.farewell(DRAINING);
            return Outcome::Drained;
        };
        let state = |state| self.session.set_state(SessionProtocol::Terminal, state);
        state(SessionState::Connecting);
        let mut shown = WorkerOutput::new(self.out.clone(), CaptureTee::default());
        let Some(opened) = self.open(near, running, &mut shown).await else {
            return Outcome::Client;
        };
        let (mut attached, over) = match opened {
            Ok(opened) => opened,
            Err(why) => {
                self.out.notice(&why.to_string()).await;
                return Outcome::Refused;
            }
        };
        let state = |state| self.session.set_state(SessionProtocol::Terminal, state);
        state(SessionState::Attached);
        let ended = match over {
            Some(end) => PromptOutcome::By(end),
            None => {
                let (task, log) = (TaskEnd::new(None), Log::of_another());
                let (input, out) = (&mut *self.input, &self.out);
                prompt::converse(&mut attached, task, input, out, &mut shown, &log).await
            }
        };
        match ended {
            PromptOutcome::By(PromptEnd::Left) => self.out.text(RUNS_ON).await,
            PromptOutcome::By(PromptEnd::TaskEnded) => self.out.text("The task has ended.\n").await,
            PromptOutcome::By(PromptEnd::Killed) => {
                self.out.text("The worker process is killed.\n").await;
            }
            PromptOutcome::By(PromptEnd::Terminated | PromptEnd::Lost(_)) => {
                let over = "the session is over: the worker process ended, or the relay ended it";
                self.out.notice(over).await;
                return Outcome::Died;
            }
            PromptOutcome::Lost => {}
        }
        Outcome::Client
    }

    /// Until it has stopped. `None`: the client leaves before, and it runs on.
    async fn open(
        &mut self,
        near: DuplexStream,
        running: &StopRunning,
        shown: &mut WorkerOutput,
    ) -> Option<Opened> {
        let options = Options {
            relay: json!({"running": true, "worker": running.worker, "reason": running.reason}),
            // It may be in a call without Python for an hour, and may be left at any time.
            patience: None,
            ..prompt::options(true, self.context.account(&self.principal))
        };
        let (sender, pieces) = mpsc::channel(16);
        let opening = Box::pin(Prompt::open(near, &options, sender));
        let mut opened = Box::pin(prompt::opened(opening, pieces, shown));
        loop {
            tokio::select! {
                opened = &mut opened => return Some(opened),
                typed = self.input.next() => match typed {
                    Typed::Line(line) if !leaves(&line) => self.out.notice(NOT_YET).await,
                    Typed::TooLong => self.out.notice(NOT_YET).await,
                    Typed::Line(_) | Typed::Interrupt | Typed::End => return None,
                },
                () = self.out.closed() => return None,
            }
        }
    }
}
