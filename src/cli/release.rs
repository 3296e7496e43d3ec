//! `ray-relay release`: lets paused tasks run on without attaching to each.

use std::io::{self, IsTerminal, Write};

use serde_json::{Value, json};

use super::relay_client::RelayClient;
use super::worker_session::Error as SessionError;
use super::{Error, ReleaseArgs};
use crate::listing::row::{Row, waited};
use crate::listing::text::clean;

pub(super) const AFTER_HELP: &str = "\
A task that is let go runs on as if nobody had ever stopped it; one that waits after an exception fails with it. What
somebody debugs is left alone. With more than one task you are asked first, unless --yes is there.

Examples:
  ray-relay release 3kfz0q8m
  ray-relay release --older-than 30m --job 01000000 --yes

For a policy that does it by itself see [release] of the configuration.

Exit codes: 0 done, or nothing waits that fits; 1 not for all of them, or there is no such breakpoint; 69 the relay
cannot be reached.";

/// Ids in one request.
const AT_ONCE: usize = 500;

pub(super) async fn run(args: ReleaseArgs) -> Result<(), Error> {
    let client = RelayClient::new(args.relay.clone())?;
    let list = client.breakpoints(false).await?;
    let rows = list["breakpoints"].as_array().cloned().unwrap_or_default();
    let chosen: Vec<Value> = rows.into_iter().filter(|row| fits(&args, row)).collect();
    if chosen.is_empty() {
        if let Some(target) = &args.target {
            return Err(SessionError::Unknown(clean(target).into_owned()).into());
        }
        say("Nothing that fits waits at a breakpoint.\n")?;
        return Ok(());
    }
    if chosen.len() > 1 && !args.yes && !agreed(&chosen)? {
        return Err(SessionError::NoStop("nothing was released".to_owned()).into());
    }
    let ids: Vec<&str> = chosen.iter().filter_map(|row| row["id"].as_str()).collect();
    let mut failed = false;
    for ids in ids.chunks(AT_ONCE) {
        let answer = client.release(&json!({ "ids": ids })).await?;
        for result in answer["results"].as_array().into_iter().flatten() {
            let id = clean(result["id"].as_str().unwrap_or_default()).into_owned();
            match result["released"] == true {
                true => say(&format!("{id}  released\n"))?,
                false => {
                    failed = true;
                    let why = result["error"].as_str().unwrap_or("no reason given");
                    say(&format!("{id}  not released: {}\n", clean(why)))?;
                }
            }
        }
    }
    match failed {
        true => Err(SessionError::CommandFailed.into()),
        false => Ok(()),
    }
}

fn fits(args: &ReleaseArgs, row: &Value) -> bool {
    let is = |key: &str, text: &str| {
        let known = row[key].as_str();
        known.is_some_and(|known| known.eq_ignore_ascii_case(text))
    };
    let keys = ["id", "name", "title", "actor_name", "task_id", "worker_id"];
    let target = args.target.as_deref();
    target.is_none_or(|target| keys.iter().any(|key| is(key, target)))
        && args.job.as_deref().is_none_or(|job| is("job_id", job))
        && args.older_than.is_none_or(|age| {
            let waiting = row["waiting_seconds"].as_f64();
            waiting.is_some_and(|waiting| waiting >= age.as_secs_f64())
        })
        // Several at once never means those that somebody works on.
        && (target.is_some() || row["state"] == "paused")
}

fn agreed(chosen: &[Value]) -> io::Result<bool> {
    for row in chosen.iter().map(Row::read) {
        say(&format!(
            "{}  {}  {}  {}\n",
            row.id,
            waited(row.waiting),
            row.task,
            row.location
        ))?;
    }
    if !io::stdin().is_terminal() {
        say("These are several: say --yes to let all of them run on.\n")?;
        return Ok(false);
    }
    say(&format!("Let these {} tasks run on? [y/N] ", chosen.len()))?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

fn say(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    fn args(line: &[&str]) -> ReleaseArgs {
        let words = ["ray-relay", "release"].iter().chain(line);
        match Cli::try_parse_from(words).unwrap().command {
            Command::Release(args) => args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_meant() {
        let row = json!({"id": "3kfz0q8m", "name": "step", "job_id": "01000000", "waiting_seconds": 1900.0, "state": "paused"});
        let held = json!({"id": "3kfz0q8m", "name": "step", "waiting_seconds": 1900.0, "state": "attached"});
        assert!(fits(&args(&["3KFZ0Q8M"]), &row) && fits(&args(&["step"]), &held));
        assert!(!fits(&args(&["load"]), &row));
        assert!(fits(&args(&["--all"]), &row) && !fits(&args(&["--all"]), &held));
        assert!(fits(
            &args(&["--older-than", "30m", "--job", "01000000"]),
            &row
        ));
        assert!(!fits(&args(&["--older-than", "40m"]), &row));
        assert!(!fits(&args(&["--all", "--job", "02000000"]), &row));
        assert!(Cli::try_parse_from(["ray-relay", "release"]).is_err());
        assert!(Cli::try_parse_from(["ray-relay", "release", "x", "--all"]).is_err());
    }
}
