//! Goodbyes that close a window, and those that stop a session.

use super::*;
use crate::tests::family::{announced, configured_with, open};
use ray_relay_ray::hold::SLOTS_PER_USER;

/// An editor of `ann`'s with a cluster session and two others, and the debuggers of their workers.
struct Window {
    context: Arc<Context>,
    workers: [Worker; 2],
    parent: Debugger,
    children: Vec<(Debugger, Conversation<TcpStream>)>,
}

impl Window {
    /// `own`: what else it says under `rayRelay`.
    async fn open(own: Value) -> Self {
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
            .extend(own.as_object().unwrap().clone());
        let mut parent = Debugger::connect(&context).await;
        configured_with(&mut parent, json!({"name": "Ray", "rayRelay": relay})).await;
        let mut children = Vec::new();
        for _ in 0..2 {
            let child = announced(&mut parent).await;
            children.push(open(&context, child, &workers).await);
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

    async fn all_parked(&mut self) {
        for worker in &self.workers {
            until_parked(&self.context, worker.breakpoint.id).await;
        }
        for (_, dap) in &mut self.children {
            nothing_for(dap, Duration::from_millis(50)).await;
        }
    }
}

fn goodbye() -> Value {
    json!({"restart": false})
}

#[tokio::test]
async fn closed_window_parks_its_tasks() {
    // VS Code stays for the answers, Neovim does not.
    for stays in [true, false] {
        let mut window = Window::open(json!({})).await;
        let of_parent = window.parent.send("disconnect", goodbye()).await;
        let mut asked = Vec::new();
        for (child, _) in &mut window.children {
            asked.push(child.send("disconnect", goodbye()).await);
        }
        if stays {
            window.parent.answer(of_parent).await;
            for ((child, _), seq) in window.children.iter_mut().zip(asked) {
                assert_eq!(child.answer(seq).await["success"], true);
            }
            window.all_parked().await;
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
            nothing_for(dap, Duration::from_millis(50)).await;
        }
    }
}

#[tokio::test]
async fn stopping_one_session_resumes_only_its_task() {
    let mut window = Window::open(json!({})).await;
    let (child, dap) = &mut window.children[0];
    assert_eq!(child.ask("disconnect", goodbye()).await["success"], true);
    let_go(dap).await;
    left(dap).await;
    let (other, dap) = &mut window.children[1];
    other.send("threads", json!({})).await;
    got(dap, "threads").await;
}

#[tokio::test]
async fn stopping_the_cluster_session_alone_resumes_all_tasks() {
    let mut window = Window::open(json!({})).await;
    let answer = window.parent.ask("disconnect", goodbye()).await;
    assert_eq!(answer["success"], true);
    for (child, dap) in &mut window.children {
        let_go(dap).await;
        child.event("terminated").await;
    }
}

#[tokio::test]
async fn suspending_the_cluster_session_parks_all_tasks() {
    let mut window = Window::open(json!({})).await;
    let suspends = json!({"suspendDebuggee": true});
    let answer = window.parent.ask("disconnect", suspends).await;
    assert_eq!(answer["success"], true);
    for (child, _) in &mut window.children {
        child.output("the task stays parked for 15m").await;
        child.event("terminated").await;
    }
    window.all_parked().await;
}

#[tokio::test]
async fn on_close_overrides_the_detected_end() {
    let mut window = Window::open(json!({"onClose": "park"})).await;
    window.parent.ask("disconnect", goodbye()).await;
    window.all_parked().await;

    let mut window = Window::open(json!({"onClose": "continue"})).await;
    window.parent.send("disconnect", goodbye()).await;
    for (child, _) in &mut window.children {
        child.send("disconnect", goodbye()).await;
    }
    for (_, dap) in &mut window.children {
        let_go(dap).await;
    }

    for (on_close, parks) in [("park", true), ("continue", false)] {
        let (context, _) = relay(minutes(15));
        let worker = Worker::listed(&context).await;
        let said = json!({"rayRelay": {"onClose": on_close, "token": token_of("ann")}});
        let (mut debugger, _) = Debugger::attaching(&context, said).await;
        let (mut dap, _) = worker.attached().await;
        initialized(&mut dap).await;
        debugger.event("initialized").await;
        debugger.send("configurationDone", json!({})).await;
        asked(&mut dap, "configurationDone").await;
        debugger
            .until(|m| m["command"] == "configurationDone")
            .await;
        if parks {
            assert_eq!(debugger.ask("disconnect", goodbye()).await["success"], true);
            until_parked(&context, worker.breakpoint.id).await;
            nothing_for(&mut dap, Duration::from_millis(50)).await;
        } else {
            // Nor where it is lost.
            drop(debugger.dap);
            let_go(&mut dap).await;
        }
    }
}

/// It is a part of the window's one place: another could not be had, and the task would run on.
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
    let others = (1..SLOTS_PER_USER).map(|_| context.sessions.parks.share(&ann, None).unwrap());
    let _others: Vec<_> = others.collect();
    let id = workers[0].breakpoint.id;
    let relay = json!({"token": token_of("ann"), "breakpoint": id.to_string(), "parkFor": "1h"});
    let resumes = async {
        let (mut next, _) = Debugger::attaching(&context, json!({"rayRelay": relay})).await;
        next.event("initialized").await;
        next
    };
    let mut next = reattached(&mut daps[0], resumes).await;
    next.ask("configurationDone", json!({})).await;
    let suspend = json!({"restart": false, "suspendDebuggee": true});
    let answer = next.ask("disconnect", suspend).await;
    assert_eq!(answer["success"], true, "{answer}");
    until_parked(&context, id).await;
}
