//! The tasks of a family, as its lead sees and asks them.

use std::sync::Arc;

use tokio::sync::{oneshot, watch};

use super::asking::{Answer, Asked, Wish};
use super::leaving::{MemberLine, Members};
use crate::ray::registry::Breakpoint;

/// A task that one session of a family holds.
#[derive(Debug, Clone)]
pub struct GroupTask {
    /// The session.
    pub session: u64,
    /// Its worker, as that was when the session began.
    pub breakpoint: Arc<Breakpoint>,
    /// Whether the program stands, as far as is known.
    pub stands: bool,
    /// Whether it is about to stop since its session began.
    pub arriving: bool,
    /// How often it has stopped.
    pub stops: u64,
    /// How often it has by itself, and neither by a person's wish nor by the relay's.
    pub breaks: u64,
    /// Its place in the order in which those that stand have stopped.
    pub since: u64,
    /// Whether it asks by its own words that the others of its job stop with it.
    pub asks: bool,
    /// How often that was not for the client of its own session.
    pub followed: u64,
    /// Its rank, where its process has told it.
    pub rank: Option<u32>,
}

/// The tasks of a family, for its lead.
#[derive(Debug, Clone)]
pub struct GroupTasks(pub(super) watch::Receiver<Members>);

impl GroupTasks {
    /// All that can be asked now, in the order of their sessions.
    pub fn all(&self) -> Vec<GroupTask> {
        let members = self.0.borrow();
        let task = |(session, line, asks): (&u64, &MemberLine, bool)| GroupTask {
            session: *session,
            breakpoint: Arc::clone(&line.breakpoint),
            stands: line.stands,
            arriving: line.arriving,
            stops: line.stops,
            breaks: line.breaks,
            since: line.since,
            asks,
            followed: line.followed,
            rank: line.rank,
        };
        let lines = members.sessions.iter();
        let lines =
            lines.filter_map(|(session, one)| Some((session, one.line.as_ref()?, one.asks)));
        let mut all: Vec<_> = lines.map(task).collect();
        all.sort_unstable_by_key(|task| task.session);
        all
    }

    /// Resolves when one of them has come, gone, stopped or run on; with the family it ends, and this never does. Cancel safe.
    pub async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// What `session` answers to `wish`.
    pub async fn ask(&self, session: u64, wish: Wish) -> Answer {
        const OVER: &str = "its session has ended";
        let (answer, answered) = oneshot::channel();
        {
            let members = self.0.borrow();
            let line = members.sessions.get(&session);
            let line = line.and_then(|one| one.line.as_ref()).ok_or(OVER)?;
            let asked = line.questions.try_send(Asked { wish, answer });
            asked.map_err(|_| "it has not come to what it was asked before")?;
        }
        answered.await.unwrap_or_else(|_| Err(OVER.to_owned()))
    }
}
