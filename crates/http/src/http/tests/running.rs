//! Running tasks: permissions to list and to inspect them. Ray is queried only for those with permission.

use serde_json::{Value, json as object};

use super::*;
use crate::http::running::objects::{self, AwaitedObjects};
use ray_relay_ray::ray::look::Look;
use ray_relay_ray::ray::registry::RunningQuery;

/// A head at which `square` of job 1, `step` of an actor of job 2 and a driver run, and which gives stacks as `stack` says.
async fn ray(stack: fn(&str) -> Response<Body>) -> (SocketAddr, JoinSet<()>) {
    head(move |request: Request<Incoming>| async move {
        let path = request.uri().path_and_query().unwrap().to_string();
        let of_job = |job: &str| !path.contains("job_id") || path.contains(job);
        let task = |n: u32, job: &str, name: &str, actor: Value| {
            object!({"task_id": format!("t{n}"), "name": name, "func_or_class_name": name, "state": "RUNNING", "job_id": job,
                "actor_id": actor, "worker_id": format!("w{n}"), "node_id": "aaaa", "worker_pid": 500 + n,
                "start_time_ms": 1_795_236_270_139.0})
        };
        let worker = |n: u32| object!({"worker_id": format!("w{n}"), "is_alive": true, "worker_type": "WORKER", "node_id": "aaaa",
            "ip": "10.0.0.7", "pid": 500 + n});
        // The task that makes an object has the first 48 digits of its id.
        let made = |digit: &str, job: &str, name: &str| {
            let asked = path.contains(&format!("filter_values={}", digit.repeat(48)));
            let row = object!({"task_id": digit.repeat(48), "name": name, "state": "PENDING_NODE_ASSIGNMENT", "job_id": job});
            asked.then_some(row)
        };
        let of_object = |digit: &str, status: &str, pid: u32| {
            let asked = path.contains(&digit.repeat(56));
            let row = object!({"object_id": digit.repeat(56), "task_status": status, "pid": pid, "ip": "10.0.0.7"});
            asked.then_some(row)
        };
        let rows = match path.split('?').next().unwrap() {
            "/api/v0/tasks" if path.contains("task_id") => {
                [made("a", "01000000", "load"), made("b", "02000000", "hidden_load")].into_iter().flatten().collect()
            }
            "/api/v0/tasks" if path.contains("actor_id") => {
                let mut first = task(3, "02000000", "Trainer.__init__", "a3".into());
                let mut last = task(3, "02000000", "Trainer.step", "a3".into());
                (first["state"], last["state"]) = ("FINISHED".into(), "FINISHED".into());
                last["start_time_ms"] = object!(1_795_236_270_140.0);
                vec![last, first]
            }
            "/api/v0/objects" => [
                of_object("a", "NIL", 502),
                of_object("a", "PENDING_NODE_ASSIGNMENT", 501),
                of_object("b", "SUBMITTED_TO_WORKER", 502),
            ]
            .into_iter()
            .flatten()
            .collect(),
            "/api/v0/tasks" => [task(1, "01000000", "square", Value::Null), task(2, "02000000", "Trainer.step", "a2".into())]
                .into_iter()
                .filter(|task| of_job(task["job_id"].as_str().unwrap()))
                .collect(),
            "/api/v0/workers" => (1..6).map(worker).collect(),
            "/api/v0/actors" => {
                let actor = |n: u32, job: &str, class: &str, name: &str| {
                    object!({"actor_id": format!("a{n}"), "class_name": class, "name": name, "state": "ALIVE", "job_id": job,
                        "ray_namespace": "ml", "pid": 500 + n, "node_id": "aaaa"})
                };
                // Two that run nothing are of no class of which another runs, or of another job.
                vec![
                    actor(2, "02000000", "Trainer", "rank_3"),
                    actor(3, "02000000", "Trainer", "rank_4"),
                    actor(4, "02000000", "Logger", "log"),
                    actor(5, "03000000", "Trainer", "rank_5"),
                ]
            }
            "/api/jobs/" => return ok("[]"),
            "/worker/traceback" => return stack(&path),
            _ => return status(404),
        };
        let list = object!({"total": rows.len(), "num_after_truncation": rows.len(), "result": rows});
        ok(object!({"result": true, "msg": "", "data": {"result": list}}).to_string())
    })
    .await
}

