//! How a command fails: the sentence, the hint and the exit code.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use super::audit::AuditError;
use super::cert;
use super::relay_client::RelayError;
use super::worker_session;
use crate::app;
use crate::config::Problems;
use crate::config::explain::UnknownKey;
use crate::demo;
use crate::deploy;
use crate::node;
use crate::telemetry::logging::{LoggingError, colours};

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] Problems),
    /// The problems were printed as JSON already.
    #[error("the configuration is wrong")]
    ConfigReported,
    /// The relay could not be asked.
    #[error(transparent)]
    Relay(#[from] RelayError),
    /// A debug session came to nothing.
    #[error(transparent)]
    Session(#[from] worker_session::Error),
    /// A debugger that listens gets no workers.
    #[error(transparent)]
    Reverse(#[from] super::reverse::ReverseError),
    /// There is no port of this machine that is the relay's.
    #[error(transparent)]
    Connect(#[from] super::connect::ConnectError),
    /// The relay could not run.
    #[error(transparent)]
    App(#[from] app::Error),
    /// The agent could not run.
    #[error(transparent)]
    Node(#[from] node::Error),
    /// No certificate was made.
    #[error(transparent)]
    Cert(#[from] cert::Error),
    /// The demo could not be shown.
    #[error(transparent)]
    Demo(#[from] demo::Error),
    /// Nothing was deployed, or not everywhere.
    #[error(transparent)]
    Deploy(#[from] deploy::Error),
    /// A key or token is of no use, or could not be made.
    #[error(transparent)]
    Token(#[from] super::token::TokenError),
    /// An audit log or recording is of no use.
    #[error(transparent)]
    Audit(#[from] AuditError),
    /// Logging could not be set up.
    #[error(transparent)]
    Logging(#[from] LoggingError),
    /// `config explain` was asked for what is no key.
    #[error(transparent)]
    UnknownKey(#[from] UnknownKey),
    /// `doctor` found something, which it has shown, and comes to this exit code.
    #[error("something is wrong")]
    Diagnosed(u8),
    /// Standard output cannot be written to.
    #[error("cannot write to standard output: {0}")]
    Output(#[from] io::Error),
}

impl Error {
    /// 1, or the code of `sysexits.h` that fits.
    fn exit_code(&self) -> u8 {
        match self {
            Self::Config(_)
            | Self::ConfigReported
            | Self::App(app::Error::Identity(_))
            | Self::Node(node::Error::Head(_) | node::Error::Access(_) | node::Error::Nowhere) => {
                78
            }
            Self::UnknownKey(_) => 2,
            Self::Diagnosed(code) => *code,
            Self::App(app::Error::Fallen(_))
            | Self::Demo(demo::Error::Relay(app::Error::Fallen(_))) => 70,
            Self::Relay(error) if error.is_unreachable() => 69,
            Self::Relay(error) if error.is_not_permitted() => 77,
            Self::Relay(error) if error.is_not_found() => 66,
            Self::Deploy(error) if error.is_unreachable() => 69,
            Self::Deploy(error) if error.is_not_permitted() => 77,
            Self::Session(error) => error.exit_code(),
            Self::Connect(error) => error.exit_code(),
            Self::Relay(_)
            | Self::Reverse(_)
            | Self::App(_)
            | Self::Node(_)
            | Self::Audit(_)
            | Self::Cert(_)
            | Self::Demo(_)
            | Self::Deploy(_)
            | Self::Token(_)
            | Self::Logging(_)
            | Self::Output(_) => 1,
        }
    }

    /// The next step, where the sentence does not name it.
    fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::Config(_) => Some("`ray-relay config explain KEY` says what a key means; `ray-relay check-config` checks without starting".into()),
            Self::Relay(error) => error.hint(),
            Self::Session(error) => error.hint().map(Cow::from),
            Self::Deploy(error) => error.hint().map(Cow::from),
            _ => None,
        }
    }
}

/// Prints `error` and its hint to standard error, and gives the exit code.
pub(super) fn report(error: &Error) -> ExitCode {
    match error {
        // The reader of a pipe went away: it has what it wanted (`ray-relay list | head -1`).
        Error::Output(cause) if cause.kind() == io::ErrorKind::BrokenPipe => {
            return ExitCode::SUCCESS;
        }
        Error::ConfigReported | Error::Diagnosed(_) => {}
        Error::Session(error) if error.is_reported() => {}
        Error::Connect(error) if error.is_reported() => {}
        error => {
            // An empty line where the hint belongs to all problems, not to the last one.
            let gap = match error {
                Error::Config(_) => "\n\n  ",
                _ => "\n  ",
            };
            let hint = error.hint().map(|hint| format!("{gap}{hint}"));
            let hint = hint.unwrap_or_default();
            // Nobody is left to tell where standard error is gone too.
            let _ = writeln!(io::stderr(), "{} {error}{hint}", prefix());
        }
    }
    ExitCode::from(error.exit_code())
}

/// Prints what clap has to say: help and version to standard output, mistakes to standard error.
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
