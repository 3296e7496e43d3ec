//! Opens a session, from a connection to the first location.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::line::Mode;
use super::request::{if_any, program_output};
use super::{After, Interrupt, Prompt};
use crate::pdb::breakpoints::PromptBreakpoints;
use crate::pdb::error::PromptError;
use crate::pdb::output::Piece;
use crate::pdb::wire::{BeforeStop, Wire};
use ray_relay_base::memory::{Account, MemoryUse};
use ray_relay_base::wire::dap::message::ThreadEvent;
use ray_relay_base::wire::dap::names::Command;
use ray_relay_base::wire::dap::{mappings, post_mortem};

/// Options of a session.
#[derive(Debug, Clone)]
pub struct Options {
    /// The client's name.
    pub client: String,
    /// `rayRelay` of the attach arguments; null for a worker's own debugger.
    pub relay: Value,
    /// Longest value that is printed, in characters.
    pub limit: usize,
    /// Whether `q!` is sent at all; otherwise it is refused with a sentence.
    pub may_kill: bool,
    /// The deadline of the first stop; `None` waits until there is one.
    pub patience: Option<Duration>,
    /// Whether a local file may replace source that the worker does not show. The worker names the file, so only if
    /// this machine belongs to the user of the prompt.
    pub local_sources: bool,
    /// The account for messages of the debugger.
    pub account: Account,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            client: "ray-relay debug".to_owned(),
            relay: Value::Null,
            limit: 20_000,
            may_kill: true,
            patience: Some(Duration::from_secs(30)),
            local_sources: false,
            account: Account::default(),
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Prompt<S> {
    /// A prompt over a `stream` to a debugger in an unknown state.
    pub(super) fn over(stream: S, options: &Options, out: mpsc::Sender<Piece>) -> Self {
        let (interrupting, interrupts) = watch::channel(0);
        let (ending, task_ends) = watch::channel(0);
        Self {
            wire: Wire::new(stream, &options.account),
            out,
            interrupts,
            task_ends,
            interrupter: Interrupt {
                interrupts: interrupting,
                task_ends: ending,
            },
            resumed: watch::Sender::new(0),
            limit: options.limit,
            may_kill: options.may_kill,
            local_sources: options.local_sources,
            digests: false,
            capabilities: Value::Null,
            opened: options.account.empty(MemoryUse::Messages),
            events: VecDeque::new(),
            thread: 0,
            stack: Vec::new(),
            stacked: options.account.empty(MemoryUse::Messages),
            hidden: 0,
            current: 0,
            mode: Mode::Command,
            queue: VecDeque::new(),
            worked: 0,
            last: String::new(),
            listed: None,
            sources: HashMap::new(),
            table: PromptBreakpoints::default(),
            kept: PromptBreakpoints::default(),
            displays: HashMap::new(),
            aliases: BTreeMap::new(),
            returned: None,
            raised: false,
            failed: false,
            evaluates: None,
        }
    }

    /// Attaches over `stream` and prints where the task has stopped. Output goes to `out`, which must be read
    /// meanwhile. Cancelling it drops the connection: before the first stop the task keeps waiting.
    ///
    /// # Errors
    /// [`PromptError`].
    pub async fn open(
        stream: S,
        options: &Options,
        out: mpsc::Sender<Piece>,
    ) -> Result<(Self, After), PromptError> {
        let mut prompt = Self::over(stream, options, out);
        // In effect unlimited, and within the range of the timer.
        let patience = options.patience.unwrap_or(Duration::from_secs(30 * 86_400));
        let stop = match timeout(patience, prompt.attach(options)).await {
            Ok(stop) => stop?,
            Err(_) => return Err(PromptError::Late(patience)),
        };
        let (stop, resumes) = stop;
        prompt.arrive(stop).await.map_err(PromptError::Lost)?;
        if resumes {
            prompt.adopt_breakpoints().await?;
        }
        let after = prompt.work().await?;
        Ok((prompt, after))
    }

    /// Returns the first stop, and whether another client has attached to the debugger before.
    async fn attach(&mut self, options: &Options) -> Result<(ThreadEvent, bool), PromptError> {
        let client = json!({
            "clientID": "ray-relay", "clientName": options.client, "adapterID": "debugpy", "pathFormat": "path",
            "linesStartAt1": true, "columnsStartAt1": true, "supportsVariableType": true,
        });
        self.capabilities = self.ask_soon(Command::Initialize, client).await?;
        self.opened = self.wire.keep();
        let mut arguments = arguments(&options.client);
        if !options.relay.is_null() {
            arguments["rayRelay"] = options.relay.clone();
        }
        let attach = self.wire.send(Command::Attach, arguments).await?;
        // The response comes after configurationDone.
        let resumes = loop {
            match self.wire.before_initialized(attach).await? {
                BeforeStop::Output(output) => {
                    if let Some(piece) = program_output(&output) {
                        self.put(piece).await;
                    }
                }
                BeforeStop::Initialized { resumed } => break resumed,
            }
        };
        // The relay prepares a debugger that is reached through it.
        if options.relay.is_null() {
            let prepares = post_mortem::pausing_monitoring();
            if_any(self.ask_soon(Command::Evaluate, prepares).await).map_err(PromptError::Lost)?;
        }
        // Without it a post-mortem does not stop.
        let filters = json!({"filters": ["uncaught"]});
        self.ask_soon(Command::SetExceptionBreakpoints, filters)
            .await?;
        self.ask_soon(Command::ConfigurationDone, Value::Null)
            .await?;
        let mut task_ends = self.task_ends.clone();
        tokio::select! {
            stop = self.next_stop() => match stop? {
                Some(stop) => Ok((stop, resumes)),
                // The end of the session may arrive in one read with the end of the task.
                None if task_ends.has_changed().unwrap_or_default() => Err(PromptError::TaskEnded),
                None => Err(PromptError::NoStop),
            },
            // A task that did not wait for a debugger.
            _ = task_ends.changed() => Err(PromptError::TaskEnded),
        }
    }
}

/// Arguments of an `attach` of a prompt with the name `client`.
pub(super) fn arguments(client: &str) -> Value {
    json!({
        "name": client, "request": Command::Attach, "type": "debugpy",
        // Ray's frames are hidden here, by name; the user's may be anywhere.
        "justMyCode": false, "redirectOutput": true, "showReturnValue": true, "subProcess": false,
        // Lines shown come from the worker's files.
        "pathMappings": mappings::none(), "clientOS": "unix",
    })
}