fn waits(path: &str) -> Response<Body> {
    match path.contains("pid=501") {
        true => ok(
            "Process 501: ray::square\nPython v3.11.7 (/p)\n\nThread 501 (idle): \"MainThread\"\n    square (a.py:3)\n",
        ),
        false => ok(
            "Process 502: ray::Trainer.step\nPython v3.11.7 (/p)\n\nThread 502 (idle): \"t Bearer abcdefghijklmnop\"\n    step (b.py:4)\n",
        ),
    }
}

fn refuses(_: &str) -> Response<Body> {
    let mut refused = ok("Profiling is disabled");
    *refused.status_mut() = StatusCode::FORBIDDEN;
    refused
}

async fn tasks(relay: &Relay, subject: &str, query: &str) -> (u16, Value) {
    let path = format!("/relay/v1/tasks{query}");
    let response = relay.get_as(&token_of(subject), &path).await;
    (response.status().as_u16(), json(response).await)
}

fn names(told: &Value) -> Vec<&str> {
    let tasks = told["tasks"].as_array().unwrap().iter();
    tasks.map(|task| task["name"].as_str().unwrap()).collect()
}

async fn looks(relay: &Relay, subject: &str, body: &str) -> (u16, Value) {
    posted(relay, "/relay/v1/looks", subject, body).await
}

