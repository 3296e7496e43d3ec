//! `ray-relay sessions`: lists sessions, and ends one of them.

use std::io::{self, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Args, Subcommand};
use clap_complete::ArgValueCompleter;
use serde_json::{Value, json};

use super::relay_client::RelayClient;
use super::worker_session::WorkerSessionError as SessionError;
use super::{Failure, RelayArgs, completions, terminal};
use ray_relay_base::wire::human_time::span;
use ray_relay_base::wire::json::{typed_at, typed_list};
use ray_relay_base::wire::text::replaced;
use ray_relay_view::listing::received::SessionAnswer;
use ray_relay_view::listing::text;

pub(super) const AFTER_HELP: &str = "\
Examples:
  ray-relay sessions
  ray-relay sessions --json | jq -r '.sessions[] | select(.state == \"parked\") | .name'
  ray-relay sessions end 17
      its task runs on

Lists your sessions and armed lines (of `break`, `trace`, and an editor's cluster session), also those at other relays that are linked to the same agents. Where you have `admin`, it lists those of all users. Only its own relay can end a session.

Exit codes: 0 done, 66 there is no such session, or it is not yours to end, 69 the relay cannot be reached, 77 it wants a token.";

/// `sessions`
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct SessionsArgs {
    /// The subcommand; sessions are listed without one.
    #[command(subcommand)]
    pub command: Option<SessionsCommand>,
    /// Print JSON: the relay's answer
    #[arg(long)]
    pub json: bool,
    /// How the relay is reached.
    #[command(flatten)]
    pub relay: RelayArgs,
}

impl SessionsArgs {
    /// The relay to contact.
    pub(super) fn relay(&mut self) -> &mut RelayArgs {
        match &mut self.command {
            Some(SessionsCommand::End(args)) => &mut args.relay,
            None => &mut self.relay,
        }
    }
}

/// The commands of `sessions`.
#[derive(Debug, Subcommand)]
pub enum SessionsCommand {
    /// End a session with a task, which runs on, or disarm a line
    End(EndArgs),
}

/// `sessions end`
#[derive(Debug, Args)]
pub struct EndArgs {
    /// Its number, as in `ray-relay sessions`
    #[arg(add = ArgValueCompleter::new(completions::sessions), value_name = "ID")]
    pub id: u64,
    /// How the relay is reached.
    #[command(flatten)]
    pub relay: RelayArgs,
}

const TITLES: [&str; 9] = [
    "ID",
    "WHO",
    "CLIENT",
    "KIND",
    "STATE",
    "TASK",
    "BREAKPOINT",
    "FOR",
    "FROM",
];

pub(super) async fn run(args: SessionsArgs) -> Result<(), Failure> {
    if let Some(SessionsCommand::End(args)) = args.command {
        return end(args).await;
    }
    let answer = RelayClient::new(args.relay)?.sessions().await?;
    let text = match args.json {
        true => format!("{answer:#}\n"),
        false => table(&answer, terminal::columns()),
    };
    io::stdout().lock().write_all(text.as_bytes())?;
    Ok(())
}

async fn end(args: EndArgs) -> Result<(), Failure> {
    let client = RelayClient::new(args.relay)?;
    let answer = client.sessions().await?;
    let row = chosen(&answer, args.id)?;
    // Each relay numbers its own sessions: another relay that answers may have a session of the same number.
    let payload = json!({"id": args.id, "replica": row.replica});
    client.end_session(&payload).await?;
    let [_, user, _, _, _, task, ..] = cells(&row, None, Duration::ZERO);
    let id = args.id;
    let text = match &row.armed {
        Some(armed) => format!(
            "session {id} of {user}: {} disarmed; tasks that are paused there stay paused\n",
            replaced(&armed.lines.join(" "))
        ),
        None => format!("session {id} of {user} with {task} ends; the task runs on\n"),
    };
    io::stdout().lock().write_all(text.as_bytes())?;
    Ok(())
}

/// The row of the session `id` of the relay that gave `answer`.
fn chosen(answer: &Value, id: u64) -> Result<SessionAnswer<'_>, SessionError> {
    let called =
        || typed_list(answer, "sessions").filter(|row: &SessionAnswer<'_>| row.id == Some(id));
    let replica: Option<&str> = typed_at(answer, "replica");
    match called().find(|row| row.replica == replica) {
        Some(row) => Ok(row),
        None if called().next().is_some() => Err(SessionError::Failed(format!(
            "session {id} is at another relay, which alone can end it: name that one with --relay URL"
        ))),
        None => Err(SessionError::NotFound(format!(
            "there is no session {id} that you may end; `ray-relay sessions` lists those that you may see"
        ))),
    }
}

/// Formats the sessions of the relay's `answer`, each line ended by a line feed, for a terminal `columns` wide.
fn table(answer: &Value, columns: Option<usize>) -> String {
    let rows: Vec<SessionAnswer<'_>> = typed_list(answer, "sessions").collect();
    if rows.is_empty() {
        return "There is no session that you may see.\n".to_owned();
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.unwrap_or_default();
    let mut lines = vec![TITLES.map(str::to_owned)];
    let replica = typed_at(answer, "replica");
    lines.extend(rows.iter().map(|row| cells(row, replica, now)));
    text::table(lines, columns)
}

fn cells(row: &SessionAnswer<'_>, replica: Option<&str>, now: Duration) -> [String; 9] {
    let text = |text: Option<&str>| replaced(text.unwrap_or("-")).into_owned();
    let since = Duration::try_from_secs_f64(row.since.unwrap_or_default());
    let kind = match row.protocol.or(row.kind) {
        Some("dap") => "debugger".to_owned(),
        Some("dap_cluster") => "cluster".to_owned(),
        Some("lines") => "armed line".to_owned(),
        Some(other) => replaced(other).into_owned(),
        None => "-".to_owned(),
    };
    let from = match row.replica == replica {
        true => text(row.peer),
        false => format!("{} at another relay", text(row.peer)),
    };
    [
        row.id.map_or("-".to_owned(), |id| id.to_string()),
        text(row.subject),
        text(row.client),
        kind,
        text(row.state),
        match &row.armed {
            Some(armed) => replaced(&armed.text()).into_owned(),
            None => text(row.name),
        },
        text(row.breakpoint),
        span(now.saturating_sub(since.unwrap_or_default())),
        from,
    ]
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::cli::failure::Fails;

    #[test]
    fn armed_line_shows_its_job_and_hits() {
        let armed = json!({"jobs": ["raysubmit_x"], "lines": ["train.py:26"], "hits": 3});
        let answer = json!({"replica": "aa", "sessions": [
            {"id": 4, "replica": "aa", "protocol": "lines", "state": "attached", "subject": "ada", "armed": armed},
        ]});
        let text = table(&answer, None);
        let row = "armed line  attached  train.py:26 in raysubmit_x, 3 hits";
        assert!(text.contains(row), "{text}");
    }

    fn answer() -> Value {
        json!({"replica": "aa", "sessions": [
            {"id": 4, "replica": "aa", "protocol": "dap", "state": "attached", "peer": "10.0.0.9:5000", "subject": "ada",
                "client": "VS Code\u{1b}[2J", "breakpoint": "3kfz0q8m", "name": "step", "since": 0.0},
            {"id": 5, "replica": "aa", "protocol": "websocket", "state": "relaying", "peer": "10.0.0.9:5001", "since": 0.0},
            {"id": 7, "replica": "bb", "kind": "dap", "state": "parked", "peer": null, "subject": "ada", "client": null,
                "breakpoint": "4kfz0q8m", "name": "load", "since": 0.0},
        ]})
    }

    #[test]
    fn each_session_shows_its_user_and_task() {
        let text = table(&answer(), None);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("ID  WHO  CLIENT"), "{text}");
        assert!(
            lines[1].contains("  debugger   attached  step  3kfz0q8m    "),
            "{text}"
        );
        assert!(lines[1].ends_with("  10.0.0.9:5000"), "{text}");
        assert!(lines[3].ends_with("- at another relay"), "{text}");
        assert!(!text.contains('\u{1b}'), "{text}");
        let narrow = table(&answer(), Some(40));
        assert!(
            narrow.lines().all(|line| text::width(line) <= 40),
            "{narrow}"
        );
        assert_eq!(
            table(&json!({}), None),
            "There is no session that you may see.\n"
        );
    }

    #[test]
    fn only_a_session_of_the_answering_relay_is_ended() {
        let answer = answer();
        assert_eq!(chosen(&answer, 4).unwrap().name, Some("step"));
        let error = chosen(&answer, 7).unwrap_err();
        assert!(error.to_string().contains("at another relay"), "{error}");
        let unknown = chosen(&answer, 9).unwrap_err();
        assert_eq!(unknown.exit() as u8, 66, "{unknown}");
    }
}
