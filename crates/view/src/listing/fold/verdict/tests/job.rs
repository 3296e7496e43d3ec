//! Answers of the relay, built from processes.

use super::super::super::location::is_library;
use serde_json::{Value, json};

/// Frames, innermost first: function, file and line.
pub(super) type Stack = &'static [(&'static str, &'static str, u32)];

pub(super) const ALL_REDUCE: Stack = &[
    ("all_reduce", "torch/distributed/distributed_c10d.py", 2501),
    ("wrapper", "torch/distributed/c10d_logger.py", 75),
    ("step", "loop.py", 50),
    ("run", "loop.py", 20),
];
pub(super) const BARRIER: Stack = &[
    ("barrier", "torch/distributed/distributed_c10d.py", 4159),
    ("save", "loop.py", 90),
    ("run", "loop.py", 22),
];
pub(super) const GET: Stack = &[
    ("get_objects", "ray/_private/worker.py", 900),
    ("get", "ray/_private/worker.py", 2700),
    ("ask", "actors.py", 7),
];
pub(super) const DRIVER: Stack = &[
    ("get_objects", "ray/_private/worker.py", 900),
    ("get", "ray/_private/worker.py", 2700),
    ("main", "main.py", 3),
];
pub(super) const LOAD: Stack = &[("load", "data.py", 12), ("run", "loop.py", 21)];
pub(super) const STEP: Stack = &[("step", "loop.py", 48), ("run", "loop.py", 20)];

/// One process of an answer.
#[derive(Debug, Clone)]
pub(super) struct Process(Value);

fn frames(stack: Stack) -> Vec<Value> {
    let frame = |(function, file, line): &(&str, &str, u32)| json!({"function": function, "file": file, "line": line});
    stack.iter().map(frame).collect()
}

/// A thread that waits in the system.
pub(super) fn thread(id: u64, name: &str, stack: Stack) -> Value {
    json!({"id": id, "name": name, "is_main": id == 1, "idle": true, "frames": frames(stack)})
}

/// Makes `thread` wait for a lock of another thread.
pub(super) fn locked(mut thread: Value, name: &str, owner: u64, inferred: bool) -> Value {
    thread["call"] = "a lock".into();
    thread["lock"] = json!({"name": name, "id": owner, "owner": owner, "inferred": inferred});
    thread
}

/// A process of `group`, the `id`-th of the answer. Those of `Trainer` have it as their rank.
pub(super) fn process(group: &str, id: u32, stack: Stack) -> Process {
    let rank = (group == "Trainer").then_some(id);
    Process(
        json!({"tasks": [{"group": group, "name": format!("{group}.run"), "rank": rank, "pid": 100 + id,
            "node_ip": "10.0.0.7", "worker_id": format!("w{id}"), "job_id": "01000000", "what": "method"}],
            "look": {"pid": 100 + id, "source": "hook", "threads": [thread(1, "MainThread", stack)]}}),
    )
}

pub(super) fn rank(rank: u32, stack: Stack) -> Process {
    process("Trainer", rank, stack)
}

pub(super) fn driver(id: u32) -> Process {
    let mut driver = process("main", id, DRIVER);
    driver.0["tasks"][0]["what"] = "driver".into();
    driver
}

impl Process {
    fn main(&mut self) -> &mut Value {
        &mut self.0["look"]["threads"][0]
    }

    pub(super) fn still(mut self, seconds: f64) -> Self {
        self.main()["history"] = json!({"still_ms": (seconds * 1000.0) as u64});
        self
    }

    pub(super) fn history(&mut self, key: &str, value: u64) {
        self.main()["history"][key] = value.into();
    }

    /// How often it has run since.
    pub(super) fn ran(mut self, times: u64) -> Self {
        self.main()["history"]["ran"] = times.into();
        self
    }

    /// Two looks, 5 s apart, are all that tells since when it is there.
    pub(super) fn unmoved(mut self) -> Self {
        self.main()["history"] = json!({"still_ms": 5000, "at_least": true});
        self
    }

    pub(super) fn before(mut self, function: &str, file: &str, line: u32) -> Self {
        let before = json!([{"file": file, "line": line, "function": function, "ago_ms": 1000}]);
        self.main()["history"]["before"] = before;
        self
    }

