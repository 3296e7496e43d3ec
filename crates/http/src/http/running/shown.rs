//! Snapshots of running and failed tasks for clients: audited, reduced to what the reader may see, and formatted.

use std::time::SystemTime;

use http_body_util::BodyExt;
use hyper::{Response, StatusCode};
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use crate::http::answer::{self, Body};
use crate::http::audit;
use crate::http::exchange::Exchange;
use ray_relay_access::audit::Unavailable;
use ray_relay_access::identity::Principal;
use ray_relay_access::visibility::{
    Visibility, hidden, is_identifier, thread_name, type_name, written,
};
use ray_relay_base::memory::MemoryUse;
use ray_relay_ray::ray::look::collectives::ProcessGroup;
use ray_relay_ray::ray::look::{Local, LocalStructure, Look};
use ray_relay_ray::ray::registry::Running;
use ray_relay_session::context::Context;
use ray_relay_view::listing::fold::inspected::InspectedProcess;
use ray_relay_view::listing::json::seconds;

/// The answer.
#[derive(Serialize)]
pub(super) struct LooksAnswer {
    looks: Vec<LooksRow>,
    pub(super) left_out: usize,
    /// Actors of the same classes that run nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) idle: Vec<Value>,
    /// Unix time, in seconds.
    taken: f64,
    pub(super) clusters: Value,
}

/// Snapshot of one process, serialized once; or the error.
#[derive(Serialize)]
pub(super) struct LooksRow {
    tasks: Vec<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    look: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// The objects that it waits for in `ray.get`, if requested.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    waits_for: Vec<Value>,
}

impl LooksAnswer {
    /// Creates the answer with `looks` that were taken `at`.
    pub(super) fn new(looks: Vec<LooksRow>, at: SystemTime) -> Self {
        let since = at.duration_since(SystemTime::UNIX_EPOCH);
        Self {
            looks,
            left_out: 0,
            idle: Vec::new(),
            taken: seconds(since.unwrap_or_default()),
            clusters: json!([]),
        }
    }
}

impl From<InspectedProcess<Box<RawValue>>> for LooksRow {
    fn from(inspected: InspectedProcess<Box<RawValue>>) -> Self {
        let InspectedProcess {
            tasks,
            look,
            waits_for,
        } = inspected;
        let (look, error) = match look {
            Ok(look) => (Some(look), None),
            Err(why) => (None, Some(why)),
        };
        Self {
            tasks,
            look,
            error,
            waits_for,
        }
    }
}

/// A principal that inspects tasks.
#[derive(Clone, Copy)]
pub(super) struct Viewer<'a> {
    pub(super) ctx: &'a Context,
    pub(super) principal: &'a Principal,
    /// The request on which each inspection is audited. `None`: the relay inspects for itself, and what it finds is
    /// audited with the request for that.
    pub(super) exchange: Option<&'a Exchange<'a>>,
}

impl Viewer<'_> {
    /// Audits the snapshot of `running`, with or without `locals`, if it is for a request.
    pub(super) async fn record(self, running: &Running, locals: bool) -> Result<(), Unavailable> {
        match self.exchange {
            Some(exchange) => {
                record_inspection(exchange, self.principal, running, locals, None).await
            }
            None => Ok(()),
        }
    }
}

/// Serializes `look`.
pub(super) fn text_of(look: &Look) -> Result<Box<RawValue>, String> {
    to_raw_value(look).map_err(|why| why.to_string())
}

/// Audits the snapshot of `first`, or of its kept stack `failed`, with or without `locals`. Only an audited snapshot is
/// taken.
pub(super) async fn record_inspection(
    exchange: &Exchange<'_>,
    principal: &Principal,
    first: &Running,
    locals: bool,
    failed: Option<&str>,
) -> Result<(), Unavailable> {
    let mut entry = audit::command(exchange, principal, "look")
        .with("cluster", &*first.cluster)
        .with("worker_id", &*first.worker_id)
        .with("node_id", &*first.node_id)
        .with("name", first.name())
        .with("locals", locals);
    let known = [
        ("job_id", &first.names.job_id),
        ("task_id", &first.names.task_id),
        ("actor_id", &first.names.actor_id),
    ];
    for (key, value) in known {
        if let Some(value) = value {
            entry = entry.with(key, &**value);
        }
    }
    if let Some(pid) = first.pid {
        entry = entry.with("pid", pid);
    }
    if let Some(id) = failed {
        entry = entry.with("failed", id);
    }
    audit::write_entry(exchange.ctx, entry).await
}

