//! `ray-relay completions`: prints shell scripts, and answers the shells at each Tab.
//!
//! The script calls `ray-relay` with the words of the line. So it is never older than the binary, and can complete the
//! ids of the tasks that wait now.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::sync::OnceLock;
use std::time::Duration;

use clap::{Args, Command, FromArgMatches};
use clap_complete::CompletionCandidate;
use clap_complete::env::{CompleteEnv, Shells};
use serde_json::Value;
use tokio::time::timeout;

use super::relay_client::{RelayClient, RelayError};
use super::{Failure, RelayArgs};
use ray_relay_base::wire::json::{typed_at, typed_list};
use ray_relay_base::wire::text::replaced;
use ray_relay_view::listing::received::{RowAnswer, SessionAnswer};

/// `completions`
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

pub(super) const AFTER_HELP: &str = "\
Examples:
  ray-relay completions bash > ~/.local/share/bash-completion/completions/ray-relay
  ray-relay completions zsh > \"${fpath[1]}/_ray-relay\"
  ray-relay completions fish > ~/.config/fish/completions/ray-relay.fish

Open a new shell afterwards. Where a command wants a task, Tab asks the relay what waits: the one that --relay or RAY_RELAY_URL names, with the token of --token-file or RAY_RELAY_TOKEN. A --token-command is not run for it, nor is a relay looked for in Kubernetes (--kube).";

/// Environment variable by which the script tells the binary that a shell is asking, and which.
const VARIABLE: &str = "RAY_RELAY_COMPLETE";
/// Builds the command line. Set by the command line's own module, which depends on this one.
static LINE: OnceLock<fn() -> Command> = OnceLock::new();
/// Time limit of a Tab, for which the user waits.
const COMPLETION_TIMEOUT: Duration = Duration::from_millis(1500);
/// Maximum number of completions.
const MAX_COMPLETIONS: usize = 200;

pub(super) fn run(args: &CompletionsArgs) -> Result<(), Failure> {
    let shells = Shells::builtins();
    // Contains every shell of `Shell`.
    let Some(shell) = shells.completer(&args.shell.to_string()) else {
        return Err(io::Error::from(io::ErrorKind::Unsupported).into());
    };
    let mut script = Vec::new();
    let name = "ray-relay";
    shell.write_registration(VARIABLE, name, name, name, &mut script)?;
    io::stdout().write_all(&script)?;
    Ok(())
}

/// Answers a shell's completion request; `false` if there is none. Called before the runtime starts, because it has its
/// own.
pub(super) fn answered(line: fn() -> Command) -> bool {
    let here = env::current_dir().ok();
    CompleteEnv::with_factory(LINE.get_or_init(|| line))
        .var(VARIABLE)
        .bin("ray-relay")
        .try_complete(env::args_os(), here.as_deref())
        // A shell that has gone away needs no answer, and an invalid request gets none.
        .unwrap_or(true)
}

/// Waiting tasks whose id or name begins with `begun`; none if the relay does not answer soon.
pub(super) fn tasks(begun: &OsStr) -> Vec<CompletionCandidate> {
    let list = query_relay(async |client| client.breakpoints(false).await);
    list.map_or(Vec::new(), |list| {
        candidates(&list, &begun.to_string_lossy())
    })
}

/// Sessions of the answering relay whose number begins with `begun`.
pub(super) fn sessions(begun: &OsStr) -> Vec<CompletionCandidate> {
    let answer = query_relay(async |client| client.sessions().await);
    answer.map_or(Vec::new(), |answer| {
        numbers(&answer, &begun.to_string_lossy())
    })
}

/// Asks the relay of the line; `None` if it does not answer soon.
fn query_relay(
    question: impl AsyncFnOnce(&RelayClient) -> Result<Value, RelayError>,
) -> Option<Value> {
    let words = env::args_os().skip_while(|word| word != "--").skip(1);
    let args = relay(LINE.get()?(), words.collect())?;
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().ok()?;
    let answer = runtime.block_on(async {
        let query = async { question(&RelayClient::new(args)?).await };
        timeout(COMPLETION_TIMEOUT, query).await
    });
    // A name that hangs in the system's resolver must not block the shell.
    runtime.shutdown_background();
    answer.ok()?.ok()
}

/// Parses the relay's address and credential from the line.
fn relay(line: Command, mut words: Vec<OsString>) -> Option<RelayArgs> {
    // Ignores the word being typed, and an option directly before it.
    words.pop();
    words.pop_if(|word| word.as_encoded_bytes().starts_with(b"--"));
    // The rest of the line may still be invalid.
    let line = line.ignore_errors(true);
    let matches = line.try_get_matches_from(words).ok()?;
    let (_, mut matches) = matches.subcommand()?;
    while let Some((_, deeper)) = matches.subcommand() {
        matches = deeper;
    }
    let args = RelayArgs::from_arg_matches(matches).ok()?;
    // Either may open a browser, or ask for a password.
    let is_interactive = args.token.token_command.is_some() || args.kube.is_requested();
    (!is_interactive).then_some(args)
}

/// Completes ids, with their task as help, and names.
fn candidates(list: &Value, begun: &str) -> Vec<CompletionCandidate> {
    let row = |row: RowAnswer<'_>| {
        let (id, name) = (row.id?, row.name.unwrap_or_default());
        // A shell must not interpret a job's task names.
        let is_plain = |text: &str| replaced(text) == text && !text.starts_with('-');
        if !is_plain(id) {
            return None;
        }
        let help = replaced(name).into_owned();
        if id.starts_with(begun) {
            return Some(CompletionCandidate::new(id).help(Some(help.into())));
        }
        let is_begun = !name.is_empty() && name.starts_with(begun) && is_plain(name);
        is_begun.then(|| CompletionCandidate::new(name).help(Some(id.to_owned().into())))
    };
    let rows = typed_list(list, "breakpoints");
    rows.filter_map(row).take(MAX_COMPLETIONS).collect()
}

/// Completes numbers of sessions, with their task as help.
fn numbers(answer: &Value, begun: &str) -> Vec<CompletionCandidate> {
    let replica: Option<&str> = typed_at(answer, "replica");
    let here = typed_list(answer, "sessions")
        .filter(|session: &SessionAnswer<'_>| session.replica == replica);
    let number = |session: SessionAnswer<'_>| {
        let id = session.id?.to_string();
        let help = replaced(session.name.unwrap_or_default()).into_owned();
        id.starts_with(begun)
            .then(|| CompletionCandidate::new(id).help(Some(help.into())))
    };
    here.filter_map(number).take(MAX_COMPLETIONS).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
