//! One request to many tasks: on record first, each task with its deadline, resumed in the order in which they have stopped.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::{AllTasks, PendingAnswers};
use crate::cluster::jobs::{JobKeys, JobName};
use crate::cluster::standing::Said;
use ray_relay_session::session::family::{Answer, GroupTask, GroupTasks, Wish};

/// Deadline of an expression, and of a command, in each task.
const EVALUATE_TIMEOUT: Duration = Duration::from_secs(30);
const COMMAND_TIMEOUT: Duration = Duration::from_secs(5);

/// Deadline of a session that is asked to interrupt an expression.
const INTERRUPT_TIMEOUT: Duration = Duration::from_secs(1);

/// Longest time for which a task that is to resume delays the tasks that have stopped after it.
const RESUME_ORDER_TIMEOUT: Duration = Duration::from_millis(250);

impl<'a> AllTasks<'a> {
    /// Asks `tasks` and collects their answers, once the request is on record; where it cannot be recorded, nothing is asked. Tasks
    /// resume one after the other, as they have stopped. An expression without a value in time, or before it is `cancelled`, is
    /// interrupted in its task.
    pub(super) fn broadcast(
        &self,
        mut tasks: Vec<GroupTask>,
        wish: Wish,
        cancelled: CancellationToken,
    ) -> PendingAnswers<'a> {
        tasks.sort_by_key(|task| task.since);
        let (group, audit) = (self.tasks.clone(), self.audit.clone());
        let client = self.client.clone();
        let ids: Vec<_> = tasks.iter().map(|task| task.breakpoint.id).collect();
        Box::pin(async move {
            let command = wish.command().as_str();
            if let Err(why) = audit.group(&client, command, None, &ids).await {
                let refused = |task| (task, Err(why.to_string()));
                return tasks.into_iter().map(refused).collect();
            }
            let in_order = wish.lets_run();
            let mut keys = JobKeys::default();
            let (mut answers, mut late): (Said, _) = (Vec::new(), Vec::new());
            for task in tasks {
                let mut wish = wish.clone();
                if let Wish::Evaluate(expression) = &mut wish {
                    expression.key = Some(keys.of(JobName::of(&task.breakpoint)));
                }
                let mut answer = Box::pin(ask_one(group.clone(), task, wish, cancelled.clone()));
                let first = match in_order {
                    true => timeout(RESUME_ORDER_TIMEOUT, &mut answer).await.ok(),
                    false => None,
                };
                match first {
                    Some(answer) => answers.push(answer),
                    None => late.push(answer),
                }
            }
            answers.extend(join_all(late).await);
            answers
        })
    }
}

/// Asks one task. An expression that is late or `cancelled` is interrupted there.
async fn ask_one(
    group: GroupTasks,
    task: GroupTask,
    wish: Wish,
    cancelled: CancellationToken,
) -> (GroupTask, Answer) {
    let evaluates = matches!(wish, Wish::Evaluate(_));
    let deadline = match evaluates {
        true => EVALUATE_TIMEOUT,
        false => COMMAND_TIMEOUT,
    };
    let why = tokio::select! {
        answer = group.ask(task.session, wish) => return (task, answer),
        () = sleep(deadline) => format!("no answer within {} s", deadline.as_secs()),
        () = cancelled.cancelled() => "cancelled".to_owned(),
    };
    // A session that no longer answers is ending, and ends the expression itself.
    if evaluates {
        let interrupted = group.ask(task.session, Wish::Interrupt);
        let _ = timeout(INTERRUPT_TIMEOUT, interrupted).await;
    }
    (task, Err(why))
}