#[tokio::test]
async fn running_list_hides_tasks_the_user_may_not_list() {
    let (address, _head) = ray(waits).await;
    let ann = Person::new("ann", "\"list\"", "");
    let ben = Person::new("ben", "\"list\"", "jobs = [\"01000000\"]");
    let cid = Person::new("cid", "\"list\"", "tasks = [\"rank_*\"]");
    let dan = Person::new("dan", "\"list\"", "namespaces = [\"other\"]");
    let eve = Person::new("eve", "\"view\"", "");
    let fay = Person::new("fay", "\"list\"", "nodes = [\"10.0.0.7\"]");
    let gus = Person::new("gus", "\"list\"", "clusters = [\"west\"]");
    let people = [&ann, &ben, &cid, &dan, &eve, &fay, &gus];
    let relay = Relay::guarded(&[("default", address)], &people).await;
    for (who, seen) in [
        ("ann", &["square", "Trainer.step"][..]),
        ("ben", &["square"]),
        ("cid", &["Trainer.step"]),
        ("dan", &[]),
        ("fay", &["square", "Trainer.step"]),
        ("gus", &[]),
    ] {
        let (status, told) = tasks(&relay, who, "").await;
        assert_eq!(status, 200, "{who}: {told}");
        assert_eq!(names(&told), seen, "{who}");
        assert_eq!(told["total"], seen.len(), "{who}");
    }
    assert_eq!(tasks(&relay, "eve", "").await.0, 403);
    // Nor is there a word of a cluster in which one may list nothing.
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
    let (address, _head) = ray(waits).await;
    let ann = Person::new("ann", "\"list\"", "");
    let relay = Relay::guarded(&[("default", address)], &[&ann]).await;
    for (query, seen) in [
        ("?name=Train*", &["Trainer.step"][..]),
        ("?name=rank_3", &["Trainer.step"]),
        ("?job=01000000", &["square"]),
        ("?cluster=w*", &[]),
        ("?filter=pid%3D501", &["square"]),
        ("?older_than=1", &["square", "Trainer.step"]),
        ("?older_than=90000000000", &[]),
    ] {
        assert_eq!(names(&tasks(&relay, "ann", query).await.1), seen, "{query}");
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
    for wrong in [
        "?limit=0",
        "?after=x",
        "?filter=",
        "?older_than=-1",
        "?nmae=x",
        "?name=",
    ] {
        assert_eq!(tasks(&relay, "ann", wrong).await.0, 400, "{wrong}");
    }
}

#[tokio::test]
async fn hook_column_is_optional_and_explains_unknown() {
    let (address, _head) = ray(waits).await;
    let ann = Person::new("ann", "\"list\"", "");
    let relay = Relay::guarded(&[("default", address)], &[&ann]).await;
    let (_, told) = tasks(&relay, "ann", "").await;
    assert!(told["tasks"][0].get("hook").is_none(), "{told}");
    let (_, told) = tasks(&relay, "ann", "?hook=true").await;
    let row = &told["tasks"][0];
    assert!(row["hook"].is_null(), "{told}");
    let why = row["hook_unknown"].as_str().unwrap();
    assert!(why.contains("ray-relay node"), "{why}");
    assert_eq!(tasks(&relay, "ann", "?hook=maybe").await.0, 400);
}

#[tokio::test]
async fn snapshot_needs_view_and_is_recorded() {
    let (address, _head) = ray(waits).await;
    let ann = Person::new("ann", "\"list\", \"view\"", "");
    let ben = Person::new("ben", "\"list\"", "");
    let cid = Person::new(
        "cid",
        "\"view\"",
        "jobs = [\"01000000\"]\n[[rule]]\nsubjects = [\"cid\"]\nscopes = [\"list\"]",
    );
    let relay = Relay::guarded(&[("default", address)], &[&ann, &ben, &cid]).await;
    let (status, told) = looks(&relay, "ann", "{}").await;
    assert_eq!((status, &told["left_out"]), (200, &0.into()), "{told}");
    let [one, two] = &told["looks"].as_array().unwrap()[..] else {
        panic!("{told}");
    };
    assert_eq!(one["look"]["threads"][0]["frames"][0]["function"], "square");
    assert_eq!(one["tasks"][0]["name"], "square");
    assert_eq!(two["look"]["source"], "traceback");
    assert!(!told.to_string().contains("abcdefghijklmnop"), "{told}");
    let heard = relay.heard.take();
    let allowed = heard
        .iter()
        .filter(|line| line.details.get("command") == Some(&"look".into()));
    let workers: Vec<_> = allowed
        .map(|line| line.details["worker_id"].clone())
        .collect();
    assert_eq!(workers.len(), 2, "{heard:?}");
    assert!(workers.contains(&"w1".into()) && workers.contains(&"w2".into()));
    // Who may look at nothing is refused before anything is asked.
    assert_eq!(looks(&relay, "ben", "{}").await.0, 403);
    // Who may list more than look at is told which is not for them, and it is on record.
    relay.heard.take();
    let (_, told) = looks(&relay, "cid", "{\"name\": \"*\"}").await;
    assert!(told["looks"][0]["look"].is_object(), "{told}");
    let why = told["looks"][1]["error"].as_str().unwrap();
    assert!(why.contains("permission `view`"), "{why}");
    let denied = lines(&relay.heard.take());
    assert!(
        denied.contains(&"Decision denied cid /relay/v1/looks".to_owned()),
        "{denied:?}"
    );
}

#[tokio::test]
async fn returned_actor_is_reported_with_its_running_class() {
    let (address, _head) = ray(waits).await;
    let ann = Person::new("ann", "\"view\"", "");
    let ben = Person::new("ben", "\"view\"", "tasks = [\"rank_3\"]");
    let relay = Relay::guarded(&[("default", address)], &[&ann, &ben]).await;
    let (_, told) = looks(&relay, "ann", "{\"name\": \"Trainer\"}").await;
    let [idle] = &told["idle"].as_array().unwrap()[..] else {
        panic!("{told}");
    };
    let of_it = [
        "state",
        "actor_name",
        "worker_id",
        "last_method",
        "last_state",
    ];
    let of_it = of_it.map(|key| idle[key].as_str().unwrap());
    assert_eq!(of_it, ["idle", "rank_4", "w3", "Trainer.step", "FINISHED"]);
    assert_eq!(idle["rank"], 4);
    // Where no other of its class is looked at, and where it is not to be known.
    for (who, body) in [
        ("ann", "{\"name\": \"square\"}"),
        ("ben", "{\"name\": \"Trainer\"}"),
    ] {
        let (_, told) = looks(&relay, who, body).await;
        assert!(
            told["looks"][0].is_object() && told.get("idle").is_none(),
            "{who}: {told}"
        );
    }
}

#[tokio::test]
async fn unrecorded_snapshot_of_running_tasks_is_refused() {
    let (address, _head) = ray(|_| panic!("looked at")).await;
    let ann = Person::new("ann", "\"view\"", "");
    let relay = Relay::guarded(&[("default", address)], &[&ann]).await;
    relay.heard.refuse_all(true);
    let (_, told) = looks(&relay, "ann", "{\"name\": \"square\"}").await;
    let why = told["looks"][0]["error"].as_str().unwrap();
    assert!(why.contains("audit log"), "{why}");
    for wrong in [
        "",
        "[]",
        "{\"nmae\": \"x\"}",
        "{\"name\": 5}",
        "{\"name\": \"\"}",
        "{\"filter\": [\"x=y\"]}",
    ] {
        assert_eq!(looks(&relay, "ann", wrong).await.0, 400, "{wrong}");
    }
}

#[tokio::test]
async fn missing_stack_names_its_remedy() {
    let (address, _head) = ray(refuses).await;
    let ann = Person::new("ann", "\"view\"", "");
    let relay = Relay::guarded(&[("default", address)], &[&ann]).await;
    let (_, told) = looks(&relay, "ann", "{\"job\": \"01000000\"}").await;
    let [one] = &told["looks"].as_array().unwrap()[..] else {
        panic!("{told}");
    };
    let why = one["error"].as_str().unwrap();
    assert!(why.contains("RAY_DASHBOARD_ENABLE_PROFILING=1"), "{why}");
}

/// A look at a worker whose `ray.get` waits for objects of these digits.
fn waits_for(digits: &str) -> Look {
    let refs: Vec<_> = digits
        .chars()
        .map(|digit| format!("ObjectRef({})", digit.to_string().repeat(56)))
        .collect();
    let refs = object!([{"name": "object_refs", "value": format!("[{}]", refs.join(", "))}]);
    let frame = object!({"file": "/v/ray/_private/worker.py", "line": 1, "function": "get", "locals": refs});
    let look = object!({"pid": 1, "source": "hook", "threads": [{"id": 1, "frames": [frame]}]});
    Look::read(look.to_string().as_bytes()).unwrap()
}

#[tokio::test]
async fn owner_of_an_awaited_object_is_shown_only_if_visible() {
    let (address, _head) = ray(waits).await;
    let ann = Person::new("ann", "\"view\"", "");
    let ben = Person::new("ben", "\"view\"", "jobs = [\"01000000\"]");
    let relay = Relay::guarded(&[("default", address)], &[&ann, &ben]).await;
    let on = |_: &str| true;
    let asked = RunningQuery { on: &on, job: None };
    let found = relay.registry.running(&asked).await;
    let (first, second) = (
        AwaitedObjects::of(&waits_for("ab")),
        AwaitedObjects::of(&waits_for("bcde")),
    );
    let awaits = [("default", &first), ("default", &second)];
    let told = async |who: &str| {
        let principal = principal(&relay.ctx.auth, who).await;
        objects::query(&relay.ctx, &principal, &found, &awaits).await
    };
    let all = told("ann").await;
    let [a, b] = &all[0][..] else {
        panic!("{all:?}");
    };
    assert_eq!(
        (&a["task"]["name"], &a["task"]["state"]),
        (&"load".into(), &"PENDING_NODE_ASSIGNMENT".into())
    );
    assert_eq!(
        (&a["owner"]["name"], &a["owner"]["pid"]),
        (&"square".into(), &501.into())
    );
    assert_eq!(
        (&b["owner"]["name"], &b["state"]),
        (&"Trainer.step".into(), &"SUBMITTED_TO_WORKER".into())
    );
    let unknown: Vec<_> = all[1]
        .iter()
        .map(|one| one["unknown"].as_str().unwrap_or_default())
        .collect();
    assert!(
        unknown[0].is_empty() && unknown[1].contains("nothing that makes or owns it"),
        "{unknown:?}"
    );
    // Ray is asked for four.
    assert!(unknown[3].contains("look at fewer"), "{unknown:?}");

    let some = told("ben").await;
    assert_eq!(some[0][0], *a);
    let text = object!(some[0][1]).to_string();
    assert!(text.contains("of what you may see"), "{text}");
    for hidden in ["hidden_load", "Trainer", "SUBMITTED"] {
        assert!(!text.contains(hidden), "{text}");
    }
}

#[tokio::test]
async fn objects_are_queried_only_if_requested_and_known() {
    let in_get = |_: &str| {
        ok(
            "Process 501: ray::square\nPython v3.11.7 (/p)\n\nThread 501 (idle): \"MainThread\"\n    get (ray/_private/worker.py:3)\n    square (a.py:3)\n",
        )
    };
    let (address, _head) = ray(in_get).await;
    let ann = Person::new("ann", "\"view\"", "");
    let relay = Relay::guarded(&[("default", address)], &[&ann]).await;
    let (_, told) = looks(&relay, "ann", "{\"name\": \"square\"}").await;
    assert!(told["looks"][0].get("waits_for").is_none(), "{told}");
    let (_, told) = looks(&relay, "ann", "{\"name\": \"square\", \"objects\": true}").await;
    let why = told["looks"][0]["waits_for"][0]["unknown"]
        .as_str()
        .unwrap();
    assert!(why.contains("only the hook"), "{told}");
}
