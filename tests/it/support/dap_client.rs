//! A DAP client that talks as the real editors do, over TCP or from inside a namespace, and keeps
//! every byte of the conversation for later assertions.

use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::process::Child;

use super::namespaces::Cluster;

mod unreliable;

/// The timeout of a single answer: Ray and debugpy need a second or two on a busy machine.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(90);

/// The editor whose captured messages are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Editor {
    /// VS Code 1.139 with the Python Debugger extension.
    VsCode,
    /// Neovim with nvim-dap and ray-debugger.nvim.
    Neovim,
    /// A client that can start no child sessions.
    Plain,
}

impl Editor {
    /// Arguments of `initialize`.
    pub(crate) fn initialize(self) -> Value {
        match self {
            Self::VsCode => json!({
                "clientID": "vscode", "clientName": "Visual Studio Code", "adapterID": "debugpy",
                "pathFormat": "path", "linesStartAt1": true, "columnsStartAt1": true,
                "supportsVariableType": true, "supportsVariablePaging": true,
                "supportsRunInTerminalRequest": true, "locale": "en",
                "supportsProgressReporting": true, "supportsInvalidatedEvent": true,
                "supportsMemoryReferences": true, "supportsArgsCanBeInterpretedByShell": true,
                "supportsMemoryEvent": true, "supportsStartDebuggingRequest": true,
                "supportsANSIStyling": true,
            }),
            Self::Neovim => json!({
                "clientID": "neovim", "clientName": "neovim", "adapterID": "python",
                "pathFormat": "path", "columnsStartAt1": true, "linesStartAt1": true,
                "supportsRunInTerminalRequest": true, "supportsVariableType": true,
                "supportsProgressReporting": true, "supportsStartDebuggingRequest": true,
                "locale": "C.UTF-8",
            }),
            Self::Plain => json!({
                "clientID": "plain", "adapterID": "debugpy", "pathFormat": "path",
                "linesStartAt1": true, "columnsStartAt1": true,
            }),
        }
    }

    /// Arguments of `attach` towards `host` and `port`, with the editor's own defaults.
    pub(crate) fn attach(self, host: &str, port: u16, workspace: &str) -> Map<String, Value> {
        let arguments = match self {
            Self::VsCode => json!({
                "name": "plain attach", "type": "debugpy", "request": "attach",
                "connect": {"host": host, "port": port}, "__configurationTarget": 6,
                "clientOS": "unix", "debugOptions": ["RedirectOutput", "ShowReturnValue"],
                "justMyCode": true, "showReturnValue": true, "workspaceFolder": workspace,
                "__sessionId": "6b5c2f1e-3a7d-4f0e-9d54-0c8f5a1b2e3d",
            }),
            Self::Neovim => json!({
                "type": "ray", "request": "attach", "name": format!("Ray: task RUNNING @ {host}:{port}"),
                "host": host, "port": port, "justMyCode": false,
            }),
            Self::Plain => json!({"connect": {"host": host, "port": port}, "justMyCode": false}),
        };
        serde_json::from_value(arguments).unwrap()
    }

    /// Filters of `setExceptionBreakpoints`.
    fn exception_filters(self) -> Value {
        match self {
            Self::VsCode | Self::Neovim => json!({"filters": ["uncaught"]}),
            Self::Plain => json!({"filters": []}),
        }
    }
}

/// One debug session.
pub(crate) struct DapClient {
    editor: Editor,
    reading: Box<dyn AsyncRead + Send + Unpin>,
    writing: Box<dyn AsyncWrite + Send + Unpin>,
    unread: Vec<u8>,
    /// Received and not yet asked for.
    pending: Vec<Value>,
    received: String,
    seq: u64,
    _bridge: Option<Child>,
}

/// Why a wait ended without a message.
#[derive(Debug, PartialEq, Eq)]
enum Stopped {
    Late,
    Eof,
}

impl DapClient {
    /// Connects from inside `node` (`client`, usually) of `cluster`.
    pub(crate) async fn connect_from(
        editor: Editor,
        cluster: &Cluster,
        node: &str,
        to: SocketAddr,
    ) -> Self {
        let bridge = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cluster/bridge.py");
        let mut command = cluster.exec(node, cluster.venv().python());
        command
            .arg(bridge)
            .args([to.ip().to_string(), to.port().to_string()]);
        Self::through(editor, command)
    }

