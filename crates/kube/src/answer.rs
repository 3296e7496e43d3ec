//! What of an API server's answer is told, where it is not the one that was wanted: a status and one plain word. The rest may
//! quote what was asked.

use std::error::Error;
use std::fmt;
use std::iter::successors;

use super::error::KubeError;

/// What an API server answered: a status and the plain word beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubeAnswer {
    /// `None`: it says none, or succeeded, and holds nothing of use.
    pub status: Option<u16>,
    pub word: String,
}

impl KubeAnswer {
    /// What a `Status` says, whose code is 0 where it has none.
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

/// The `reason` of an API server's answer, where that is one short word and quotes nothing.
pub(super) fn plain_word(reason: &str) -> Option<&str> {
    let is_plain = reason.len() <= 40 && reason.bytes().all(|byte| byte.is_ascii_alphabetic());
    (is_plain && !reason.is_empty()).then_some(reason)
}

/// The answer has more bytes than that.
#[derive(Debug, thiserror::Error)]
#[error("an answer of more than {0} bytes")]
pub(super) struct TooLarge(pub(super) usize);

/// Why nothing of an answer could be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unread {
    /// There is none, because of this.
    Unreachable(String),
    /// It refuses.
    Refused(KubeAnswer),
    /// It has more bytes than that.
    TooLarge(usize),
    /// It is none to what was asked, as is seen there; 0 where that is not known.
    Strange { line: usize, column: usize },
}

impl Unread {
    /// What cannot be read is not quoted.
    pub(super) fn strange(error: &serde_json::Error) -> Self {
        let (line, column) = (error.line(), error.column());
        Self::Strange { line, column }
    }

    /// What is behind `error`.
    pub(super) fn of(error: &kube::Error) -> Self {
        match error {
            // The client takes each line of a watch that it does not understand for a status.
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
                // The `source` of an I/O error leaves out the error that it holds.
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
