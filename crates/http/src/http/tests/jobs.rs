//! Which job a name stands for, by the permissions of the user.

use std::sync::atomic::AtomicUsize;

use serde_json::{Value, json as object};

use super::*;

/// A head with three jobs: `square` runs in the first, `step` in the second, and the third has ended. The fourth is
/// pending, the fifth is called like a run of the first, and of `often` fifty have ended.
async fn ray() -> (SocketAddr, JoinSet<()>) {
    ray_counting(Arc::default()).await
}

/// The same, which counts the queries for tasks of a job.
async fn ray_counting(queries: Arc<AtomicUsize>) -> (SocketAddr, JoinSet<()>) {
    head(move |request: Request<Incoming>| {
        let queries = Arc::clone(&queries);
        async move {
        let path = request.uri().path_and_query().unwrap().to_string();
        let task = |n: u32, name: &str| {
            object!({"task_id": format!("t{n}"), "name": name, "func_or_class_name": name, "state": "RUNNING",
                "job_id": format!("0{n}000000"), "worker_id": format!("w{n}"), "node_id": "aaaa", "worker_pid": 500 + n})
        };
        let worker = |n: u32| object!({"worker_id": format!("w{n}"), "is_alive": true, "worker_type": "WORKER", "node_id": "aaaa",
            "ip": "10.0.0.7", "pid": 500 + n});
        let job = |n: u32, status: &str| object!({"job_id": format!("{n:02}000000"), "submission_id": format!("raysubmit_{n}"), "status": status});
        let run = |name: &str, n: u32| object!({"name": name, "job_id": format!("{n:02}000000"), "attempts": []});
        let rows = match path.split('?').next().unwrap() {
            "/api/v0/tasks" => {
                let of_job = |n: &u32| !path.contains("job_id") || path.contains(&format!("0{n}000000"));
                let values = |key| path.split(['?', '&']).filter_map(move |one| one.strip_prefix(key));
                let mut filters = values("filter_keys=").zip(values("filter_values="));
                let id = filters.find(|(key, _)| *key == "job_id").map(|(_, id)| id);
                if id.is_some_and(|id| !id.bytes().all(|digit| digit.is_ascii_hexdigit())) {
                    // "Non-hexadecimal digit found"
                    return status(400);
                }
                if path.contains("job_id") {
                    queries.fetch_add(1, Ordering::Relaxed);
                }
                [(1, "square"), (2, "step")].into_iter().filter(|(n, _)| of_job(n)).map(|(n, name)| task(n, name)).collect()
            }
            "/api/v0/workers" => {
                let paused = object!({"worker_id": "w9", "is_alive": true, "worker_type": "WORKER", "node_id": "aaaa",
                    "ip": "10.0.0.7", "pid": 509, "debugger_port": 1, "num_paused_threads": 1});
                (1..3).map(worker).chain([paused]).collect()
            }
            "/api/v0/nodes" => vec![object!({"node_id": "aaaa", "node_ip": "10.0.0.7", "state": "ALIVE"})],
            "/api/v0/actors" => Vec::new(),
            "/api/jobs/" => {
                let mut all = vec![job(1, "RUNNING"), job(2, "RUNNING"), job(3, "SUCCEEDED")];
                all.push(object!({"job_id": null, "submission_id": "raysubmit_4", "status": "PENDING"}));
                all.push(object!({"job_id": "05000000", "submission_id": "weekly", "status": "RUNNING"}));
                all.extend((40..90).map(|n| job(n, "FAILED")));
                return ok(Value::from(all).to_string());
            }
            "/api/train/v2/runs/v1" => {
                let mut runs = vec![run("nightly", 2), run("nightly", 3), run("twice", 1), run("twice", 2), run("weekly", 1)];
                runs.extend((40..90).map(|n| run("often", n)));
                return ok(object!({ "train_runs": runs }).to_string());
            }
            _ => return status(404),
        };
        let list = object!({"total": rows.len(), "num_after_truncation": rows.len(), "result": rows});
        ok(object!({"result": true, "msg": "", "data": {"result": list}}).to_string())
        }
    })
    .await
}

async fn jobs(relay: &Relay, subject: &str, name: &str) -> (u16, Value) {
    let path = format!("/relay/v1/jobs?job={name}");
    let response = relay.get_as(&token_of(subject), &path).await;
    (response.status().as_u16(), json(response).await)
}

