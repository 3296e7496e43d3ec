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
    let configuration_done = debugger.send("configurationDone", json!({})).await;
    let request = expect_request(&mut dap, "setExceptionBreakpoints").await;
    assert_eq!(request.arguments["filters"], json!(["uncaught"]));
    dap.send(&request.success(Value::Null)).await.unwrap();
    // On Python 3.12 it would stop in pydevd's own code.
    let request = expect_request(&mut dap, "evaluate").await;
    let expression = request.arguments["expression"].as_str().unwrap();
    assert!(expression.contains("stop_on_unhandled_exception"));
    let received = tokio::time::timeout(Duration::from_millis(200), dap.read()).await;
    assert!(received.is_err(), "configured before that is answered");
    dap.send(&request.success(json!({"result": ""})))
        .await
        .unwrap();
    let configured = expect_request(&mut dap, "configurationDone").await;
    dap.send(&configured.success(Value::Null)).await.unwrap();
    // Responses to the relay's own requests are not shown.
    let answer = debugger.read().await;
    assert_eq!(answer["command"], "configurationDone");
    assert_eq!(answer["request_seq"], configuration_done);
}

#[tokio::test]
async fn ending_the_worker_needs_a_permission() {
    for allowed in [false, true] {
        let context = context(|config| config.dap.allow_terminate = allowed);
        let (_worker, mut debugger, mut dap) = session(&context, json!({})).await;
        let seq = debugger.send("terminate", json!({})).await;
        if allowed {
            expect_request(&mut dap, "terminate").await;
        } else {
            assert_refused(&debugger.answer(seq).await, "dap.allow_terminate");
        }
        // Python takes the last of two equal keys, and so does the relay's check.
        let smuggled = br#"{"seq":90,"type":"request","command":"threads","command":"disconnect","arguments":{"terminateDebuggee":false,"terminateDebuggee":true}}"#;
        let mut wire = Vec::new();
        codec::put_frame(&mut wire, smuggled);
        let (mut stream, _) = debugger.dap.into_parts();
        stream.write_all(&wire).await.unwrap();
        let disconnect = expect_request(&mut dap, "disconnect").await;
        assert_eq!(disconnect.arguments["terminateDebuggee"], allowed);
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
            let arguments = json!({"terminateDebuggee": value, "restart": 7});
            debugger.send("disconnect", arguments).await;
            let request = expect_request(&mut dap, "disconnect").await;
            let narrowed = json!({"terminateDebuggee": allowed, "restart": true});
            assert_eq!(request.arguments, narrowed, "{value}");
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
    // It fails before the first stop, and again while the task runs.
    for _ in 0..2 {
        let seq = debugger.send("continue", json!({"threadId": 1})).await;
        let answer = debugger.read().await;
        assert_eq!(answer["request_seq"], seq);
        assert_eq!(answer["success"], true);
        dap.send(&stopped).await.unwrap();
        assert_eq!(debugger.read().await["event"], "stopped");
        let seq = debugger.send("continue", json!({"threadId": 1})).await;
        let request = expect_request(&mut dap, "continue").await;
        assert_eq!(request.seq, seq);
        dap.send(&request.success(Value::Null)).await.unwrap();
        assert_eq!(debugger.read().await["request_seq"], json!(seq));
    }
}

/// debugpy's behaviour is described in [`ray_relay_base::wire::dap::stands`].
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
        let step = expect_request(&mut dap, "next").await;
        dap.send(&step.success(Value::Null)).await.unwrap();
        dap.send(&message::event("continued", continued))
            .await
            .unwrap();
        debugger.event("continued").await;
        let seq = debugger.send("continue", json!({"threadId": 1})).await;
        let unset = expect_request(&mut dap, "setDebuggerProperty").await;
        let request = expect_request(&mut dap, "continue").await;
        let set = expect_request(&mut dap, "setDebuggerProperty").await;
        let property = "multiThreadsSingleNotification";
        assert_eq!(unset.arguments[property], false);
        assert_eq!(
            (request.seq.clone(), &request.arguments["threadId"]),
            (json!(seq), &json!("*"))
        );
        assert_eq!(set.arguments[property], true);
        for request in [unset, request, set] {
            dap.send(&request.success(Value::Null)).await.unwrap();
        }
        // The client gets only the response to its own request.
        assert_eq!(debugger.read().await["request_seq"], seq);
        // While all threads run, the relay answers in debugpy's place. While all are stopped, debugpy answers.
        let seq = debugger.send("continue", json!({"threadId": 1})).await;
        assert_eq!(debugger.read().await["request_seq"], seq);
        dap.send(&message::event("stopped", stopped)).await.unwrap();
        debugger.event("stopped").await;
        debugger.send("continue", json!({"threadId": 1})).await;
        assert_eq!(
            expect_request(&mut dap, "continue").await.arguments["threadId"],
            1
        );
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
    let arguments = json!({"rayRelay": {"breakpoint": worker.breakpoint.id}});
    let (mut debugger, _) = Debugger::attaching(&context, arguments).await;
    let (mut dap, _) = worker.attached().await;
    debugger.send("continue", json!({"threadId": 1})).await;
    expect_request(&mut dap, "continue").await;
}

