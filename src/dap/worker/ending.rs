//! The relay ends a session: a principal's time is over, or a limit is reached.

use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};

use super::Relaying;
use super::from_client::OWN_SEQ;
use crate::dap::codec::frame;
use crate::dap::message::{event, notice};
use crate::dap::splice::Side;

impl<S: AsyncRead + AsyncWrite + Unpin> Relaying<'_, S> {
    /// Has the worker let go and tells the client why. From here on nothing of the client's is forwarded; what it had
    /// sent by now may still be under way.
    pub(super) fn let_go(&mut self, why: &str) {
        self.over = true;
        if !self.leaving {
            let goodbye = json!({
                "seq": OWN_SEQ, "type": "request", "command": "disconnect",
                "arguments": {"terminateDebuggee": false},
            });
            self.splice.insert(Side::Worker, &frame(&goodbye));
        }
        self.splice.close(Side::Worker);
        let title = self.permit.breakpoint().title();
        let text = format!("this session with {title} ends, because {why}; the task runs on");
        self.tell(&notice(&text, true));
        if !self.terminated {
            self.tell(&event("terminated", Value::Null));
        }
        // What the worker's debugger does now is no death.
        self.leaving = true;
        self.terminated = true;
    }
}
