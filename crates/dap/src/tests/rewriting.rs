//! Messages between client and worker that are changed or withheld.

use tokio::io::AsyncReadExt as _;

use super::*;
use ray_relay_base::timestamp::Timestamp;
use ray_relay_base::wire::dap::mappings::{self, ClientFiles};
use ray_relay_ray::ray::registry::Reason;
use ray_relay_view::listing::json::JsonRow;
use ray_relay_view::listing::row::Row;

#[tokio::test]
async fn cluster_addresses_do_not_reach_the_client() {
    let context = context(|_| {});
    let worker = Worker::listed(&context).await;
    let id = worker.breakpoint.id;
    let dialled = json!({"host": "LocalHost", "port": "15678"});
    let (mut debugger, _) = Debugger::attaching(&context, json!({"connect": dialled})).await;
    let (mut dap, attach) = worker.attached().await;
    assert_eq!(attach["arguments"]["connect"], dialled);
    let address = json!({"host": "10.88.0.1", "port": 41000});
    let mut socket = address.clone();
    socket["internal"] = false.into();
    for (event, body) in [
        ("debugpySockets", json!({"sockets": [socket]})),
        ("debugpyWaitingForServer", address.clone()),
        (
            "debugpyAttach",
            json!({"name": "Subprocess 7", "request": "attach", "connect": address, "subProcessId": 7}),
        ),
        ("continued", Value::Null),
    ] {
        dap.send(&message::event(event, body)).await.unwrap();
    }
    assert_eq!(debugger.read().await["body"], json!({"sockets": []}));
    let child = debugger.read().await;
    assert_eq!(child["body"]["connect"], dialled);
    assert_eq!(child["body"]["rayRelay"], json!({"breakpoint": id}));
    assert_eq!(debugger.read().await["event"], "continued");
}

#[tokio::test]
async fn post_mortem_stop_always_gets_its_exception_filter() {
    let context = context(|_| {});
    let worker = Worker::listen().await;
    context.registry.insert(Breakpoint {
        reason: Reason::PostMortem,
        ..worker.breakpoint.clone()
    });
    let (mut debugger, _) = Debugger::attaching(&context, json!({})).await;
    let (mut dap, _) = worker.attached().await;
    let done = debugger.send("configurationDone", json!({})).await;
    let own = got(&mut dap, "setExceptionBreakpoints").await;
    assert_eq!(own.arguments["filters"], json!(["uncaught"]));
    dap.send(&own.success(Value::Null)).await.unwrap();
    // On Python 3.12 it would stop in pydevd's own code.
    let own = got(&mut dap, "evaluate").await;
    let expression = own.arguments["expression"].as_str().unwrap();
    assert!(expression.contains("stop_on_unhandled_exception"));
    let early = tokio::time::timeout(Duration::from_millis(200), dap.read()).await;
    assert!(early.is_err(), "configured before that is answered");
    dap.send(&own.success(json!({"result": ""}))).await.unwrap();
    let configured = got(&mut dap, "configurationDone").await;
    dap.send(&configured.success(Value::Null)).await.unwrap();
    // The relay's own are not shown.
    let answer = debugger.read().await;
    assert_eq!(answer["command"], "configurationDone");
    assert_eq!(answer["request_seq"], done);
}

#[tokio::test]
async fn ending_the_worker_needs_a_permission() {
    for allowed in [false, true] {
        let context = context(|config| config.dap.allow_terminate = allowed);
        let (_worker, mut debugger, mut dap) = session(&context, json!({})).await;
        let seq = debugger.send("terminate", json!({})).await;
        if allowed {
            got(&mut dap, "terminate").await;
        } else {
            assert_refused(&debugger.answer(seq).await, "dap.allow_terminate");
        }
        // Python takes the last of two equal keys: so does the relay when it judges.
        let smuggled = br#"{"seq":90,"type":"request","command":"threads","command":"disconnect","arguments":{"terminateDebuggee":false,"terminateDebuggee":true}}"#;
        let mut wire = Vec::new();
        codec::put_frame(&mut wire, smuggled);
        let (mut stream, _) = debugger.dap.into_parts();
        stream.write_all(&wire).await.unwrap();
        let goodbye = got(&mut dap, "disconnect").await;
        assert_eq!(goodbye.arguments["terminateDebuggee"], allowed);
    }
}

