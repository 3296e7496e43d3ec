//! `ray-relay tasks` and `snapshot --running`: running and hung tasks, and ranks at a different location.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use serde_json::{Value, json};

use super::support::{err, http, interrupt, out, ray_relay, row, run, serve};

fn answer(value: &Value) -> Vec<u8> {
    http("200 OK", "application/json", &value.to_string())
}

fn task(rank: u64, name: &str, group: &str, seconds: f64) -> Value {
    json!({"cluster": "default", "what": "method", "state": "running", "name": name, "group": group, "rank": rank,
        "job_id": "01000000", "task_id": format!("t{rank}"), "node_ip": "10.0.0.7", "worker_id": format!("{rank:056}"),
        "pid": 500 + rank, "running_seconds": seconds})
}

fn clusters() -> Value {
    json!([{"name": "default", "trouble": null, "complete": true}])
}

/// A rank of eight, of which the fourth has left the collective.
fn task_snapshot(rank: u64, line: u32) -> Value {
    let frames = match rank {
        3 => {
            json!([{"file": "/srv/data.py", "line": line, "function": "load", "locals": [{"name": "shard", "type": "int", "value": "9"}]}])
        }
        _ => json!([
            {"file": "/v/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", "line": 4159, "function": "barrier"},
            {"file": "/srv/train.py", "line": 41, "function": "step", "locals": [{"name": "loss", "type": "float", "value": "0.5"}]},
        ]),
    };
    json!({"tasks": [task(rank, "Trainer.step", "Trainer", 700.0)],
        "look": {"pid": 500 + rank, "python": "3.11.9", "source": "hook", "threads": [
            {"id": 1, "name": "MainThread", "is_main": true, "idle": true, "frames": frames}]}})
}

fn snapshots(line: u32) -> Value {
    let snapshots: Vec<Value> = (0..8).map(|rank| task_snapshot(rank, line)).collect();
    json!({"looks": snapshots, "left_out": 0, "taken": 60.0, "clusters": clusters()})
}

#[test]
fn running_tasks_are_listed_by_job_and_group_in_pages() {
    let first = json!({"tasks": [task(1, "Trainer.step", "Trainer", 134.2)], "total": 2, "next": "[\"a b\"]", "clusters": clusters()});
    let mut away = clusters();
    away[0]["trouble"] = "the head is away".into();
    let second = json!({"tasks": [task(0, "Trainer.step", "Trainer", 3.0)], "total": 2, "next": null, "clusters": away});
    let (url, served) = serve(vec![answer(&first), answer(&second)]);
    let output = run(&["tasks", "Tr*", "--job", "01000000", "--relay", &url]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(
        out(&output),
        "\
! cluster default: the head is away

JOB       TASK                 NODE      PID  RUNNING  WORKER
01000000  Trainer.step rank 0  10.0.0.7  500  3s       000000000000
01000000  Trainer.step rank 1  10.0.0.7  501  2m 14s   000000000000
"
    );
    assert_eq!(
        served.join().unwrap(),
        [
            "GET /relay/v1/tasks?name=Tr%2A&job=01000000&limit=5000 HTTP/1.1",
            "GET /relay/v1/tasks?name=Tr%2A&job=01000000&limit=5000&after=%5B%22a%20b%22%5D HTTP/1.1",
        ]
    );
}

#[test]
fn older_relay_without_group_commands_is_reported() {
    let list = json!({"breakpoints": [row("3kfz0q8m", "step")], "clusters": clusters()});
    let sentence =
        "there is no /relay/v1/group here; what exists is /relay/, /relay/v1/breakpoints";
    let unknown = http(
        "404 Not Found",
        "application/json",
        &json!({ "error": sentence }).to_string(),
    );
    for words in [
        ["exec", "--all", "--", "p loss"].as_slice(),
        &["debug", "--all"],
    ] {
        let (url, served) = serve(vec![answer(&list), unknown.clone()]);
        let mut words = words.to_vec();
        words.splice(2..2, ["--relay", &url]);
        let output = run(&words);
        let stderr = err(&output);
        assert!(stderr.contains("is older than this program"), "{stderr}");
        assert!(stderr.contains("update the relay"), "{stderr}");
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        served.join().unwrap();
    }
}

#[test]
fn tasks_are_sorted_and_filtered_like_the_list() {
    let all = json!({"tasks": [task(0, "load", "load", 3.0), task(1, "train", "train", 1.0), task(2, "train", "train", 2.0)],
        "total": 3, "next": null, "clusters": clusters()});
    let (url, served) = serve(vec![answer(&all); 2]);
    let filtered = [
        "tasks", "--filter", "train", "--sort", "waiting", "--relay", &url,
    ];
    let output = run(&filtered);
    let text = out(&output);
    let (one, two) = (text.find("train rank 1"), text.find("train rank 2"));
    assert!(
        one.unwrap() < two.unwrap() && !text.contains("load"),
        "{text}"
    );
    assert!(text.ends_with("1 more do not match --filter.\n"), "{text}");
    let output = run(&[&filtered[..], &["--json"]].concat());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (report["tasks"].as_array().unwrap().len(), &report["hidden"]),
        (2, &1.into())
    );
    served.join().unwrap();
}

