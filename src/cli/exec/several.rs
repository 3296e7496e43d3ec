//! Runs the same commands in many paused tasks at once, and combines their answers.

use std::io::{self, Write};
use std::sync::Arc;

use futures_util::StreamExt as _;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::screen::Screen;
use super::{CLIENT, Lines, Shared, no_command, run_in_one};
use crate::cli::ExecArgs;
use crate::cli::failure::{Exit, Failure};
use crate::cli::members::{Purpose, announced, complete};
use crate::cli::relay_client::RelayClient;
use crate::cli::terminal::print;
use crate::cli::worker_session::{RequestedTask, WorkerSessionError as SessionError};
use ray_relay_base::memory::Memory;
use ray_relay_base::wire::json::{put, take, typed_at};
use ray_relay_base::wire::text::replaced;
use ray_relay_view::group::answered::Answered;
use ray_relay_view::group::kept::KeptOutput;
use ray_relay_view::group::members::{MeantTasks, ready};
use ray_relay_view::group::{MAX_CONCURRENT_OPENS, MAX_OUTPUT_BYTES};
use ray_relay_view::listing::fold::answer_text;

/// Maximum number of tasks run at once. Tasks that stopped together may wait for each other while they run.
const MAX_CONCURRENT_SESSIONS: usize = 256;

/// Memory for messages of debuggers at a time, in bytes.
pub(in crate::cli) const MESSAGES: usize = 512 << 20;

/// Result of the commands in one task.
struct Done {
    output: KeptOutput,
    /// Why not all commands were done.
    error: Option<String>,
    /// The exit code, if it failed.
    code: Option<u8>,
}

/// Runs the commands in each selected task, and shows their answers.
pub(in crate::cli) async fn run(mut args: ExecArgs) -> Result<(), Failure> {
    let mut commands = Lines::new(std::mem::take(&mut args.commands))?;
    let mut lines = Vec::new();
    while let Some(line) = commands.next().await? {
        lines.push(line);
    }
    if lines.is_empty() {
        return Err(no_command());
    }
    let args = &args;
    let client = RelayClient::new(args.relay.clone())?;
    let target = args.target.as_deref();
    let Some(mut members) = args.members.of(&client, target, Purpose::Act).await? else {
        if args.json {
            print(&format!("{:#}\n", json!({"members": [], "commands": []})))?;
        }
        return Ok(());
    };
    let group = &announced(&members, &client, CLIENT).await?;
    let room = MAX_OUTPUT_BYTES / members.len();
    let shared = Shared {
        account: Memory::new(MESSAGES).account(None),
        opening: Arc::new(Semaphore::new(MAX_CONCURRENT_OPENS)),
    };
    let runs = members.rows.iter().enumerate().map(|(at, row)| {
        let (lines, shared) = (lines.clone(), shared.clone());
        let mut output = KeptOutput::new(room);
        output.asks_rank = members.lacks_rank(at);
        Box::pin(run_in_member(args, group, row, lines, output, shared))
    });
    let runs = futures_util::stream::iter(runs).buffered(MAX_CONCURRENT_SESSIONS);
    let done: Vec<Done> = runs.collect().await;
    let ranks = done.iter().enumerate();
    members.learn(
        &ranks
            .filter_map(|(at, done)| Some((at, done.output.rank?)))
            .collect(),
    );
    match args.json {
        true => print(&format!("{:#}\n", as_json(&members, &lines, &done)))?,
        false => print(&text(&members, &lines, &done))?,
    }
    let staying = done.iter().filter(|done| done.output.stays).count();
    if staying > 0 {
        writeln!(
            io::stderr(),
            "ray-relay: {staying} of {} stay where they are, parked for you: `ray-relay exec --all` or `ray-relay debug --all` resumes the sessions, `ray-relay release --all` the tasks",
            members.len()
        )?;
    }
    complete(members.unnamed, ended(&done))
}

