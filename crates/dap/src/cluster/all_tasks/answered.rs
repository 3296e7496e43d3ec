//! Answers and reports of the tasks, for the client: folded, each with its rank or its pid.

use std::collections::HashMap;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::{AllTasks, STOPS_TOGETHER_WINDOW, ThreadShown};
use crate::cluster::folded::Folded;
use crate::cluster::standing::{Said, frame};
use ray_relay_base::wire::dap::message::{Request, event, notice};
use ray_relay_base::wire::dap::names::Event;
use ray_relay_session::session::family::{Expression, Report, Wish};

impl AllTasks<'_> {
    /// Messages to the client about reports of its sessions, in order: logpoint output, each line after the name of its task, and
    /// why a session was not opened.
    pub(super) fn reports(&mut self, first: Report) -> Vec<Value> {
        let places = Folded::new(
            &self.list(),
            self.tasks
                .all()
                .into_iter()
                .map(|task| (task, ()))
                .collect(),
        );
        let names = places.names();
        let sessions: HashMap<u64, String> = places
            .all
            .iter()
            .enumerate()
            .map(|(at, (task, ()))| (task.session, names.of(&[at].into())))
            .collect();
        let mut messages = Vec::new();
        let mut next = Some(first);
        while let Some(report) = next {
            match report {
                Report::Logged { session, text } => {
                    let who = sessions.get(&session).map_or("?", String::as_str);
                    let lines = text.lines().map(|line| format!("{who}: {line}\n"));
                    let body = json!({"category": "console", "output": lines.collect::<String>()});
                    messages.push(event(Event::Output, body));
                }
                // The first of a thousand ranks reports it for all.
                Report::Unranked { text } if !self.unranked_notified => {
                    self.unranked_notified = true;
                    messages.push(notice(&text, false));
                }
                Report::Unranked { .. } => {}
                Report::NotOpened { text, taken } => {
                    self.taken.extend(taken);
                    messages.push(notice(&text, false));
                }
            }
            let reported = self.reported.as_mut();
            next = reported.and_then(|reported| reported.try_recv().ok());
        }
        messages
    }

    /// Messages to the client: the response to `request`, made of the tasks' `answers`.
    pub(super) fn answered(&mut self, request: &Request, wish: &Wish, answers: Said) -> Vec<Value> {
        // The ranks may have become known meanwhile.
        let latest = self.tasks.all();
        let ranks: HashMap<u64, Option<u32>> = latest
            .iter()
            .map(|task| (task.session, task.rank))
            .collect();
        let answers = answers.into_iter().map(|(mut task, answer)| {
            let latest = ranks.get(&task.session).copied().flatten();
            task.rank = latest.or(task.rank);
            (task, answer)
        });
        if *wish == Wish::Place {
            let frame = frame(&self.list(), answers.collect());
            let stack = json!({"stackFrames": [frame], "totalFrames": 1});
            return vec![request.success(stack)];
        }
        if let Wish::Complete(_) = wish {
            let answer = answers.into_iter().find_map(|(_, answer)| answer.ok());
            let targets = answer.and_then(|text| serde_json::from_str(&text).ok());
            let targets: Vec<Value> = targets.unwrap_or_default();
            return vec![request.success(json!({ "targets": targets }))];
        }
        let folded = Folded::new(&self.list(), answers.collect());
        if wish.lets_run() {
            self.resuming = self.resuming.saturating_sub(1);
            if !folded.is_silent() {
                // The client takes it as running from the response on.
                self.thread = ThreadShown::Running;
                let _ = self
                    .notify_at
                    .get_or_insert_with(|| Instant::now() + STOPS_TOGETHER_WINDOW);
            }
        }
        match wish {
            Wish::Map(_)
            | Wish::Evaluate(Expression {
                statement: true, ..
            }) => {
                let body = json!({"result": folded.text(), "variablesReference": 0});
                vec![request.success(body)]
            }
            Wish::Evaluate(_) => {
                let reference = self.keep(folded.variables());
                let body = json!({"result": folded.in_one_line(), "variablesReference": reference});
                vec![request.success(body)]
            }
            _ => {
                let silence = folded.silence();
                if folded.is_silent() {
                    return vec![request.failure(silence.trim_end())];
                }
                let body = match wish {
                    Wish::Continue => json!({"allThreadsContinued": true}),
                    _ => Value::Null,
                };
                let mut messages = vec![request.success(body)];
                if !silence.is_empty() {
                    let text = format!("not all do `{}`:\n{}", request.command, silence.trim_end());
                    messages.push(notice(&text, false));
                }
                messages
            }
        }
    }
}
