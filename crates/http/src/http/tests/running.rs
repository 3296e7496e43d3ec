//! Running tasks: permissions to list and to inspect them. Ray is queried only for those with permission.

use serde_json::{Value, json as object};

use super::*;

/// Starts a head that runs `square` of job 1 and `Trainer.step` of job 2, and answers stack requests with `stack`.
pub(super) async fn ray_head(stack: fn(&str) -> Response<Body>) -> (SocketAddr, JoinSet<()>) {
    head(move |request: Request<Incoming>| async move {
        let path = request.uri().path_and_query().unwrap().to_string();
        let is_of_job = |job: &str| !path.contains("job_id") || path.contains(job);
        let task = |n: u32, job: &str, name: &str, actor: Value| {
            object!({"task_id": format!("t{n}"), "name": name, "func_or_class_name": name, "state": "RUNNING", "job_id": job,
                "actor_id": actor, "worker_id": format!("w{n}"), "node_id": "aaaa", "worker_pid": 500 + n,
                "start_time_ms": 1_795_236_270_139.0})
        };
        let worker = |n: u32| object!({"worker_id": format!("w{n}"), "is_alive": true, "worker_type": "WORKER", "node_id": "aaaa",
            "ip": "10.0.0.7", "pid": 500 + n});
        // The id of the task that creates an object is the first 48 digits of the object id.
        let creating_task = |digit: &str, job: &str, name: &str| {
            let is_requested = path.contains(&format!("filter_values={}", digit.repeat(48)));
            let row = object!({"task_id": digit.repeat(48), "name": name, "state": "PENDING_NODE_ASSIGNMENT", "job_id": job});
            is_requested.then_some(row)
        };
        let object_row = |digit: &str, status: &str, pid: u32| {
            let is_requested = path.contains(&digit.repeat(56));
            let row = object!({"object_id": digit.repeat(56), "task_status": status, "pid": pid, "ip": "10.0.0.7"});
            is_requested.then_some(row)
        };
        let rows = match path.split('?').next().unwrap() {
            "/api/v0/tasks" if path.contains("task_id") => {
                [creating_task("a", "01000000", "load"), creating_task("b", "02000000", "hidden_load")].into_iter().flatten().collect()
            }
            "/api/v0/tasks" if path.contains("actor_id") => {
                let mut first = task(3, "02000000", "Trainer.__init__", "a3".into());
                let mut last = task(3, "02000000", "Trainer.step", "a3".into());
                (first["state"], last["state"]) = ("FINISHED".into(), "FINISHED".into());
                last["start_time_ms"] = object!(1_795_236_270_140.0);
                vec![last, first]
            }
            "/api/v0/objects" => [
                object_row("a", "NIL", 502),
                object_row("a", "PENDING_NODE_ASSIGNMENT", 501),
                object_row("b", "SUBMITTED_TO_WORKER", 502),
            ]
            .into_iter()
            .flatten()
            .collect(),
            "/api/v0/tasks" => [task(1, "01000000", "square", Value::Null), task(2, "02000000", "Trainer.step", "a2".into())]
                .into_iter()
                .filter(|task| is_of_job(task["job_id"].as_str().unwrap()))
                .collect(),
            "/api/v0/workers" if path.contains("filter_values=False") => {
                let mut dead = worker(6);
                (dead["is_alive"], dead["exit_type"]) = (false.into(), "SYSTEM_ERROR".into());
                (dead["end_time_ms"], dead["exit_detail"]) = (1_795_236_280_000_u64.into(), "a secret".into());
                vec![dead]
            }
            "/api/v0/workers" => (1..6).map(worker).collect(),
            "/api/v0/actors" => {
                let actor = |n: u32, job: &str, class: &str, name: &str| {
                    object!({"actor_id": format!("a{n}"), "class_name": class, "name": name, "state": "ALIVE", "job_id": job,
                        "ray_namespace": "ml", "pid": 500 + n, "node_id": "aaaa"})
                };
                if path.contains("filter_values=DEAD") {
                    let mut dead = actor(6, "02000000", "Trainer", "rank_6");
                    dead["state"] = "DEAD".into();
                    return listed(&[dead]);
                }
                // The last two idle actors have another class or job than the running actor.
                vec![
                    actor(2, "02000000", "Trainer", "rank_3"),
                    actor(3, "02000000", "Trainer", "rank_4"),
                    actor(4, "02000000", "Logger", "log"),
                    actor(5, "03000000", "Trainer", "rank_5"),
                ]
            }
            "/api/jobs/" => return ok("[]"),
            "/api/v0/logs/file" if path.contains("actor_id=a6&") => {
                return ok(
                    "a secret\nFatal Python error: Aborted\n\nStack (most recent call first):\n  File \"b.py\", line 4 in step\n",
                );
            }
            "/worker/traceback" => return stack(&path),
            _ => return status(404),
        };
        listed(&rows)
    })
    .await
}

