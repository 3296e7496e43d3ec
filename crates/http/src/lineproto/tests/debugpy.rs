//! The prompt on a debugpy breakpoint. The tests play the worker.

use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::lineproto::output::WorkerOutput;
use crate::lineproto::session::Log;
use crate::lineproto::tests::*;
use ray_relay_access::recording::CaptureTee;
use ray_relay_base::memory::Account;
use ray_relay_base::wire::dap::codec::frame;
use ray_relay_base::wire::dap::conversation::Conversation;
use ray_relay_base::wire::dap::message::event;
use ray_relay_debugger::pdb::{Prompt, PromptEnd, PromptError};
use ray_relay_ray::ray::task_end::TaskEnd;
use ray_relay_session::session::audit::SessionAudit;

/// A paused worker with debugpy, played by the test.
pub(super) struct Debugpy {
    listener: TcpListener,
    pub(super) breakpoint: Breakpoint,
}

impl Debugpy {
    pub(super) async fn listen() -> Self {
        let (listener, breakpoint) = listening(paused("add", 1)).await;
        Self::new(listener, breakpoint)
    }

    pub(super) fn new(listener: TcpListener, breakpoint: Breakpoint) -> Self {
        Self {
            listener,
            breakpoint,
        }
    }

    /// Expects that no client has connected.
    pub(super) fn expect_not_dialled(self) {
        assert_not_dialled(self.listener);
    }

    /// Accepts the connection of a client that enters, and greets it.
    pub(super) async fn accept(&self) -> Worker {
        let accepted = timeout(TEST_TIMEOUT, self.listener.accept()).await;
        let (mut stream, _) = accepted.expect("the relay dials").unwrap();
        let greeting = frame(&event("output", json!({"category": "telemetry"})));
        stream.write_all(&greeting).await.unwrap();
        Worker::spawn(stream, Duration::ZERO)
    }
}

/// A task at `/job.py` line 8. It does not stop after `continue`, and stops at the next line after `next`. `slow()` takes
/// as long as `next`.
pub(super) struct Worker {
    commands: mpsc::UnboundedReceiver<String>,
    events: mpsc::UnboundedSender<Value>,
}

impl Worker {
    /// Plays the debugger on `stream`. `next` is the duration of a step.
    fn spawn<S>(stream: S, next: Duration) -> Self
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (sender, commands) = mpsc::unbounded_channel();
        let (events, mut queued) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            let mut client = Conversation::new(stream, 1 << 20);
            let mut line = 8;
            let mut attach = Value::Null;
            loop {
                let request = tokio::select! {
                    biased;
                    Some(event) = queued.recv() => {
                        client.send(&event).await.unwrap();
                        continue;
                    }
                    request = client.read() => request,
                };
                let Ok(request) = request else { return };
                let command = request["command"].as_str().unwrap();
                if request.to_string().contains("slow()") {
                    tokio::time::sleep(next).await;
                }
                let frame =
                    json!({"id": 1, "name": "add", "line": line, "source": {"path": "/job.py"}});
                let mut answer = json!({"type": "response", "seq": 1, "request_seq": request["seq"], "command": command,
                    "success": true, "body": {"stackFrames": [frame], "result": ""}});
                if command == "attach" {
                    attach = std::mem::replace(&mut answer, event("initialized", Value::Null));
                }
                client.send(&answer).await.unwrap();
                match command {
                    "configurationDone" => {
                        client.send(&attach).await.unwrap();
                        client.send(&stopped("breakpoint")).await.unwrap();
                    }
                    "next" => {
                        tokio::time::sleep(next).await;
                        line += 1;
                        client.send(&stopped("step")).await.unwrap();
                    }
                    _ => {}
                }
                let _ = sender.send(command.to_owned());
            }
        });
        Self { commands, events }
    }

    /// Stops the task at its current line.
    fn stop(&self) {
        self.send(stopped("breakpoint"));
    }

    /// Sends an event of the debugger.
    pub(super) fn send(&self, event: Value) {
        self.events.send(event).unwrap();
    }

    /// Returns the requests received since the last call.
    pub(super) fn take_commands(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.commands.try_recv().ok()).collect()
    }

    /// Waits until the client has disconnected, after which the task resumes.
    pub(super) async fn expect_detach(mut self) {
        let disconnected = async { while self.commands.recv().await.is_some() {} };
        timeout(TEST_TIMEOUT, disconnected)
            .await
            .expect("the relay closes");
    }

    /// Waits for the request `command`.
    pub(super) async fn expect_command(&mut self, command: &str) {
        while self.commands.recv().await.expect("the prompt goes on") != command {}
    }
}

pub(super) fn stopped(reason: &str) -> Value {
    event("stopped", json!({"reason": reason, "threadId": 1}))
}

/// A prompt whose client and worker are played in memory, so that a paused clock cannot overtake them.
struct Scene {
    client: DuplexStream,
    worker: Worker,
    ended: JoinHandle<Result<prompt::PromptOutcome, PromptError>>,
    spy: AuditSpy,
}