#[tokio::test]
async fn list_shows_the_location_from_the_stack_trace() {
    let context = context(|_| {});
    let (mut debugger, mut dap) = configurable(&context, json!({})).await;
    let location = || {
        let list = context.registry.snapshot();
        let location = list.live.iter().next().unwrap().location.clone();
        location.map(|at| at.to_string())
    };
    let stopped = message::event("stopped", json!({"threadId": 1, "allThreadsStopped": true}));
    dap.send(&stopped).await.unwrap();
    debugger.event("stopped").await;
    assert_eq!(location(), None);
    // Only the first stack counts: the location does not follow a user who looks at other frames.
    for path in ["/home/ann/project/train.py", "/home/ann/project/other.py"] {
        let seq = debugger.send("stackTrace", json!({"threadId": 1})).await;
        let request = expect_request(&mut dap, "stackTrace").await;
        let frame = json!({"id": 1, "name": "step", "line": 7, "source": {"path": path}});
        let frames = json!({"stackFrames": [frame], "totalFrames": 1});
        dap.send(&request.success(frames)).await.unwrap();
        let answer = debugger.until(|m| m["request_seq"] == seq).await;
        assert_eq!(answer["body"]["stackFrames"][0]["source"]["path"], path);
        assert_eq!(location().as_deref(), Some("train.py:7"));
    }
    debugger.send("continue", json!({"threadId": 1})).await;
    expect_request(&mut dap, "continue").await;
    assert_eq!(location(), None, "it runs");
}

/// An editor that cannot find a local file does not fetch it, and attaching again would resume the task.
#[tokio::test]
async fn wrong_source_folder_falls_back_to_worker_files() {
    let context = context(|_| {});
    let arguments = json!({"workspaceFolder": "/home/ada/other"});
    let mut breakpoint = paused("square", 1);
    breakpoint.names_mut().unpacked_working_dir = true;
    let worker = Worker::listening(breakpoint).await;
    context.registry.insert(worker.breakpoint.clone());
    let (mut debugger, _) = Debugger::attaching(&context, arguments).await;
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

    // Every other message passes unchanged, even if no Rust JSON parser accepts it.
    let body = r#"{"seq": 77, "type": "request", "command": "evaluate", "arguments": {"expression": "'\ud800'", "context": "repl"}}"#;
    debugger.dap.send_body(body.as_bytes()).await.unwrap();
    let (mut stream, buffered) = dap.into_parts();
    assert!(buffered.is_empty());
    let mut received = vec![0; format!("Content-Length: {}\r\n\r\n{body}", body.len()).len()];
    timeout(TEST_TIMEOUT, stream.read_exact(&mut received))
        .await
        .unwrap()
        .unwrap();
    assert!(received.ends_with(body.as_bytes()));
    let mut dap = Conversation::resume(stream, &buffered, 1 << 20);

    let repl = |folder: &str| json!({"expression": format!("ray-relay localRoot {folder}"), "context": "repl", "frameId": 2});
    for (folder, expected, set) in [
        ("\"\"", "are shown as the worker has them", ""),
        ("/home/ada/job", "/home/ada/job stands for", "/home/ada/job"),
    ] {
        let seq = debugger.send("evaluate", repl(folder)).await;
        let setting = expect_request(&mut dap, "evaluate").await;
        let below = ClientFiles::Below(set.into());
        assert_eq!(setting.arguments, below.setting());
        let response = setting.success(json!({"result": "None", "variablesReference": 0}));
        dap.send(&response).await.unwrap();
        let answer = debugger.answer(seq).await;
        assert_eq!(answer["success"], true, "{answer}");
        let result = answer["body"]["result"].as_str().unwrap();
        assert!(result.contains(expected), "{result}");
        // The editor requests the stack again and opens the files in it.
        assert_eq!(debugger.event("stopped").await["body"], stop);
    }
    let refused = debugger.ask("evaluate", repl("job")).await;
    assert!(
        refusal_message(&refused).contains("whole path"),
        "{refused}"
    );

    // A subprocess uses the same folder.
    let process = json!({"request": "attach", "subProcessId": 9, "connect": {}});
    dap.send(&message::event("debugpyAttach", process))
        .await
        .unwrap();
    let child = debugger.event("debugpyAttach").await;
    assert_eq!(child["body"]["rayRelay"]["localRoot"], "/home/ada/job");
}