/// Reduces `look` to what `principal` may see, by its least rights on all that is `running` there.
pub(super) fn shown(
    principal: &Principal,
    running: &[&Running],
    mut look: Look,
    locals: bool,
) -> Look {
    let rights = running
        .iter()
        .map(|one| principal.access().rights_on_running(one));
    let rights: Vec<_> = rights.collect();
    // Nothing records these snapshots, so a rule that requires recording hides the values.
    let locals = locals && !rights.iter().any(|rights| rights.obligations.record);
    let visible: Vec<_> = rights.iter().map(Visibility::of).collect();
    let hides = visible.iter().any(Visibility::hides);
    let shows = |name: &str| visible.iter().all(|visible| visible.shows(name));
    if hides {
        // A program can give its children any name.
        look.children
            .iter_mut()
            .for_each(|child| child.name.clear());
        look.collectives.iter_mut().for_each(hide_group);
        look.versions
            .retain(|name, version| is_identifier(name) && is_version(version));
    }
    for thread in &mut look.threads {
        for frame in &mut thread.frames {
            if !locals {
                (frame.locals, frame.locals_cut) = (None, 0);
            }
            for local in frame.locals.iter_mut().flatten() {
                let structure = local.structure.take();
                if hides && !shows(&local.name) {
                    hide(local, structure);
                }
            }
        }
        let structure = thread.structure.take();
        if hides {
            thread.name = thread_name(&thread.name);
            thread.task = thread.task.take().map(|name| thread_name(&name));
            thread.call = thread.call.take().filter(|call| is_call(call));
            thread.lock = thread.lock.take().filter(|lock| is_path(&lock.name));
        }
        if let Some(raised) = &mut thread.raised {
            // The message may contain values of variables.
            let kind = raised.split('(').next().and_then(type_name);
            let kind = kind.unwrap_or("exception").to_owned();
            match structure.filter(|_| locals) {
                _ if locals && !hides => {}
                Some(structure) => *raised = structure,
                None => *raised = kind,
            }
        }
    }
    look
}

/// Removes texts that PyTorch may have from the program: a group can have any description.
fn hide_group(group: &mut ProcessGroup) {
    let is_word = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let last = group.last.iter_mut();
    let last = last.flat_map(|one| one.types.iter_mut().chain([&mut one.operation]));
    let texts = [&mut group.backend, &mut group.name, &mut group.description];
    for text in last.chain(texts).filter(|text| !is_word(text)) {
        text.clear();
    }
}

/// Whether `version` can be that of a package: a program can give its modules any text. `2.9.1rc1.dev20250901+cu128`.
fn is_version(version: &str) -> bool {
    const MAX_CHARS: usize = 40;
    let (release, build) = version.split_once('+').unwrap_or((version, ""));
    let is_number = |c: char| c.is_ascii_digit() || c == '.';
    let words = release.split(is_number).filter(|word| !word.is_empty());
    let mut words = words.chain(build.split(is_number).filter(|word| !word.is_empty()));
    const KNOWN: [&str; 8] = ["a", "b", "rc", "dev", "post", "cu", "cpu", "rocm"];
    version.len() <= MAX_CHARS
        && version.starts_with(|c: char| c.is_ascii_digit())
        && words.all(|word| KNOWN.contains(&word))
}

/// Whether `call` can be the hook's name of a system call, or a type.
fn is_call(call: &str) -> bool {
    const MAX_CHARS: usize = 40;
    call.len() <= MAX_CHARS
        && call
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "._ ".contains(c))
}

/// Whether `name` can be an expression of the source: `self.lock`.
fn is_path(name: &str) -> bool {
    name.split('.').all(is_identifier)
}

/// Reduces a variable to its structure, as the hook renders it, or else to its type.
fn hide(local: &mut Local, structure: Option<LocalStructure>) {
    if let Some(LocalStructure {
        name,
        kind,
        value,
        cut,
    }) = structure
    {
        (local.name, local.kind, local.value, local.cut) = (name, kind, value, cut);
        return;
    }
    if !is_identifier(&local.name) {
        local.name = hidden(&local.name);
    }
    let kind = type_name(&local.kind).unwrap_or_default().to_owned();
    local.value = match kind.is_empty() {
        true => written(&local.value),
        false => kind.clone(),
    };
    (local.kind, local.cut) = (kind, false);
}

