//! Group commands on many paused ranks, `ray-relay exec --all` and `diff`, with stand-ins for their debuggers.

#[path = "ranks/audit.rs"]
mod audit;
#[path = "ranks/in_nc.rs"]
mod in_nc;
#[path = "ranks/in_the_middle.rs"]
mod in_the_middle;
#[path = "ranks/permitted.rs"]
mod permitted;

use std::net::SocketAddr;
use std::process::Output;
use std::sync::Arc;
use std::time::Duration;

use ray_relay::app::Running;
use ray_relay_base::wire::dap::conversation::Conversation;
use ray_relay_ray::ray::registry::{Breakpoint, BreakpointId};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::sync::{Barrier, Mutex, Notify};
use tokio::time::timeout;

use super::paused::paused;
use super::support::*;

/// How a stand-in reacts to `p loss` or a snapshot.
#[derive(Clone)]
pub(crate) enum Reaction {
    /// Prints this value, and has it in its frame.
    Says(&'static str),
    /// Says it when all others have been asked, too.
    Waits(Arc<Barrier>),
    /// Says by the first that it has been asked, and answers by the second.
    Signals(Arc<Notify>, Arc<Notify>),
    /// Says it after so long.
    After(Duration),
    /// Resumes its task, and has no frame any more.
    RunsOn,
    /// Sends so many bytes of a value.
    Floods(usize),
    /// Never answers.
    Nothing,
    /// Its process is gone.
    Dies,
}

fn event(name: &str, body: &Value) -> Value {
    json!({"seq": 1, "type": "event", "event": name, "body": body})
}

/// The stop and the variables of rank `rank`.
fn threads(rank: u32, reaction: &Reaction) -> Value {
    let loss = match reaction {
        Reaction::Says(loss) => loss,
        _ => "0.5",
    };
    let line = if loss == "nan" { 12 } else { 9 };
    let frame = json!({"file": "/job.py", "line": line, "function": "step", "source": "breakpoint()",
        "locals": {"loss": loss, "rank": rank.to_string(), "lr": "0.1"}, "types": {},
        // For a client with `view`.
        "variables": [{"name": "loss", "type": "float", "value": loss}, {"name": "rank", "type": "int", "value": rank.to_string()},
            {"name": "lr", "type": "float", "value": "0.1"}]});
    json!({"threads": [{"name": "MainThread", "frames": [frame]}]})
}

/// The same as the debugger tells it, the innermost first, with what Ray has around every task.
fn stack(rank: u32, reaction: &Reaction) -> Value {
    let step = &threads(rank, reaction)["threads"][0]["frames"][0]["line"];
    let frame = |name: &str, file: &str, line: &Value| json!({"id": 1, "name": name, "line": line, "source": {"path": file}});
    json!({"stackFrames": [
        frame("step", "/job.py", step),
        frame("run", "/job.py", &json!(30)),
        frame("main_loop", "/usr/lib/python3/site-packages/ray/_private/worker.py", &json!(900)),
    ]})
}

/// Acts as the debugger of rank `rank`.
async fn stand_in(listener: TcpListener, rank: u32, reaction: Reaction) {
    while let Ok((stream, _)) = listener.accept().await {
        // A client that leaves is no matter of the next one.
        let _ = one(stream, rank, &reaction).await;
    }
}

async fn one(stream: TcpStream, rank: u32, reaction: &Reaction) -> Option<()> {
    let mut dap = Conversation::new(stream, 1 << 20);
    let hello = event(
        "output",
        &json!({"category": "telemetry", "output": "ptvsd"}),
    );
    dap.send(&hello).await.ok()?;
    loop {
        let request = dap.read().await.ok()?;
        let command = request["command"].as_str()?.to_owned();
        let expression = request["arguments"]["expression"]
            .as_str()
            .unwrap_or_default();
        let asks = |op: &str| expression.contains(&format!(r#"\"op\":\"{op}\""#));
        let mut body = match &*command {
            "initialize" => json!({"supportSuspendDebuggee": true}),
            "stackTrace" => stack(rank, reaction),
            _ => json!({}),
        };
        if asks("ranks") {
            // The other way round than they are numbered by their workers.
            let payload = json!({"rank": 7 - rank}).to_string();
            body = json!({"result": payload, "variablesReference": 0});
        } else if asks("snapshot") {
            body = json!({"result": threads(rank, reaction).to_string(), "variablesReference": 0});
        } else if asks("p") {
            let text = match reaction {
                Reaction::Says(text) => (*text).to_owned(),
                Reaction::Waits(barrier) => {
                    barrier.wait().await;
                    "0.5".to_owned()
                }
                Reaction::Signals(reached, may_continue) => {
                    reached.notify_one();
                    may_continue.notified().await;
                    "0.5".to_owned()
                }
                Reaction::After(time) => {
                    tokio::time::sleep(*time).await;
                    "0.5".to_owned()
                }
                Reaction::RunsOn => {
                    let runs = json!({"threadId": 1, "allThreadsContinued": true});
                    dap.send(&event("continued", &runs)).await.ok()?;
                    let why = json!({"seq": 1, "type": "response", "request_seq": request["seq"], "success": false,
                        "command": command, "message": "Unable to find thread for evaluation."});
                    dap.send(&why).await.ok()?;
                    continue;
                }
                Reaction::Floods(bytes) => "x".repeat(*bytes),
                Reaction::Nothing => std::future::pending().await,
                Reaction::Dies => return None,
            };
            let payload = json!({"text": format!("{text}\n"), "total": text.len()});
            body = json!({"result": payload.to_string(), "variablesReference": 0});
        }
        let answer = json!({"seq": 1, "type": "response", "request_seq": request["seq"], "success": true, "command": command, "body": body});
        dap.send(&answer).await.ok()?;
        match &*command {
            "attach" => dap.send(&event("initialized", &Value::Null)).await.ok()?,
            "configurationDone" => {
                let stop = json!({"reason": "breakpoint", "threadId": 1});
                dap.send(&event("stopped", &stop)).await.ok()?;
            }
            "disconnect" => return None,
            _ => {}
        }
    }
}

/// A rank in the list of `relay`, whose debugger does as `reaction` says.
pub(crate) async fn rank(relay: &Running, rank: u32, reaction: Reaction) -> Breakpoint {
    let (listener, mut breakpoint) = paused().await;
    breakpoint.worker_id = format!("{rank:056x}").into();
    breakpoint.id = BreakpointId::derive("default", &breakpoint.worker_id);
    let names = Arc::make_mut(&mut breakpoint.names);
    names.name = Some("Trainer.step".to_owned());
    names.group = Some("Trainer".to_owned());
    names.actor_name = Some(format!("rank-{rank}"));
    names.rank = Some(rank);
    tokio::spawn(stand_in(listener, rank, reaction));
    relay.registry().insert(breakpoint.clone());
    breakpoint
}

async fn ray_relay(relay: SocketAddr, token: Option<&str>, words: &[&str]) -> (Output, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ray-relay"));
    let url = format!("http://{relay}");
    command.env_clear().env("RAY_RELAY_URL", url).args(words);
    command.envs(token.map(|token| ("RAY_RELAY_TOKEN", token)));
    let output = timeout(TEST_TIMEOUT * 3, command.output()).await;
    let output = output.expect("in time").unwrap();
    let text = [&*output.stdout, &output.stderr].concat();
    (output, String::from_utf8(text).unwrap())
}

/// The session of another client with the rank of this number.
async fn held(relay: SocketAddr, number: u32) -> Conversation<TcpStream> {
    let id = BreakpointId::derive("default", &format!("{number:056x}")).to_string();
    let (held, answer) = attach(dial(relay).await, &json!({ "breakpoint": id })).await;
    assert_eq!(answer["event"], "capabilities", "{answer}");
    held
}

/// One test at a time: each has much to do.
pub(crate) static TURN: Mutex<()> = Mutex::const_new(());

/// A relay that keeps what a command leaves.
pub(crate) async fn keeping() -> Running {
    start(|config| config.park.r#for = TEST_TIMEOUT).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_and_fifty_six_ranks_are_evaluated_in_parallel() {
    let _turn = TURN.lock().await;
    let relay = keeping().await;
    // No rank answers before all have received the request: a sequential client would hang.
    let all = Arc::new(Barrier::new(256));
    for number in 0..256 {
        rank(&relay, number, Reaction::Waits(Arc::clone(&all))).await;
    }
    let words = ["exec", "--all", "--timeout", "50s", "--", "p loss"];
    let (output, text) = ray_relay(relay.local_addr(), None, &words).await;
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert_eq!(
        text,
        "Trainer: 256 tasks by rank\n\n(Pdb) p loss\n0-255: 0.5\nray-relay: 256 of 256 stay where they are, parked for you: \
         `ray-relay exec --all` or `ray-relay debug --all` resumes the sessions, `ray-relay release --all` the tasks\n"
    );
    relay.abort().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_workers_are_named_and_the_others_shown() {
    let _turn = TURN.lock().await;
    let relay = keeping().await;
    let address = relay.local_addr();
    for number in 0..8 {
        let reaction = match number {
            3 => Reaction::Says("nan"),
            4 => Reaction::Nothing,
            5 => Reaction::Dies,
            6 => Reaction::Floods(9 << 20),
            _ => Reaction::Says("0.6931"),
        };
        rank(&relay, number, reaction).await;
    }
    let _held = held(address, 7).await;
    let words = [
        "exec",
        "--all",
        "Trainer",
        "--stay",
        "--timeout",
        "15s",
        "--",
        "where",
        "p loss",
    ];
    let (output, text) = ray_relay(address, None, &words).await;
    assert_eq!(output.status.code(), Some(1), "{text}");
    for expected_text in [
        "Trainer: 8 tasks by rank\n\n(Pdb) where\n0-6      run (/job.py:30)\n",
        "\n0-2,4-6    step (/job.py:9)\n3          step (/job.py:12)\n\n(Pdb) p loss\n",
        "3:   nan  ← odd\n6:   *** the answer of ",
        "\n0-2: 0.6931\n",
        "\n! 4: `p loss` did not end within 15s",
        "\n! 5: the ",
        "\n! 7: ",
        "bytes is too long to be shown",
    ] {
        assert!(
            text.contains(expected_text),
            "{expected_text} is not in {text}"
        );
    }
    assert!(!text.contains("xxxx"), "{text}");
    // The same for a script.
    let words = [
        "exec", "--all", "--ranks", "0-3,7", "--json", "--", "p loss",
    ];
    let (output, text) = ray_relay(address, None, &words).await;
    assert_eq!(output.status.code(), Some(1), "{text}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["members"].as_array().unwrap().len(), 5, "{report}");
    assert_eq!(report["members"][4]["number"], 7);
    assert!(report["members"][4]["error"].is_string(), "{report}");
    let answers = &report["commands"][0]["answers"];
    assert_eq!(answers[0]["who"], "3", "{report}");
    assert_eq!(answers[0]["odd"], true);
    assert_eq!(
        (&answers[1]["who"], &answers[1]["text"]),
        (&json!("0-2"), &json!("0.6931"))
    );
    relay.abort().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn diff_covers_visible_ranks_and_works_with_view() {
    let _turn = TURN.lock().await;
    let keys = Keys::new();
    let relay = start(|config| {
        config.auth.keys = vec![keys.public()];
        config.park.r#for = TEST_TIMEOUT;
    });
    let relay = relay.await;
    let address = relay.local_addr();
    for number in 0..8 {
        let reaction = if number == 3 {
            Reaction::Says("nan")
        } else {
            Reaction::Says("0.6931")
        };
        rank(&relay, number, reaction).await;
    }
    let tasks: Vec<String> = (1..6).map(|number| format!("rank-{number}")).collect();
    let five = keys.token(|claims| {
        claims["scope"] = "list,view".into();
        claims["ray_relay"] = json!({ "tasks": tasks });
    });
    let (output, text) = ray_relay(address, Some(&five), &["diff"]).await;
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert_eq!(
        text,
        "\
Trainer: 5 tasks by rank

3 is the odd one out: it differs from most in 2 of 4 values.

loss, in step (/job.py)
  3:       nan  ← odd
  1,2,4,5: 0.6931

stands at
  3:       step (/job.py:12)  ← odd
  1,2,4,5: step (/job.py:9)

rank, in step (/job.py): another one for each of 5, such as
  1: 1
  2: 2
  3: 3
  4: 4

1 value alike.
"
    );
    // Snapshots have resumed no task, and `exec` needs more than `view`.
    let words = ["exec", "--all", "--", "p loss"];
    let (output, text) = ray_relay(address, Some(&five), &words).await;
    assert_eq!(output.status.code(), Some(1), "{text}");
    let refused =
        "1-5: *** evaluating anything but the name of a variable needs the permission `debug`";
    assert!(text.contains(refused), "{text}");
    let words = ["exec", "--ranks", "odd", "--", "p loss"];
    let (_, text) = ray_relay(address, Some(&five), &words).await;
    let is_of_one = text.contains("*** evaluating") && !text.contains("1-5");
    assert!(is_of_one && text.contains('3'), "{text}");
    let words = ["diff", "--ranks", "odd", "rank-1"];
    let (output, text) = ray_relay(address, Some(&five), &words).await;
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert_eq!(text, "ray-relay: no rank is odd\n");
    let (output, text) = ray_relay(address, Some(&five), &["diff", "--ranks", "0,7"]).await;
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("no task that waits fits"), "{text}");
    let (output, text) = ray_relay(address, Some(&five), &["diff", "rank-7"]).await;
    assert_eq!(output.status.code(), Some(66), "{text}");
    relay.abort().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn group_prompt_evaluates_in_all_or_focused_ranks() {
    let _turn = TURN.lock().await;
    let relay = keeping().await;
    let address = relay.local_addr();
    for number in 0..4 {
        let reaction = match number {
            1 => Reaction::Says("nan"),
            3 => Reaction::Dies,
            _ => Reaction::Says("0.6931"),
        };
        rank(&relay, number, reaction).await;
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_ray-relay"));
    command
        .env_clear()
        .env("RAY_RELAY_URL", format!("http://{address}"));
    command.args(["debug", "--all", "Trainer"]);
    command.stdin(std::process::Stdio::piped());
    command.stdout(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    let typed = "focus 0,1\np loss\nfocus 1\np loss\nfocus 9\nfocus all\nwhere\np loss\nq\n";
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(typed.as_bytes()).await.unwrap();
    drop(stdin);
    let output = timeout(TEST_TIMEOUT, child.wait_with_output()).await;
    let output = output.expect("in time").unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
    let begun =
        "Trainer: 4 tasks by rank\n1:     > /job.py(12)step()  ← odd\n0,2,3: > /job.py(9)step()\n";
    assert!(text.starts_with(begun), "{text}");
    let expected_transcript = "\
(Pdb ×4) (Pdb ×2 of 4) 0: 0.6931
1: nan
(Pdb ×2 of 4) (Pdb 1) nan
(Pdb 1) *** none of these is at the prompt; 0-3 are
(Pdb 1) (Pdb ×4) 0-3    run (/job.py:30)
0,2,3    step (/job.py:9)
1        step (/job.py:12)
(Pdb ×4) 1:   nan  ← odd
0,2: 0.6931
! 3: the debugger of ";
    assert!(text.contains(expected_transcript), "{text}");
    assert!(
        text.ends_with("! 0-2: the task runs on without a debugger\n"),
        "{text}"
    );
    relay.abort().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ranks_without_names_are_read_from_the_processes() {
    let _turn = TURN.lock().await;
    let relay = keeping().await;
    for number in 0..4 {
        let reaction = match number {
            1 => Reaction::Says("nan"),
            _ => Reaction::Says("0.6931"),
        };
        let mut unnamed = rank(&relay, number, reaction).await;
        let names = Arc::make_mut(&mut unnamed.names);
        (names.rank, names.actor_name) = (None, None);
        relay.registry().insert(unnamed);
    }
    let words = ["exec", "--all", "--stay", "--", "p loss"];
    let (output, text) = ray_relay(relay.local_addr(), None, &words).await;
    assert_eq!(output.status.code(), Some(0), "{text}");
    let expected = "Trainer: 4 tasks by rank\n\n(Pdb) p loss\n6:     nan  ← odd\n4,5,7: 0.6931\n";
    assert!(text.starts_with(expected), "{text}");
    relay.abort().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn diff_names_a_dead_rank_next_to_the_differences() {
    let _turn = TURN.lock().await;
    let relay = keeping().await;
    let address = relay.local_addr();
    for number in 0..3 {
        rank(&relay, number, Reaction::Says("0.6931")).await;
    }
    let (listener, mut closed) = paused().await;
    closed.worker_id = "6f".repeat(28).into();
    closed.id = BreakpointId::derive("default", &closed.worker_id);
    drop(listener);
    relay.registry().insert(closed);
    let (output, text) = ray_relay(address, None, &["diff", "--json"]).await;
    assert_eq!(output.status.code(), Some(1), "{text}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let groups: Vec<_> = report["groups"]
        .as_array()
        .unwrap()
        .iter()
        .map(|group| &group["group"])
        .collect();
    assert_eq!(groups, ["Trainer", "square"], "{report}");
    assert_eq!(report["groups"][0]["alike"], 4, "{report}");
    assert_eq!(
        report["groups"][0]["differences"][0]["name"], "rank",
        "{report}"
    );
    let error = report["members"][3]["error"].as_str().unwrap();
    assert!(error.contains("cannot reach"), "{error}");
    relay.abort().await;
}
