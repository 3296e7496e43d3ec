//! Findings about the chain from a client to a worker's debugger, link by link: shown by `ray-relay doctor`, and
//! answered by `/relay/v1/doctor`.
//!
//! A [`Finding`] is one sentence and, if there is something to do, the next step. Paused tasks and their reachability
//! are judged from the relay's own lists ([`lists`]), by the relay and by a client alike. No debug port is touched: a
//! connection to one can end a task.

pub mod head;
pub mod hooks;
pub mod lists;

use serde::{Deserialize, Serialize};

use ray_relay_base::wire::text::shortened;

/// Longest sentence from another server that is shown, in characters.
const MAX_SENTENCE_CHARS: usize = 500;

/// The parts of the chain, in the order in which a client meets them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChainLink {
    /// The relay's address, and its source.
    Address,
    /// The proxy on the way there, which resolves and connects on the client's behalf.
    Proxy,
    /// The name resolution of its host.
    Name,
    /// The connection to its port.
    Connection,
    /// Its certificate, and whether the relay accepts the client's.
    Tls,
    /// The server that answers there, and its version.
    Relay,
    /// Its clock, compared with the client's.
    Clock,
    /// The client's identity and permissions.
    Token,
    /// A Ray head, as the relay reaches it.
    Head,
    /// The list of what is paused.
    List,
    /// The agents of Ray's nodes.
    Agents,
    /// Which of the workers with running tasks have the hook.
    Hook,
    /// Which debugger Ray starts.
    Debugger,
    /// The paused tasks, and whether they can be attached to; the running ones that are open to everyone.
    Tasks,
    /// The client's working directory, compared with the files of the tasks.
    Folder,
}

impl ChainLink {
    /// The word in the first column.
    pub fn word(self) -> &'static str {
        match self {
            Self::Address => "address",
            Self::Proxy => "proxy",
            Self::Name => "name",
            Self::Connection => "connection",
            Self::Tls => "tls",
            Self::Relay => "relay",
            Self::Clock => "clock",
            Self::Token => "token",
            Self::Head => "head",
            Self::List => "list",
            Self::Agents => "agents",
            Self::Hook => "hook",
            Self::Debugger => "debugger",
            Self::Tasks => "tasks",
            Self::Folder => "folder",
        }
    }
}

/// Severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// As it should be.
    Ok,
    /// Worth knowing.
    Note,
    /// Something does not work, or soon will not.
    Warning,
    /// Nothing beyond this link works.
    Error,
}

/// The cause of an error, which determines the command's exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A server cannot be reached: 69.
    Unreachable,
    /// A credential is missing, or lacks the permission: 77.
    NotPermitted,
    /// Something is misconfigured: 78.
    Misconfigured,
}

/// One sentence about one link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    pub link: ChainLink,
    pub severity: Severity,
    /// The observation, as a sentence without its full stop.
    pub says: String,
    /// The next step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// The command's exit code for it.
    #[serde(default)]
    pub exit_code: u8,
}

impl Finding {
    fn new(link: ChainLink, severity: Severity, says: impl Into<String>, exit_code: u8) -> Self {
        Self {
            link,
            severity,
            says: says.into(),
            next: None,
            exit_code,
        }
    }

    /// As it should be.
    pub fn ok(link: ChainLink, says: impl Into<String>) -> Self {
        Self::new(link, Severity::Ok, says, 0)
    }

    /// Worth knowing.
    pub fn note(link: ChainLink, says: impl Into<String>) -> Self {
        Self::new(link, Severity::Note, says, 0)
    }

    /// Something does not work, or soon will not.
    pub fn warning(link: ChainLink, says: impl Into<String>) -> Self {
        Self::new(link, Severity::Warning, says, 1)
    }

    /// Nothing beyond works.
    pub fn error(link: ChainLink, fault: Fault, says: impl Into<String>) -> Self {
        let exit_code = match fault {
            Fault::Unreachable => 69,
            Fault::NotPermitted => 77,
            Fault::Misconfigured => 78,
        };
        Self::new(link, Severity::Error, says, exit_code)
    }

    /// Cleans text from another server for a terminal.
    pub fn cleaned(mut self) -> Self {
        self.says = shortened(&self.says, MAX_SENTENCE_CHARS);
        self.next = self.next.map(|next| shortened(&next, MAX_SENTENCE_CHARS));
        self
    }

    /// Adds the next step.
    pub fn next(mut self, step: impl Into<String>) -> Self {
        self.next = Some(step.into());
        self
    }
}

/// Returns the exit code for `findings`: of the first error, because later ones may follow from it, else the highest.
pub fn exit_code(findings: &[Finding]) -> u8 {
    let error = findings.iter().find(|f| f.severity == Severity::Error);
    let worst = || findings.iter().map(|f| f.exit_code).max();
    error.map(|f| f.exit_code).or_else(worst).unwrap_or(0)
}

/// Splits a server's sentence into the observation and the next step, which follows a semicolon or a colon.
pub fn split_sentence(sentence: &str) -> (String, Option<String>) {
    let sentence = shortened(sentence, MAX_SENTENCE_CHARS);
    let parted = sentence.rsplit_once("; ").or_else(|| {
        sentence
            .rsplit_once(": ")
            .filter(|(_, next)| next.contains(' '))
    });
    match parted {
        Some((says, next)) => (says.to_owned(), Some(next.to_owned())),
        None => (sentence, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_error_sets_the_exit_code() {
        let note = || Finding::note(ChainLink::Tls, "a");
        let warning = || Finding::warning(ChainLink::Clock, "b");
        let error = |fault| Finding::error(ChainLink::Head, fault, "c");
        assert_eq!(exit_code(&[]), 0);
        assert_eq!(exit_code(&[note(), Finding::ok(ChainLink::Name, "d")]), 0);
        assert_eq!(exit_code(&[note(), warning(), note()]), 1);
        let errors = [
            warning(),
            error(Fault::Unreachable),
            error(Fault::NotPermitted),
        ];
        assert_eq!(exit_code(&errors), 69);
        assert_eq!(exit_code(&[error(Fault::Misconfigured), warning()]), 78);
    }

    #[test]
    fn findings_survive_a_json_round_trip() {
        let found = Finding::error(ChainLink::Head, Fault::Unreachable, "gone").next("start it");
        let text = serde_json::to_string(&found).unwrap_or_default();
        assert_eq!(
            text,
            r#"{"link":"head","severity":"error","says":"gone","next":"start it","exit_code":69}"#
        );
        assert_eq!(serde_json::from_str(&text).ok(), Some(found));
    }
}
