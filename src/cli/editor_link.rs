//! A connection between an editor on this machine and the relay: DAP in both directions.
//!
//! Messages pass unchanged. Only the relay knows the worker's files, and only this machine has the editor's. So a stack
//! trace that names a missing file is held back until the relay makes the worker's debugger serve that file by
//! reference ([`mappings::missing`]). Then the stack trace is requested once more.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};

use ray_relay_base::memory::Account;
use ray_relay_base::wire::dap::codec::{frame, parse};
use ray_relay_base::wire::dap::mappings;
use ray_relay_base::wire::dap::message::{Request, request};
use ray_relay_base::wire::dap::names::Command;
use ray_relay_base::wire::dap::peek::{Depth, MessageType};
use ray_relay_base::wire::dap::scanner::Rules;
use ray_relay_base::wire::dap::splice::{Side, Splice, SpliceEvent};
use ray_relay_base::wire::dap::stack::StackAnswer;
use ray_relay_base::wire::peer_stream::PeerStream;

/// Maximum size of a message to inspect.
const MAX_MESSAGE_BYTES: usize = 64 << 20;

/// Maximum number of pending stack trace requests, and of held stack traces. Further ones pass unchanged.
const MAX_STACKS: usize = 32;

/// How long a stack trace is held back.
const REFERENCE_TIMEOUT: Duration = Duration::from_secs(3);

/// Time limit for checking which files exist: a folder may be on a network.
const DISK_TIMEOUT: Duration = Duration::from_secs(1);

/// Time limit for the editor to receive the relay's last messages.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(10);

/// `seq` of the first request of this link's own. Editors count from 1, and the relay uses those from `0x5000_0000`.
const FIRST_OWN_SEQ: u64 = 0x4000_0000;

/// A link between an editor and the relay, with the stack traces held between them.
pub(super) struct EditorLink<C, R: PeerStream> {
    splice: Splice<C, R>,
    /// Whether the editor has the files of this machine.
    is_local: bool,
    /// How long the editor may stay connected after the relay has closed.
    linger: Duration,
    closes_at: Option<Instant>,
    /// Pending stack trace requests, by their `seq`.
    requests: VecDeque<(Value, Vec<u8>)>,
    /// Held stack traces, by the `seq` of this link's request to the relay.
    held: HashMap<u64, HeldStack>,
    own_requests: u64,
}

/// A stack trace that names files missing on this machine.
struct HeldStack {
    request: Vec<u8>,
    answer: Vec<u8>,
    until: Instant,
}

/// A response of the relay to a stack trace request, or to a request of this link's own.
#[derive(Deserialize)]
struct RelayResponse {
    request_seq: Value,
    #[serde(default)]
    success: bool,
    body: Option<StackAnswer>,
}

/// Paths in `stack` that an editor looks for on its own disk. Windows paths are not this machine's.
fn local_paths(stack: &StackAnswer) -> Vec<String> {
    let by_path = stack.stack_frames.iter().filter(|f| f.is_of_client());
    let paths = by_path.map(|frame| frame.path().to_owned());
    let mut paths: Vec<_> = paths.filter(|path| path.starts_with('/')).collect();
    paths.sort();
    paths.dedup();
    paths
}

fn rules(captures: fn(MessageType, &[u8]) -> bool) -> Rules {
    Rules {
        depth: Depth::Deciding,
        captures,
        examined: |_, _| None,
        max_captured: MAX_MESSAGE_BYTES,
        max_passed: usize::MAX / 2,
    }
}

fn from_editor(kind: MessageType, name: &[u8]) -> bool {
    let known = Command::parse(name);
    kind == MessageType::Request && matches!(known, Some(Command::Attach | Command::StackTrace))
}

fn from_relay(kind: MessageType, name: &[u8]) -> bool {
    kind == MessageType::Response && Command::parse(name) == Some(Command::StackTrace)
}