/// Returns `rows` as Ray's State API does.
fn listed(rows: &[Value]) -> Response<Body> {
    let list = object!({"total": rows.len(), "num_after_truncation": rows.len(), "result": rows});
    ok(object!({"result": true, "msg": "", "data": {"result": list}}).to_string())
}

pub(super) fn waiting_stack(path: &str) -> Response<Body> {
    match path.contains("pid=501") {
        true => ok(
            "Process 501: ray::square\nPython v3.11.7 (/p)\n\nThread 501 (idle): \"MainThread\"\n    square (a.py:3)\n",
        ),
        false => ok(
            "Process 502: ray::Trainer.step\nPython v3.11.7 (/p)\n\nThread 502 (idle): \"t Bearer abcdefghijklmnop\"\n    step (b.py:4)\n",
        ),
    }
}

fn refuse_stack(_: &str) -> Response<Body> {
    let mut refused = ok("Profiling is disabled");
    *refused.status_mut() = StatusCode::FORBIDDEN;
    refused
}

async fn tasks(relay: &Relay, subject: &str, query: &str) -> (u16, Value) {
    let path = format!("/relay/v1/tasks{query}");
    let response = relay.get_as(&token_of(subject), &path).await;
    (response.status().as_u16(), json(response).await)
}

fn names(list: &Value) -> Vec<&str> {
    let tasks = list["tasks"].as_array().unwrap().iter();
    tasks.map(|task| task["name"].as_str().unwrap()).collect()
}

pub(super) async fn inspect(relay: &Relay, subject: &str, body: &str) -> (u16, Value) {
    post(relay, "/relay/v1/looks", subject, body).await
}

#[tokio::test]
async fn running_list_hides_tasks_the_user_may_not_list() {
    let (address, _head) = ray_head(waiting_stack).await;
    let ann = User::new("ann", "\"list\"", "");
    let ben = User::new("ben", "\"list\"", "jobs = [\"01000000\"]");
    let cid = User::new("cid", "\"list\"", "tasks = [\"rank_*\"]");
    let dan = User::new("dan", "\"list\"", "namespaces = [\"other\"]");
    let eve = User::new("eve", "\"view\"", "");
    let fay = User::new("fay", "\"list\"", "nodes = [\"10.0.0.7\"]");
    let gus = User::new("gus", "\"list\"", "clusters = [\"west\"]");
    let users = [&ann, &ben, &cid, &dan, &eve, &fay, &gus];
    let relay = Relay::with_users(&[("default", address)], &users).await;
    for (user, expected) in [
        ("ann", &["square", "Trainer.step"][..]),
        ("ben", &["square"]),
        ("cid", &["Trainer.step"]),
        ("dan", &[]),
        ("fay", &["square", "Trainer.step"]),
        ("gus", &[]),
    ] {
        let (status, answer) = tasks(&relay, user, "").await;
        assert_eq!(status, 200, "{user}: {answer}");
        assert_eq!(names(&answer), expected, "{user}");
        assert_eq!(answer["total"], expected.len(), "{user}");
    }
    assert_eq!(tasks(&relay, "eve", "").await.0, 403);
    // A cluster without visible tasks is not listed.
    assert_eq!(tasks(&relay, "gus", "").await.1["clusters"], object!([]));
    let row = &tasks(&relay, "cid", "").await.1["tasks"][0];
    assert_eq!(
        (&row["rank"], &row["group"], &row["what"]),
        (&3.into(), &"Trainer".into(), &"method".into())
    );
    assert!(
        row["running_seconds"].is_number() && row["breakpoint"].is_null(),
        "{row}"
    );
}

