//! What the client asks of the worker, and what becomes of it on the way.

use std::ops::ControlFlow;

use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};

use super::Relaying;
use crate::dap::codec::{frame, parse};
use crate::dap::message::{Request, event, notice};
use crate::dap::rewrite;
use crate::dap::splice::Side;
use crate::registry::Reason;
use crate::telemetry::metrics::Outcome;

/// `seq` of the one request that the relay itself may put to a worker, out of the way of any client's.
pub(super) const OWN_SEQ: u64 = 0x7fff_5678;
impl<S: AsyncRead + AsyncWrite + Unpin> Relaying<'_, S> {
    pub(super) fn on_client(&mut self, body: &[u8]) -> ControlFlow<Outcome, Option<Outcome>> {
        let mut message = match parse(body) {
            Ok(message) => message,
            Err(error) => {
                self.tell(&notice(
                    &format!("this session ends, because {error}"),
                    true,
                ));
                self.tell(&event("terminated", Value::Null));
                return ControlFlow::Break(Outcome::Failed);
            }
        };
        match message
            .get("command")
            .and_then(Value::as_str)
            .filter(|_| message["type"] == "request")
        {
            Some("attach" | "launch" | "initialize" | "restart") => {
                if let Some(request) = Request::read(&mut message) {
                    let sentence = format!(
                        "`{}` is not possible in a session that is attached already",
                        request.command
                    );
                    self.tell(&request.failure(&sentence));
                }
                return ControlFlow::Continue(None);
            }
            Some("terminate") if !self.context.config.dap.allow_terminate => {
                if let Some(request) = Request::read(&mut message) {
                    self.tell(&request.failure(
                        "this relay does not let clients end a worker process (dap.allow_terminate is off); disconnect instead, and the task runs on",
                    ));
                }
                return ControlFlow::Continue(None);
            }
            Some("terminate") => self.leaving = true,
            Some("disconnect") => {
                self.leaving = true;
                if message.pointer("/arguments/terminateDebuggee") == Some(&Value::Bool(true))
                    && !self.context.config.dap.allow_terminate
                {
                    message["arguments"]["terminateDebuggee"] = false.into();
                    self.tell(&notice(
                        "the task runs on: this relay does not let clients end a worker process",
                        false,
                    ));
                }
            }
            Some("setExceptionBreakpoints") => {
                self.filters_set = true;
                if self.post_mortem() {
                    rewrite::break_on_uncaught(&mut message["arguments"]);
                }
            }
            Some("configurationDone") => {
                self.configured = true;
                if !self.filters_set && self.post_mortem() {
                    let mut filters = Value::Null;
                    rewrite::break_on_uncaught(&mut filters);
                    let own = json!({
                        "seq": OWN_SEQ, "type": "request", "command": "setExceptionBreakpoints", "arguments": filters,
                    });
                    self.splice.insert(Side::Worker, &frame(&own));
                }
            }
            _ => {}
        }
        // Written anew, so that what was judged here is what the worker's parser sees.
        self.splice.insert(Side::Worker, &frame(&message));
        ControlFlow::Continue(None)
    }

    /// As the registry knows by now: the reason may have become known after the breakpoint was claimed.
    fn post_mortem(&self) -> bool {
        let snapshot = self.context.registry.snapshot();
        snapshot
            .find(self.permit.breakpoint().id)
            .is_some_and(|b| b.reason == Reason::PostMortem)
    }
}
