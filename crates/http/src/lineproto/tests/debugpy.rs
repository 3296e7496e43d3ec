//! The prompt on a debugpy breakpoint, with a worker whose part the test plays.

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

/// A worker of which a person may pick the breakpoint.
pub(super) struct Debugpy {
    listener: TcpListener,
    pub(super) breakpoint: Breakpoint,
}

impl Debugpy {
    pub(super) async fn listen() -> Self {
        let (listener, breakpoint) = listening(paused("add", 1)).await;
        Self::of(listener, breakpoint)
    }

    pub(super) fn of(listener: TcpListener, breakpoint: Breakpoint) -> Self {
        Self {
            listener,
            breakpoint,
        }
    }

    /// No client did.
    pub(super) fn not_entered(self) {
        assert_not_dialled(self.listener);
    }

    /// A person did.
    pub(super) async fn entered(&self) -> Worker {
        let accepted = timeout(TEST_TIMEOUT, self.listener.accept()).await;
        let (mut stream, _) = accepted.expect("the relay dials").unwrap();
        let greeting = frame(&event("output", json!({"category": "telemetry"})));
        stream.write_all(&greeting).await.unwrap();
        Worker::play(stream, Duration::ZERO)
    }
}

/// A task that waits at `/job.py` line 8, runs for good after `continue`, and stops at the next line after `next`. Also
/// `slow()` takes as long as that.
pub(super) struct Worker {
    commands: mpsc::UnboundedReceiver<String>,
    says: mpsc::UnboundedSender<Value>,
}

impl Worker {
    /// Its debugger speaks over `stream`; `next` takes so long.
    fn play<S>(stream: S, next: Duration) -> Self
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (sender, commands) = mpsc::unbounded_channel();
        let (says, mut said) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            let mut client = Conversation::new(stream, 1 << 20);
            let mut line = 8;
            let mut attach = Value::Null;
            loop {
                let request = tokio::select! {
                    biased;
                    Some(event) = said.recv() => {
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
        Self { commands, says }
    }

    /// Has the task stop where it is.
    fn stop(&self) {
        self.say(stopped("breakpoint"));
    }

    /// Has its debugger say this.
    pub(super) fn say(&self, event: Value) {
        self.says.send(event).unwrap();
    }

    /// The requests that it received since the last call.
    pub(super) fn asked_so_far(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.commands.try_recv().ok()).collect()
    }

    /// Waits until its client is gone, which lets it run on.
    pub(super) async fn let_go(mut self) {
        let gone = async { while self.commands.recv().await.is_some() {} };
        timeout(TEST_TIMEOUT, gone).await.expect("the relay closes");
    }

    /// Waits until `wanted` was asked for.
    pub(super) async fn asked(&mut self, wanted: &str) {
        while self.commands.recv().await.expect("the prompt goes on") != wanted {}
    }
}

pub(super) fn stopped(reason: &str) -> Value {
    event("stopped", json!({"reason": reason, "threadId": 1}))
}

/// A prompt with all of its ends in the test's hands, and nothing that a paused clock could overtake.
struct Scene {
    person: DuplexStream,
    worker: Worker,
    ended: JoinHandle<Result<prompt::PromptOutcome, PromptError>>,
    kept: AuditSpy,
}

impl Scene {
    fn begin(next: Duration) -> Self {
        let relay = relay(false, |_| {});
        let context = relay.context;
        let (person, typed) = duplex(1 << 16);
        let (debugger, stream) = duplex(1 << 16);
        let ended = tokio::spawn(async move {
            let session = context
                .sessions
                .table
                .open(&Summary::new(([127, 0, 0, 1], 1).into()));
            let nobody = Principal::anonymous();
            let record =
                SessionAudit::begin(&context.audit, &session, &nobody, None, Map::new()).await;
            let record = record.unwrap();
            let log = Log::new(record, CaptureTee::default());
            let (reader, writer) = tokio::io::split(typed);
            let (out, pieces) = Out::new();
            tokio::spawn(pump(pieces, writer, out.counts()));
            let mut input = ClientInput::new(reader);
            let mut shown = WorkerOutput::new(out.clone(), CaptureTee::default());
            let task = TaskEnd::new(None);
            let (sender, pieces) = mpsc::channel(16);
            let options = prompt::options(false, Account::default());
            let opening = Box::pin(Prompt::open(stream, &options, sender));
            let (mut attached, over) = prompt::opened(opening, pieces, &mut shown).await?;
            assert_eq!(over, None);
            Ok(prompt::converse(&mut attached, task, &mut input, &out, &mut shown, &log).await)
        });
        Self {
            person,
            worker: Worker::play(debugger, next),
            ended,
            kept: relay.kept,
        }
    }

