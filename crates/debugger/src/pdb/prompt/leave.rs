//! The end of a session, by the user or by the other side.

use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;

use super::request::{REQUEST_TIMEOUT, program_output};
use super::{Prompt, PromptEnd};
use crate::pdb::error::{Lost, PdbError};
use crate::pdb::wire::PromptMessage;
use ray_relay_base::wire::dap::names::{Command, Event};

/// The refusal of `q!` without the permission, as the relay sends it to debuggers.
const NO_KILL: &str =
    "ending a worker process takes the permission `terminate`; `q` leaves, and the task runs on";

impl<S: AsyncRead + AsyncWrite + Unpin> Prompt<S> {
    /// Detaches, which resumes the task.
    pub async fn leave(&mut self) {
        self.disconnect(false).await;
    }

    /// Leaves the task paused, for the same user to resume: through a relay that keeps sessions.
    ///
    /// # Errors
    /// The reason why that is not possible, as a clause; the session continues.
    pub async fn stay(&mut self) -> Result<(), String> {
        let suspends = self.capabilities.get("supportSuspendDebuggee");
        if suspends != Some(&Value::Bool(true)) {
            return Err("this relay keeps no sessions".to_owned());
        }
        let arguments = json!({"restart": false, "suspendDebuggee": true});
        match timeout(
            REQUEST_TIMEOUT / 6,
            self.ask(Command::Disconnect, arguments),
        )
        .await
        {
            Ok(Ok(_)) => self.wire.close().await,
            Ok(Err(PdbError::Refused(sentence))) => return Err(sentence),
            Ok(Err(PdbError::Interrupted)) => return Err("it was interrupted".to_owned()),
            Ok(Err(PdbError::Lost(lost))) => return Err(lost.to_string()),
            Err(_) => return Err("the relay does not answer".to_owned()),
        }
        Ok(())
    }

    pub(super) async fn kill(&mut self) -> Result<Option<PromptEnd>, Lost> {
        if !self.may_kill {
            self.error(NO_KILL).await;
            return Ok(None);
        }
        match self.disconnect(true).await {
            Some(sentence) => {
                self.error(&sentence).await;
                Ok(None)
            }
            None => Ok(Some(PromptEnd::Killed)),
        }
    }

    /// Disconnects; returns the sentence of a refusal.
    async fn disconnect(&mut self, kill: bool) -> Option<String> {
        let arguments = json!({"restart": false, "terminateDebuggee": kill});
        let refusal = match timeout(
            REQUEST_TIMEOUT / 6,
            self.ask(Command::Disconnect, arguments),
        )
        .await
        {
            Ok(Err(PdbError::Refused(sentence))) if kill => Some(sentence),
            _ => None,
        };
        if refusal.is_none() {
            self.wire.close().await;
        }
        refusal
    }

    /// Waits for events without input, prints them, and returns when the session is over. Cancel safe.
    pub async fn idle(&mut self) -> PromptEnd {
        loop {
            let incoming = match self.wire.read().await {
                Ok(incoming) => incoming,
                Err(lost) => return PromptEnd::Lost(lost),
            };
            if let PromptMessage::Event { name, body } = incoming {
                match name {
                    Some(Event::Terminated | Event::Exited) => return PromptEnd::Terminated,
                    // No task waits here, so a full channel loses output rather than blocking a cancel.
                    Some(Event::Output) => {
                        if let Some(piece) = program_output(&body) {
                            let _ = self.out.try_send(piece);
                        }
                    }
                    _ => {}
                }
            }
        }
    }
}