#[tokio::test]
async fn running_list_is_filtered_and_paginated() {
    let (address, _head) = ray_head(waiting_stack).await;
    let ann = User::new("ann", "\"list\"", "");
    let relay = Relay::with_users(&[("default", address)], &[&ann]).await;
    for (query, expected) in [
        ("?name=Train*", &["Trainer.step"][..]),
        ("?name=rank_3", &["Trainer.step"]),
        ("?job=01000000", &["square"]),
        ("?cluster=w*", &[]),
        ("?filter=pid%3D501", &["square"]),
        ("?older_than=1", &["square", "Trainer.step"]),
        ("?older_than=90000000000", &[]),
    ] {
        assert_eq!(
            names(&tasks(&relay, "ann", query).await.1),
            expected,
            "{query}"
        );
    }
    let (_, first) = tasks(&relay, "ann", "?limit=1").await;
    assert_eq!(
        (names(&first), &first["total"]),
        (vec!["square"], &2.into())
    );
    let next = ray_relay_base::wire::text::percent_encoded(first["next"].as_str().unwrap());
    let (_, second) = tasks(&relay, "ann", &format!("?limit=1&after={next}")).await;
    assert_eq!(
        (names(&second), &second["next"]),
        (vec!["Trainer.step"], &Value::Null)
    );
    for query in [
        "?limit=0",
        "?after=x",
        "?filter=",
        "?older_than=-1",
        "?nmae=x",
        "?name=",
    ] {
        assert_eq!(tasks(&relay, "ann", query).await.0, 400, "{query}");
    }
}

#[tokio::test]
async fn hook_column_is_optional_and_explains_unknown() {
    let (address, _head) = ray_head(waiting_stack).await;
    let ann = User::new("ann", "\"list\"", "");
    let relay = Relay::with_users(&[("default", address)], &[&ann]).await;
    let (_, answer) = tasks(&relay, "ann", "").await;
    assert!(answer["tasks"][0].get("hook").is_none(), "{answer}");
    let (_, answer) = tasks(&relay, "ann", "?hook=true").await;
    let row = &answer["tasks"][0];
    assert!(row["hook"].is_null(), "{answer}");
    let reason = row["hook_unknown"].as_str().unwrap();
    assert!(reason.contains("ray-relay node"), "{reason}");
    assert_eq!(tasks(&relay, "ann", "?hook=maybe").await.0, 400);
}