    async fn say(&mut self, text: &str) {
        self.person.write_all(text.as_bytes()).await.unwrap();
    }

    /// How it ended, how long that took from `since`, and all that was shown.
    async fn rest(mut self, since: Instant) -> (PromptEnd, Duration, String) {
        let ended = self.ended.await.unwrap().unwrap();
        let prompt::PromptOutcome::Ended(end) = ended else {
            panic!("the client was lost");
        };
        let took = since.elapsed();
        let mut shown = String::new();
        self.person.read_to_string(&mut shown).await.unwrap();
        (end, took, shown)
    }
}

#[tokio::test(start_paused = true)]
async fn quit_detaches_a_running_task() {
    let mut scene = Scene::begin(Duration::ZERO);
    scene.say("c\n").await;
    scene.worker.asked("continue").await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    let said = Instant::now();
    scene.say("quit\r\n").await;
    scene.worker.asked("disconnect").await;
    let kept = scene.kept.clone();
    let (end, took, shown) = scene.rest(said).await;
    assert_eq!(end, PromptEnd::Left);
    assert!(took < Duration::from_millis(100), "{took:?}");
    assert_eq!(shown.matches("quit leaves").count(), 1, "{shown}");
    let commands: Vec<_> = kept
        .take()
        .into_iter()
        .filter_map(|entry| entry.details.get("command").cloned())
        .collect();
    assert_eq!(commands, ["c", "quit"], "on record");
}

#[tokio::test(start_paused = true)]
async fn quit_after_a_command_waits_a_moment() {
    // It stops in time, and what it prints is seen.
    let began = Instant::now();
    let mut scene = Scene::begin(Duration::from_millis(700));
    scene.say("n\nq\n").await;
    let (end, took, shown) = scene.rest(began).await;
    assert_eq!(end, PromptEnd::Left);
    assert!(shown.contains("> /job.py(9)add()"), "{shown}");
    assert!(took < Duration::from_secs(1), "{took:?}");
    // It does not stop at all.
    let began = Instant::now();
    let mut scene = Scene::begin(Duration::ZERO);
    scene.say("c\nq\n").await;
    let (end, took, _) = scene.rest(began).await;
    assert_eq!(end, PromptEnd::Left);
    let moment = Duration::from_secs(1)..Duration::from_secs(2);
    assert!(moment.contains(&took), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn quit_waits_for_commands_typed_before_it() {
    for said in ["c\np x\nq\n", "c;; p x\nq\n", "c\nq!\nq\n"] {
        let mut scene = Scene::begin(Duration::ZERO);
        scene.say(said).await;
        scene.worker.asked("continue").await;
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert!(!scene.ended.is_finished(), "{said}");
        scene.worker.stop();
        scene.worker.asked("stackTrace").await;
        let (end, ..) = scene.rest(Instant::now()).await;
        assert_eq!(end, PromptEnd::Left, "{said}");
    }
}

#[tokio::test(start_paused = true)]
async fn quit_does_not_interrupt_an_expression() {
    let mut scene = Scene::begin(Duration::from_secs(5));
    scene.say("slow()\nq\n").await;
    let (end, took, shown) = scene.rest(Instant::now()).await;
    assert_eq!(end, PromptEnd::Left);
    assert!(took >= Duration::from_secs(5), "{took:?}: {shown}");
    assert!(!shown.contains("still running"), "{shown}");
}

#[tokio::test(start_paused = true)]
async fn lost_client_parks_a_paused_task_only() {
    for (said, is_lost) in [
        ("", true),
        ("p x\n", true),
        ("n\np x\n", true),
        ("c\n", false),
        ("p x\nn\n", false),
    ] {
        let mut scene = Scene::begin(Duration::ZERO);
        scene.say(said).await;
        scene.person.shutdown().await.unwrap();
        let ended = scene.ended.await.unwrap().unwrap();
        let wanted = match is_lost {
            true => prompt::PromptOutcome::Lost,
            false => prompt::PromptOutcome::Ended(PromptEnd::Left),
        };
        assert_eq!(ended, wanted, "{said:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn unrecorded_quit_does_not_detach() {
    let mut scene = Scene::begin(Duration::ZERO);
    scene.say("c\n").await;
    scene.worker.asked("continue").await;
    scene.kept.refuse(EntryKind::Command);
    scene.say("q\n").await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!scene.ended.is_finished());
    // A client that closes the connection is gone all the same.
    scene.person.shutdown().await.unwrap();
    let (end, _, shown) = scene.rest(Instant::now()).await;
    assert_eq!(end, PromptEnd::Left);
    assert!(shown.contains("audit log"), "{shown}");
}
