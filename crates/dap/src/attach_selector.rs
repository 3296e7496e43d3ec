//! The attach selector: the `rayRelay` block of the attach arguments.
//!
//! Pure. Read once for each attach; [`fits`] then matches it with the registry, now or as workers pause.

use std::time::Duration;

use serde_json::{Map, Value};

use ray_relay_access::policy::Pattern;
use ray_relay_access::telemetry::request::RequestId;
use ray_relay_base::config::units::parse_duration;
use ray_relay_base::wire::text::{one_line, shortened};
use ray_relay_base::wire::tunnel::messages::MAX_ARMED_RANKS;
use ray_relay_ray::ray::registry::{Breakpoint, BreakpointId, BreakpointIdPrefix};
use ray_relay_session::session::refusal::SessionRefusal;

/// The documented keys of `rayRelay`, for the error that suggests the nearest one.
const KEYS: [&str; 17] = [
    "breakpoint",
    "task",
    "worker",
    "job",
    "running",
    "reason",
    "next",
    "all",
    "cluster",
    "group",
    "localRoot",
    "ranks",
    "once",
    "takeOver",
    "onClose",
    "parkFor",
    "token",
];

/// The selection in the attach arguments, of a worker or a kind of session: `rayRelay`, and other relevant keys.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AttachSelector {
    /// `breakpoint`: an id.
    pub breakpoint: Option<BreakpointId>,
    /// `breakpoint` as the prefix of an id: [`super::selection::completed`] resolves it.
    pub begun: Option<BreakpointIdPrefix>,
    /// `task`: a name as listed, `*` matching anything; or a task id.
    pub task: Option<String>,
    /// `worker`: a worker id or a prefix of at least six characters.
    pub worker: Option<String>,
    /// `job`: a submission id, job id or Ray Train run name.
    pub job: Option<Box<str>>,
    /// `running`: the task is not paused; a debugger is opened in it.
    pub running: bool,
    /// `reason`: why, for the audit log.
    pub reason: Option<String>,
    /// `next`: wait for the next stop.
    pub next: bool,
    /// `all`: the cluster session, even if only one worker is paused.
    pub all: bool,
    /// `"all": "mine"`: only jobs that the principal has submitted through a relay.
    pub mine: bool,
    /// The submitter that this selects.
    pub submitter: Option<String>,
    /// `cluster`: only that cluster.
    pub cluster: Option<String>,
    /// `localRoot`: local folder of the worker's working_dir; empty if there is none.
    pub local_root: Option<String>,
    /// `ranks`: the only ranks that breakpoints of a cluster session stop.
    pub ranks: Option<Vec<u32>>,
    /// `once`: a breakpoint of a cluster session stops each process once.
    pub once: bool,
    /// `takeOver`: an administrator resumes the session that another user has parked at `breakpoint`.
    pub take_over: bool,
    /// `onClose`: fate of the task when the client disconnects.
    pub(crate) on_close: Option<OnClose>,
    /// `parkFor`: how long the task is parked when the client is lost or leaves it paused.
    pub(crate) park_for: Option<Duration>,
    /// `group`: the id of the command for many tasks that opened this session, for the audit log.
    pub group: Option<String>,
    /// `"group": "job"`: a cluster session that pauses the other tasks of a job with each that stops. `"none"`: never,
    /// whatever the policy says.
    pub together: Option<bool>,
    /// `stay`: the client will leave the task parked, so it may attach only if there is room for that.
    pub stay: bool,
    /// `visit`: an inspection by the relay itself, which leaves a park unchanged.
    pub visit: bool,
    /// `family`: the cluster session that had the client open this one. Set by the relay.
    pub family: Option<String>,
    /// `subProcessId` at the top level: a session for that subprocess of a debugged worker.
    pub subprocess: Option<u32>,
}

/// Fate of a task when its client disconnects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnClose {
    /// It is parked, if allowed.
    Park,
    /// It resumes, even if the client is lost.
    Continue,
}

