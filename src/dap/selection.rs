//! Which worker a client gets.
//!
//! Pure: the client's attach arguments and one snapshot in, a [`Choice`] or a sentence out. The order is
//! that of the README: what the client says in `rayRelay`, then an advertised address that it echoes, then
//! what is paused. Nothing that a client says is ever dialled; it only picks from the registry.

use std::sync::Arc;
use std::time::SystemTime;

use serde_json::{Map, Value};

use super::message::clean;
use crate::registry::{Breakpoint, BreakpointId, Holder, Snapshot, State};

/// The keys of `rayRelay`, for the error that names the nearest one.
const KEYS: [&str; 8] = [
    "breakpoint",
    "task",
    "worker",
    "next",
    "all",
    "cluster",
    "localRoot",
    "token",
];

/// `rayRelay` of the attach arguments, and what else selects.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Wish {
    /// `breakpoint`: an id.
    pub breakpoint: Option<BreakpointId>,
    /// `task`: a name as in the list, `*` matching anything; or a task id.
    pub task: Option<String>,
    /// `worker`: a worker id or the beginning of one (at least six characters).
    pub worker: Option<String>,
    /// `next`: wait for the next stop.
    pub next: bool,
    /// `all`: the cluster session, also where one worker is paused.
    pub all: bool,
    /// `cluster`: only that cluster.
    pub cluster: Option<String>,
    /// `localRoot`: local folder that stands for the worker's working_dir.
    pub local_root: Option<String>,
    /// `subProcessId` at the top level: a session for a subprocess of a worker that is being debugged.
    pub subprocess: bool,
}

/// How the client can take several sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Children {
    /// By the reverse request `startDebugging`.
    StartDebugging,
    /// By the custom event `debugpyAttach`.
    DebugpyAttach,
    /// Not at all.
    None,
}

/// What an address that the client echoed says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hint {
    /// Nothing.
    None,
    /// One breakpoint that the relay advertised under it.
    Breakpoint(BreakpointId),
    /// It was advertised once, or looks like it, but for nothing that is known now.
    Stale,
}

/// The session to be.
#[derive(Debug, Clone, PartialEq)]
pub enum Choice {
    /// With this worker.
    Worker(Arc<Breakpoint>),
    /// A further session with a worker that is being debugged, for its subprocess.
    Subprocess(Arc<Breakpoint>),
    /// The cluster session.
    Cluster,
    /// With the next worker that pauses and fits the wish.
    Next,
}

/// Why there is none: `Display` is for the client.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// `rayRelay` is not understood.
    #[error("{0}")]
    BadWish(String),
    /// The breakpoint is held.
    #[error(
        "{name} is being debugged by {holder}, for {held} now; it is free again when that session ends"
    )]
    Held {
        /// Title of the breakpoint.
        name: String,
        /// Who.
        holder: String,
        /// For how long, readable.
        held: String,
    },
    /// The breakpoint ended.
    #[error("{name} no longer waits: {what}; see what does with `ray-relay list`")]
    Ended {
        /// Title of the breakpoint.
        name: String,
        /// How it ended.
        what: String,
    },
    /// Nothing fits.
    #[error("{0}")]
    Nothing(String),
}

impl Refusal {
    /// For a breakpoint that `holder` has.
    pub fn held(breakpoint: &Breakpoint, holder: &Holder, now: SystemTime) -> Self {
        let held = now.duration_since(holder.since).unwrap_or_default();
        Self::Held {
            name: breakpoint.title(),
            holder: holder.to_string(),
            held: span(held),
        }
    }

    /// For a breakpoint that is over.
    pub fn ended(breakpoint: &Breakpoint, now: SystemTime) -> Self {
        let (at, what) = match &breakpoint.state {
            State::Died { at, why } => (*at, why.to_string()),
            State::Released { at } => (*at, "the task was let go and runs on".to_owned()),
            State::Paused | State::Attached(_) => (now, "it has just ended".to_owned()),
        };
        let what = format!(
            "{what} ({} ago)",
            span(now.duration_since(at).unwrap_or_default())
        );
        Self::Ended {
            name: breakpoint.title(),
            what,
        }
    }

    /// For an id that nothing is known of.
    pub fn unknown(what: &str, snapshot: &Snapshot) -> Self {
        Self::Nothing(format!("no paused worker {what}; {}", inventory(snapshot)))
    }
}

/// `12 s`, `3 min`, `2 h`.
fn span(time: std::time::Duration) -> String {
    match time.as_secs() {
        s @ 0..=99 => format!("{s} s"),
        s @ 100..=5999 => format!("{} min", s / 60),
        s => format!("{} h", s / 3600),
    }
}