    /// Speaks to standard input and output of `command`.
    pub(crate) fn through(editor: Editor, command: std::process::Command) -> Self {
        let mut child = tokio::process::Command::from(command)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let reading = Box::new(child.stdout.take().unwrap());
        let writing = Box::new(child.stdin.take().unwrap());
        Self::over(editor, reading, writing, Some(child))
    }

    fn over(
        editor: Editor,
        reading: Box<dyn AsyncRead + Send + Unpin>,
        writing: Box<dyn AsyncWrite + Send + Unpin>,
        bridge: Option<Child>,
    ) -> Self {
        Self {
            editor,
            reading,
            writing,
            unread: Vec::new(),
            pending: Vec::new(),
            received: String::new(),
            seq: 0,
            _bridge: bridge,
        }
    }

    // ---- messages

    /// Sends a request; returns its `seq`.
    pub(crate) async fn send(&mut self, command: &str, arguments: Value) -> u64 {
        let message = self.request(command, &arguments);
        self.write(&message).await;
        self.seq
    }

    fn request(&mut self, command: &str, arguments: &Value) -> Value {
        self.seq += 1;
        json!({"seq": self.seq, "type": "request", "command": command, "arguments": arguments})
    }

    /// Sends bytes as they are, for what no editor would send.
    pub(crate) async fn send_raw(&mut self, bytes: &[u8]) {
        self.writing.write_all(bytes).await.unwrap();
        self.writing.flush().await.unwrap();
    }

    async fn write(&mut self, message: &Value) {
        let body = message.to_string();
        let frame = format!("Content-Length: {}\r\n\r\n{body}", body.len());
        self.send_raw(frame.as_bytes()).await;
    }

    /// The response to the request `seq`, successful or not.
    pub(crate) async fn response(&mut self, seq: u64) -> Value {
        let what = format!("the response to request {seq}");
        self.find(&what, |message| {
            message["type"] == "response" && message["request_seq"] == seq
        })
        .await
    }

    /// Sends a request that must succeed; returns the body of its response.
    pub(crate) async fn call(&mut self, command: &str, arguments: Value) -> Value {
        let seq = self.send(command, arguments).await;
        let mut response = self.response(seq).await;
        assert_eq!(response["success"], true, "{command}: {response}");
        response["body"].take()
    }

    /// The next event of that name; returns its body.
    pub(crate) async fn event(&mut self, name: &str) -> Value {
        let what = format!("the event {name}");
        let mut event = self
            .find(&what, |message| {
                message["type"] == "event" && message["event"] == name
            })
            .await;
        event["body"].take()
    }

    /// The text of the next `output` event that the client is to show prominently.
    pub(crate) async fn important_output(&mut self) -> String {
        let what = "an important output";
        let event = self
            .find(what, |message| {
                message["event"] == "output" && message["body"]["category"] == "important"
            })
            .await;
        event["body"]["output"].as_str().unwrap().to_owned()
    }

    /// The next `output` event that says `text`; returns its body.
    pub(crate) async fn output_with(&mut self, text: &str) -> Value {
        let mut event = self
            .find(text, |message| {
                let output = message["body"]["output"].as_str();
                message["event"] == "output" && output.is_some_and(|output| output.contains(text))
            })
            .await;
        event["body"].take()
    }

    /// The configuration of the next child session that the adapter asks for (`startDebugging`),
    /// after answering as VS Code does.
    pub(crate) async fn child(&mut self) -> Map<String, Value> {
        let mut request = self
            .find("startDebugging", |message| {
                message["type"] == "request" && message["command"] == "startDebugging"
            })
            .await;
        self.seq += 1;
        let answer = json!({"seq": self.seq, "type": "response", "request_seq": request["seq"],
            "success": true, "command": "startDebugging"});
        self.write(&answer).await;
        assert_eq!(request["arguments"]["request"], "attach", "{request}");
        serde_json::from_value(request["arguments"]["configuration"].take()).unwrap()
    }

