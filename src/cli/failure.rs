//! Failure of a command: the sentence, the hint and the exit code.
//!
//! The error of a command implements [`Fails`] in the command's own module; this module knows no command.

use std::borrow::Cow;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use super::relay_client::RelayError;
use ray_relay_access::telemetry::logging::{LoggingError, colours};
use ray_relay_base::config::Problems;

/// Exit codes of failures; those from 64 on are of `sysexits.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Exit {
    /// Failed. For `doctor`: there is a warning.
    Failed = 1,
    /// Wrong usage.
    Usage = 2,
    /// The task, session or job does not exist, or is over.
    NotFound = 66,
    /// The relay, or the proxy or API server on the way to it, cannot be reached; or the relay cannot reach the task's
    /// debugger. For `doctor`, also its Ray head.
    Unreachable = 69,
    /// A part of the relay itself has ended, and `serve` with it: a defect. The log names the part.
    Defect = 70,
    /// The relay requires a token, or the token does not permit it. With `--kube`, also what the API server does not
    /// permit.
    NotPermitted = 77,
    /// The configuration is wrong. For `doctor`, also a certificate, Ray's own token, or the relay's address. With
    /// `--kube`, the kubeconfig.
    Misconfigured = 78,
}

/// An error that can end a command. Its `Display` is the sentence.
pub(super) trait Fails: Display {
    fn exit(&self) -> Exit {
        Exit::Failed
    }

    /// The next step, if the sentence does not name it.
    fn next_step(&self) -> Option<Cow<'static, str>> {
        None
    }
}

/// A failed command.
#[derive(Debug)]
pub(super) struct Failure {
    /// `None`: there is nothing (more) to print.
    pub(super) sentence: Option<String>,
    hint: Option<Cow<'static, str>>,
    code: u8,
}

impl Failure {
    /// Creates a failure whose message was already printed.
    pub(super) fn reported(code: u8) -> Self {
        Self {
            sentence: None,
            hint: None,
            code,
        }
    }

    /// The program's exit code.
    pub(super) fn code(&self) -> u8 {
        self.code
    }

    /// Rewords the next step by `worded`.
    pub(super) fn hinting(mut self, worded: fn(&str) -> String) -> Self {
        self.hint = self.hint.map(|hint| worded(&hint).into());
        self
    }

    /// Prints the failure to standard error, and returns the exit code.
    pub(super) fn report(&self) -> ExitCode {
        if let Some(sentence) = &self.sentence {
            let hint = self.hint.as_ref().map(|hint| format!("\n  {hint}"));
            let hint = hint.unwrap_or_default();
            // If standard error is gone too, nothing can be reported.
            let _ = writeln!(io::stderr(), "{} {sentence}{hint}", prefix());
        }
        ExitCode::from(self.code)
    }
}

impl<E: Fails> From<E> for Failure {
    fn from(error: E) -> Self {
        Self {
            sentence: Some(error.to_string()),
            hint: error.next_step(),
            code: error.exit() as u8,
        }
    }
}

/// Standard output cannot be written to.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        // The reader of a pipe has closed it: it has all it needs (`ray-relay list | head -1`).
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::reported(0);
        }
        Self {
            sentence: Some(format!("cannot write to standard output: {error}")),
            ..Self::reported(Exit::Failed as u8)
        }
    }
}

impl From<Problems> for Failure {
    fn from(problems: Problems) -> Self {
        let hint = "`ray-relay config explain KEY` says what a key means; `ray-relay config check` checks without starting";
        Self {
            // An empty line, because the hint belongs to all problems.
            sentence: Some(format!("{problems}\n")),
            hint: Some(hint.into()),
            code: Exit::Misconfigured as u8,
        }
    }
}

impl Fails for LoggingError {}

impl Fails for RelayError {
    fn exit(&self) -> Exit {
        match self {
            error if error.is_unreachable() => Exit::Unreachable,
            error if error.is_not_permitted() => Exit::NotPermitted,
            error if error.is_misconfigured() => Exit::Misconfigured,
            error if error.is_not_found() => Exit::NotFound,
            _ => Exit::Failed,
        }
    }

    fn next_step(&self) -> Option<Cow<'static, str>> {
        self.hint()
    }
}

/// Prints clap's output: help and version to standard output, errors to standard error.
pub(super) fn answer(answer: &clap::Error) -> ExitCode {
    if !answer.use_stderr()
        || answer.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    {
        let _ = answer.print();
        return ExitCode::from(u8::try_from(answer.exit_code()).unwrap_or(2));
    }
    let text = answer.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let _ = write!(io::stderr(), "{} {text}", prefix());
    ExitCode::from(2)
}

fn prefix() -> &'static str {
    if colours(io::stderr().is_terminal()) {
        "\u{1b}[1;31mray-relay:\u{1b}[0m"
    } else {
        "ray-relay:"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("it broke")]
    struct Broken;

    impl Fails for Broken {
        fn next_step(&self) -> Option<Cow<'static, str>> {
            Some("mend it".into())
        }
    }

    #[test]
    fn error_with_a_hint_becomes_a_failure() {
        let failure = Failure::from(Broken);
        assert_eq!(failure.sentence.as_deref(), Some("it broke"));
        assert_eq!(failure.hint.as_deref(), Some("mend it"));
        assert_eq!(failure.code, 1);
    }

    #[test]
    fn broken_pipe_is_success() {
        let broken_pipe = Failure::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!((broken_pipe.sentence, broken_pipe.code), (None, 0));
        let full = Failure::from(io::Error::from(io::ErrorKind::StorageFull));
        let sentence = full.sentence.unwrap_or_default();
        assert!(
            sentence.starts_with("cannot write to standard output: "),
            "{sentence}"
        );
        assert_eq!(full.code, 1);
    }
}