/// What waits, as the end of a sentence.
fn inventory(snapshot: &Snapshot) -> String {
    const SHOWN: usize = 5;
    let waiting: Vec<_> = snapshot
        .paused()
        .take(SHOWN)
        .map(|b| format!("{} ({})", b.id, b.title()))
        .collect();
    let more = snapshot.paused().count().saturating_sub(SHOWN);
    let trouble = snapshot.clusters.iter().find_map(|c| c.trouble.as_deref());
    match (waiting.is_empty(), more, trouble) {
        (true, _, Some(trouble)) => format!("the list may be old: {trouble}"),
        (true, ..) => "nothing waits at a breakpoint now".to_owned(),
        (false, 0, _) => format!("waiting now: {}", waiting.join(", ")),
        (false, more, _) => format!("waiting now: {} and {more} more", waiting.join(", ")),
    }
}

/// Reads `rayRelay` (and `subProcessId`) from attach arguments.
///
/// # Errors
/// [`Refusal::BadWish`]: an unknown key, a value of the wrong kind.
pub fn read_wish(arguments: &Value) -> Result<Wish, Refusal> {
    let mut wish = Wish {
        subprocess: arguments.get("subProcessId").is_some_and(|v| !v.is_null()),
        ..Wish::default()
    };
    let keys: &Map<String, Value> = match arguments.get("rayRelay") {
        None | Some(Value::Null) => return Ok(wish),
        Some(Value::Object(keys)) => keys,
        // Helix can only send strings: an id, or else a task.
        Some(Value::String(text)) if !text.is_empty() => {
            match text.parse() {
                Ok(id) => wish.breakpoint = Some(id),
                Err(_) => wish.task = Some(text.clone()),
            }
            return Ok(wish);
        }
        Some(_) => return Err(Refusal::BadWish(
            "`rayRelay` in the attach arguments must be the id of a breakpoint or an object, for example {\"next\": true}"
                .into(),
        )),
    };
    for (key, value) in keys {
        if value.is_null() {
            continue;
        }
        let text = || {
            value
                .as_str()
                .filter(|s| !s.is_empty())
                .map(str::to_owned)
                .ok_or_else(|| {
                    Refusal::BadWish(format!(
                        "`rayRelay.{key}` must be a string that is not empty"
                    ))
                })
        };
        let flag = || {
            value
                .as_bool()
                .ok_or_else(|| Refusal::BadWish(format!("`rayRelay.{key}` must be true or false")))
        };
        match key.as_str() {
            "breakpoint" => {
                let text = text()?;
                wish.breakpoint = Some(text.parse().map_err(|why| {
                    Refusal::BadWish(format!("`rayRelay.breakpoint` is \"{}\", but {why}; `ray-relay list` shows the ids", clean(&text, 20)))
                })?);
            }
            "task" => wish.task = Some(text()?),
            "worker" => {
                let text = text()?.to_ascii_lowercase();
                if text.len() < 6 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
                    return Err(Refusal::BadWish("`rayRelay.worker` must be a worker id, or at least its first six characters".into()));
                }
                wish.worker = Some(text);
            }
            "next" => wish.next = flag()?,
            "all" => wish.all = flag()?,
            "cluster" => wish.cluster = Some(text()?),
            "localRoot" => wish.local_root = Some(text()?),
            "token" => {} // no authentication yet; never forwarded either
            other => {
                let nearest = KEYS
                    .iter()
                    .max_by(|a, b| strsim::jaro(a, other).total_cmp(&strsim::jaro(b, other)));
                return Err(Refusal::BadWish(format!(
                    "`rayRelay.{}` is not known; did you mean `{}`? known are {}",
                    clean(other, 30),
                    nearest.unwrap_or(&"breakpoint"),
                    KEYS.join(", ")
                )));
            }
        }
    }
    Ok(wish)
}

/// Whether `breakpoint` is what `wish` asks for. A wish that names nothing fits everything.
pub fn fits(wish: &Wish, breakpoint: &Breakpoint) -> bool {
    let names = &breakpoint.names;
    wish.breakpoint.is_none_or(|id| id == breakpoint.id)
        && wish
            .worker
            .as_ref()
            .is_none_or(|worker| breakpoint.worker_id.starts_with(worker.as_str()))
        && wish
            .cluster
            .as_ref()
            .is_none_or(|cluster| **cluster == *breakpoint.cluster)
        && wish.task.as_ref().is_none_or(|task| {
            let known = [&names.name, &names.task_id, &names.actor_name];
            known.into_iter().flatten().any(|name| matches(task, name))
                || matches(task, &breakpoint.title())
        })
}

/// Whether `text` matches `pattern`, in which `*` stands for anything.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = text.strip_prefix(parts.next().unwrap_or_default()) else {
        return false;
    };
    let mut last = None;
    for part in parts {
        if let Some(middle) = last.replace(part) {
            match rest.find(middle) {
                Some(at) => rest = &rest[at + middle.len()..],
                None => return false,
            }
        }
    }
    match last {
        Some(end) => rest.ends_with(end),
        None => rest.is_empty(),
    }
}

