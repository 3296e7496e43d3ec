//! What a client asks for: `rayRelay` in its attach arguments.
//!
//! Pure. Read once for each attach; [`fits`] then holds it against the registry, now or as workers pause.

use serde_json::{Map, Value};

use crate::policy::Pattern;
use crate::registry::{Breakpoint, BreakpointId, Kind};
use crate::session::refusal::Refusal;
use crate::wire::text::shortened;

/// The keys of `rayRelay` that are for people, for the error that names the nearest one.
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
    /// `family`: the cluster session that had the client open this one. The relay puts it there itself.
    pub family: Option<String>,
    /// `subProcessId` at the top level: a session for that subprocess of a worker that is being debugged.
    pub subprocess: Option<u64>,
}

/// Reads `rayRelay` (and `subProcessId`) from attach arguments.
///
/// # Errors
/// [`Refusal::BadWish`]: an unknown key, a value of the wrong kind, or arguments by which debugpy would attach to
/// another process of the node (`processId`) or listen at an address of the client's choice (`listen`).
pub fn read_wish(arguments: &Value) -> Result<Wish, Refusal> {
    for key in ["processId", "listen"] {
        if arguments.get(key).is_some_and(|v| !v.is_null()) {
            return Err(Refusal::BadWish(format!(
                "`{key}` in the attach arguments would have the worker's debugger reach another process; the relay attaches to what waits at a breakpoint: leave it out"
            )));
        }
    }
    let mut wish = Wish {
        subprocess: subprocess(arguments)?,
        ..Wish::default()
    };
    let keys: &Map<String, Value> = match arguments.get("rayRelay") {
        None | Some(Value::Null) => return Ok(wish),
        Some(Value::Object(keys)) => keys,
        // Helix can only send strings, an id or else a task, and makes a number of one that has digits alone.
        Some(Value::Number(digits)) if digits.to_string().len() == BreakpointId::LEN => {
            let id = digits.to_string().parse();
            wish.breakpoint = Some(id.map_err(|_| not_a_wish())?);
            return Ok(wish);
        }
        Some(Value::String(text)) if !text.is_empty() => {
            match text.parse() {
                Ok(id) => wish.breakpoint = Some(id),
                Err(_) => wish.task = Some(text.clone()),
            }
            return Ok(wish);
        }
        Some(_) => return Err(not_a_wish()),
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
                    Refusal::BadWish(format!("`rayRelay.breakpoint` is \"{}\", but {why}; `ray-relay list` shows the ids", shortened(&text, 20)))
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
            "family" => wish.family = Some(text()?),
            // Taken out before; here where nothing was in them.
            "token" | "ticket" => {}
            // For the sessions that follow ([`super::attach::Dialled`]).
            "listen" => {}
            other => {
                let nearest = KEYS
                    .iter()
                    .max_by(|a, b| strsim::jaro(a, other).total_cmp(&strsim::jaro(b, other)));
                return Err(Refusal::BadWish(format!(
                    "`rayRelay.{}` is not known; did you mean `{}`? known are {}",
                    shortened(other, 30),
                    nearest.unwrap_or(&"breakpoint"),
                    KEYS.join(", ")
                )));
            }
        }
    }
    Ok(wish)
}

fn not_a_wish() -> Refusal {
    Refusal::BadWish(
        "`rayRelay` in the attach arguments must be the id of a breakpoint or an object, for example {\"next\": true}"
            .into(),
    )
}

/// debugpy takes text and fractions as well, and the number of one process is written in as many ways; here one is meant.
fn subprocess(arguments: &Value) -> Result<Option<u64>, Refusal> {
    match arguments.get("subProcessId") {
        None | Some(Value::Null) => Ok(None),
        Some(pid) => pid.as_u64().map(Some).ok_or_else(|| {
            Refusal::BadWish(
                "`subProcessId` must be the pid of a subprocess, a whole number".into(),
            )
        }),
    }
}

/// Whether `breakpoint` is what `wish` asks for, and speaks DAP. A wish that names nothing fits everything that does.
pub fn fits(wish: &Wish, breakpoint: &Breakpoint) -> bool {
    breakpoint.kind == Kind::Debugpy && names(wish, breakpoint)
}

/// Whether `wish` names `breakpoint`, whatever debugger waits there.
pub fn names(wish: &Wish, breakpoint: &Breakpoint) -> bool {
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
            let task = Pattern::new(task.as_str());
            let known = [&names.name, &names.task_id, &names.actor_name];
            known.into_iter().flatten().any(|name| task.matches(name))
                || task.matches(&breakpoint.title())
        })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_id_of_digits_alone_may_come_as_a_number() {
        let wish = read_wish(&json!({"rayRelay": 12345678})).unwrap();
        assert_eq!(wish.breakpoint.unwrap().to_string(), "12345678");
        for given in [
            json!(123_456_789),
            json!(42),
            json!(-1234567),
            json!(123456.5),
        ] {
            assert!(read_wish(&json!({"rayRelay": given})).is_err(), "{given}");
        }
    }

    #[test]
    fn a_subprocess_is_named_by_a_whole_number_alone() {
        let wish = read_wish(&json!({"subProcessId": 7})).unwrap();
        assert_eq!(wish.subprocess, Some(7));
        assert_eq!(
            read_wish(&json!({"subProcessId": null}))
                .unwrap()
                .subprocess,
            None
        );
        // debugpy would read each of these as a pid.
        for given in [
            json!("7"),
            json!(" 7"),
            json!(7.0),
            json!(true),
            json!([7]),
            json!(-7),
        ] {
            let refused = read_wish(&json!({"subProcessId": given})).unwrap_err();
            assert!(refused.to_string().contains("whole number"), "{refused}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_block_is_read_or_refused_without_panic(key in "[a-zA-Z]{0,10}", value in ".{0,20}") {
            let _ = read_wish(&json!({"rayRelay": {(key): value}}));
        }
    }
}
