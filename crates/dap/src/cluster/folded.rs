//! Names and answers of a family's tasks, folded as at a prompt for many.
//!
//! Pure.

use std::sync::Arc;

use serde_json::{Value, json};

use ray_relay_base::timestamp::Timestamp;
use ray_relay_base::wire::json::{put, typed};
use ray_relay_ray::ray::registry::{Breakpoint, Snapshot};
use ray_relay_session::session::family::{Answer, GroupTask};
use ray_relay_view::listing::fold::answer_text;
use ray_relay_view::listing::fold::answers::{Answers, fold};
use ray_relay_view::listing::fold::who::{Names, Who, identified};
use ray_relay_view::listing::json::JsonRow;

/// Tasks with one item each, in the order of their groups and ranks.
pub(super) struct Folded<T> {
    who: Vec<Who>,
    pub(super) all: Vec<(GroupTask, T)>,
}

impl<T> Folded<T> {
    /// Names these tasks by the current `list`.
    pub(super) fn new(list: &Snapshot, all: Vec<(GroupTask, T)>) -> Self {
        let now = Timestamp::now();
        let known: Vec<_> = all.iter().map(|(task, _)| latest(list, task)).collect();
        let is_certain = |(task, known): (&GroupTask, &Breakpoint)| {
            task.rank.is_some() || known.names.rank_is_certain
        };
        let tasks = all.iter().map(|(task, _)| task);
        let any_certain = tasks
            .zip(&known)
            .any(|(task, known)| is_certain((task, known)));
        let rows: Vec<Value> = all
            .iter()
            .zip(&known)
            .map(|((task, _), known)| {
                let mut row = serde_json::to_value(JsonRow::new(known, now)).unwrap_or_default();
                // A rank from a name is not mixed with ranks that processes report.
                let by_name = known
                    .names
                    .rank
                    .filter(|_| known.names.rank_is_certain || !any_certain);
                put(&mut row, "rank", task.rank.or(by_name));
                row
            })
            .collect();
        let who = identified(&rows.iter().map(typed).collect::<Vec<_>>());
        let mut both: Vec<_> = who.into_iter().zip(all).collect();
        let place = |who: &Who| (who.group.clone(), who.number.is_none(), who.number);
        both.sort_by_cached_key(|(who, (task, _))| (place(who), task.breakpoint.pid));
        let (who, all) = both.into_iter().unzip();
        Self { who, all }
    }

    pub(super) fn names(&self) -> Names<'_> {
        Names::new(&self.who)
    }
}

/// `task` as in `list`. A name outlives the stop at which it was learned: the next one is looked up again.
pub(super) fn latest(list: &Snapshot, task: &GroupTask) -> Arc<Breakpoint> {
    let known = list.find(task.breakpoint.id).unwrap_or(&task.breakpoint);
    match known.names.name.is_none() && task.breakpoint.names.name.is_some() {
        true => Arc::new(Breakpoint {
            names: Arc::clone(&task.breakpoint.names),
            ..Breakpoint::clone(known)
        }),
        false => Arc::clone(known),
    }
}

impl Folded<Answer> {
    fn answers(&self) -> Answers {
        let answers = self.all.iter().enumerate();
        fold(answers.filter_map(|(at, (_, answer))| Some((at, answer.as_deref().ok()?.trim_end()))))
    }

    fn silent(&self) -> impl Iterator<Item = (usize, &str)> {
        let answers = self.all.iter().enumerate();
        answers.filter_map(|(at, (_, answer))| Some((at, &**answer.as_ref().err()?)))
    }

    /// Whether no task has answered.
    pub(super) fn is_silent(&self) -> bool {
        self.all.iter().all(|(_, answer)| answer.is_err())
    }

    /// The tasks without an answer, with their reasons.
    pub(super) fn silence(&self) -> String {
        answer_text::silent(&self.names(), self.silent())
    }

    /// All answers as a text of several lines.
    pub(super) fn text(&self) -> String {
        let (names, answers) = (self.names(), self.answers());
        let mut text = match answers.same.iter().any(|same| !same.text.is_empty()) {
            true => answer_text::text(&names, &answers),
            false => String::new(),
        };
        text += &answer_text::silent(&names, self.silent());
        text.trim_end().to_owned()
    }

    /// The same in one line.
    pub(super) fn in_one_line(&self) -> String {
        answer_text::in_one_line(&self.names(), &self.answers(), self.silent())
    }

    /// A variable for each task, by its name.
    pub(super) fn variables(&self) -> Value {
        let names = self.names();
        let all = self.all.iter().enumerate().map(|(at, (_, answer))| {
            let value = match answer {
                Ok(text) => text.trim_end().to_owned(),
                Err(why) => format!("! {why}"),
            };
            json!({"name": names.of(&[at].into()), "value": value, "variablesReference": 0})
        });
        all.collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use ray_relay_ray::ray::testing::{paused, snapshot};

    /// The rank that a process reports takes precedence over its name and the order of the sessions.
    #[test]
    fn answer_is_labelled_with_the_rank_its_process_reports() {
        let task = |session: u64, rank: Option<u32>| {
            let mut breakpoint = paused("step", session.try_into().unwrap());
            breakpoint.pid = 6000 + u32::try_from(session).unwrap();
            let names = breakpoint.names_mut();
            (names.group, names.rank) = (Some("Trainer".to_owned()), session.try_into().ok());
            GroupTask {
                session,
                breakpoint: breakpoint.into(),
                stands: true,
                arriving: false,
                stops: 1,
                breaks: 1,
                since: session,
                asks: false,
                followed: 0,
                rank,
                location: None,
            }
        };
        let answers = [(1, Some(7)), (2, Some(3)), (3, None)];
        let answers = answers.map(|(session, rank)| (task(session, rank), session));
        let folded = Folded::new(&snapshot(Vec::new()), answers.to_vec());
        let names = folded.names();
        let names_and_sessions = folded.all.iter().enumerate();
        let names_and_sessions: Vec<_> = names_and_sessions
            .map(|(at, (_, session))| (names.of(&[at].into()), *session))
            .collect();
        let expected = [("3", 2), ("7", 1), ("pid 6003", 3)];
        let expected = expected.map(|(name, session)| (name.to_owned(), session));
        assert_eq!(names_and_sessions, expected);
    }

    /// Ranks count from 0.
    #[test]
    fn folded_answer_names_the_rank_that_differs() {
        let task = |rank: u32| {
            let mut breakpoint = paused("step", u8::try_from(rank).unwrap() + 1);
            breakpoint.pid = 6000 + rank;
            let names = breakpoint.names_mut();
            (names.group, names.rank) = (Some("Trainer".to_owned()), Some(rank));
            GroupTask {
                session: u64::from(rank),
                breakpoint: breakpoint.into(),
                stands: true,
                arriving: false,
                stops: 1,
                breaks: 1,
                since: 0,
                asks: false,
                followed: 0,
                rank: None,
                location: None,
            }
        };
        let answer = |rank| match rank {
            2 => Ok("waiting".to_owned()),
            _ => Ok("ready".to_owned()),
        };
        let answers: Vec<(GroupTask, Answer)> =
            (0..4).map(|rank| (task(rank), answer(rank))).collect();
        let folded = Folded::new(&snapshot(Vec::new()), answers);
        let text = folded.text();
        let odd = text.lines().find(|line| line.contains("waiting")).unwrap();
        assert!(odd.contains('2') && !odd.contains('3'), "{text}");
    }
}
