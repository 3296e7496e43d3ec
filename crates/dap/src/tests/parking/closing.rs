//! Disconnects that close a window, and disconnects that stop a single session.

use super::*;
use crate::tests::family::{next_announcement, open_child, start_cluster_session_with};
use ray_relay_ray::hold::SLOTS_PER_USER;

/// An editor window of `ann` with a cluster session and two child sessions, and the debuggers of their workers.
struct Window {
    context: Arc<Context>,
    workers: [Worker; 2],
    parent: Debugger,
    children: Vec<(Debugger, Conversation<TcpStream>)>,
}

impl Window {
    /// Opens a window with `block` as additional keys of `rayRelay`.
    async fn open(block: Value) -> Self {
        let (context, _) = relay(minutes(15));
        let workers = [
            Worker::listed(&context).await,
            Worker::listening(paused("cube", 2)).await,
        ];
        context.registry.insert(workers[1].breakpoint.clone());
        let mut relay = json!({"token": token_of("ann")});
        relay
            .as_object_mut()
            .unwrap()
            .extend(block.as_object().unwrap().clone());
        let mut parent = Debugger::connect(&context).await;
        start_cluster_session_with(&mut parent, json!({"name": "Ray", "rayRelay": relay})).await;
        let mut children = Vec::new();
        for _ in 0..2 {
            let child = next_announcement(&mut parent).await;
            children.push(open_child(&context, child, &workers).await);
        }
        for (child, dap) in &mut children {
            dap.send(&stopped(1)).await.unwrap();
            child.event("stopped").await;
        }
        Self {
            context,
            workers,
            parent,
            children,
        }
    }

    async fn expect_all_parked(&mut self) {
        for worker in &self.workers {
            until_parked(&self.context, worker.breakpoint.id).await;
        }
        for (_, dap) in &mut self.children {
            expect_silence(dap, Duration::from_millis(50)).await;
        }
    }
}

fn close_window() -> Value {
    json!({"restart": false})
}

#[tokio::test]
async fn closed_window_parks_its_tasks() {
    // VS Code waits for the answers, Neovim does not.
    for waits in [true, false] {
        let mut window = Window::open(json!({})).await;
        let parent_seq = window.parent.send("disconnect", close_window()).await;
        let mut seqs = Vec::new();
        for (child, _) in &mut window.children {
            seqs.push(child.send("disconnect", close_window()).await);
        }
        if waits {
            window.parent.answer(parent_seq).await;
            for ((child, _), seq) in window.children.iter_mut().zip(seqs) {
                assert_eq!(child.answer(seq).await["success"], true);
            }
            window.expect_all_parked().await;
            continue;
        }
        let Window {
            context,
            workers,
            parent,
            children,
        } = window;
        drop(parent.dap);
        let mut daps = Vec::new();
        for (child, dap) in children {
            drop(child.dap);
            daps.push(dap);
        }
        for (worker, dap) in workers.iter().zip(&mut daps) {
            until_parked(&context, worker.breakpoint.id).await;
            expect_silence(dap, Duration::from_millis(50)).await;
        }
    }
}

#[tokio::test]
async fn stopping_one_session_resumes_only_its_task() {
    let mut window = Window::open(json!({})).await;
    let (child, dap) = &mut window.children[0];
    assert_eq!(
        child.ask("disconnect", close_window()).await["success"],
        true
    );
    expect_detach(dap).await;
    expect_close(dap).await;
    let (other, dap) = &mut window.children[1];
    other.send("threads", json!({})).await;
    expect_request(dap, "threads").await;
}

#[tokio::test]
async fn stopping_the_cluster_session_alone_resumes_all_tasks() {
    let mut window = Window::open(json!({})).await;
    let answer = window.parent.ask("disconnect", close_window()).await;
    assert_eq!(answer["success"], true);
    for (child, dap) in &mut window.children {
        expect_detach(dap).await;
        child.event("terminated").await;
    }
}

#[tokio::test]
async fn suspending_the_cluster_session_parks_all_tasks() {
    let mut window = Window::open(json!({})).await;
    let suspend = json!({"suspendDebuggee": true});
    let answer = window.parent.ask("disconnect", suspend).await;
    assert_eq!(answer["success"], true);
    for (child, _) in &mut window.children {
        child.output("the task stays parked for 15m").await;
        child.event("terminated").await;
    }
    window.expect_all_parked().await;
}

#[tokio::test]
async fn on_close_overrides_the_detected_end() {
    let mut window = Window::open(json!({"onClose": "park"})).await;
    window.parent.ask("disconnect", close_window()).await;
    window.expect_all_parked().await;

    let mut window = Window::open(json!({"onClose": "continue"})).await;
    window.parent.send("disconnect", close_window()).await;
    for (child, _) in &mut window.children {
        child.send("disconnect", close_window()).await;
    }
    for (_, dap) in &mut window.children {
        expect_detach(dap).await;
    }

    for (on_close, is_parked) in [("park", true), ("continue", false)] {
        let (context, _) = relay(minutes(15));
        let worker = Worker::listed(&context).await;
        let arguments = json!({"rayRelay": {"onClose": on_close, "token": token_of("ann")}});
        let (mut debugger, _) = Debugger::attaching(&context, arguments).await;
        let (mut dap, _) = worker.attached().await;
        initialized(&mut dap).await;
        debugger.event("initialized").await;
        debugger.send("configurationDone", json!({})).await;
        answer_request(&mut dap, "configurationDone").await;
        debugger
            .until(|m| m["command"] == "configurationDone")
            .await;
        if is_parked {
            assert_eq!(
                debugger.ask("disconnect", close_window()).await["success"],
                true
            );
            until_parked(&context, worker.breakpoint.id).await;
            expect_silence(&mut dap, Duration::from_millis(50)).await;
        } else {
            // A lost client resumes the task too.
            drop(debugger.dap);
            expect_detach(&mut dap).await;
        }
    }
}

/// The tasks of a window share one park slot. Without it, the task would resume, because the user has no other slot left.
#[tokio::test]
async fn resuming_one_task_of_a_window_keeps_its_park_slot() {
    let Window {
        context,
        workers,
        parent,
        children,
    } = Window::open(json!({})).await;
    drop(parent.dap);
    let mut daps = Vec::new();
    for (child, dap) in children {
        drop(child.dap);
        daps.push(dap);
    }
    for worker in &workers {
        until_parked(&context, worker.breakpoint.id).await;
    }
    let ann = ray_relay_access::identity::testing::principal(&context.auth, "ann").await;
    let shares = (1..SLOTS_PER_USER).map(|_| context.sessions.parks.share(&ann, None).unwrap());
    let _shares: Vec<_> = shares.collect();
    let id = workers[0].breakpoint.id;
    let relay = json!({"token": token_of("ann"), "breakpoint": id.to_string(), "parkFor": "1h"});
    let resume = async {
        let (mut next, _) = Debugger::attaching(&context, json!({"rayRelay": relay})).await;
        next.event("initialized").await;
        next
    };
    let mut next = while_arguments_apply(&mut daps[0], resume).await;
    next.ask("configurationDone", json!({})).await;
    let suspend = json!({"restart": false, "suspendDebuggee": true});
    let answer = next.ask("disconnect", suspend).await;
    assert_eq!(answer["success"], true, "{answer}");
    until_parked(&context, id).await;
}
