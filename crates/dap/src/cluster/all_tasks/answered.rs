//! What the client hears of answers and reports of the tasks: folded, each under its rank or its pid.

use std::collections::HashMap;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::{AllTasks, SETTLED, ThreadShown};
use crate::cluster::folded::Folded;
use crate::cluster::standing::{Said, frame};
use ray_relay_base::wire::dap::message::{Request, event, notice};
use ray_relay_base::wire::dap::names::Event;
use ray_relay_session::session::family::{Report, Wish};

impl AllTasks<'_> {
    /// What its sessions have reported, in the order in which it came: what breakpoints have logged, each line behind the name of
    /// its task, and why a session was not opened.
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
        let mut told = Vec::new();
        let mut next = Some(first);
        while let Some(report) = next {
            match report {
                Report::Logged { session, text } => {
                    let who = sessions.get(&session).map_or("?", String::as_str);
                    let lines = text.lines().map(|line| format!("{who}: {line}\n"));
                    let body = json!({"category": "console", "output": lines.collect::<String>()});
                    told.push(event(Event::Output, body));
                }
                // One of a thousand ranks says it for all.
                Report::Unranked { text } if !self.unranked_told => {
                    self.unranked_told = true;
                    told.push(notice(&text, false));
                }
                Report::Unranked { .. } => {}
                Report::NotOpened { text, taken } => {
                    self.taken.extend(taken);
                    told.push(notice(&text, false));
                }
            }
            let reported = self.reported.as_mut();
            next = reported.and_then(|reported| reported.try_recv().ok());
        }
        told
    }

    pub(super) fn answered(&mut self, request: &Request, wish: &Wish, said: Said) -> Vec<Value> {
        // What they have told of their ranks by now.
        let latest = self.tasks.all();
        let ranks: HashMap<u64, Option<u32>> = latest
            .iter()
            .map(|task| (task.session, task.rank))
            .collect();
        let said = said.into_iter().map(|(mut task, answer)| {
            let latest = ranks.get(&task.session).copied().flatten();
            task.rank = latest.or(task.rank);
            (task, answer)
        });
        if *wish == Wish::Place {
            let frame = frame(&self.list(), said.collect());
            let stack = json!({"stackFrames": [frame], "totalFrames": 1});
            return vec![request.success(stack)];
        }
        if let Wish::Complete(_) = wish {
            let answer = said.into_iter().find_map(|(_, answer)| answer.ok());
            let targets = answer.and_then(|text| serde_json::from_str(&text).ok());
            let targets: Vec<Value> = targets.unwrap_or_default();
            return vec![request.success(json!({ "targets": targets }))];
        }
        let folded = Folded::new(&self.list(), said.collect());
        if wish.lets_run() {
            self.moving = self.moving.saturating_sub(1);
            if !folded.is_silent() {
                // As the client takes it, from the answer on.
                self.thread = ThreadShown::Runs;
                let _ = self.due.get_or_insert_with(|| Instant::now() + SETTLED);
            }
        }
        match wish {
            Wish::Map(_)
            | Wish::Evaluate {
                statement: true, ..
            } => {
                let body = json!({"result": folded.text(), "variablesReference": 0});
                vec![request.success(body)]
            }
            Wish::Evaluate { .. } => {
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
                let mut told = vec![request.success(body)];
                if !silence.is_empty() {
                    let text = format!("not all do `{}`:\n{}", request.command, silence.trim_end());
                    told.push(notice(&text, false));
                }
                told
            }
        }
    }
}
