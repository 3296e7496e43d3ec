//! `ray-relay snapshot`: where paused tasks are and what their variables hold, without letting them go.

use std::io::{self, Write};
use std::pin::pin;

use futures_util::stream::{self, StreamExt as _};
use serde_json::{Value, json};

use super::relay_client::RelayClient;
use super::relay_dial::dial;
use super::release::called;
use super::worker_session::{Error as SessionError, Which, authorized_block};
use super::{Error, SnapshotArgs};
use crate::listing::row::Row;
use crate::pdb::{Limits, snapshot};
use crate::wire::human_time::span;
use crate::wire::text::replaced;

/// Tasks that are looked at at a time.
const AT_ONCE: usize = 8;

pub(super) const AFTER_HELP: &str = "\
The tasks stay paused exactly as they were: nothing is released, and another debugger can attach right after. For a
moment the relay counts this command as the holder.

What it does not allow:
  - a task that somebody debugs, as a worker has room for one debugger (it is listed with its holder);
  - a task that runs;
  - values are written by the program's own __repr__, in a thread of the debugger while the task's own thread waits:
    one that takes a lock which the task holds gives no answer, and the snapshot of that task fails after 30 s.
    --no-locals runs no code of the program.

Examples:
  ray-relay snapshot 3kfz0q8m
  ray-relay snapshot --all --json > paused.json
      {\"snapshots\": [{\"breakpoint\": {...}, \"threads\": [{\"name\", \"frames\": [{\"file\", \"line\", \"function\",
      \"source\", \"locals\": {NAME: TEXT}}]}]}]}; \"error\" in place of \"threads\" where there is none; \"exception\"
      and \"raised\" besides \"frames\" at a post-mortem

Exit codes: 0 done, 1 not for all of several, 69 the relay or the task's debugger cannot be
reached, 77 refused, 66 no such task waits.";

pub(super) async fn run(args: SnapshotArgs) -> Result<(), Error> {
    let client = RelayClient::new(args.relay.clone())?;
    let list = client.breakpoints(false).await?;
    let rows = list["breakpoints"].as_array().cloned().unwrap_or_default();
    let chosen: Vec<Value> = match &args.target {
        None => rows,
        Some(name) => {
            let chosen = called(&rows, name)?;
            if chosen.is_empty() {
                return Err(SessionError::Unknown(replaced(name).into_owned()).into());
            }
            chosen
        }
    };
    let limits = Limits {
        value: args.limit as usize,
        locals: !args.no_locals,
        ..Limits::default()
    };
    let looked = async |row: Value| {
        let id = row["id"].as_str().unwrap_or_default().to_owned();
        let stream = dial(&args.relay).await?;
        let block = authorized_block(&args.relay, &Which::Named(id))?;
        let taken = snapshot(stream, "ray-relay snapshot", &block, &limits).await;
        Ok::<_, Error>((row, taken))
    };
    let mut shots = Vec::new();
    let mut refused = Vec::new();
    // Each is a debug session of its worker, and one that is held or silent keeps nobody waiting; told in the list's order.
    let mut taken = pin!(stream::iter(chosen).map(looked).buffered(AT_ONCE));
    while let Some(looked) = taken.next().await {
        let shot = match looked? {
            (row, Ok((threads, _))) => json!({"breakpoint": row, "threads": threads}),
            (row, Err(error)) => {
                let error = SessionError::from(error);
                let shot = json!({"breakpoint": row, "error": error.to_string()});
                refused.push(error);
                shot
            }
        };
        if !args.json {
            io::stdout().lock().write_all(text(&shot).as_bytes())?;
        }
        shots.push(shot);
    }
    if args.json {
        writeln!(io::stdout().lock(), "{:#}", json!({ "snapshots": shots }))?;
    } else if shots.is_empty() {
        writeln!(io::stdout().lock(), "No task waits at a breakpoint.")?;
    }
    match refused.pop() {
        None => Ok(()),
        Some(error) if shots.len() == 1 => Err(error.into()),
        Some(_) => Err(SessionError::Failed("some tasks could not be looked at".to_owned()).into()),
    }
}

/// The snapshot of one task as text for people.
fn text(shot: &Value) -> String {
    let row = Row::read(&shot["breakpoint"]);
    let waiting = span(row.waiting);
    let mut text = format!(
        "{} ({}) on {}, waiting {waiting}\n",
        row.task, row.id, row.node
    );
    if let Some(error) = shot["error"].as_str() {
        return text + &format!("  ! {}\n\n", replaced(error));
    }
    for thread in shot["threads"].as_array().into_iter().flatten() {
        text += &format!("  {}\n", word(&thread["name"]));
        frames(&mut text, &thread["frames"]);
        if thread["exception"].is_string() {
            text += &format!("  raised {}\n", word(&thread["exception"]));
            frames(&mut text, &thread["raised"]);
        }
    }
    text.push('\n');
    text
}

fn frames(text: &mut String, frames: &Value) {
    for frame in frames.as_array().into_iter().flatten() {
        let (file, function) = (word(&frame["file"]), word(&frame["function"]));
        *text += &format!("    {file}({}){function}()\n", frame["line"]);
        if !frame["source"].as_str().unwrap_or_default().is_empty() {
            *text += &format!("    -> {}\n", word(&frame["source"]));
        }
        for (name, value) in frame["locals"].as_object().into_iter().flatten() {
            *text += &format!("       {} = {}\n", replaced(name), word(value));
        }
    }
}

fn word(value: &Value) -> String {
    replaced(value.as_str().unwrap_or("?")).into_owned()
}
