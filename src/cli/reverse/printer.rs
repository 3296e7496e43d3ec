//! Output of `ray-relay reverse`: sentences for users, or one object per line.

use std::collections::HashMap;
use std::io::{self, Write as _};

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::args::DebuggerAddress;
use crate::cli::terminal;
use ray_relay_base::wire::human_time::span;
use ray_relay_base::wire::text::replaced;
use ray_relay_base::wire::tunnel::reverse::ReverseArrival;

/// Prints events.
pub(super) struct ReversePrinter {
    json: bool,
    to: DebuggerAddress,
    state: Mutex<ReverseDisplay>,
}

#[derive(Default)]
struct ReverseDisplay {
    port: u16,
    /// Port for which the code to insert was printed.
    printed_port: Option<u16>,
    nodes: Option<(u32, Option<String>)>,
    sessions: HashMap<u64, (String, Instant)>,
}

impl ReversePrinter {
    pub(super) fn new(json: bool, to: DebuggerAddress) -> Self {
        Self {
            json,
            to,
            state: Mutex::default(),
        }
    }

    /// Sets the port; reports of agents follow.
    pub(super) fn ready(&self, port: u16) {
        let mut state = self.state.lock();
        state.port = port;
        state.nodes = None;
    }

    pub(super) fn listening(&self, nodes: u32, refused: Option<&str>) -> io::Result<()> {
        let mut state = self.state.lock();
        let refused = refused.map(|why| replaced(why).into_owned());
        let now = Some((nodes, refused.clone()));
        if state.nodes == now || (nodes == 0 && refused.is_none()) {
            return Ok(());
        }
        state.nodes = now;
        let port = state.port;
        if self.json {
            let refused = refused.map_or(Value::Null, Value::from);
            return line(
                &json!({"event": "listening", "port": port, "nodes": nodes, "refused": refused}),
            );
        }
        let mut text = match nodes {
            1 => format!("Port {port} of 127.0.0.1 listens on 1 node.\n"),
            _ => format!("Port {port} of 127.0.0.1 listens on {nodes} nodes.\n"),
        };
        if let Some(why) = refused {
            text += &format!("Not everywhere: {why}.\n");
        }
        if nodes > 0 && state.printed_port != Some(port) {
            state.printed_port = Some(port);
            text += &code_to_insert(port, &self.to);
        }
        drop(state);
        terminal::print(&text)
    }

    pub(super) fn arrived(&self, arrived: &ReverseArrival) -> io::Result<()> {
        let title = replaced(&arrived.title).into_owned();
        let mut state = self.state.lock();
        let now = Instant::now();
        state.sessions.insert(arrived.session, (title.clone(), now));
        drop(state);
        let job = arrived.job_id.as_deref();
        if self.json {
            return line(&json!({
                "event": "arrived", "session": arrived.session, "title": title, "cluster": &*arrived.cluster,
                "node_id": &*arrived.node_id, "worker_id": &*arrived.worker_id, "pid": arrived.pid, "job_id": job,
            }));
        }
        let worker = arrived.worker_id.get(..8).unwrap_or(&arrived.worker_id);
        let job = job.map_or(String::new(), |job| format!(", job {}", replaced(job)));
        let worker = replaced(worker);
        terminal::print(&format!("{title} (worker {worker}{job}) has dialled.\n"))
    }

    pub(super) fn ended(&self, session: u64, why: &str) -> io::Result<()> {
        let known = self.state.lock().sessions.remove(&session);
        if self.json {
            return line(&json!({"event": "ended", "session": session, "why": why}));
        }
        let why = replaced(why);
        terminal::print(&match known {
            Some((title, since)) => {
                format!(
                    "{title} has ended after {}: {why}.\n",
                    span(since.elapsed())
                )
            }
            None => format!("A connection has ended: {why}.\n"),
        })
    }

    pub(super) fn rejected(&self, reason: &str) -> io::Result<()> {
        if self.json {
            return line(&json!({"event": "turned_away", "reason": reason}));
        }
        terminal::print(&format!("Turned away: {}.\n", replaced(reason)))
    }

    pub(super) fn warning(&self, session: u64, text: &str) -> io::Result<()> {
        if self.json {
            return line(&json!({"event": "warning", "session": session, "text": text}));
        }
        terminal::print(&format!("{}.\n", replaced(text)))
    }

    pub(super) fn lost(&self, why: &str) -> io::Result<()> {
        let mut state = self.state.lock();
        state.sessions.clear();
        state.nodes = None;
        drop(state);
        if self.json {
            return line(&json!({"event": "lost", "why": why}));
        }
        terminal::print(&format!("{}; trying again.\n", replaced(why)))
    }
}

/// The code to insert into a task.
fn code_to_insert(port: u16, to: &DebuggerAddress) -> String {
    format!(
        "Put one of these into a task; its connection is forwarded to {to}:\n    \
         import pydevd_pycharm; pydevd_pycharm.settrace(\"127.0.0.1\", port={port}, suspend=True)\n    \
         import debugpy; debugpy.connect((\"127.0.0.1\", {port}))\n"
    )
}

fn line(object: &Value) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{object}")?;
    out.flush()
}
