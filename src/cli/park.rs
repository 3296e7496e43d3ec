//! `ray-relay park`: leaves paused tasks where they are, for the caller to resume.

use std::time::{Duration, UNIX_EPOCH};

use serde_json::{Value, json};

use super::relay_client::RelayClient;
use super::release::called;
use super::terminal::say;
use super::worker_session::WorkerSessionError as SessionError;
use super::{Failure, ParkArgs};
use crate::config::units::format_duration;
use crate::wire::human_time::{span, utc};
use crate::wire::text::replaced;

pub(super) const AFTER_HELP: &str = "\
Examples:
  ray-relay park 3kfz0q8m --for 16h
  ray-relay park train_step --for 16h --json
      {\"parked\": [{\"id\", \"parked_until\", \"seconds\"}]}, in seconds since 1970, with
      \"credential_expires\" where that is before; \"error\" in place of these where it is not parked

The task stays at its line, kept for you alone, whatever becomes of your editor and your machine. To resume, attach again with an editor, `ray-relay debug` or `nc`. When the time is over the task runs on; `ray-relay release` lets it run earlier. A task that you have parked already is kept for the new time from now on; without --for its time is never shortened.

The relay limits the time: `[park] max`, or `park_max` of the policy. Without --for it is the time for which a lost session is kept (15m, unless configured otherwise). The park ends earlier when your credential is revoked or expires, which is said, or at a limit of the policy. To park a task that you debug at this moment, leave it in your editor (VS Code: Disconnect and Suspend).

Exit codes: 0 done, 1 not for all of several, 66 no such task waits, 69 the relay or the task's debugger cannot be reached, 77 refused (for so long, by the relay, or because another user has it).";

pub(super) async fn run(args: ParkArgs) -> Result<(), Failure> {
    let client = RelayClient::new(args.relay.clone())?;
    let list = client.breakpoints(false).await?;
    let rows = list["breakpoints"].as_array().map(Vec::as_slice);
    let chosen = called(rows.unwrap_or_default(), &args.target)?;
    if chosen.is_empty() {
        return Err(SessionError::Unknown(replaced(&args.target).into_owned()).into());
    }
    let mut parked = Vec::new();
    let mut refused = Vec::new();
    for row in &chosen {
        let id = replaced(row["id"].as_str().unwrap_or_default()).into_owned();
        let mut wanted = json!({ "id": id });
        if let Some(time) = args.time {
            wanted["for"] = format_duration(time).into();
        }
        let told = match client.park(&wanted).await {
            Ok(told) => told,
            Err(why) => {
                let why = SessionError::of_refusal(why)?;
                let told = json!({"id": id, "error": why.to_string()});
                refused.push(why);
                told
            }
        };
        if !args.json && (told["error"].is_null() || chosen.len() > 1) {
            say(&text(&id, &told))?;
        }
        parked.push(told);
    }
    if args.json {
        say(&format!("{:#}\n", json!({ "parked": parked })))?;
    }
    match refused.pop() {
        None => Ok(()),
        Some(why) if chosen.len() == 1 => Err(why.into()),
        Some(_) => Err(SessionError::Failed("some tasks are not parked".to_owned()).into()),
    }
}

/// What became of one task, as lines for people.
fn text(id: &str, told: &Value) -> String {
    if let Some(why) = told["error"].as_str() {
        return format!("{id}  not parked: {}\n", replaced(why));
    }
    let moment = |key: &str| {
        let seconds = told[key].as_f64()?.max(0.0);
        let after = Duration::try_from_secs_f64(seconds).ok()?;
        Some(utc(UNIX_EPOCH.checked_add(after)?).format("%Y-%m-%d %H:%M UTC"))
    };
    let left = told["seconds"].as_f64().unwrap_or_default();
    let left = Duration::try_from_secs_f64(left.max(0.0).round()).unwrap_or_default();
    let mut text = match moment("parked_until") {
        Some(until) => format!("{id}  parked until {until}, for {}\n", span(left)),
        None => format!("{id}  parked, and resumed already\n"),
    };
    if let Some(expires) = moment("credential_expires") {
        text += &format!(
            "    your credential expires before that, at {expires}, and the task runs on then\n"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn until_when_is_said_and_what_ends_it_before() {
        let told = json!({"parked_until": 43_200.4, "seconds": 43_199.9});
        assert_eq!(
            text("3kfz0q8m", &told),
            "3kfz0q8m  parked until 1970-01-01 12:00 UTC, for 12h 00m\n"
        );
        let told = json!({"parked_until": 43_200, "seconds": 43_200, "credential_expires": 3600});
        let said = text("3kfz0q8m", &told);
        assert!(
            said.contains("expires before that, at 1970-01-01 01:00 UTC"),
            "{said}"
        );
        let said = text("3kfz0q8m", &json!({"error": "it is \u{1b}[1m gone"}));
        assert!(said.starts_with("3kfz0q8m  not parked: it is ") && !said.contains('\u{1b}'));
    }
}