    /// Waits until the other side has closed.
    pub(crate) async fn eof(&mut self) {
        let end = self.find_within(TEST_TIMEOUT, |_| false).await;
        assert_eq!(end, Err(Stopped::Eof), "the connection is still open");
    }

    /// All text received so far.
    pub(crate) fn transcript(&self) -> &str {
        &self.received
    }

    async fn find(&mut self, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        match self.find_within(TEST_TIMEOUT, is).await {
            Ok(message) => message,
            Err(stopped) => {
                let tail: Vec<char> = self.received.chars().rev().take(3000).collect();
                let tail: String = tail.into_iter().rev().collect();
                panic!("{what}: {stopped:?}; received last: {tail}")
            }
        }
    }

    async fn find_within(
        &mut self,
        max_wait: Duration,
        is: impl Fn(&Value) -> bool,
    ) -> Result<Value, Stopped> {
        if let Some(at) = self.pending.iter().position(&is) {
            return Ok(self.pending.remove(at));
        }
        let end = tokio::time::Instant::now() + max_wait;
        loop {
            let message = tokio::time::timeout_at(end, self.read())
                .await
                .map_err(|_| Stopped::Late)?
                .ok_or(Stopped::Eof)?;
            if is(&message) {
                return Ok(message);
            }
            self.pending.push(message);
        }
    }

    /// Cancel safe: bytes read so far stay in `unread`.
    async fn read(&mut self) -> Option<Value> {
        loop {
            if let Some(message) = self.take_frame() {
                return Some(message);
            }
            self.unread.reserve(16 * 1024);
            if self.reading.read_buf(&mut self.unread).await.unwrap_or(0) == 0 {
                return None;
            }
        }
    }

