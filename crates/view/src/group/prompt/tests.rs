//! Tests the prompt of a group, with debuggers played by the test.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{DuplexStream, duplex};
use tokio::time::Instant;

use super::*;
use crate::group::kept::KeptOutput;
use crate::group::live::{RESUME_ORDER_TIMEOUT, open_all};
use crate::group::members::Meant;
use ray_relay_base::wire::dap::conversation::Conversation;
use ray_relay_base::wire::dap::message::event;
use ray_relay_debugger::pdb::{Options, Piece};

/// The times at which each debugger received a request to resume.
type Log = Arc<Mutex<Vec<(usize, Duration)>>>;

/// Plays the debugger of `rank`, which stops again as soon as it is resumed. With `is_mute` it never reports that it
/// runs.
async fn play_debugger(
    stream: DuplexStream,
    rank: usize,
    is_mute: bool,
    (started, log): (Instant, Log),
) {
    let mut dap = Conversation::new(stream, 1 << 20);
    let mut attach = Value::Null;
    while let Ok(request) = dap.read().await {
        let command = request["command"].as_str().unwrap_or_default().to_owned();
        let frame = json!({"id": 1, "name": "step", "line": 9, "source": {"path": "/job.py"}});
        let mut answer = json!({"type": "response", "seq": 1, "request_seq": request["seq"], "command": command,
            "success": true, "body": {"stackFrames": [frame]}});
        let stop = event("stopped", json!({"reason": "breakpoint", "threadId": 1}));
        match &*command {
            "attach" => {
                attach = std::mem::replace(&mut answer, event("initialized", Value::Null));
                dap.send(&answer).await.unwrap();
            }
            "configurationDone" => {
                for message in [&answer, &attach, &stop] {
                    dap.send(message).await.unwrap();
                }
            }
            "continue" => {
                log.lock().push((rank, started.elapsed()));
                if !is_mute {
                    dap.send(&answer).await.unwrap();
                    dap.send(&stop).await.unwrap();
                }
            }
            _ => dap.send(&answer).await.unwrap(),
        }
    }
}

/// Returns the tasks of ranks that have stopped in this order.
fn stopped(order: &[usize]) -> MeantTasks {
    let rows = order.iter().enumerate().map(|(since, rank)| {
        json!({"id": format!("rank{rank:04}"), "state": "paused", "kind": "debugpy", "name": "step", "group": "Trainer", "rank": rank,
            "worker_id": format!("{rank:056x}"), "first_seen": 1_000.0 + since as f64})
    });
    let list = json!({"breakpoints": rows.collect::<Vec<_>>()});
    MeantTasks::of(&list, &Meant::default()).unwrap()
}

async fn ask_all(
    group: &mut PromptGroup<'_, DuplexStream>,
    line: &str,
) -> (String, BTreeSet<usize>) {
    let mut answers = group.ask(line);
    let all = async { while answers.next().await {} };
    let _ = tokio::time::timeout(Duration::from_secs(5), all).await;
    let (outputs, silent_members) = answers.over();
    (group.conclude(outputs).0, silent_members)
}

#[tokio::test(start_paused = true)]
async fn tasks_resume_in_stop_order_despite_a_silent_one() {
    let mut members = stopped(&[2, 0, 3, 1]);
    let (started, log) = (Instant::now(), Log::default());
    let dial = |index: usize, _| {
        let (near, far) = duplex(1 << 16);
        tokio::spawn(play_debugger(
            far,
            index,
            index == 0,
            (started, Arc::clone(&log)),
        ));
        async move { Ok((near, Options::default())) }
    };
    let opened = open_all(&members, 1000, dial).await;
    let (mut group, text) = PromptGroup::gathered(&mut members, opened, 1000);
    assert_eq!(text, "0-3: > /job.py(9)step()\n");
    let (text, silent_members) = ask_all(&mut group, "c").await;
    assert_eq!(text, "1-3: > /job.py(9)step()\n");
    assert_eq!(
        silent_members,
        BTreeSet::from([0]),
        "the one that says nothing"
    );
    let order: Vec<_> = std::mem::take(&mut *log.lock());
    let ranks: Vec<_> = order.iter().map(|(rank, _)| *rank).collect();
    assert_eq!(ranks, [2, 0, 3, 1]);
    // A resumed rank does not delay the next one.
    assert_eq!(order[1].1 - order[0].1, Duration::ZERO);
    let delay = order[2].1 - order[1].1;
    let expected = RESUME_ORDER_TIMEOUT..RESUME_ORDER_TIMEOUT + Duration::from_millis(5);
    assert!(expected.contains(&delay), "{delay:?}");
    assert_eq!(order[3].1 - order[2].1, Duration::ZERO);

    // The remaining ranks are resumed in the order of their new stops.
    let detached = group.leave(&silent_members).await;
    assert_eq!(detached, "! 0: the task runs on without a debugger\n");
    assert_eq!(group.prompt(), "(Pdb ×3) ");
    ask_all(&mut group, "c").await;
    let ranks: Vec<_> = log.lock().iter().map(|(rank, _)| *rank).collect();
    assert_eq!(ranks, [2, 3, 1]);
}

#[tokio::test(start_paused = true)]
async fn only_the_exact_command_sets_the_focus() {
    let mut members = stopped(&[0, 1, 2]);
    let dial = |index: usize, _| {
        let (near, far) = duplex(1 << 16);
        tokio::spawn(play_debugger(
            far,
            index,
            false,
            (Instant::now(), Log::default()),
        ));
        async move {
            match index {
                2 => Err("ann has it".to_owned()),
                _ => Ok((near, Options::default())),
            }
        }
    };
    let opened = open_all(&members, 1000, dial).await;
    let (mut group, text) = PromptGroup::gathered(&mut members, opened, 1000);
    assert!(text.ends_with("! 2: ann has it\n"), "{text}");
    assert!(group.take_focus("focused = 3").is_none());
    let error = group.take_focus("focus 2").unwrap().unwrap_err();
    assert_eq!(error, "none of these is at the prompt; 0,1 are");
    group.take_focus(" focus 1 ").unwrap().unwrap();
    assert_eq!(group.prompt(), "(Pdb 1) ");
    group.take_focus("focus").unwrap().unwrap();
    assert_eq!(group.prompt(), "(Pdb ×2) ");
}

#[test]
fn relay_messages_are_separate_from_program_output() {
    let members = stopped(&[0, 1]);
    let all: Vec<(usize, Answered)> = (0..2)
        .map(|index| {
            let mut output = KeptOutput::new(1000);
            output.begin();
            for piece in [
                Piece::Text("ray-relay: this resumes your session\n".to_owned()),
                Piece::Text("2\n".to_owned()),
                Piece::Program("step 7\n".to_owned()),
            ] {
                output.put(&piece);
            }
            (index, Answered::of(&mut output))
        })
        .collect();
    assert_eq!(
        Answered::text(&members.names(), &all),
        "0,1: 2\n[their programs wrote]\n0,1: step 7\n[the relay says]\n0,1: this resumes your session\n"
    );
}