/// Reads `rayRelay` (and `subProcessId`) from attach arguments.
///
/// # Errors
/// [`SessionRefusal::BadSelector`]: an unknown key, a value of the wrong kind, or dangerous arguments. By those debugpy
/// would attach to another process of the node (`processId`) or listen at an address of the client's choice (`listen`).
pub fn read_selector(arguments: &Value) -> Result<AttachSelector, SessionRefusal> {
    for key in ["processId", "listen"] {
        if arguments.get(key).is_some_and(|v| !v.is_null()) {
            return Err(bad(format!(
                "`{key}` in the attach arguments would have the worker's debugger reach another process; the relay attaches only to tasks at a breakpoint: leave it out"
            )));
        }
    }
    let mut selector = AttachSelector {
        subprocess: subprocess(arguments)?,
        ..AttachSelector::default()
    };
    let keys: &Map<String, Value> = match arguments.get("rayRelay") {
        None | Some(Value::Null) => return Ok(selector),
        Some(Value::Object(keys)) => keys,
        // Helix can only send strings, an id or a task name, and turns digits alone into a number.
        Some(Value::Number(digits)) if digits.to_string().len() == BreakpointId::LEN => {
            let id = digits.to_string().parse();
            selector.breakpoint = Some(id.map_err(|_| not_a_selector())?);
            return Ok(selector);
        }
        Some(Value::String(text)) if !text.is_empty() => {
            match text.parse() {
                Ok(id) => selector.breakpoint = Some(id),
                Err(_) => selector.task = Some(text.clone()),
            }
            return Ok(selector);
        }
        Some(_) => return Err(not_a_selector()),
    };
    for (key, value) in keys {
        if !value.is_null() {
            selector.set(SelectorEntry { key, value })?;
        }
    }
    selector.check()?;
    Ok(selector)
}

/// One key of `rayRelay` with its value.
#[derive(Clone, Copy)]
struct SelectorEntry<'a> {
    key: &'a str,
    value: &'a Value,
}

impl SelectorEntry<'_> {
    fn must_be(&self, what: &str) -> SessionRefusal {
        bad(format!("`rayRelay.{}` must be {what}", self.key))
    }

    fn text(&self) -> Result<String, SessionRefusal> {
        let text = self.value.as_str().filter(|text| !text.is_empty());
        text.map(str::to_owned)
            .ok_or_else(|| self.must_be("a string that is not empty"))
    }

    fn flag(&self) -> Result<bool, SessionRefusal> {
        let flag = self.value.as_bool();
        flag.ok_or_else(|| self.must_be("true or false"))
    }
}