    fn take_frame(&mut self) -> Option<Value> {
        let blank = self
            .unread
            .windows(4)
            .position(|four| four == b"\r\n\r\n")?;
        let head = std::str::from_utf8(&self.unread[..blank]).unwrap();
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("Content-Length:"))
            .and_then(|length| length.trim().parse::<usize>().ok())
            .unwrap_or_else(|| panic!("not a DAP header: {head:?}"));
        let end = blank + 4 + length;
        let body = self.unread.get(blank + 4..end)?;
        let message = serde_json::from_slice(body).unwrap();
        self.received.push_str(std::str::from_utf8(body).unwrap());
        self.received.push('\n');
        self.unread.drain(..end);
        Some(message)
    }

    // ---- conversation

    /// `initialize`; returns the capabilities.
    pub(crate) async fn initialize(&mut self) -> Value {
        self.call("initialize", self.editor.initialize()).await
    }

    /// `initialize`, `attach`, breakpoints, `configurationDone`, `threads`, in the editor's order.
    /// `breakpoints` are lines of one file. Panics where the attach is refused.
    pub(crate) async fn start(
        &mut self,
        attach: Map<String, Value>,
        breakpoints: Option<(&str, &[u32])>,
    ) {
        let response = self.try_start(attach, breakpoints).await;
        assert_eq!(response["success"], true, "attach: {response}");
    }

    /// Like [`DapClient::start`], but returns the response to `attach`, whatever it says.
    pub(crate) async fn try_start(
        &mut self,
        attach: Map<String, Value>,
        breakpoints: Option<(&str, &[u32])>,
    ) -> Value {
        self.initialize().await;
        let attach = self.send("attach", Value::Object(attach)).await;
        let first = self
            .find("`initialized`, or a refusal", |message| {
                message["event"] == "initialized" || message["request_seq"] == attach
            })
            .await;
        if first["type"] == "response" {
            return first;
        }
        if let Some((file, lines)) = breakpoints {
            self.set_breakpoints(file, lines).await;
        }
        if self.editor == Editor::VsCode {
            let body = self
                .call("setFunctionBreakpoints", json!({"breakpoints": []}))
                .await;
            assert!(body["breakpoints"].is_array(), "VS Code stops here: {body}");
        }
        self.call("setExceptionBreakpoints", self.editor.exception_filters())
            .await;
        self.call("configurationDone", json!({})).await;
        let response = self.response(attach).await;
        let threads = self.send("threads", json!({})).await;
        let threads = self.response(threads).await;
        // A subprocess that stops nowhere may have ended by now.
        let why = threads["message"].as_str().unwrap_or_default();
        let has_ended = why.ends_with(" disconnected unexpectedly");
        assert!(threads["success"] == true || has_ended, "{threads}");
        response
    }

    /// Sets the breakpoints of one file; returns debugpy's word on each (`verified`, `line`).
    pub(crate) async fn set_breakpoints(&mut self, file: &str, lines: &[u32]) -> Vec<Value> {
        let breakpoints: Vec<Value> = lines.iter().map(|line| json!({"line": line})).collect();
        let arguments = json!({"source": {"path": file}, "breakpoints": breakpoints});
        let mut body = self.call("setBreakpoints", arguments).await;
        serde_json::from_value(body["breakpoints"].take()).unwrap()
    }

    /// Waits for the next stop; returns its thread and reason.
    pub(crate) async fn stopped(&mut self) -> (u64, String) {
        let body = self.event("stopped").await;
        let reason = body["reason"].as_str().unwrap_or_default().to_owned();
        (body["threadId"].as_u64().unwrap(), reason)
    }

    /// The thread of the next stop, if one comes in time.
    pub(crate) async fn stopped_within(&mut self, max_wait: Duration) -> Option<u64> {
        let stop = self
            .find_within(max_wait, |message| message["event"] == "stopped")
            .await
            .ok()?;
        stop["body"]["threadId"].as_u64()
    }

    /// Frames of a stopped thread, the innermost first.
    pub(crate) async fn frames(&mut self, thread: u64) -> Vec<Frame> {
        let arguments = json!({"threadId": thread, "startFrame": 0, "levels": 20});
        let body = self.call("stackTrace", arguments).await;
        let frames = body["stackFrames"].as_array().unwrap();
        frames.iter().map(Frame::read).collect()
    }

    /// Local variables of a frame: name and value as the editor shows it.
    pub(crate) async fn locals(
        &mut self,
        frame: u64,
    ) -> std::collections::BTreeMap<String, String> {
        let scopes = self.call("scopes", json!({"frameId": frame})).await;
        let reference = &scopes["scopes"][0]["variablesReference"];
        let body = self
            .call("variables", json!({"variablesReference": reference}))
            .await;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let variables = body["variables"].as_array().unwrap();
        variables
            .iter()
            .map(|variable| (text(&variable["name"]), text(&variable["value"])))
            .collect()
    }

    /// Evaluates in a frame, as the debug console does.
    pub(crate) async fn evaluate(&mut self, frame: u64, expression: &str) -> String {
        let arguments = json!({"expression": expression, "frameId": frame, "context": "repl"});
        let body = self.call("evaluate", arguments).await;
        body["result"].as_str().unwrap_or_default().to_owned()
    }

    /// Steps over one line and waits for the stop.
    pub(crate) async fn step_over(&mut self, thread: u64) -> (u64, String) {
        self.call("next", json!({"threadId": thread})).await;
        self.stopped().await
    }

    /// Resumes the thread.
    pub(crate) async fn resume(&mut self, thread: u64) {
        self.call("continue", json!({"threadId": thread})).await;
    }

    /// Leaves as an editor does when one presses Stop.
    pub(crate) async fn disconnect(self) {
        self.leave(false).await;
    }

    /// Leaves as an editor does when one presses Restart.
    pub(crate) async fn restart(self) {
        self.leave(true).await;
    }

    async fn leave(mut self, restart: bool) {
        let arguments = json!({"restart": restart, "terminateDebuggee": false});
        self.call("disconnect", arguments).await;
    }
}

/// One frame of a stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    /// The debugger's id of the frame, for `locals` and `evaluate`.
    pub(crate) id: u64,
    /// Name of the function.
    pub(crate) name: String,
    /// File, as the client sees it.
    pub(crate) path: String,
    /// 1-based.
    pub(crate) line: u32,
}

impl Frame {
    fn read(frame: &Value) -> Self {
        Self {
            id: frame["id"].as_u64().unwrap(),
            name: frame["name"].as_str().unwrap_or_default().to_owned(),
            path: frame["source"]["path"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
            line: frame["line"].as_u64().unwrap() as u32,
        }
    }
}
