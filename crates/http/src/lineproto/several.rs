//! The prompt for many tasks: drives [`ray_relay_view::group`] with a client's lines.
//!
//! As at the prompt of one task, lines typed while tasks run are executed once those have stopped. A line that quits
//! does not wait for tasks that do not stop. Each session records the line.

use std::collections::{BTreeSet, VecDeque};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, sleep_until};

use crate::lineproto::input::{ClientInput, TOO_LONG, Typed};
use crate::lineproto::output::Out;
use crate::lineproto::running_command::{Due, RunningCommand, lets_run, takes_more};
use ray_relay_base::wire::text::replaced;
use ray_relay_debugger::pdb::PromptEnd;
use ray_relay_view::group::prompt::PromptGroup;

/// Typed in place of Ctrl-C by a client without that key.
const INTERRUPT: &str = "interrupt";

/// How the conversation ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum GroupOutcome {
    /// No task remains at the prompt.
    Over,
    /// The client is gone without deciding what happens to the paused tasks.
    Lost,
}

/// Runs the prompt until no task remains at it, or until its client is lost.
pub(super) async fn converse<S, R>(
    group: &mut PromptGroup<'_, S>,
    input: &mut ClientInput<R>,
    out: &Out,
) -> GroupOutcome
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
    R: AsyncRead + Unpin,
{
    let mut ahead = VecDeque::new();
    while !group.is_over() {
        out.text(&group.prompt()).await;
        let typed = match ahead.pop_front() {
            Some(typed) => typed,
            None => match typed(group, input, out).await {
                Ok(typed) => typed,
                Err((at, end)) => {
                    let lost = group.lost(at, &end);
                    out.text(&format!("\n{lost}")).await;
                    continue;
                }
            },
        };
        let line = match typed {
            Typed::Line(line) => Typed::text(&line),
            Typed::TooLong => {
                out.notice(TOO_LONG).await;
                continue;
            }
            Typed::Interrupt => INTERRUPT.to_owned(),
            Typed::End => return GroupOutcome::Lost,
        };
        if line.trim() == INTERRUPT {
            group.abort_definitions();
            continue;
        }
        if let Some(focused) = group.take_focus(&line) {
            if let Err(sentence) = focused {
                out.text(&format!("*** {}\n", replaced(&sentence))).await;
            }
            continue;
        }
        let unfinished = Box::pin(execute(group, &line, input, out, &mut ahead)).await;
        // The last command resumed tasks, and the client closed its input: detach.
        let is_done = ahead.front() == Some(&Typed::End) && lets_run(&line);
        let notice = match is_done {
            true => group.detach_all().await,
            false => group.leave(&unfinished).await,
        };
        out.text(&notice).await;
    }
    GroupOutcome::Over
}

/// Runs `line` on the focused tasks, shows their answers, and collects input typed `ahead` meanwhile. Returns the tasks
/// that have not finished, which are to be detached.
async fn execute<S, R>(
    group: &mut PromptGroup<'_, S>,
    line: &str,
    input: &mut ClientInput<R>,
    out: &Out,
    ahead: &mut VecDeque<Typed>,
) -> BTreeSet<usize>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
    R: AsyncRead + Unpin,
{
    let mut command = RunningCommand::new(line);
    let mut is_hinted = false;
    let mut asking = group.ask(line);
    loop {
        let deadline = command.deadline(ahead.front());
        tokio::select! {
            biased;
            goes_on = asking.next() => if !goes_on {
                break;
            },
            () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => match command.due() {
                Due::Leave => break,
                Due::Interrupt => asking.interrupt(),
            },
            () = sleep_until(command.hint_at()), if !is_hinted => {
                is_hinted = true;
                out.text(&asking.hint("`interrupt`")).await;
            }
            typed = input.next(), if takes_more(ahead) => {
                let is_interrupt = match &typed {
                    Typed::Interrupt => true,
                    Typed::Line(line) => Typed::text(line).trim() == INTERRUPT,
                    Typed::TooLong | Typed::End => false,
                };
                if is_interrupt {
                    // Earlier input was meant for a prompt that will not come.
                    ahead.clear();
                    asking.interrupt();
                } else {
                    ahead.push_back(typed);
                }
            }
            () = out.closed(), if command.has_client() => if command.client_gone(ahead) {
                break;
            },
        }
    }
    let (answers, unfinished) = asking.over();
    let (text, _) = group.conclude(answers);
    out.text(&text).await;
    unfinished
}

/// Returns the next input, or the session that ended while waiting for it and how.
async fn typed<S, R>(
    group: &mut PromptGroup<'_, S>,
    input: &mut ClientInput<R>,
    out: &Out,
) -> Result<Typed, (usize, PromptEnd)>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
    R: AsyncRead + Unpin,
{
    tokio::select! {
        typed = input.next() => Ok(typed),
        () = out.closed() => Ok(Typed::End),
        ended = group.idle() => Err(ended),
    }
}