impl Scene {
    fn new(next: Duration) -> Self {
        let relay = relay(false, |_| {});
        let context = relay.context;
        let (client, input_stream) = duplex(1 << 16);
        let (debugger, stream) = duplex(1 << 16);
        let ended = tokio::spawn(async move {
            let session = context
                .sessions
                .table
                .open(&Summary::new(([127, 0, 0, 1], 1).into()));
            let principal = Principal::anonymous();
            let record =
                SessionAudit::begin(&context.audit, &session, &principal, None, Map::new()).await;
            let record = record.unwrap();
            let log = Log::new(record, CaptureTee::default());
            let (reader, writer) = tokio::io::split(input_stream);
            let (out, pieces) = Out::new();
            tokio::spawn(pump(pieces, writer, out.counts()));
            let mut input = ClientInput::new(reader);
            let mut output = WorkerOutput::new(out.clone(), CaptureTee::default());
            let task = TaskEnd::new(None);
            let (sender, pieces) = mpsc::channel(16);
            let options = prompt::options(false, Account::default());
            let opening = Box::pin(Prompt::open(stream, &options, sender));
            let (mut attached, outcome) = prompt::opened(opening, pieces, &mut output).await?;
            assert_eq!(outcome, None);
            Ok(prompt::converse(&mut attached, task, &mut input, &out, &mut output, &log).await)
        });
        Self {
            client,
            worker: Worker::spawn(debugger, next),
            ended,
            spy: relay.spy,
        }
    }

    async fn send(&mut self, text: &str) {
        self.client.write_all(text.as_bytes()).await.unwrap();
    }

    /// Returns the end of the prompt, the time since `since`, and the whole output.
    async fn outcome(mut self, since: Instant) -> (PromptEnd, Duration, String) {
        let outcome = self.ended.await.unwrap().unwrap();
        let prompt::PromptOutcome::Ended(end) = outcome else {
            panic!("the client was lost");
        };
        let elapsed = since.elapsed();
        let mut output = String::new();
        self.client.read_to_string(&mut output).await.unwrap();
        (end, elapsed, output)
    }
}

#[tokio::test(start_paused = true)]
async fn quit_detaches_a_running_task() {
    let mut scene = Scene::new(Duration::ZERO);
    scene.send("c\n").await;
    scene.worker.expect_command("continue").await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    let quit_at = Instant::now();
    scene.send("quit\r\n").await;
    scene.worker.expect_command("disconnect").await;
    let spy = scene.spy.clone();
    let (end, elapsed, output) = scene.outcome(quit_at).await;
    assert_eq!(end, PromptEnd::Left);
    assert!(elapsed < Duration::from_millis(100), "{elapsed:?}");
    assert_eq!(output.matches("quit leaves").count(), 1, "{output}");
    let commands: Vec<_> = spy
        .take()
        .into_iter()
        .filter_map(|entry| entry.details.get("command").cloned())
        .collect();
    assert_eq!(commands, ["c", "quit"], "on record");
}

#[tokio::test(start_paused = true)]
async fn quit_after_a_command_waits_a_moment() {
    // The task stops in time, and its output is shown.
    let started = Instant::now();
    let mut scene = Scene::new(Duration::from_millis(700));
    scene.send("n\nq\n").await;
    let (end, elapsed, output) = scene.outcome(started).await;
    assert_eq!(end, PromptEnd::Left);
    assert!(output.contains("> /job.py(9)add()"), "{output}");
    assert!(elapsed < Duration::from_secs(1), "{elapsed:?}");
    // The task does not stop.
    let started = Instant::now();
    let mut scene = Scene::new(Duration::ZERO);
    scene.send("c\nq\n").await;
    let (end, elapsed, _) = scene.outcome(started).await;
    assert_eq!(end, PromptEnd::Left);
    let expected = Duration::from_secs(1)..Duration::from_secs(2);
    assert!(expected.contains(&elapsed), "{elapsed:?}");
}

#[tokio::test(start_paused = true)]
async fn quit_waits_for_commands_typed_before_it() {
    for input in ["c\np x\nq\n", "c;; p x\nq\n", "c\nq!\nq\n"] {
        let mut scene = Scene::new(Duration::ZERO);
        scene.send(input).await;
        scene.worker.expect_command("continue").await;
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert!(!scene.ended.is_finished(), "{input}");
        scene.worker.stop();
        scene.worker.expect_command("stackTrace").await;
        let (end, ..) = scene.outcome(Instant::now()).await;
        assert_eq!(end, PromptEnd::Left, "{input}");
    }
}

#[tokio::test(start_paused = true)]
async fn quit_does_not_interrupt_an_expression() {
    let mut scene = Scene::new(Duration::from_secs(5));
    scene.send("slow()\nq\n").await;
    let (end, elapsed, output) = scene.outcome(Instant::now()).await;
    assert_eq!(end, PromptEnd::Left);
    assert!(elapsed >= Duration::from_secs(5), "{elapsed:?}: {output}");
    assert!(!output.contains("still running"), "{output}");
}

#[tokio::test(start_paused = true)]
async fn lost_client_parks_a_paused_task_only() {
    for (input, is_lost) in [
        ("", true),
        ("p x\n", true),
        ("n\np x\n", true),
        ("c\n", false),
        ("p x\nn\n", false),
    ] {
        let mut scene = Scene::new(Duration::ZERO);
        scene.send(input).await;
        scene.client.shutdown().await.unwrap();
        let outcome = scene.ended.await.unwrap().unwrap();
        let expected = match is_lost {
            true => prompt::PromptOutcome::Lost,
            false => prompt::PromptOutcome::Ended(PromptEnd::Left),
        };
        assert_eq!(outcome, expected, "{input:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn unrecorded_quit_does_not_detach() {
    let mut scene = Scene::new(Duration::ZERO);
    scene.send("c\n").await;
    scene.worker.expect_command("continue").await;
    scene.spy.refuse(EntryKind::Command);
    scene.send("q\n").await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!scene.ended.is_finished());
    // Closing the connection detaches even so.
    scene.client.shutdown().await.unwrap();
    let (end, _, output) = scene.outcome(Instant::now()).await;
    assert_eq!(end, PromptEnd::Left);
    assert!(output.contains("audit log"), "{output}");
}