async fn names(relay: &Relay, subject: &str, name: &str) -> Vec<String> {
    let (status, answer) = jobs(relay, subject, name).await;
    assert_eq!(status, 200, "{name}: {answer}");
    let jobs = answer["jobs"].as_array().unwrap().iter();
    jobs.map(|job| job["name"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn job_has_one_answer_under_each_of_its_names() {
    let (address, _head) = ray().await;
    let ann = User::new("ann", "\"list\"", "");
    let relay = Relay::with_users(&[("default", address)], &[&ann]).await;
    let job = object!({"cluster": "default", "name": "raysubmit_1", "job_id": "01000000", "submission_id": "raysubmit_1", "ended": false});
    for name in ["01000000", "raysubmit_1"] {
        assert_eq!(
            jobs(&relay, "ann", name).await,
            (200, object!({ "jobs": [job] }))
        );
    }
    assert_eq!(
        names(&relay, "ann", "nightly").await,
        ["raysubmit_2", "raysubmit_3"]
    );
    let (status, answer) = jobs(&relay, "ann", "twice").await;
    assert_eq!(status, 409, "{answer}");
    let why = answer["error"].as_str().unwrap();
    assert!(
        why.contains(
            "raysubmit_1 (job 01000000) on default, raysubmit_2 (job 02000000) on default"
        ),
        "{why}"
    );
    assert_eq!(jobs(&relay, "ann", "raysubmit_9").await.0, 404);
    for bad in ["", "&x=1"] {
        assert_eq!(jobs(&relay, "ann", bad).await.0, 400, "{bad}");
    }
}

#[tokio::test]
async fn hidden_job_is_answered_like_a_missing_one() {
    let (address, _head) = ray().await;
    let ben = User::new("ben", "\"list\", \"view\"", "jobs = [\"raysubmit_1\"]");
    let cid = User::new("cid", "\"list\", \"view\"", "tasks = [\"square\"]");
    let dan = User::new("dan", "\"list\", \"view\"", "namespaces = [\"other\"]");
    let relay = Relay::with_users(&[("default", address)], &[&ben, &cid, &dan]).await;
    for who in ["ben", "cid"] {
        assert_eq!(
            names(&relay, who, "01000000").await,
            ["raysubmit_1"],
            "{who}"
        );
        assert_eq!(
            names(&relay, who, "raysubmit_1").await,
            ["raysubmit_1"],
            "{who}"
        );
    }
    let said = |answer: Value, name: &str| answer["error"].as_str().unwrap().replace(name, "JOB");
    for (who, hidden) in [
        ("ben", &["02000000", "raysubmit_2", "raysubmit_3"][..]),
        ("cid", &["raysubmit_2", "03000000", "nightly"]),
        ("dan", &["01000000", "raysubmit_1", "nightly"]),
    ] {
        let (status, missing) = jobs(&relay, who, "nosuch").await;
        let missing = (status, said(missing, "nosuch"));
        assert_eq!(missing.0, 404, "{missing:?}");
        for name in hidden {
            let (status, answer) = jobs(&relay, who, name).await;
            assert_eq!((status, said(answer, name)), missing, "{who}: {name}");
            let path = format!("/relay/v1/tasks?job={name}");
            let listed = relay.get_as(&token_of(who), &path).await;
            let listed = (listed.status().as_u16(), said(json(listed).await, name));
            assert_eq!(listed, missing, "{who}: {name}");
            let body = object!({ "job": name }).to_string();
            let (status, answer) = post(&relay, "/relay/v1/looks", who, &body).await;
            assert_eq!((status, said(answer, name)), missing, "{who}: {name}");
        }
    }
}

#[tokio::test]
async fn running_tasks_are_listed_by_each_name_of_their_job() {
    let (address, _head) = ray().await;
    let ann = User::new("ann", "\"list\"", "");
    let relay = Relay::with_users(&[("default", address)], &[&ann]).await;
    for (name, listed) in [
        ("01000000", &["square"][..]),
        ("raysubmit_1", &["square"]),
        ("nightly", &["step"]),
        // It has ended.
        ("raysubmit_3", &[]),
    ] {
        let path = format!("/relay/v1/tasks?job={name}");
        let response = relay.get_as(&token_of("ann"), &path).await;
        assert_eq!(response.status(), 200, "{name}");
        let answer = json(response).await;
        let rows = answer["tasks"].as_array().unwrap().iter();
        let rows: Vec<&str> = rows.map(|row| row["name"].as_str().unwrap()).collect();
        assert_eq!(rows, listed, "{name}");
    }
}

#[tokio::test]
async fn hidden_submission_id_does_not_hide_a_visible_run() {
    let (address, _head) = ray().await;
    let ann = User::new("ann", "\"list\"", "");
    let ben = User::new("ben", "\"list\"", "jobs = [\"raysubmit_1\"]");
    let relay = Relay::with_users(&[("default", address)], &[&ann, &ben]).await;
    assert_eq!(names(&relay, "ann", "weekly").await, ["weekly"]);
    assert_eq!(names(&relay, "ben", "weekly").await, ["raysubmit_1"]);
}

#[tokio::test]
async fn ended_jobs_of_a_run_are_not_queried() {
    let queries = Arc::new(AtomicUsize::new(0));
    let (address, _head) = ray_counting(Arc::clone(&queries)).await;
    let ann = User::new("ann", "\"list\"", "");
    let ben = User::new("ben", "\"list\"", "jobs = [\"raysubmit_1\"]");
    let relay = Relay::with_users(&[("default", address)], &[&ann, &ben]).await;
    assert_eq!(names(&relay, "ann", "often").await.len(), 50);
    for (who, expected) in [("ann", 200), ("ben", 404)] {
        queries.store(0, Ordering::Relaxed);
        let path = "/relay/v1/tasks?job=often";
        let status = relay.get_as(&token_of(who), path).await.status();
        assert_eq!(status, expected, "{who}");
        let count = queries.load(Ordering::Relaxed);
        assert!(count <= 2, "{who}: {count} queries");
    }
}
