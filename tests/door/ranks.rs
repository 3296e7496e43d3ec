//! Many paused ranks behind one command, `ray-relay exec --all` and `diff`: stand-ins for their debuggers, each of which
//! behaves as the test says.

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

/// What a stand-in does with `p loss`, or with a look.
#[derive(Clone)]
pub(crate) enum Does {
    /// Says this value, and has it in its frame.
    Says(&'static str),
    /// Says it when all others have been asked, too.
    Waits(Arc<Barrier>),
    /// Says by the first that it has been asked, and answers by the second.
    Tells(Arc<Notify>, Arc<Notify>),
    /// Says it after so long.
    After(Duration),
    /// Lets its task run on, and has no frame any more.
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

/// Where rank `rank` stands, and what it has there.
fn threads(rank: u32, does: &Does) -> Value {
    let loss = match does {
        Does::Says(loss) => loss,
        _ => "0.5",
    };
    let line = if loss == "nan" { 12 } else { 9 };
    let frame = json!({"file": "/job.py", "line": line, "function": "step", "source": "breakpoint()",
        "locals": {"loss": loss, "rank": rank.to_string(), "lr": "0.1"}, "types": {},
        // For a client that may only look.
        "variables": [{"name": "loss", "type": "float", "value": loss}, {"name": "rank", "type": "int", "value": rank.to_string()},
            {"name": "lr", "type": "float", "value": "0.1"}]});
    json!({"threads": [{"name": "MainThread", "frames": [frame]}]})
}

/// The same as the debugger tells it, the innermost first, with what Ray has around every task.
fn stack(rank: u32, does: &Does) -> Value {
    let step = &threads(rank, does)["threads"][0]["frames"][0]["line"];
    let frame = |name: &str, file: &str, line: &Value| json!({"id": 1, "name": name, "line": line, "source": {"path": file}});
    json!({"stackFrames": [
        frame("step", "/job.py", step),
        frame("run", "/job.py", &json!(30)),
        frame("main_loop", "/usr/lib/python3/site-packages/ray/_private/worker.py", &json!(900)),
    ]})
}

/// Plays the debugger of rank `rank`, whoever connects.
async fn stand_in(listener: TcpListener, rank: u32, does: Does) {
    while let Ok((stream, _)) = listener.accept().await {
        // A client that leaves is no matter of the next one.
        let _ = one(stream, rank, &does).await;
    }
}

async fn one(stream: TcpStream, rank: u32, does: &Does) -> Option<()> {
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
            "stackTrace" => stack(rank, does),
            _ => json!({}),
        };
        if asks("ranks") {
            // The other way round than they are numbered by their workers.
            let said = json!({"rank": 7 - rank}).to_string();
            body = json!({"result": said, "variablesReference": 0});
        } else if asks("snapshot") {
            body = json!({"result": threads(rank, does).to_string(), "variablesReference": 0});
        } else if asks("p") {
            let text = match does {
                Does::Says(text) => (*text).to_owned(),
                Does::Waits(barrier) => {
                    barrier.wait().await;
                    "0.5".to_owned()
                }
                Does::Tells(asked, goes_on) => {
                    asked.notify_one();
                    goes_on.notified().await;
                    "0.5".to_owned()
                }
                Does::After(time) => {
                    tokio::time::sleep(*time).await;
                    "0.5".to_owned()
                }
                Does::RunsOn => {
                    let runs = json!({"threadId": 1, "allThreadsContinued": true});
                    dap.send(&event("continued", &runs)).await.ok()?;
                    let why = json!({"seq": 1, "type": "response", "request_seq": request["seq"], "success": false,
                        "command": command, "message": "Unable to find thread for evaluation."});
                    dap.send(&why).await.ok()?;
                    continue;
                }
                Does::Floods(bytes) => "x".repeat(*bytes),
                Does::Nothing => std::future::pending().await,
                Does::Dies => return None,
            };
            let said = json!({"text": format!("{text}\n"), "total": text.len()});
            body = json!({"result": said.to_string(), "variablesReference": 0});
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

/// A rank in the list of `relay`, whose debugger does as `does` says.
pub(crate) async fn rank(relay: &Running, rank: u32, does: Does) -> Breakpoint {
    let (listener, mut breakpoint) = paused().await;
    breakpoint.worker_id = format!("{rank:056x}").into();
    breakpoint.id = BreakpointId::derive("default", &breakpoint.worker_id);
    let names = Arc::make_mut(&mut breakpoint.names);
    names.name = Some("Trainer.step".to_owned());
    names.group = Some("Trainer".to_owned());
    names.actor_name = Some(format!("rank-{rank}"));
    names.rank = Some(rank);
    tokio::spawn(stand_in(listener, rank, does));
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
async fn two_hundred_and_fifty_six_ranks_are_asked_at_once() {
    let _turn = TURN.lock().await;
    let relay = keeping().await;
    // None answers before all have been asked: one after the other would never end.
    let all = Arc::new(Barrier::new(256));
    for number in 0..256 {
        rank(&relay, number, Does::Waits(Arc::clone(&all))).await;
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
async fn who_gives_no_answer_is_named_and_the_others_are_shown() {
    let _turn = TURN.lock().await;
    let relay = keeping().await;
    let address = relay.local_addr();
    for number in 0..8 {
        let does = match number {
            3 => Does::Says("nan"),
            4 => Does::Nothing,
            5 => Does::Dies,
            6 => Does::Floods(64 << 20),
            _ => Does::Says("0.6931"),
        };
        rank(&relay, number, does).await;
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
    for says in [
        "Trainer: 8 tasks by rank\n\n(Pdb) where\n0-6      run (/job.py:30)\n",
        "\n0-2,4-6    step (/job.py:9)\n3          step (/job.py:12)\n\n(Pdb) p loss\n",
        "3:   nan  ← odd\n6:   *** the answer of ",
        "\n0-2: 0.6931\n",
        "\n! 4: `p loss` did not end within 15s",
        "\n! 5: the ",
        "\n! 7: ",
        "bytes is too long to be shown",
    ] {
        assert!(text.contains(says), "{says} is not in {text}");
    }
    assert!(!text.contains("xxxx"), "{text}");
    // The same for a script.
    let words = [
        "exec", "--all", "--ranks", "0-3,7", "--json", "--", "p loss",
    ];
    let (output, text) = ray_relay(address, None, &words).await;
    assert_eq!(output.status.code(), Some(1), "{text}");
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told["members"].as_array().unwrap().len(), 5, "{told}");
    assert_eq!(told["members"][4]["number"], 7);
    assert!(told["members"][4]["error"].is_string(), "{told}");
    let answers = &told["commands"][0]["answers"];
    assert_eq!(answers[0]["who"], "3", "{told}");
    assert_eq!(answers[0]["odd"], true);
    assert_eq!(
        (&answers[1]["who"], &answers[1]["text"]),
        (&json!("0-2"), &json!("0.6931"))
    );
    relay.abort().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_may_see_five_of_eight_gets_five_and_who_may_only_look_looks() {
    let _turn = TURN.lock().await;
    let keys = Keys::new();
    let relay = start(|config| {
        config.auth.keys = vec![keys.public()];
        config.park.r#for = TEST_TIMEOUT;
    });
    let relay = relay.await;
    let address = relay.local_addr();
    for number in 0..8 {
        let does = if number == 3 {
            Does::Says("nan")
        } else {
            Does::Says("0.6931")
        };
        rank(&relay, number, does).await;
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

stands at
  3:       step (/job.py:12)  ← odd
  1,2,4,5: step (/job.py:9)

loss, in step (/job.py)
  3:       nan  ← odd
  1,2,4,5: 0.6931

rank, in step (/job.py): another one for each of 5, such as
  1: 1
  2: 2
  3: 3
  4: 4

1 value alike.
"
    );
    // Looking has let nobody run, and running commands takes more than looking.
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
async fn one_prompt_asks_all_or_those_in_the_focus() {
    let _turn = TURN.lock().await;
    let relay = keeping().await;
    let address = relay.local_addr();
    for number in 0..4 {
        let does = match number {
            1 => Does::Says("nan"),
            3 => Does::Dies,
            _ => Does::Says("0.6931"),
        };
        rank(&relay, number, does).await;
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
    let talk = "\
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
    assert!(text.contains(talk), "{text}");
    assert!(
        text.ends_with("! 0-2: the task runs on without a debugger\n"),
        "{text}"
    );
    relay.abort().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ranks_that_no_name_tells_are_asked_of_the_processes() {
    let _turn = TURN.lock().await;
    let relay = keeping().await;
    for number in 0..4 {
        let does = match number {
            1 => Does::Says("nan"),
            _ => Does::Says("0.6931"),
        };
        let mut unnamed = rank(&relay, number, does).await;
        let names = Arc::make_mut(&mut unnamed.names);
        (names.rank, names.actor_name) = (None, None);
        relay.registry().insert(unnamed);
    }
    let words = ["exec", "--all", "--stay", "--", "p loss"];
    let (output, text) = ray_relay(relay.local_addr(), None, &words).await;
    assert_eq!(output.status.code(), Some(0), "{text}");
    let told = "Trainer: 4 tasks by rank\n\n(Pdb) p loss\n6:     nan  ← odd\n4,5,7: 0.6931\n";
    assert!(text.starts_with(told), "{text}");
    relay.abort().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rank_that_is_gone_is_named_beside_what_differs() {
    let _turn = TURN.lock().await;
    let relay = keeping().await;
    let address = relay.local_addr();
    for number in 0..3 {
        rank(&relay, number, Does::Says("0.6931")).await;
    }
    let (listener, mut gone) = paused().await;
    gone.worker_id = "6f".repeat(28).into();
    gone.id = BreakpointId::derive("default", &gone.worker_id);
    drop(listener);
    relay.registry().insert(gone);
    let (output, text) = ray_relay(address, None, &["diff", "--json"]).await;
    assert_eq!(output.status.code(), Some(1), "{text}");
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    let groups: Vec<_> = told["groups"]
        .as_array()
        .unwrap()
        .iter()
        .map(|group| &group["group"])
        .collect();
    assert_eq!(groups, ["Trainer", "square"], "{told}");
    assert_eq!(told["groups"][0]["alike"], 4, "{told}");
    assert_eq!(
        told["groups"][0]["differences"][0]["name"], "rank",
        "{told}"
    );
    let error = told["members"][3]["error"].as_str().unwrap();
    assert!(error.contains("cannot reach"), "{error}");
    relay.abort().await;
}