impl<C: PeerStream, R: PeerStream> EditorLink<C, R> {
    /// Creates a link. `is_local`: the editor runs on this machine, judging by its connection.
    pub(super) fn new(editor: C, relay: R, is_local: bool, linger: Duration) -> Self {
        let (up, down) = (rules(from_editor), rules(from_relay));
        let (account, none) = (Account::default(), Vec::new);
        Self {
            splice: Splice::new(account, editor, none(), up, relay, none(), down),
            is_local,
            linger,
            closes_at: None,
            requests: VecDeque::new(),
            held: HashMap::new(),
            own_requests: 0,
        }
    }

    /// Relays messages until both sides have ended. `amend` completes the arguments of the attach request. `notices`
    /// are messages for the editor from this machine.
    ///
    /// # Errors
    /// The error if a connection fails, or does not carry DAP.
    pub(super) async fn run(
        mut self,
        amend: impl Fn(&mut Value),
        mut notices: mpsc::Receiver<Arc<[u8]>>,
    ) -> io::Result<()> {
        loop {
            let due = self.held.values().map(|held| held.until);
            let due = due.chain(self.closes_at).min();
            let late = async {
                match due {
                    Some(due) => sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                Some(notice) = notices.recv() => {
                    // Editors show nothing before their first answer.
                    if self.splice.bytes().1 > 0 {
                        self.splice.insert(Side::Client, &notice);
                    }
                }
                () = late => {
                    let now = Instant::now();
                    if self.closes_at.is_some_and(|at| at <= now) {
                        return Ok(());
                    }
                    for (_, late) in self.held.extract_if(|_, held| held.until <= now) {
                        self.splice.insert_body(Side::Client, &late.answer);
                    }
                }
                event = self.splice.next() => match event {
                    SpliceEvent::Captured(Side::Client, body) => self.on_editor(body, &amend).await,
                    SpliceEvent::Captured(Side::Worker, body) => self.on_relay(body).await,
                    SpliceEvent::Eof(Side::Client) => self.splice.close(Side::Worker),
                    SpliceEvent::Eof(Side::Worker) => {
                        self.splice.close(Side::Client);
                        let _ = timeout(FLUSH_TIMEOUT, self.splice.flush(Side::Client)).await;
                        self.closes_at = Some(Instant::now() + self.linger);
                    }
                    SpliceEvent::Failed(_, error) => return Err(error),
                    SpliceEvent::Malformed(_, error) => return Err(io::Error::other(error)),
                },
            }
            if self.splice.finished() {
                return Ok(());
            }
        }
    }

    async fn on_editor(&mut self, body: Vec<u8>, amend: impl Fn(&mut Value)) {
        let Ok(mut message) = parse(&body) else {
            return self.splice.insert_body(Side::Worker, &body);
        };
        if Request::is(&message, Command::Attach) {
            amend(&mut message);
            let folder = message.pointer("/arguments/workspaceFolder");
            if let Some(folder) = folder.and_then(Value::as_str).filter(|f| !f.is_empty()) {
                // An editor in a container, or on Windows next to WSL, has other files.
                self.is_local &= missing(vec![folder.to_owned()]).await.is_empty();
            }
            return self.splice.insert(Side::Worker, &frame(&message));
        }
        self.splice.insert_body(Side::Worker, &body);
        if self.is_local
            && let Some(request) = Request::read(&mut message)
            && request.known() == Some(Command::StackTrace)
        {
            self.requests.truncate(MAX_STACKS - 1);
            self.requests.push_front((request.seq, body));
        }
    }

    async fn on_relay(&mut self, body: Vec<u8>) {
        let Ok(response) = serde_json::from_slice::<RelayResponse>(&body) else {
            return self.splice.insert_body(Side::Client, &body);
        };
        let to = response.request_seq.as_u64();
        if let Some(held) = to.and_then(|seq| self.held.remove(&seq)) {
            return match response.success {
                true => self.splice.insert_body(Side::Worker, &held.request),
                false => self.splice.insert_body(Side::Client, &held.answer),
            };
        }
        let is_own = to.is_some_and(|seq| seq >= FIRST_OWN_SEQ);
        let mut requests = self.requests.iter();
        let position = requests.position(|(seq, _)| *seq == response.request_seq);
        let stack = position.and_then(|at| self.requests.remove(at));
        if let Some((_, original)) = stack
            && self.held.len() < MAX_STACKS
            && let paths = local_paths(&response.body.unwrap_or_default())
            && let missing = missing(paths).await
            && !missing.is_empty()
        {
            let until = Instant::now() + REFERENCE_TIMEOUT;
            let seq = FIRST_OWN_SEQ + self.own_requests;
            self.own_requests += 1;
            let evaluate = Command::Evaluate.as_str().as_bytes();
            self.splice.capture_answers(Side::Worker, evaluate, true);
            let arguments = json!({"expression": mappings::missing(&missing), "context": "repl"});
            let evaluation = request(seq, Command::Evaluate, arguments);
            self.splice.insert(Side::Worker, &frame(&evaluation));
            let held = HeldStack {
                request: original,
                answer: body,
                until,
            };
            self.held.insert(seq, held);
        } else if !is_own {
            // A late answer to a request of this link's own is dropped.
            self.splice.insert_body(Side::Client, &body);
        }
    }
}

/// Returns the `paths` that do not exist on this machine. A path that cannot be checked in time counts as existing.
async fn missing(paths: Vec<String>) -> Vec<String> {
    let absent = |path: &String| matches!(Path::new(path).try_exists(), Ok(false));
    let missing = tokio::task::spawn_blocking(move || paths.into_iter().filter(absent).collect());
    match timeout(DISK_TIMEOUT, missing).await {
        Ok(Ok(missing)) => missing,
        Ok(Err(_)) | Err(_) => Vec::new(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tokio::io::{DuplexStream, duplex};
    use tokio_util::task::AbortOnDropHandle;

    use super::*;
    use ray_relay_base::wire::dap::conversation::Conversation;
    use ray_relay_base::wire::dap::message::{event, notice};
    use ray_relay_base::wire::dap::names::Event;

    struct LinkScene {
        editor: Conversation<DuplexStream>,
        relay: Conversation<DuplexStream>,
        notices: mpsc::Sender<Arc<[u8]>>,
        _link: AbortOnDropHandle<io::Result<()>>,
    }

    /// Returns an editor that has attached in this folder.
    async fn attached(folder: &str) -> LinkScene {
        let (editor, near) = duplex(1 << 16);
        let (far, relay) = duplex(1 << 16);
        let (notices, lines) = mpsc::channel(8);
        let link = EditorLink::new(near, far, true, Duration::ZERO);
        let serving = link.run(|attach| attach["arguments"]["amended"] = true.into(), lines);
        let mut scene = LinkScene {
            editor: Conversation::new(editor, 1 << 20),
            relay: Conversation::new(relay, 1 << 20),
            notices,
            _link: AbortOnDropHandle::new(tokio::spawn(serving)),
        };
        let attach = request(1, Command::Attach, json!({"workspaceFolder": folder}));
        scene.editor.send(&attach).await.unwrap();
        let attach = scene.relay.read().await.unwrap();
        assert_eq!(attach["arguments"]["amended"], true);
        scene
    }

    fn stack(paths: &[(&str, i64)]) -> Value {
        let source = |(path, reference): &(&str, i64)| json!({"id": 1, "source": {"path": path, "sourceReference": reference}});
        json!({"stackFrames": paths.iter().map(source).collect::<Vec<_>>()})
    }

    impl LinkScene {
        /// Requests a stack as the editor, and answers it with these `paths` as the worker.
        async fn send_stack(&mut self, seq: u64, paths: &[(&str, i64)]) {
            let evaluation = request(seq, Command::StackTrace, json!({"threadId": 7}));
            self.editor.send(&evaluation).await.unwrap();
            self.answer_stack(seq, paths).await;
        }

        async fn answer_stack(&mut self, seq: u64, paths: &[(&str, i64)]) {
            let next_request = self.next_request().await;
            assert_eq!(
                (&*next_request.command, &next_request.seq),
                ("stackTrace", &json!(seq))
            );
            let answer = next_request.success(stack(paths));
            self.relay.send(&answer).await.unwrap();
        }

        async fn next_request(&mut self) -> Request {
            let read = timeout(REFERENCE_TIMEOUT, self.relay.read()).await;
            Request::read(&mut read.unwrap().unwrap()).unwrap()
        }

        /// Returns the source references of the stack that the editor receives.
        async fn received_references(&mut self) -> Vec<i64> {
            let answer = self.editor.read().await.unwrap();
            assert_eq!(answer["command"], "stackTrace", "{answer}");
            let frames = answer["body"]["stackFrames"].as_array().unwrap().iter();
            frames
                .map(|frame| frame["source"]["sourceReference"].as_i64().unwrap())
                .collect()
        }
    }

    #[tokio::test]
    async fn missing_file_is_replaced_by_worker_source() {
        let folder = tempfile::tempdir().unwrap();
        let path_of = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let (present, absent) = (path_of("here.py"), path_of("absent.py"));
        std::fs::write(&present, "").unwrap();
        let mut scene = attached(folder.path().to_str().unwrap()).await;
        // Existing files, files served by reference and paths of another system pass unchanged.
        scene
            .send_stack(2, &[(&present, 0), (&absent, 3), ("c:\\a.py", 0)])
            .await;
        assert_eq!(scene.received_references().await, [0, 3, 0]);
        scene.send_stack(3, &[(&present, 0), (&absent, 0)]).await;
        let evaluation = scene.next_request().await;
        assert_eq!(
            evaluation.arguments["expression"],
            mappings::missing(std::slice::from_ref(&absent))
        );
        // Other messages pass in the meantime.
        let other = event(Event::Continued, Value::Null);
        scene.relay.send(&other).await.unwrap();
        assert_eq!(scene.editor.read().await.unwrap(), other);
        scene
            .relay
            .send(&evaluation.success(json!({"result": ""})))
            .await
            .unwrap();
        scene.answer_stack(3, &[(&present, 0), (&absent, 9)]).await;
        assert_eq!(scene.received_references().await, [0, 9]);
        // An older relay fails the request.
        scene.send_stack(4, &[(&absent, 0)]).await;
        let evaluation = scene.next_request().await;
        scene.relay.send(&evaluation.failure("no")).await.unwrap();
        assert_eq!(scene.received_references().await, [0]);
    }

    #[tokio::test(start_paused = true)]
    async fn stack_is_forwarded_after_a_short_delay() {
        let mut scene = attached("").await;
        scene.send_stack(2, &[("/nowhere/absent.py", 0)]).await;
        let evaluation = scene.next_request().await;
        assert_eq!(scene.received_references().await, [0]);
        // A late answer is not passed to the editor.
        scene
            .relay
            .send(&evaluation.success(json!({"result": ""})))
            .await
            .unwrap();
        let other = event(Event::Continued, Value::Null);
        scene.relay.send(&other).await.unwrap();
        assert_eq!(scene.editor.read().await.unwrap(), other);
    }

    #[tokio::test]
    async fn editor_with_a_remote_folder_is_unchanged() {
        let mut scene = attached("/nowhere/of/a/container").await;
        scene
            .send_stack(2, &[("/nowhere/of/a/container/train.py", 0)])
            .await;
        assert_eq!(scene.received_references().await, [0]);
    }

    #[tokio::test]
    async fn notice_is_inserted_between_relay_messages() {
        let mut scene = attached("").await;
        let lost_notice: Arc<[u8]> = frame(&notice("network lost", false)).into();
        // An editor shows no output before the first message of the relay.
        scene.notices.send(Arc::clone(&lost_notice)).await.unwrap();
        let message = event(Event::Initialized, Value::Null);
        while scene.notices.capacity() < 8 {
            tokio::task::yield_now().await;
        }
        scene.relay.send(&message).await.unwrap();
        assert_eq!(scene.editor.read().await.unwrap(), message);
        scene.notices.send(lost_notice).await.unwrap();
        let notice = scene.editor.read().await.unwrap();
        assert_eq!(notice["event"], "output", "{notice}");
    }
}