#[tokio::test]
async fn truthy_terminate_flag_needs_the_permission() {
    for value in [
        json!(1),
        json!(1.0),
        json!("true"),
        json!([true]),
        json!({"a": 1}),
    ] {
        for allowed in [false, true] {
            let context = context(|config| config.dap.allow_terminate = allowed);
            let (_worker, mut debugger, mut dap) = session(&context, json!({})).await;
            let goodbye = json!({"terminateDebuggee": value, "restart": 7});
            debugger.send("disconnect", goodbye).await;
            let seen = got(&mut dap, "disconnect").await;
            let narrowed = json!({"terminateDebuggee": allowed, "restart": true});
            assert_eq!(seen.arguments, narrowed, "{value}");
            if !allowed {
                assert_output(&debugger.event("output").await, "the task runs on");
            }
        }
    }
}

#[tokio::test]
async fn continue_of_a_running_thread_is_answered_by_the_relay() {
    let context = context(|_| {});
    let (mut debugger, mut dap) = configurable(&context, json!({})).await;
    let stopped = message::event("stopped", json!({"threadId": 1, "allThreadsStopped": true}));
    // Before it has stopped, and again when it runs.
    for _ in 0..2 {
        let early = debugger.send("continue", json!({"threadId": 1})).await;
        let answer = debugger.read().await;
        assert_eq!(answer["request_seq"], early);
        assert_eq!(answer["success"], true);
        dap.send(&stopped).await.unwrap();
        assert_eq!(debugger.read().await["event"], "stopped");
        let asked = debugger.send("continue", json!({"threadId": 1})).await;
        let request = got(&mut dap, "continue").await;
        assert_eq!(request.seq, asked);
        dap.send(&request.success(Value::Null)).await.unwrap();
        assert_eq!(debugger.read().await["request_seq"], json!(asked));
    }
}

/// debugpy's part is in [`ray_relay_base::wire::dap::stands`].
#[tokio::test]
async fn single_thread_step_leaves_other_threads_continuable() {
    for (of_attach, of_step) in [
        (
            json!({"steppingResumesAllThreads": false}),
            json!({"threadId": 1}),
        ),
        (json!({}), json!({"threadId": 1, "singleThread": true})),
    ] {
        let context = context(|_| {});
        let (mut debugger, mut dap) = configurable(&context, of_attach).await;
        let stopped = json!({"threadId": 1, "allThreadsStopped": true});
        let continued = json!({"threadId": 1, "allThreadsContinued": true});
        dap.send(&message::event("stopped", stopped.clone()))
            .await
            .unwrap();
        debugger.event("stopped").await;
        debugger.send("next", of_step).await;
        let step = got(&mut dap, "next").await;
        dap.send(&step.success(Value::Null)).await.unwrap();
        dap.send(&message::event("continued", continued))
            .await
            .unwrap();
        debugger.event("continued").await;
        let asked = debugger.send("continue", json!({"threadId": 1})).await;
        let each = got(&mut dap, "setDebuggerProperty").await;
        let request = got(&mut dap, "continue").await;
        let once = got(&mut dap, "setDebuggerProperty").await;
        let property = "multiThreadsSingleNotification";
        assert_eq!(each.arguments[property], false);
        assert_eq!(
            (request.seq.clone(), &request.arguments["threadId"]),
            (json!(asked), &json!("*"))
        );
        assert_eq!(once.arguments[property], true);
        for request in [each, request, once] {
            dap.send(&request.success(Value::Null)).await.unwrap();
        }
        // The client hears of its own alone.
        assert_eq!(debugger.read().await["request_seq"], asked);
        // All run: another is answered in debugpy's place. Where all stand, debugpy answers as ever.
        let again = debugger.send("continue", json!({"threadId": 1})).await;
        assert_eq!(debugger.read().await["request_seq"], again);
        dap.send(&message::event("stopped", stopped)).await.unwrap();
        debugger.event("stopped").await;
        debugger.send("continue", json!({"threadId": 1})).await;
        assert_eq!(got(&mut dap, "continue").await.arguments["threadId"], 1);
    }
}

#[tokio::test]
async fn unlisted_worker_may_be_continued_before_a_stop() {
    let context = context(|_| {});
    let worker = Worker::listen().await;
    context.registry.insert(Breakpoint {
        state: ray_relay_ray::ray::registry::State::Unlisted,
        ..worker.breakpoint.clone()
    });
    let named = json!({"rayRelay": {"breakpoint": worker.breakpoint.id}});
    let (mut debugger, _) = Debugger::attaching(&context, named).await;
    let (mut dap, _) = worker.attached().await;
    debugger.send("continue", json!({"threadId": 1})).await;
    got(&mut dap, "continue").await;
}