/// Answers with `content`, holding its memory reservation until it is sent.
pub(in crate::http) fn held(
    exchange: &Exchange<'_>,
    principal: &Principal,
    content: &impl Serialize,
) -> Response<Body> {
    // Strings and numbers always serialize.
    let text = serde_json::to_string(content).unwrap_or_default();
    let account = exchange.ctx.account(principal);
    match account.take(MemoryUse::Answers, text.len()) {
        Ok(reservation) => {
            let body = answer::full(text);
            let answer = answer::own(StatusCode::OK, "application/json", body);
            answer.map(|body| answer::held(body, reservation).boxed_unsync())
        }
        Err(short) => answer::error(StatusCode::SERVICE_UNAVAILABLE, short),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use ray_relay_access::identity::testing::{authenticator, principal};
    use ray_relay_debugger::pdb::testing::{PLANTED, printed};
    use ray_relay_ray::ray::testing::running;

    /// A Python program that prints the hook's report of each planted value, for a running and for a failed task.
    const PRINT_SHOWN: &str = r#"
hook = {"__name__": "ray_relay_hook"}
exec(HOOK, hook)
hook["_defined"]("_look")
def tells(thread):
    print(json.dumps(hook["_seen"]([thread], 0)))
for value in each():
    try:
        holds(value)
    except Failed as error:
        failed = hook["_post_mortem"](error)
        print(json.dumps(failed))
        about = {"id": 1, "name": SECRET, "native_id": None, "is_main": True, "task": SECRET, "call": SECRET}
        frame = error.__traceback__.tb_next.tb_frame
        tells(hook["_Room"](False).thread(about, [(frame, 1)]))
"#;

    /// A policy that allows ann `scopes` everywhere.
    async fn ann(scopes: &str) -> Principal {
        let policy =
            format!("[[rule]]\nsubjects = [\"ann\"]\nclusters = [\"*\"]\nscopes = [{scopes}]\n");
        principal(&authenticator(&policy), "ann").await
    }

    #[tokio::test]
    async fn program_names_and_lock_names_are_hidden_with_text() {
        let thread = |id: u64, lock: &str| json!({"id": id, "lock": {"name": lock, "id": 7, "owner": 2}, "frames": []});
        let look = json!({"pid": 41, "source": "hook", "threads": [thread(1, "self.lock"), thread(2, "hunter2 is it")],
            "children": [{"pid": 9, "name": "hunter2", "state": "dead"}],
            "versions": {"torch": "2.9.1.dev20250901+cu128", "local": "1.0+hunter2", "numpy": "2.1.0rc1", "own": "hunter2", "hunter2 is": "1.0"},
            "collectives": [{"backend": "gloo", "name": "0", "description": "is it hunter2", "begun": 7, "done": 6,
                "last": [{"number": 7, "operation": "all_reduce", "types": ["Float", "hunter2?"]}]}]});
        let look = Look::read(look.to_string().as_bytes()).unwrap();
        for (scopes, secrets) in [
            ("\"list\", \"view\"", 0),
            ("\"list\", \"view\", \"debug\"", 7),
        ] {
            let visible = shown(
                &ann(scopes).await,
                &[&running("train", "0c")],
                look.clone(),
                true,
            );
            let text = serde_json::to_string(&visible).unwrap();
            assert_eq!(text.matches("hunter2").count(), secrets, "{text}");
            assert!(
                text.contains("self.lock") && text.contains("\"dead\""),
                "{text}"
            );
            assert!(
                text.contains("all_reduce") && text.contains("Float"),
                "{text}"
            );
            assert!(
                text.contains("2.9.1.dev20250901+cu128") && text.contains("2.1.0rc1"),
                "{text}"
            );
        }
    }

    #[tokio::test]
    async fn shown_values_of_the_hook_contain_no_secret() {
        let ann = ann("\"list\", \"view\"").await;
        let running = running("train", "0c");
        let hook = Value::from(include_str!(
            "../../../../../src/python/ray_relay/__init__.py"
        ))
        .to_string();
        let Some(output) = printed(&format!("HOOK = {hook}\n{PLANTED}{PRINT_SHOWN}")) else {
            return;
        };
        let output = String::from_utf8(output).unwrap();
        let mut values = 0;
        for line in output.lines() {
            assert!(line.contains("hunter2") || line.contains("104"), "{line}");
            let look = Look::read(line.as_bytes()).unwrap();
            let visible = shown(&ann, &[&running], look, true);
            let locals = visible.threads.iter().flat_map(|thread| &thread.frames);
            values += locals
                .flat_map(|frame| frame.locals.iter().flatten())
                .count();
            let text = serde_json::to_string(&visible).unwrap();
            for secret in [
                "hunter2",
                "unter2-",
                "68756e74657232",
                "104, 117",
                "Tr0ub4dor",
            ] {
                assert!(!text.contains(secret), "{secret} in {text}");
            }
        }
        assert!(
            values > 20_000,
            "{values} of {} looks",
            output.lines().count()
        );
    }
}
