//! The part of an API server's answer that is reported if it is not the expected one: a status and one plain word.
//! The rest may quote the request.

use std::error::Error;
use std::fmt;
use std::iter::successors;

use super::error::KubeError;

/// A refusal of an API server: its status and reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubeAnswer {
    /// `None`: the answer has none, or succeeded without usable content.
    pub status: Option<u16>,
    pub word: String,
}

impl KubeAnswer {
    /// Takes the code and reason of a `Status`, whose code is 0 if it has none.
    pub fn of(status: u16, reason: &str) -> Self {
        let word = plain_word(reason).unwrap_or_default().to_owned();
        let status = (status != 0).then_some(status);
        Self { status, word }
    }
}

impl fmt::Display for KubeAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.status, &*self.word) {
            (Some(status), "") => write!(f, "{status}"),
            (Some(status), word) => write!(f, "{status} {word}"),
            (None, word) => f.write_str(word),
        }
    }
}

/// Returns the `reason` of an API server's answer if it is one short word, which quotes nothing.
pub(super) fn plain_word(reason: &str) -> Option<&str> {
    let is_plain = reason.len() <= 40 && reason.bytes().all(|byte| byte.is_ascii_alphabetic());
    (is_plain && !reason.is_empty()).then_some(reason)
}

/// The answer exceeds this many bytes.
#[derive(Debug, thiserror::Error)]
#[error("an answer of more than {0} bytes")]
pub(super) struct TooLarge(pub(super) usize);

/// Why an answer could not be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unread {
    /// There is no answer, for this reason.
    Unreachable(String),
    /// The API server refuses.
    Refused(KubeAnswer),
    /// The answer exceeds this many bytes.
    TooLarge(usize),
    /// Not a valid answer to the request, at this position. 0 if that is unknown.
    Strange { line: usize, column: usize },
}

impl Unread {
    /// Keeps the position of a parse error, and quotes nothing.
    pub(super) fn strange(error: &serde_json::Error) -> Self {
        let (line, column) = (error.line(), error.column());
        Self::Strange { line, column }
    }

    /// Classifies `error`.
    pub(super) fn of(error: &kube::Error) -> Self {
        match error {
            // The client parses each line of a watch that it does not understand as a status.
            kube::Error::Api(status) if status.code == 0 => {
                return Self::Strange { line: 0, column: 0 };
            }
            kube::Error::Api(status) => {
                return Self::Refused(KubeAnswer::of(status.code, &status.reason));
            }
            kube::Error::SerdeError(error) => return Self::strange(error),
            _ => {}
        }
        let mut causes = successors(Some(error as &(dyn Error + 'static)), |&error| {
            match error.downcast_ref::<std::io::Error>() {
                // The `source` of an I/O error skips the error that it wraps.
                Some(error) => error.get_ref().map(|held| held as &(dyn Error + 'static)),
                None => error.source(),
            }
        });
        match causes.find_map(|error| error.downcast_ref()) {
            Some(TooLarge(limit)) => Self::TooLarge(*limit),
            None => Self::Unreachable(KubeError::before(String::new(), error).cause()),
        }
    }
}
