//! The relay ends a session: a principal's time is over, a limit is reached, or the cluster session that opened it ends.

use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};

use super::Relaying;
use super::from_client::OWN_SEQ;
use crate::dap::codec::frame;
use crate::dap::message::{event, notice};
use crate::dap::splice::Side;
use crate::session::Member;

/// Why a session ends whose client asked for it by ending another.
pub(super) const PARENT_ENDED: &str = "the cluster session that opened it has ended";

/// Resolves when the cluster session that opened this one has ended; never for one that was opened by itself. Cancel safe.
pub(super) async fn parent_ended(member: &mut Option<Member>) {
    match member {
        Some(member) => member.ended().await,
        None => std::future::pending().await,
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Relaying<'_, S> {
    /// Takes the function breakpoints along before a goodbye: debugpy 1.8 clears all others when its client leaves, and
    /// the task would stop at the next call with nobody there.
    pub(super) fn forget_function_breakpoints(&mut self) {
        if self.configured {
            let none = json!({
                "seq": OWN_SEQ, "type": "request", "command": "setFunctionBreakpoints", "arguments": {"breakpoints": []},
            });
            self.splice.insert(Side::Worker, &frame(&none));
        }
    }

    /// Has the worker let go and tells the client why. From here on nothing of the client's is forwarded; what it had
    /// sent by now may still be under way. `important`: as [`notice`] has it.
    pub(super) fn let_go(&mut self, why: &str, important: bool) {
        self.over = true;
        if !self.leaving {
            self.forget_function_breakpoints();
            let goodbye = json!({
                "seq": OWN_SEQ, "type": "request", "command": "disconnect",
                "arguments": {"terminateDebuggee": false},
            });
            self.splice.insert(Side::Worker, &frame(&goodbye));
        }
        self.splice.close(Side::Worker);
        let title = self.permit.breakpoint().title();
        let text = format!("this session with {title} ends, because {why}; the task runs on");
        self.tell(&notice(&text, important));
        if !self.terminated {
            self.tell(&event("terminated", Value::Null));
        }
        // What the worker's debugger does now is no death.
        self.leaving = true;
        self.terminated = true;
    }
}