/// debugpy keeps mappings for the process, also those set later in a session.
#[tokio::test]
async fn session_source_folder_is_reset_at_its_end() {
    let context = context(|_| {});
    let (mut debugger, mut dap) = configurable(&context, json!({})).await;
    let arguments = json!({"expression": "ray-relay localRoot /home/ada/job", "context": "repl"});
    let seq = debugger.send("evaluate", arguments).await;
    let setting = answer_request(&mut dap, "evaluate").await;
    let below = ClientFiles::Below("/home/ada/job".into());
    assert_eq!(setting.arguments, below.setting());
    assert_eq!(debugger.answer(seq).await["success"], true);
    debugger.send("disconnect", json!({})).await;
    answer_request(&mut dap, "setFunctionBreakpoints").await;
    let reset = answer_request(&mut dap, "evaluate").await;
    assert_eq!(reset.arguments, mappings::forgetting());
    answer_request(&mut dap, "disconnect").await;
}

/// `ray-relay connect` and `dap` report missing files, because they see the client's disk.
#[tokio::test]
async fn missing_files_are_served_by_reference_without_a_restop() {
    let context = context(|_| {});
    let (mut debugger, mut dap) = configurable(&context, json!({})).await;
    let stop = json!({"threadId": 1, "reason": "breakpoint", "allThreadsStopped": true});
    dap.send(&message::event("stopped", stop)).await.unwrap();
    debugger.event("stopped").await;
    let paths = ["/home/ann/other/train.py".to_owned()];
    let arguments = json!({"expression": mappings::missing(&paths), "context": "repl"});
    // The report covers two stacks.
    let seqs = [
        debugger.send("evaluate", arguments.clone()).await,
        debugger.send("evaluate", arguments).await,
    ];
    let without = ClientFiles::Without(paths.to_vec().into()).setting();
    for success in [true, false] {
        let setting = expect_request(&mut dap, "evaluate").await;
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
    // The report is removed at the end, like mappings.
    debugger.send("disconnect", json!({})).await;
    answer_request(&mut dap, "setFunctionBreakpoints").await;
    let reset = answer_request(&mut dap, "evaluate").await;
    assert_eq!(reset.arguments, mappings::forgetting());
}

#[tokio::test]
async fn stop_in_a_notebook_cell_reports_its_source() {
    let context = context(|_| {});
    let (worker, mut debugger, mut dap) = session(&context, json!({})).await;
    let stop = json!({"threadId": 7, "reason": "breakpoint", "allThreadsStopped": true});
    dap.send(&message::event("stopped", stop)).await.unwrap();
    debugger.event("stopped").await;
    debugger.send("stackTrace", json!({"threadId": 7})).await;
    let request = expect_request(&mut dap, "stackTrace").await;
    let source = json!({"path": "/tmp/ipykernel_81/55.py", "sourceReference": 3});
    let frame = json!({"id": 1, "name": "f", "line": 2, "source": source});
    let stack = request.success(json!({"stackFrames": [frame]}));
    dap.send(&stack).await.unwrap();
    let output = debugger.event("output").await;
    assert_output(&output, "its source is in the notebook alone");
    let list = context.registry.snapshot();
    let row = list.find(worker.breakpoint.id).unwrap();
    let row = JsonRow::new(row, Timestamp::now());
    let row = Row::read(&serde_json::to_value(row).unwrap());
    assert_eq!(row.location, "a notebook's cell, line 2");
}
