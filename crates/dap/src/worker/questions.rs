//! Pending requests of the cluster session to the task.

use std::collections::HashMap;
use std::ops::Range;

use serde_json::Value;
use tokio::sync::oneshot;

use crate::verdict::FIRST_OWN_SEQ;
use ray_relay_base::wire::json::typed_at;
use ray_relay_session::session::family::{Answer, Expression};

/// Range of `seq` of these requests; the filters use those above.
const NUMBERS: Range<u64> = FIRST_OWN_SEQ - 0x1000_0000..FIRST_OWN_SEQ;

/// Pending requests. More are refused: their answers would be mistaken for the client's own.
const MAX_OPEN_QUESTIONS: usize = 64;

/// Requests without an answer, or with one that is not processed yet.
#[derive(Debug, Default)]
pub(super) struct Questions {
    numbered: u64,
    open: HashMap<u64, Question>,
    /// Answers to be processed.
    arrived: Vec<(Question, Value)>,
}

/// A request of the lead.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) answer: oneshot::Sender<Answer>,
    pub(super) then: Then,
}

/// Processing of an answer.
#[derive(Debug)]
pub(super) enum Then {
    /// It has the frame in which this is evaluated.
    Evaluate(Expression),
    /// It has the frame, which is reported.
    Place,
    /// It has the frame in which these arguments are completed.
    Complete(Value),
    /// It has the completions.
    Completed,
    /// It has the value, by the relay's own expression, with so many characters.
    Value(usize),
    /// It has the value as the view filter shows it, cut to so many characters.
    ViewedValue(usize),
    /// It has the rank of the process, for the client of the session.
    Ranked,
    /// It is done.
    Done,
}

impl Questions {
    /// Numbers of requests whose answers no client waits for any more.
    pub(super) fn abandoned(&self) -> impl Iterator<Item = u64> {
        let open = self.open.iter();
        open.filter_map(|(number, question)| question.answer.is_closed().then_some(*number))
    }

    /// Whether the limit of pending requests is reached.
    pub(super) fn is_full(&self) -> bool {
        self.open.len() >= MAX_OPEN_QUESTIONS
    }

    /// Whether any answer is pending.
    pub(super) fn has_pending(&self) -> bool {
        !self.open.is_empty()
    }

    /// Stores `question`, and returns the number for its request.
    pub(super) fn ask(&mut self, question: Question) -> u64 {
        let number = NUMBERS.start + self.numbered % (NUMBERS.end - NUMBERS.start);
        self.numbered += 1;
        self.open.insert(number, question);
        number
    }

    /// Fails the question of this number, which was not sent.
    pub(super) fn refuse(&mut self, number: u64, why: &str) {
        if let Some(question) = self.open.remove(&number) {
            // The lead may be gone.
            let _ = question.answer.send(Err(why.to_owned()));
        }
    }

    /// Whether an answer is to be processed.
    pub(super) fn has_answers(&self) -> bool {
        !self.arrived.is_empty()
    }

    /// Takes an answered question, with the answer.
    pub(super) fn answered(&mut self) -> Option<(Question, Value)> {
        self.arrived.pop()
    }

    /// Stores `message` if it answers one of them: it is not for the client.
    pub(super) fn take(&mut self, message: &Value) -> bool {
        let to = message.get("request_seq").and_then(Value::as_u64);
        let to =
            to.filter(|to| NUMBERS.contains(to) && typed_at::<&str>(message, "type") == "response");
        let Some(question) = to.and_then(|to| self.open.remove(&to)) else {
            return false;
        };
        self.arrived.push((question, message.clone()));
        true
    }
}
