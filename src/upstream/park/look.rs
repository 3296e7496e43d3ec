//! A look at what is parked, without going on with it: a question for its debugger, which leaves it as it is.

use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::{Duration, Instant};

use super::Heard;
use crate::recording::{CaptureTee, Direction};
use crate::session::parks::Busy;
use crate::wire::dap::codec::parse;
use crate::wire::dap::names::Command;

/// How long a debugger may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// What is evaluated, as the arguments of `evaluate`: in a thread of the debugger's own, and in no frame of the program's.
pub(crate) fn question(expression: &str) -> Value {
    json!({"expression": expression, "context": "clipboard"})
}

/// The question that a debugger is asked, by the number of its request.
#[derive(Debug, Default)]
pub(crate) struct Asked(Option<Value>);

impl Asked {
    /// By the request `seq`.
    pub(crate) fn by(seq: impl Into<Value>) -> Self {
        Self(Some(seq.into()))
    }

    /// What the message with this body answers to it; `None`: it is no answer to that.
    pub(crate) fn answered(&mut self, body: &[u8]) -> Option<Heard> {
        let seq = self.0.as_ref()?;
        let mut message = parse(body).ok()?;
        let is_answer = message["type"] == "response"
            && message["command"] == Command::Evaluate.as_str()
            && message["request_seq"] == *seq;
        if !is_answer {
            return None;
        }
        self.0 = None;
        let text = |value: Value| value.as_str().unwrap_or_default().to_owned();
        Some(Heard::Value(match message["success"] == true {
            true => Ok(text(message["body"]["result"].take())),
            false => Err(text(message["message"].take())),
        }))
    }
}

/// Who has asked, and until when that one waits.
pub(super) struct Looking {
    answer: oneshot::Sender<Result<Result<String, String>, Busy>>,
    pub(super) until: Instant,
}

impl Looking {
    pub(super) fn new(answer: oneshot::Sender<Result<Result<String, String>, Busy>>) -> Self {
        Self {
            answer,
            until: Instant::now() + PATIENCE,
        }
    }

    /// The debugger has said `value`, which is shown once it is in `capture`.
    pub(super) fn done(self, value: Result<String, String>, capture: &CaptureTee) {
        let shown = value.and_then(|value| {
            let taken = capture.take(Direction::Down, value.as_bytes());
            taken.map(|()| value).map_err(|why| why.to_string())
        });
        // Who asked may be gone.
        let _ = self.answer.send(Ok(shown));
    }

    /// It is not asked, or has not answered in time.
    pub(super) fn busy(self) {
        let _ = self.answer.send(Err(Busy));
    }
}