impl AttachSelector {
    fn set(&mut self, entry: SelectorEntry<'_>) -> Result<(), SessionRefusal> {
        match entry.key {
            "breakpoint" => {
                let text = entry.text()?;
                self.breakpoint = text.parse().ok();
                if self.breakpoint.is_none() {
                    self.begun = Some(text.parse().map_err(|why| {
                        bad(format!("`rayRelay.breakpoint` is \"{}\", but {why}; `ray-relay list` shows the ids", shortened(&text, 20)))
                    })?);
                }
            }
            "task" => self.task = Some(entry.text()?),
            "worker" => {
                let text = entry.text()?.to_ascii_lowercase();
                if text.len() < 6 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
                    return Err(entry.must_be("a worker id, or at least its first six characters"));
                }
                self.worker = Some(text);
            }
            "job" => self.job = Some(entry.text()?.into()),
            "running" => self.running = entry.flag()?,
            "reason" => self.reason = Some(one_line(&entry.text()?)),
            "next" => self.next = entry.flag()?,
            "all" if entry.value == "mine" => (self.all, self.mine) = (true, true),
            "all" => {
                let all = entry.value.as_bool();
                self.all = all.ok_or_else(|| entry.must_be("true, false or \"mine\""))?;
            }
            "cluster" => self.cluster = Some(entry.text()?),
            // The client has no such folder.
            "localRoot" if entry.value == "" => self.local_root = Some(String::new()),
            "localRoot" => self.local_root = Some(entry.text()?),
            "ranks" => {
                let ranks: Option<Vec<u32>> = serde_json::from_value(entry.value.clone()).ok();
                let ranks = ranks.filter(|all| (1..=MAX_ARMED_RANKS).contains(&all.len()));
                self.ranks =
                    Some(ranks.ok_or_else(|| entry.must_be("a list of ranks such as [0, 3]"))?);
            }
            "once" => self.once = entry.flag()?,
            "takeOver" => self.take_over = entry.flag()?,
            "onClose" => {
                self.on_close = Some(match entry.value.as_str() {
                    Some("park") => OnClose::Park,
                    Some("continue") => OnClose::Continue,
                    _ => return Err(entry.must_be("\"park\" or \"continue\"")),
                });
            }
            "parkFor" => {
                let duration = entry.value.as_str().map(parse_duration);
                let duration = duration
                    .and_then(Result::ok)
                    .filter(|duration| !duration.is_zero());
                self.park_for = Some(
                    duration.ok_or_else(|| entry.must_be("a time such as \"2h\" or \"45m\""))?,
                );
            }
            "group" => match entry.text()? {
                job if job == "job" => (self.together, self.all) = (Some(true), true),
                none if none == "none" => self.together = Some(false),
                id if RequestId::is_valid(&id) => self.group = Some(id),
                _ => {
                    return Err(entry.must_be(
                        "\"job\", for a cluster session that stops all tasks of a job together, \"none\", where the policy says so and you do not want it, or the id that POST /relay/v1/group answers",
                    ));
                }
            },
            "stay" => self.stay = entry.flag()?,
            "visit" => self.visit = entry.flag()?,
            "family" => self.family = Some(entry.text()?),
            // Removed before; still here if the value was empty.
            "token" | "ticket" => {}
            // For child sessions ([`super::attach::RelayEndpoint`]).
            "listen" => {}
            other => return Err(unknown_key(other)),
        }
        Ok(())
    }

    /// Checks that the keys are consistent.
    fn check(&self) -> Result<(), SessionRefusal> {
        // Set by the relay, for a child of a cluster session.
        let was_opened = self.breakpoint.is_some() && self.family.is_some();
        let names_running = self.task.is_some() || self.worker.is_some() || was_opened;
        if self.running && (!names_running || self.next || self.all) {
            return Err(bad(
                "`rayRelay.running` opens a debugger in one task that runs: say which by `task`, a name as `ray-relay tasks` shows it or a task id, or by `worker`, and leave out `next` and `all`",
            ));
        }
        if self.reason.is_some() && !self.running {
            return Err(bad(
                "`rayRelay.reason` goes on record with a debugger that is opened in a task that runs: it belongs to `running`",
            ));
        }
        if self.together == Some(true) && (names_running || self.breakpoint.is_some() || self.next)
        {
            return Err(bad(
                "`rayRelay.group` \"job\" makes a cluster session, which opens a session for each task of the job: leave out `breakpoint`, `task`, `worker` and `next`",
            ));
        }
        if self.take_over && self.breakpoint.is_none() && self.begun.is_none() {
            return Err(bad(
                "`rayRelay.takeOver` resumes a session that another user has parked: name it by `breakpoint`, its id in `ray-relay list`",
            ));
        }
        Ok(())
    }
}

fn unknown_key(key: &str) -> SessionRefusal {
    let like = |known: &&str| strsim::jaro(known, key);
    let nearest = KEYS.iter().max_by(|a, b| like(a).total_cmp(&like(b)));
    bad(format!(
        "`rayRelay.{}` is not known; did you mean `{}`? known are {}",
        shortened(key, 30),
        nearest.unwrap_or(&"breakpoint"),
        KEYS.join(", ")
    ))
}