/// Runs the commands in the task of the list's `row`.
async fn run_in_member(
    args: &ExecArgs,
    group: &str,
    row: &Value,
    lines: Vec<String>,
    output: KeptOutput,
    shared: Shared,
) -> Done {
    let failed = |output: KeptOutput, why: &Failure| Done {
        output,
        error: why
            .sentence
            .as_deref()
            .map(|why| replaced(why).into_owned()),
        code: Some(why.code()),
    };
    if let Err(why) = ready(row) {
        return failed(output, &SessionError::from(why).into());
    }
    let which = RequestedTask::Member(typed_at(row, "id"), group.to_owned());
    let mut screen = Screen::Kept(output);
    let mut lines = Lines::Given(lines.into_iter());
    let deadline = Instant::now() + args.timeout;
    let done = async {
        match lines.next().await? {
            Some(first) => {
                let lines = (first, lines);
                run_in_one(args, which, lines, deadline, &mut screen, shared).await
            }
            None => Ok(()),
        }
    };
    let done = done.await;
    let output = match screen {
        Screen::Kept(output) => output,
        Screen::None | Screen::Notices | Screen::Now => KeptOutput::new(0),
    };
    match done {
        Ok(()) => Done {
            output,
            error: None,
            code: None,
        },
        Err(why) => failed(output, &why),
    }
}

/// Answers of all tasks to the command at index `at`.
fn answers(at: usize, done: &[Done]) -> Vec<(usize, Answered)> {
    let answered = done.iter().enumerate().filter_map(|(member, done)| {
        let printed = done.output.commands.get(at)?;
        // If the session ended during the command, only its error counts.
        let is_last = at + 1 == done.output.commands.len();
        let is_whole = done.error.is_none() || !is_last || printed.answer.starts_with("***");
        is_whole.then(|| (member, Answered::to(printed)))
    });
    answered.collect()
}

fn text(members: &MeantTasks, lines: &[String], done: &[Done]) -> String {
    let names = members.names();
    let mut text = members.legend();
    for (at, line) in lines.iter().enumerate() {
        let answers = answers(at, done);
        if answers.is_empty() {
            continue;
        }
        let answer = match Answered::text(&names, &answers) {
            answer if answer.is_empty() => "(nothing printed)\n".to_owned(),
            answer => answer,
        };
        text += &format!("\n(Pdb) {}\n{answer}", replaced(line));
    }
    let errors = done.iter().enumerate();
    let errors = errors.filter_map(|(at, done)| Some((at, done.error.as_deref()?)));
    let silent = answer_text::silent(&names, errors);
    if !silent.is_empty() {
        text += &format!("\n{silent}");
    }
    text
}

fn as_json(members: &MeantTasks, lines: &[String], done: &[Done]) -> Value {
    let names = members.names();
    let all = done.iter().enumerate();
    let all = all.map(|(at, done)| members.json(at, done.error.as_deref()));
    let commands = lines.iter().enumerate().map(|(at, line)| {
        let folded = Answered::folded(&answers(at, done));
        let mut row = answer_text::json(&names, &folded.answers);
        put(&mut row, "command", &**line);
        for (key, output) in [("program", &folded.program), ("notes", &folded.notes)] {
            if !output.same.is_empty() {
                put(
                    &mut row,
                    key,
                    take(&mut answer_text::json(&names, output), "answers"),
                );
            }
        }
        row
    });
    json!({"members": all.collect::<Vec<_>>(), "commands": commands.collect::<Vec<_>>()})
}

/// The result for all: with a specific exit code if it is the same for all.
fn ended(done: &[Done]) -> Result<(), Failure> {
    let codes: Vec<u8> = done.iter().filter_map(|done| done.code).collect();
    match codes.first() {
        None => Ok(()),
        Some(code) if codes.len() == done.len() && codes.iter().all(|one| one == code) => {
            Err(Failure::reported(*code))
        }
        Some(_) => Err(Failure::reported(Exit::Failed as u8)),
    }
}