/// Picks the session for `wish`.
///
/// # Errors
/// [`Refusal`], a sentence for the client.
pub fn choose(
    wish: &Wish,
    hint: Hint,
    children: Children,
    snapshot: &Snapshot,
    now: SystemTime,
) -> Result<Choice, Refusal> {
    if let Some(cluster) = &wish.cluster
        && !snapshot.clusters.iter().any(|c| *c.name == **cluster)
    {
        let known: Vec<_> = snapshot.clusters.iter().map(|c| &*c.name).collect();
        return Err(Refusal::BadWish(format!(
            "no cluster is called \"{}\"; known are {}",
            clean(cluster, 40),
            known.join(", ")
        )));
    }
    if wish.subprocess {
        return subprocess(wish, hint, snapshot);
    }
    if wish.next {
        return Ok(Choice::Next);
    }
    if wish.all {
        return match children {
            Children::None => Err(Refusal::BadWish(
                "`rayRelay.all` needs a client that can open several sessions (startDebugging); use `\"next\": true` or a `breakpoint`".into(),
            )),
            _ => Ok(Choice::Cluster),
        };
    }
    if wish.breakpoint.is_some() || wish.task.is_some() || wish.worker.is_some() {
        return named(wish, snapshot, now);
    }
    match hint {
        Hint::Breakpoint(id) => {
            return named(
                &Wish {
                    breakpoint: Some(id),
                    ..wish.clone()
                },
                snapshot,
                now,
            );
        }
        Hint::Stale => {
            return Err(Refusal::Nothing(format!(
                "the address that this session was started with belongs to a breakpoint that is gone; {}",
                inventory(snapshot)
            )));
        }
        Hint::None => {}
    }
    let mut paused = snapshot.paused().filter(|b| fits(wish, b));
    match (paused.next(), paused.next(), children) {
        (Some(only), None, _) => Ok(Choice::Worker(only.clone())),
        (_, _, Children::StartDebugging | Children::DebugpyAttach) => Ok(Choice::Cluster),
        (Some(oldest), ..) => Ok(Choice::Worker(oldest.clone())),
        (None, ..) => Err(none_waits(wish, snapshot, now)),
    }
}

fn named(wish: &Wish, snapshot: &Snapshot, now: SystemTime) -> Result<Choice, Refusal> {
    let fitting = || snapshot.live.iter().filter(|b| fits(wish, b));
    if let Some(free) = fitting().find(|b| b.is_paused()) {
        return Ok(Choice::Worker(free.clone()));
    }
    if let Some((held, holder)) = fitting().find_map(|b| b.holder().map(|holder| (b, holder))) {
        return Err(Refusal::held(held, holder, now));
    }
    if let Some(ended) = snapshot.ended.iter().find(|b| fits(wish, b)) {
        return Err(Refusal::ended(ended, now));
    }
    let what = match (&wish.breakpoint, &wish.task, &wish.worker) {
        (Some(id), ..) => format!("has the id {id}"),
        (_, Some(task), _) => format!("runs \"{}\"", clean(task, 60)),
        (_, _, Some(worker)) => format!("has an id that begins with {}", clean(worker, 60)),
        _ => "fits".to_owned(),
    };
    Err(Refusal::unknown(&what, snapshot))
}

fn subprocess(wish: &Wish, hint: Hint, snapshot: &Snapshot) -> Result<Choice, Refusal> {
    let wish = match (wish.breakpoint, hint) {
        (None, Hint::Breakpoint(id)) => Wish {
            breakpoint: Some(id),
            ..wish.clone()
        },
        _ => wish.clone(),
    };
    let mut held = snapshot
        .live
        .iter()
        .filter(|b| b.holder().is_some() && fits(&wish, b));
    match (held.next(), held.next()) {
        (Some(only), None) => Ok(Choice::Subprocess(only.clone())),
        (Some(_), Some(_)) => Err(Refusal::Nothing(
            "several workers are being debugged, and this subprocess session does not say which one it belongs to (rayRelay.breakpoint)".into(),
        )),
        (None, _) => Err(Refusal::Nothing("the session that this subprocess belongs to has ended".into())),
    }
}

fn none_waits(wish: &Wish, snapshot: &Snapshot, now: SystemTime) -> Refusal {
    if let Some((held, holder)) = snapshot
        .live
        .iter()
        .filter(|b| fits(wish, b))
        .find_map(|b| b.holder().map(|h| (b, h)))
    {
        return Refusal::held(held, holder, now);
    }
    let trouble = snapshot.clusters.iter().find_map(|c| c.trouble.as_deref());
    Refusal::Nothing(match trouble {
        Some(trouble) => format!("nothing is known to wait at a breakpoint, and the list may be old: {trouble}"),
        None => "nothing waits at a breakpoint now; start the job and attach again, or set \"rayRelay\": {\"next\": true} to wait for the next one".into(),
    })
}

#[cfg(test)]
mod tests;