#[tokio::test]
async fn list_shows_the_location_from_the_stack_trace() {
    let context = context(|_| {});
    let (mut debugger, mut dap) = configurable(&context, json!({})).await;
    let place = || {
        let list = context.registry.snapshot();
        let location = list.live.iter().next().unwrap().location.clone();
        location.map(|at| at.to_string())
    };
    let stopped = message::event("stopped", json!({"threadId": 1, "allThreadsStopped": true}));
    dap.send(&stopped).await.unwrap();
    debugger.event("stopped").await;
    assert_eq!(place(), None);
    // Only the first: a person who looks around is not followed.
    for path in ["/home/ann/project/train.py", "/home/ann/project/other.py"] {
        let asked = debugger.send("stackTrace", json!({"threadId": 1})).await;
        let request = got(&mut dap, "stackTrace").await;
        let frame = json!({"id": 1, "name": "step", "line": 7, "source": {"path": path}});
        let frames = json!({"stackFrames": [frame], "totalFrames": 1});
        dap.send(&request.success(frames)).await.unwrap();
        let answer = debugger.until(|m| m["request_seq"] == asked).await;
        assert_eq!(answer["body"]["stackFrames"][0]["source"]["path"], path);
        assert_eq!(place().as_deref(), Some("train.py:7"));
    }
    debugger.send("continue", json!({"threadId": 1})).await;
    got(&mut dap, "continue").await;
    assert_eq!(place(), None, "it runs");
}

/// An editor that does not find a file does not fetch it, and attaching again would resume the task.
#[tokio::test]
async fn wrong_source_folder_falls_back_to_worker_files() {
    let context = context(|_| {});
    let open = json!({"workspaceFolder": "/home/ada/other"});
    let mut listed = paused("square", 1);
    listed.names_mut().unpacked_working_dir = true;
    let worker = Worker::listening(listed).await;
    context.registry.insert(worker.breakpoint.clone());
    let (mut debugger, _) = Debugger::attaching(&context, open).await;
    let (mut dap, attach) = worker.attached().await;
    let mapped = json!([{"localRoot": "/home/ada/other", "remoteRoot": "."}]);
    assert_eq!(attach["arguments"]["pathMappings"], mapped);
    debugger
        .output("where a file is not found, type `ray-relay localRoot \"\"` here")
        .await;
    initialized(&mut dap).await;
    let stop = json!({"reason": "breakpoint", "threadId": 7, "allThreadsStopped": true});
    dap.send(&message::event("stopped", stop.clone()))
        .await
        .unwrap();
    debugger.event("stopped").await;

    // All else passes as it came, also what a JSON parser of Rust's does not take.
    let own = r#"{"seq": 77, "type": "request", "command": "evaluate", "arguments": {"expression": "'\ud800'", "context": "repl"}}"#;
    debugger.dap.send_body(own.as_bytes()).await.unwrap();
    let (mut stream, rest) = dap.into_parts();
    assert!(rest.is_empty());
    let mut came = vec![0; format!("Content-Length: {}\r\n\r\n{own}", own.len()).len()];
    timeout(TEST_TIMEOUT, stream.read_exact(&mut came))
        .await
        .unwrap()
        .unwrap();
    assert!(came.ends_with(own.as_bytes()));
    let mut dap = Conversation::resume(stream, &rest, 1 << 20);

    let typed = |folder: &str| json!({"expression": format!("ray-relay localRoot {folder}"), "context": "repl", "frameId": 2});
    for (folder, says, set) in [
        ("\"\"", "are shown as the worker has them", ""),
        ("/home/ada/job", "/home/ada/job stands for", "/home/ada/job"),
    ] {
        let seq = debugger.send("evaluate", typed(folder)).await;
        let setting = got(&mut dap, "evaluate").await;
        let below = ClientFiles::Below(set.into());
        assert_eq!(setting.arguments, below.setting());
        let done = setting.success(json!({"result": "None", "variablesReference": 0}));
        dap.send(&done).await.unwrap();
        let answer = debugger.answer(seq).await;
        assert_eq!(answer["success"], true, "{answer}");
        let said = answer["body"]["result"].as_str().unwrap();
        assert!(said.contains(says), "{said}");
        // The editor asks for the stack once more, and opens what it finds there.
        assert_eq!(debugger.event("stopped").await["body"], stop);
    }
    let refused = debugger.ask("evaluate", typed("job")).await;
    assert!(sentence(&refused).contains("whole path"), "{refused}");

    // A subprocess has its files in the same folder.
    let process = json!({"request": "attach", "subProcessId": 9, "connect": {}});
    dap.send(&message::event("debugpyAttach", process))
        .await
        .unwrap();
    let child = debugger.event("debugpyAttach").await;
    assert_eq!(child["body"]["rayRelay"]["localRoot"], "/home/ada/job");
}