fn bad(why: impl Into<String>) -> SessionRefusal {
    SessionRefusal::BadSelector(why.into())
}

fn not_a_selector() -> SessionRefusal {
    bad(
        "`rayRelay` in the attach arguments must be the id of a breakpoint or an object, for example {\"next\": true}",
    )
}

/// debugpy also accepts text and fractions, by which one pid can be written in many ways; here only a whole number is
/// valid.
fn subprocess(arguments: &Value) -> Result<Option<u32>, SessionRefusal> {
    match arguments.get("subProcessId") {
        None | Some(Value::Null) => Ok(None),
        Some(pid) => pid
            .as_u64()
            .and_then(|pid| u32::try_from(pid).ok())
            .map(Some)
            .ok_or_else(|| bad("`subProcessId` must be the pid of a subprocess, a whole number")),
    }
}

/// Whether `selector` matches `breakpoint`, and it speaks DAP. An empty selector matches everything that does.
pub fn fits(selector: &AttachSelector, breakpoint: &Breakpoint) -> bool {
    breakpoint.kind.speaks_dap() && names(selector, breakpoint)
}

/// Whether `selector` matches `breakpoint`, with any debugger.
pub fn names(selector: &AttachSelector, breakpoint: &Breakpoint) -> bool {
    let names = &breakpoint.names;
    // A job without a known submitter belongs to no user.
    let is_own =
        !selector.mine || selector.submitter.is_some() && names.submitter == selector.submitter;
    is_own
        && selector.breakpoint.is_none_or(|id| id == breakpoint.id)
        && selector
            .worker
            .as_ref()
            .is_none_or(|worker| breakpoint.worker_id.starts_with(worker.as_str()))
        && selector
            .cluster
            .as_ref()
            .is_none_or(|cluster| **cluster == *breakpoint.cluster)
        && selector.job.as_ref().is_none_or(|job| names.is_of_job(job))
        && selector.task.as_ref().is_none_or(|task| {
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
    fn eight_digit_number_is_read_as_a_breakpoint_id() {
        let selector = read_selector(&json!({"rayRelay": 12345678})).unwrap();
        assert_eq!(selector.breakpoint.unwrap().to_string(), "12345678");
        for number in [
            json!(123_456_789),
            json!(42),
            json!(-1234567),
            json!(123456.5),
        ] {
            assert!(
                read_selector(&json!({"rayRelay": number})).is_err(),
                "{number}"
            );
        }
    }

    #[test]
    fn mine_selects_only_tasks_submitted_by_the_user() {
        let mut selector = read_selector(&json!({"rayRelay": {"all": "mine"}})).unwrap();
        assert!(selector.all && selector.mine);
        assert!(read_selector(&json!({"rayRelay": {"all": "theirs"}})).is_err());
        let mut task = ray_relay_ray::ray::testing::paused("step", 1);
        let of_unknown_user = task.clone();
        task.names_mut().submitter = Some("ann".to_owned());
        // The requesting user is not known.
        assert!(!fits(&selector, &task) && !fits(&selector, &of_unknown_user));
        selector.submitter = Some("ann".to_owned());
        assert!(fits(&selector, &task) && !fits(&selector, &of_unknown_user));
        selector.submitter = Some("bob".to_owned());
        assert!(!fits(&selector, &task));
    }

    #[test]
    fn group_accepts_only_a_request_id() {
        let read = |group: Value| read_selector(&json!({"rayRelay": {"group": group}}));
        let selector = read(json!("7k3f9m2qxd.3")).unwrap();
        assert_eq!(selector.group.as_deref(), Some("7k3f9m2qxd.3"));
        for refused in [
            json!("x"),
            json!("7k3f9m2qxd.3 outcome=denied"),
            json!(7),
            json!(["7k3f9m2qxd.3"]),
        ] {
            assert!(read(refused.clone()).is_err(), "{refused}");
        }
    }

    #[test]
    fn group_job_selects_a_cluster_session() {
        let read = |block: Value| read_selector(&json!({"rayRelay": block}));
        let selector = read(json!({"group": "job", "cluster": "default"})).unwrap();
        assert_eq!((selector.together, selector.all), (Some(true), true));
        assert!(selector.group.is_none());
        let by_request = read(json!({"group": "7k3f9m2qxd.3"})).unwrap();
        assert!(by_request.together.is_none());
        // A user who opts out may name a task.
        let none = read(json!({"group": "none", "task": "f"})).unwrap();
        assert_eq!((none.together, none.all), (Some(false), false));
        for refused in [
            json!({"group": "job", "task": "f"}),
            json!({"group": "job", "breakpoint": "12345678"}),
            json!({"group": "job", "next": true}),
            json!({"group": "jobs"}),
        ] {
            assert!(read(refused.clone()).is_err(), "{refused}");
        }
        // The relay sends these keys in its own requests to open a session.
        let block = json!({"breakpoint": "12345678", "running": true, "family": "x"});
        assert!(read(block).unwrap().running);
    }

    #[test]
    fn job_is_selected_by_each_of_its_names() {
        let mut own = ray_relay_ray::ray::testing::paused("step", 1);
        let unknown = own.clone();
        let names = own.names_mut();
        names.job_id = Some("01000000".to_owned());
        names.submission_id = Some("raysubmit_a".to_owned());
        names.train_run = Some("nightly".to_owned());
        for job in ["01000000", "raysubmit_a", "nightly"] {
            let selector = read_selector(&json!({"rayRelay": {"all": true, "job": job}})).unwrap();
            assert!(fits(&selector, &own) && !fits(&selector, &unknown), "{job}");
        }
        let other = read_selector(&json!({"rayRelay": {"job": "raysubmit"}})).unwrap();
        assert!(!fits(&other, &own));
        assert!(read_selector(&json!({"rayRelay": {"job": ""}})).is_err());
    }

    #[test]
    fn subprocess_id_must_be_a_whole_number() {
        let selector = read_selector(&json!({"subProcessId": 7})).unwrap();
        assert_eq!(selector.subprocess, Some(7));
        let none = read_selector(&json!({"subProcessId": null})).unwrap();
        assert_eq!(none.subprocess, None);
        // debugpy would accept each of these as a pid.
        for pid in [
            json!("7"),
            json!(" 7"),
            json!(7.0),
            json!(true),
            json!([7]),
            json!(-7),
        ] {
            let refused = read_selector(&json!({"subProcessId": pid})).unwrap_err();
            assert!(refused.to_string().contains("whole number"), "{refused}");
        }
    }

    #[test]
    fn running_task_needs_a_name_and_may_have_a_reason() {
        let read = |block: Value| read_selector(&json!({"rayRelay": block}));
        let selector = read(json!({"task": "train_*", "running": true, "reason": "it\nhangs"}));
        let selector = selector.unwrap();
        assert!(selector.running && selector.task.as_deref() == Some("train_*"));
        assert_eq!(selector.reason.as_deref(), Some("it hangs"));
        for refused in [
            json!({"running": true}),
            json!({"running": true, "breakpoint": "12345678"}),
            json!({"running": true, "task": "f", "next": true}),
            json!({"running": true, "task": "f", "all": true}),
            json!({"running": "yes", "task": "f"}),
            json!({"reason": "x", "task": "f"}),
        ] {
            assert!(read(refused.clone()).is_err(), "{refused}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_relay_block_is_parsed_without_panic(key in "[a-zA-Z]{0,10}", value in ".{0,20}") {
            let _ = read_selector(&json!({"rayRelay": {(key): value}}));
        }
    }
}
