//! What the cluster session has asked of the task, and has no answer yet.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use serde_json::Value;
use tokio::sync::oneshot;

use super::evaluating::Evaluating;
use crate::verdict::FIRST_OWN_SEQ;
use ray_relay_base::wire::json::typed_at;
use ray_relay_session::session::family::{Answer, Expression};

/// Numbers of these requests; the filters have those behind.
const NUMBERS: Range<u64> = FIRST_OWN_SEQ - 0x1000_0000..FIRST_OWN_SEQ;

/// Questions whose answers have not come. More are refused: their answers would be taken for the client's own.
const MAX_OPEN_QUESTIONS: usize = 64;

/// What was asked, and has not been answered or not been looked at.
#[derive(Debug, Default)]
pub(super) struct Questions {
    asked: u64,
    open: HashMap<u64, Question>,
    /// Answers that have come.
    came: Vec<(Question, Value)>,
    /// What the debugger evaluates for the relay itself, in the order in which it answers.
    pub(super) evaluating: VecDeque<Evaluating>,
    /// The task was last let run, or had to stop, for the session's own client, and not for the lead's.
    pub(super) runs_for_client: bool,
    pub(super) halt: Halt,
    /// The process was asked for its rank, for a breakpoint that goes by it.
    pub(super) rank_asked: bool,
}

/// Whether the task was told to stop for the lead, and has not come to that.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Halt {
    #[default]
    No,
    Asked,
    /// It was, and is to run on. debugpy (1.8.22) answers a `continue` of what runs only at the end of its next stop, so the
    /// stop is waited for.
    TakenBack,
}

/// A question of the lead's.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) answer: oneshot::Sender<Answer>,
    pub(super) then: Then,
}

/// What is made of the answer to a request.
#[derive(Debug)]
pub(super) enum Then {
    /// It names the frame in which this is evaluated.
    Evaluate(Expression),
    /// It names the frame, which is told.
    Place,
    /// It names the frame in which what is typed is completed, by these arguments.
    Complete(Value),
    /// It has the completions.
    Completed,
    /// It has the value, by the relay's own expression, of so many characters.
    Told(usize),
    /// It has the value as the view filter shows it, of which so many characters are told.
    Shown(usize),
    /// It has the rank of the process, for the client of the session.
    Ranked,
    /// It is done.
    Done,
}

impl Questions {
    /// Numbers of those whose answers nothing waits for any more.
    pub(super) fn abandoned(&self) -> impl Iterator<Item = u64> {
        let open = self.open.iter();
        open.filter_map(|(number, question)| question.answer.is_closed().then_some(*number))
    }

    /// Whether no more can be asked before something is answered.
    pub(super) fn are_many(&self) -> bool {
        self.open.len() >= MAX_OPEN_QUESTIONS
    }

    /// Whether an answer may still come.
    pub(super) fn are_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// Keeps `question`, whose request has this number.
    pub(super) fn ask(&mut self, question: Question) -> u64 {
        let number = NUMBERS.start + self.asked % (NUMBERS.end - NUMBERS.start);
        self.asked += 1;
        self.open.insert(number, question);
        number
    }

    /// The question of this number is not asked, because of this.
    pub(super) fn refuse(&mut self, number: u64, why: &str) {
        if let Some(question) = self.open.remove(&number) {
            // The lead may no longer wait for it.
            let _ = question.answer.send(Err(why.to_owned()));
        }
    }

    /// Whether an answer has come that was not looked at.
    pub(super) fn are_answered(&self) -> bool {
        !self.came.is_empty()
    }

    /// A question that is answered, with the answer.
    pub(super) fn answered(&mut self) -> Option<(Question, Value)> {
        self.came.pop()
    }

    /// Keeps `message` where it answers one of them: it is not for the client.
    pub(super) fn take(&mut self, message: &Value) -> bool {
        let to = message.get("request_seq").and_then(Value::as_u64);
        let to =
            to.filter(|to| NUMBERS.contains(to) && typed_at::<&str>(message, "type") == "response");
        let Some(question) = to.and_then(|to| self.open.remove(&to)) else {
            return false;
        };
        self.came.push((question, message.clone()));
        true
    }
}