/// debugpy keeps mappings for the process, those of a session that began without any too.
#[tokio::test]
async fn session_source_folder_is_reset_at_its_end() {
    let context = context(|_| {});
    let (mut debugger, mut dap) = configurable(&context, json!({})).await;
    let typed = json!({"expression": "ray-relay localRoot /home/ada/job", "context": "repl"});
    let seq = debugger.send("evaluate", typed).await;
    let setting = asked(&mut dap, "evaluate").await;
    let below = ClientFiles::Below("/home/ada/job".into());
    assert_eq!(setting.arguments, below.setting());
    assert_eq!(debugger.answer(seq).await["success"], true);
    debugger.send("disconnect", json!({})).await;
    asked(&mut dap, "setFunctionBreakpoints").await;
    let forgets = asked(&mut dap, "evaluate").await;
    assert_eq!(forgets.arguments, mappings::forgetting());
    asked(&mut dap, "disconnect").await;
}

/// `ray-relay connect` and `dap` report that, because they see the client's disk.
#[tokio::test]
async fn missing_files_are_served_by_reference_without_a_restop() {
    let context = context(|_| {});
    let (mut debugger, mut dap) = configurable(&context, json!({})).await;
    let stop = json!({"threadId": 1, "reason": "breakpoint", "allThreadsStopped": true});
    dap.send(&message::event("stopped", stop)).await.unwrap();
    debugger.event("stopped").await;
    let paths = ["/home/ann/other/train.py".to_owned()];
    let ask = json!({"expression": mappings::missing(&paths), "context": "repl"});
    // Of two stacks at a time.
    let seqs = [
        debugger.send("evaluate", ask.clone()).await,
        debugger.send("evaluate", ask).await,
    ];
    let without = ClientFiles::Without(paths.to_vec().into()).setting();
    for success in [true, false] {
        let setting = got(&mut dap, "evaluate").await;
        assert_eq!(setting.arguments, without);
        let answer = match success {
            true => setting.success(json!({"result": "[(None, None)]", "variablesReference": 0})),
            false => setting.failure("no such module"),
        };
        dap.send(&answer).await.unwrap();
    }
    for (seq, success) in seqs.into_iter().zip([true, false]) {
        let answer = debugger.read().await;
        assert_eq!(answer["request_seq"], seq, "{answer}");
        assert_eq!(answer["success"], success, "{answer}");
    }
    // The process forgets it, as it does mappings.
    debugger.send("disconnect", json!({})).await;
    asked(&mut dap, "setFunctionBreakpoints").await;
    let forgets = asked(&mut dap, "evaluate").await;
    assert_eq!(forgets.arguments, mappings::forgetting());
}

#[tokio::test]
async fn stop_in_a_notebook_cell_reports_its_source() {
    let context = context(|_| {});
    let (worker, mut debugger, mut dap) = session(&context, json!({})).await;
    let stop = json!({"threadId": 7, "reason": "breakpoint", "allThreadsStopped": true});
    dap.send(&message::event("stopped", stop)).await.unwrap();
    debugger.event("stopped").await;
    debugger.send("stackTrace", json!({"threadId": 7})).await;
    let asked = got(&mut dap, "stackTrace").await;
    let source = json!({"path": "/tmp/ipykernel_81/55.py", "sourceReference": 3});
    let frame = json!({"id": 1, "name": "f", "line": 2, "source": source});
    let stack = asked.success(json!({"stackFrames": [frame]}));
    dap.send(&stack).await.unwrap();
    let told = debugger.event("output").await;
    assert_output(&told, "its source is in the notebook alone");
    let list = context.registry.snapshot();
    let known = list.find(worker.breakpoint.id).unwrap();
    let row = JsonRow::new(known, Timestamp::now());
    let row = Row::read(&serde_json::to_value(row).unwrap());
    assert_eq!(row.location, "a notebook's cell, line 2");
}
