//! The lead's view of a family's tasks.

use tokio::sync::{oneshot, watch};

use super::asking::{Answer, Asked, Wish};
use super::leaving::{GroupTask, MemberState, Members};

/// The tasks of a family, for its lead.
#[derive(Debug, Clone)]
pub struct GroupTasks(pub(super) watch::Receiver<Members>);

impl GroupTasks {
    /// All that accept requests now, in the order of their sessions.
    pub fn all(&self) -> Vec<GroupTask> {
        let members = self.0.borrow();
        let task = |one: &MemberState| {
            let task = one.line.as_ref()?.task.clone();
            let asks = one.asks;
            Some(GroupTask { asks, ..task })
        };
        let mut all: Vec<_> = members.sessions.values().filter_map(task).collect();
        all.sort_unstable_by_key(|task| task.session);
        all
    }

    /// Resolves when a task joins, leaves, pauses or resumes; never after the end of the family. Cancel safe.
    pub async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Sends `wish` to `session`, and returns its answer.
    pub async fn ask(&self, session: u64, wish: Wish) -> Answer {
        const OVER: &str = "its session has ended";
        let (answer, answered) = oneshot::channel();
        {
            let members = self.0.borrow();
            let line = members.sessions.get(&session);
            let line = line.and_then(|one| one.line.as_ref()).ok_or(OVER)?;
            let sent = line.questions.try_send(Asked { wish, answer });
            sent.map_err(|_| "it has not come to what it was asked before")?;
        }
        answered.await.unwrap_or_else(|_| Err(OVER.to_owned()))
    }
}