    pub(super) fn call(mut self, call: &str) -> Self {
        self.main()["call"] = call.into();
        self
    }

    pub(super) fn runs(mut self) -> Self {
        self.main()["idle"] = false.into();
        self
    }

    /// The variables of its innermost frame of its own.
    pub(super) fn locals(mut self, locals: &[(&str, &str)]) -> Self {
        let locals: Vec<Value> = locals
            .iter()
            .map(|(name, value)| json!({"name": name, "type": "x", "value": value}))
            .collect();
        let frames = self.main()["frames"].as_array_mut().unwrap();
        let own = |frame: &&mut Value| !is_library(frame["file"].as_str().unwrap());
        frames.iter_mut().find(own).unwrap()["locals"] = locals.into();
        self
    }

    /// The type of that variable, of which there is one.
    pub(super) fn kind(mut self, kind: &str) -> Self {
        let frames = self.main()["frames"].as_array_mut().unwrap();
        let own = |frame: &&mut Value| frame.get("locals").is_some();
        frames.iter_mut().find(own).unwrap()["locals"][0]["type"] = kind.into();
        self
    }

    /// Its variable `self.shard`, with this text, has so many items.
    pub(super) fn shard(mut self, text: &str, items: u64) -> Self {
        self = self.locals(&[("self.shard", text)]);
        let frames = self.main()["frames"].as_array_mut().unwrap();
        let own = |frame: &&mut Value| frame.get("locals").is_some();
        frames.iter_mut().find(own).unwrap()["locals"][0]["items"] = items.into();
        self
    }

    /// It has loaded this version of a library.
    pub(super) fn version(mut self, version: &str) -> Self {
        self.0["look"]["versions"] = json!({"a_library": version, "numpy": "2.1"});
        self
    }

    /// It waits for the result of the task that runs in the `id`-th process.
    pub(super) fn for_result_of(self, id: u32) -> Self {
        self.for_object(
            json!({"object_id": "aa", "task": {"name": format!("w{id}.run"), "state": "RUNNING",
            "worker_id": format!("w{id}"), "pid": 100 + id}, "owner": null, "owner_gone": false}),
        )
    }

    pub(super) fn for_object(mut self, object: Value) -> Self {
        match self.0["waits_for"].as_array_mut() {
            Some(all) => all.push(object),
            None => self.0["waits_for"] = json!([object]),
        }
        self
    }

    pub(super) fn threads(mut self, threads: &[Value]) -> Self {
        self.0["look"]["threads"] = threads.into();
        self
    }

    pub(super) fn child(mut self, name: &str, state: &str) -> Self {
        self.0["look"]["children"] = json!([{"pid": 9, "name": name, "state": state}]);
        self
    }

    pub(super) fn silent(mut self, why: &str) -> Self {
        self.0["look"] = Value::Null;
        self.0["error"] = why.into();
        self
    }

    pub(super) fn row(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.0["tasks"][0][key] = value.into();
        self
    }

    pub(super) fn second_task(mut self) -> Self {
        let task = self.0["tasks"][0].clone();
        self.0["tasks"] = json!([task.clone(), task]);
        self
    }

    pub(super) fn look(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.0["look"][key] = value.into();
        self
    }

    /// The same process as an idle actor.
    pub(super) fn idle(self, last: &str, state: &str) -> Value {
        let mut row = self.0["tasks"][0].clone();
        row["last_method"] = last.into();
        row["last_state"] = state.into();
        row
    }
}

pub(super) fn answer(all: Vec<Process>) -> Value {
    with_idle(all, &[])
}

pub(super) fn with_idle(all: Vec<Process>, idle: &[Value]) -> Value {
    let looks: Vec<Value> = all.into_iter().map(|process| process.0).collect();
    json!({"looks": looks, "idle": idle, "left_out": 0, "clusters": []})
}

/// Ranks 0-7, of which rank 3 is `odd`, and the others wait in a collective for `seconds`.
pub(super) fn all_wait_for(odd: Process, seconds: f64) -> Vec<Process> {
    let mut all: Vec<Process> = (0..8)
        .map(|at| rank(at, ALL_REDUCE).still(seconds))
        .collect();
    all[3] = odd;
    all
}