#[tokio::test]
async fn snapshot_needs_view_and_is_recorded() {
    let (address, _head) = ray_head(waiting_stack).await;
    let ann = User::new("ann", "\"list\", \"view\"", "");
    let ben = User::new("ben", "\"list\"", "");
    let cid = User::new(
        "cid",
        "\"view\"",
        "jobs = [\"01000000\"]\n[[rule]]\nsubjects = [\"cid\"]\nscopes = [\"list\"]",
    );
    let relay = Relay::with_users(&[("default", address)], &[&ann, &ben, &cid]).await;
    let (status, answer) = inspect(&relay, "ann", "{}").await;
    assert_eq!((status, &answer["left_out"]), (200, &0.into()), "{answer}");
    let [first, second] = &answer["looks"].as_array().unwrap()[..] else {
        panic!("{answer}");
    };
    assert_eq!(
        first["look"]["threads"][0]["frames"][0]["function"],
        "square"
    );
    assert_eq!(first["tasks"][0]["name"], "square");
    assert_eq!(second["look"]["source"], "traceback");
    assert!(!answer.to_string().contains("abcdefghijklmnop"), "{answer}");
    let entries = relay.audit.take();
    let allowed = entries
        .iter()
        .filter(|line| line.details.get("command") == Some(&"look".into()));
    let workers: Vec<_> = allowed
        .map(|line| line.details["worker_id"].clone())
        .collect();
    assert_eq!(workers.len(), 2, "{entries:?}");
    assert!(workers.contains(&"w1".into()) && workers.contains(&"w2".into()));
    // A user without `view` is refused before any query.
    assert_eq!(inspect(&relay, "ben", "{}").await.0, 403);
    // Tasks that the user may list but not view get an error, and the refusal is recorded.
    relay.audit.take();
    let (_, answer) = inspect(&relay, "cid", "{\"name\": \"*\"}").await;
    assert!(answer["looks"][0]["look"].is_object(), "{answer}");
    let error = answer["looks"][1]["error"].as_str().unwrap();
    assert!(error.contains("permission `view`"), "{error}");
    let denied = lines(&relay.audit.take());
    assert!(
        denied.contains(&"Decision denied cid /relay/v1/looks".to_owned()),
        "{denied:?}"
    );
}

#[tokio::test]
async fn returned_actor_is_reported_with_its_running_class() {
    let (address, _head) = ray_head(waiting_stack).await;
    let ann = User::new("ann", "\"view\"", "");
    let ben = User::new("ben", "\"view\"", "tasks = [\"rank_3\"]");
    let relay = Relay::with_users(&[("default", address)], &[&ann, &ben]).await;
    let (_, answer) = inspect(&relay, "ann", "{\"name\": \"Trainer\"}").await;
    let [idle] = &answer["idle"].as_array().unwrap()[..] else {
        panic!("{answer}");
    };
    let keys = [
        "state",
        "actor_name",
        "worker_id",
        "last_method",
        "last_state",
    ];
    let values = keys.map(|key| idle[key].as_str().unwrap());
    assert_eq!(values, ["idle", "rank_4", "w3", "Trainer.step", "FINISHED"]);
    assert_eq!(idle["rank"], 4);
    // The idle actor is left out if no task of its class is inspected, or if the user may not see it.
    for (user, body) in [
        ("ann", "{\"name\": \"square\"}"),
        ("ben", "{\"name\": \"Trainer\"}"),
    ] {
        let (_, answer) = inspect(&relay, user, body).await;
        assert!(
            answer["looks"][0].is_object() && answer.get("idle").is_none(),
            "{user}: {answer}"
        );
    }
}

#[tokio::test]
async fn dead_actor_is_reported_with_its_running_class_if_objects_are_asked_for() {
    let (address, _head) = ray_head(waiting_stack).await;
    let ann = User::new("ann", "\"view\"", "");
    let ben = User::new("ben", "\"view\"", "tasks = [\"rank_3\"]");
    let relay = Relay::with_users(&[("default", address)], &[&ann, &ben]).await;
    let body = "{\"name\": \"Trainer\", \"objects\": true}";
    let (_, answer) = inspect(&relay, "ann", body).await;
    let [_, dead] = &answer["idle"].as_array().unwrap()[..] else {
        panic!("{answer}");
    };
    let keys = ["state", "actor_name", "worker_id", "died_of"];
    let values = keys.map(|key| dead[key].as_str().unwrap());
    let reason = "the worker process crashed, ended itself or was killed";
    assert_eq!(values, ["dead", "rank_6", "w6", reason]);
    assert_eq!((&dead["rank"], &dead["pid"]), (&6.into(), &506.into()));
    assert!(dead["died_seconds"].as_f64().unwrap() > 1.0, "{dead}");
    assert!(!answer.to_string().contains("a secret"), "{answer}");
    let (_, answer) = inspect(&relay, "ben", body).await;
    assert!(
        answer["looks"][0].is_object() && answer.get("idle").is_none(),
        "{answer}"
    );
    let (_, answer) = inspect(&relay, "ann", "{\"name\": \"Trainer\"}").await;
    assert_eq!(answer["idle"].as_array().unwrap().len(), 1, "{answer}");
}

