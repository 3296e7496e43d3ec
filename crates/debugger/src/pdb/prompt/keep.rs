//! Breakpoints that outlive a prompt: the debugger stores the list of one for the next, until it is detached.

use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};

use super::Prompt;
use super::open::arguments;
use super::request::if_any;
use crate::pdb::breakpoints::PromptBreakpoints;
use crate::pdb::error::{Lost, PdbError};
use crate::pdb::probe;
use ray_relay_base::wire::dap::message::result_of;
use ray_relay_base::wire::dap::names::Command;
use ray_relay_base::wire::dap::reattach::{self, Before, StoredBreakpoints};

impl<S: AsyncRead + AsyncWrite + Unpin> Prompt<S> {
    /// Makes a debugger to which an editor has attached apply the arguments of a prompt's `attach`.
    pub(super) async fn reattach(&mut self, client: &str) -> Result<(), Lost> {
        let expression = reattach::attach(&arguments(client), Before::Kept);
        let arguments = json!({"expression": expression, "context": "clipboard"});
        if_any(self.ask_soon(Command::Evaluate, arguments).await)?;
        Ok(())
    }

    /// Adopts the breakpoints of the previous client, and sets them in the debugger under this prompt's file names.
    pub(super) async fn adopt_breakpoints(&mut self) -> Result<(), Lost> {
        let Some(answer) = if_any(self.in_debugger(reattach::stored_breakpoints()).await)? else {
            return Ok(());
        };
        let stored = serde_json::from_value::<StoredBreakpoints>(answer).unwrap_or_default();
        self.table = PromptBreakpoints::adopted(stored);
        for file in self.table.files() {
            self.send_breakpoints(&file, &[]).await?;
        }
        self.keep_breakpoints().await
    }

    /// Stores the list in the debugger, if it has changed.
    pub(super) async fn keep_breakpoints(&mut self) -> Result<(), Lost> {
        if self.stack.is_empty() || self.kept == self.table {
            return Ok(());
        }
        let list = self.table.written();
        if if_any(self.in_debugger(reattach::keep(&list)).await)?.is_some() {
            self.kept = self.table.clone();
        }
        Ok(())
    }

    async fn in_debugger(&mut self, expression: String) -> Result<Value, PdbError> {
        let frame = self.stack.get(self.current).map(|frame| frame.id);
        let arguments = json!({"expression": expression, "frameId": frame, "context": "clipboard"});
        let body = self.ask_soon(Command::Evaluate, arguments).await?;
        probe::answer(&result_of(body))
            .ok_or_else(|| PdbError::refused("the debugger keeps no breakpoints"))
    }
}