#[test]
fn hung_tasks_are_at_one_location_in_both_snapshots() {
    let (url, served) = serve(vec![answer(&snapshots(17)), answer(&snapshots(18))]);
    let output = run(&["tasks", "--hung", "10m", "--apart", "1ms", "--relay", &url]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let text = out(&output);
    assert_eq!(text.lines().count(), 8, "{text}");
    assert!(text.lines().next().unwrap().ends_with("PLACE"), "{text}");
    let place = "waits in torch.distributed.barrier, from step (/srv/train.py:41)";
    assert!(
        text.lines().skip(1).all(|line| line.ends_with(place)),
        "{text}"
    );
    assert!(!text.contains("rank 3"), "it has moved: {text}");
    assert_eq!(served.join().unwrap(), ["POST /relay/v1/looks HTTP/1.1"; 2]);
}

#[test]
fn diff_names_the_rank_at_a_different_location() {
    let (url, served) = serve(vec![answer(&snapshots(17)); 2]);
    let output = run(&["snapshot", "--running", "Trainer", "--relay", &url]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(
        out(&output),
        "\
8 of 8 processes seen at 1970-01-01 00:01:00 UTC

Trainer: rank 3 is elsewhere than the other 7 of 8
  rank 3: waits outside Python, called by load (/srv/data.py:17)
  ranks 0-2,4-7: all wait in torch.distributed.barrier, from step (/srv/train.py:41)

0-2,4-7  step (/srv/train.py:41)
             loss = 0.5
0-2,4-7  barrier (torch/distributed/distributed_c10d.py:4159)  ← torch.distributed.barrier
3        load (/srv/data.py:17)  ← outside Python
             shard = 9
"
    );
    let output = run(&["snapshot", "--job", "01000000", "--json", "--relay", &url]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["places"][0]["places"][0]["tasks"], "rank 3");
    assert_eq!(report["looks"].as_array().unwrap().len(), 8);
    served.join().unwrap();
}

#[test]
fn silent_ranks_are_named_and_the_others_shown() {
    let mut server = snapshots(17);
    let silent = server["looks"][5].as_object_mut().unwrap();
    silent.shift_remove("look");
    silent.insert("error".into(), "its process has \u{1b}[2Jended".into());
    server["left_out"] = 4.into();
    let (url, served) = serve(vec![
        answer(&server),
        answer(&json!({"looks": [], "left_out": 0, "clusters": []})),
    ]);
    let output = run(&["snapshot", "--running", "*", "--relay", &url]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let text = out(&output);
    assert!(text.starts_with("7 of 8 processes seen"), "{text}");
    assert!(text.contains("! 4 more were not looked at"), "{text}");
    assert!(
        text.contains("rank 3 is elsewhere than the other 6 of 7\n"),
        "{text}"
    );
    assert!(
        text.contains("! Trainer, rank 5: its process has �[2Jended\n"),
        "{text}"
    );
    let output = run(&["snapshot", "--running", "nothing", "--relay", &url]);
    assert_eq!(output.status.code(), Some(66), "{output:?}");
    assert!(
        err(&output).contains("nothing runs that fits"),
        "{output:?}"
    );
    served.join().unwrap();
}

#[test]
fn saved_snapshot_is_read_without_a_relay() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hang.json");
    let file = path.to_str().unwrap();
    let (url, served) = serve(vec![answer(&snapshots(17)); 2]);
    let output = run(&[
        "snapshot", "--job", "01000000", "--save", file, "--relay", &url,
    ]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let from_file = run(&["snapshot", file, "--relay", "http://127.0.0.1:1"]);
    assert_eq!(from_file.status.code(), Some(0), "{from_file:?}");
    assert_eq!(out(&from_file), out(&output));
    let refused = run(&[
        "snapshot", "--job", "01000000", "--save", file, "--relay", &url,
    ]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(err(&refused).contains("exists already"), "{refused:?}");
    served.join().unwrap();
}

#[test]
fn watch_prints_changes() {
    let (url, served) = serve(vec![
        answer(&snapshots(17)),
        answer(&snapshots(18)),
        answer(&snapshots(18)),
    ]);
    let mut child = ray_relay(&[
        "snapshot",
        "--running",
        "*",
        "--watch",
        "1ms",
        "--relay",
        &url,
    ])
    .stdout(Stdio::piped())
    .stderr(Stdio::null())
    .spawn()
    .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map(Result::unwrap);
    let moved = lines.find(|line| line.contains(" moved")).unwrap();
    assert_eq!(
        moved,
        "1970-01-01 00:01:00 UTC: 1 of 8 moved, 7 where they were"
    );
    let still = lines.find(|line| line.contains(" moved")).unwrap();
    assert!(
        still.ends_with("0 of 8 moved, 8 where they were"),
        "{still}"
    );
    served.join().unwrap();
    interrupt(&child);
    child.wait().unwrap();
}