#[tokio::test]
async fn log_tail_of_a_dead_actor_are_shown_as_far_as_permitted_and_on_record() {
    let (address, _head) = ray_head(waiting_stack).await;
    let ann = User::new("ann", "\"view\"", "");
    let ben = User::new("ben", "\"view\", \"debug\"", "");
    let cid = User::new(
        "cid",
        "\"view\"",
        "tasks = [\"rank_3\"]\n[[rule]]\nsubjects = [\"cid\"]\nscopes = [\"list\"]",
    );
    let relay = Relay::with_users(&[("default", address)], &[&ann, &ben, &cid]).await;
    let dead = async |user: &str| {
        let body = "{\"name\": \"Trainer\", \"objects\": true}";
        let (_, answer) = inspect(&relay, user, body).await;
        let mut idle = answer["idle"].as_array().unwrap().iter();
        idle.find(|row| row["state"] == "dead").unwrap().clone()
    };
    let row = dead("ann").await;
    let frames = object!([{"file": "b.py", "line": 4, "function": "step"}]);
    assert_eq!(
        (&row["crash"]["signal"], &row["crash"]["frames"]),
        (&"Aborted".into(), &frames)
    );
    assert!(row.get("last_lines").is_none(), "{row}");
    let entries = relay.audit.take();
    assert!(
        entries
            .iter()
            .any(|line| line.details.get("worker_id") == Some(&"w6".into())),
        "{entries:?}"
    );
    assert_eq!(dead("ben").await["last_lines"], object!(["a secret"]));
    // One may know that it is dead, and no more.
    let row = dead("cid").await;
    assert!(
        row.get("crash").is_none() && row.get("last_lines").is_none(),
        "{row}"
    );
    relay.audit.refuse_all(true);
    assert!(dead("ben").await.get("last_lines").is_none());
}

#[tokio::test]
async fn unrecorded_snapshot_of_running_tasks_is_refused() {
    let (address, _head) = ray_head(|_| panic!("looked at")).await;
    let ann = User::new("ann", "\"view\"", "");
    let relay = Relay::with_users(&[("default", address)], &[&ann]).await;
    relay.audit.refuse_all(true);
    let (_, answer) = inspect(&relay, "ann", "{\"name\": \"square\"}").await;
    let error = answer["looks"][0]["error"].as_str().unwrap();
    assert!(error.contains("audit log"), "{error}");
    for body in [
        "",
        "[]",
        "{\"nmae\": \"x\"}",
        "{\"name\": 5}",
        "{\"name\": \"\"}",
        "{\"filter\": [\"x=y\"]}",
    ] {
        assert_eq!(inspect(&relay, "ann", body).await.0, 400, "{body}");
    }
}

#[tokio::test]
async fn missing_stack_names_its_remedy() {
    let (address, _head) = ray_head(refuse_stack).await;
    let ann = User::new("ann", "\"view\"", "");
    let relay = Relay::with_users(&[("default", address)], &[&ann]).await;
    let (_, answer) = inspect(&relay, "ann", "{\"job\": \"01000000\"}").await;
    let [inspection] = &answer["looks"].as_array().unwrap()[..] else {
        panic!("{answer}");
    };
    let error = inspection["error"].as_str().unwrap();
    assert!(
        error.contains("RAY_DASHBOARD_ENABLE_PROFILING=1"),
        "{error}"
    );
}
