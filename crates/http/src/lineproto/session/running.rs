//! A prompt on a running task, which waits at no breakpoint.
//!
//! It uses a session over the relay's debugger protocol, as `ray-relay debug --running` does. That session decides
//! about permissions, audit, output and parking.

use serde_json::json;
use tokio::io::{AsyncRead, DuplexStream};
use tokio::sync::mpsc;

use super::attached::RUNS_ON;
use super::{Log, TerminalSession};
use crate::lineproto::authenticate::StopRunning;
use crate::lineproto::input::Typed;
use crate::lineproto::output::WorkerOutput;
use crate::lineproto::prompt::{self, OpenedPrompt, PromptOutcome};
use crate::lineproto::running_command::quits;
use ray_relay_access::recording::CaptureTee;
use ray_relay_access::telemetry::metrics::{Outcome, SessionProtocol};
use ray_relay_base::shutdown::DRAINING;
use ray_relay_debugger::pdb::{Options, Prompt, PromptEnd, PromptError};
use ray_relay_ray::ray::task_end::TaskEnd;
use ray_relay_session::session::state::SessionState;

/// Answer to input other than quitting, before the task has stopped.
const NOT_YET: &str = "the task has not stopped yet; `quit` leaves it running";

/// Result of opening the prompt.
type Opened = Result<(Box<OpenedPrompt<DuplexStream>>, Option<PromptEnd>), PromptError>;

impl<R: AsyncRead + Unpin> TerminalSession<'_, '_, R> {
    /// Stops the task that `running` names, and serves its prompt until either side ends.
    pub(super) async fn running(&mut self, running: &StopRunning) -> Outcome {
        let links = &self.context.peers.links;
        let Some(stream) = links.dial(&self.principal, self.connection.peer).await else {
            self.out.final_notice(DRAINING);
            return Outcome::Drained;
        };
        let state = |state| self.session.set_state(SessionProtocol::Terminal, state);
        state(SessionState::Connecting);
        let mut worker_output = WorkerOutput::new(self.out.clone(), CaptureTee::default());
        let Some(opened) = self.open(stream, running, &mut worker_output).await else {
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
            Some(end) => PromptOutcome::Ended(end),
            None => {
                let (task, log) = (TaskEnd::new(None), Log::of_another());
                let (input, out) = (&mut *self.input, &self.out);
                prompt::converse(&mut attached, task, input, out, &mut worker_output, &log).await
            }
        };
        match ended {
            PromptOutcome::Ended(PromptEnd::Left) => self.out.text(RUNS_ON).await,
            PromptOutcome::Ended(PromptEnd::TaskEnded) => {
                self.out.text("The task has ended.\n").await
            }
            PromptOutcome::Ended(PromptEnd::Killed) => {
                self.out.text("The worker process is killed.\n").await;
            }
            PromptOutcome::Ended(PromptEnd::Terminated | PromptEnd::Lost(_)) => {
                let over = "the session is over: the worker process ended, or the relay ended it";
                self.out.notice(over).await;
                return Outcome::Died;
            }
            PromptOutcome::Lost => {}
        }
        Outcome::Client
    }

    /// Waits until the task has stopped. `None`: the client left before, and the task keeps running.
    async fn open(
        &mut self,
        stream: DuplexStream,
        running: &StopRunning,
        worker_output: &mut WorkerOutput,
    ) -> Option<Opened> {
        let options = Options {
            relay: json!({"running": true, "worker": running.worker, "reason": running.reason}),
            // The task may be in native code for an hour. The client may quit at any time.
            patience: None,
            ..prompt::options(true, self.context.account(&self.principal))
        };
        let (sender, pieces) = mpsc::channel(16);
        let opening = Box::pin(Prompt::open(stream, &options, sender));
        let mut opened = Box::pin(prompt::opened(opening, pieces, worker_output));
        loop {
            tokio::select! {
                opened = &mut opened => return Some(opened),
                typed = self.input.next() => match typed {
                    Typed::Line(line) if !quits(&line) => self.out.notice(NOT_YET).await,
                    Typed::TooLong => self.out.notice(NOT_YET).await,
                    Typed::Line(_) | Typed::Interrupt | Typed::End => return None,
                },
                () = self.out.closed() => return None,
            }
        }
    }
}
