//! `ray-relay dap`: a debug adapter on standard input and output, for editors that start one.
//!
//! Messages pass unchanged, except for the `attach` request, which gets the command line's choice of the task. If the
//! relay is unreachable, the editor gets an answer with the reason.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, join, split};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::editor_link::EditorLink;
use super::relay_client::RelayError;
use super::relay_dial::dial;
use super::worker_session::{RequestedTask, WorkerSessionError as SessionError, relay_block};
use super::{DapArgs, Failure};
use ray_relay_base::wire::dap::codec::{Frames, frame, parse};
use ray_relay_base::wire::dap::message::Request;
use ray_relay_base::wire::json::put;
use ray_relay_debugger::pdb::Lost;

pub(super) const AFTER_HELP: &str = "\
Examples:
  Helix, languages.toml:
    [language.debugger]
    name = \"ray\"
    transport = \"stdio\"
    command = \"ray-relay\"
    args = [\"dap\", \"--next\"]              # and \"--kube\" for a relay in Kubernetes
  Neovim, nvim-dap:
    require('dap').adapters.ray = { type = 'executable', command = 'ray-relay', args = { 'dap' } }
  VS Code, launch.json: \"listen\" has it start the Python program in \"debugAdapterPath\"; nothing listens.
    { \"name\": \"Ray\", \"type\": \"debugpy\", \"request\": \"attach\", \"listen\": { \"port\": 5678 },
      \"debugAdapterPath\": \"${workspaceFolder}/.vscode/ray-relay-dap.py\" }
    and in .vscode/ray-relay-dap.py:
    import os; os.execvp(\"ray-relay\", [\"ray-relay\", \"dap\"])

An editor starts it and speaks DAP to it; it speaks to the relay. The attach request's \"rayRelay\" goes before --breakpoint, --task and --next.

Exit codes: 0 done, 69 the relay cannot be reached.";

/// Maximum size of a message to refuse, in bytes.
const MAX_MESSAGE_BYTES: usize = 1 << 20;

/// Time limit for an editor to send the request that is refused.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) async fn run(args: DapArgs) -> Result<(), Failure> {
    let block = match (&args.breakpoint, &args.task, args.next) {
        (Some(id), _, _) => Some(json!({ "breakpoint": id.to_string() })),
        (None, task, true) => Some(relay_block(&RequestedTask::Next(task.clone()))),
        (None, Some(task), false) => Some(relay_block(&RequestedTask::Named(task.clone()))),
        (None, None, false) => None,
    };
    let (stdin, stdout) = (tokio::io::stdin(), tokio::io::stdout());
    let dialled = async {
        let mut args = args.relay.clone();
        args.reach().await?;
        let token = args.shown_token().await?;
        Ok::<_, RelayError>((dial(&args).await?, token))
    };
    match dialled.await {
        Ok((relay, token)) => {
            let token = token.as_ref().map(|token| token.as_str());
            Ok(serve(stdin, stdout, relay, block.as_ref(), token).await?)
        }
        Err(error) => {
            // The editor shows the answer; its user never sees standard error.
            refuse(stdin, stdout, &error.to_string()).await;
            Err(error.into())
        }
    }
}

async fn serve<I, O, R>(
    editor: I,
    to_editor: O,
    relay: R,
    block: Option<&Value>,
    token: Option<&str>,
) -> Result<(), SessionError>
where
    I: AsyncRead + Unpin,
    O: AsyncWrite + Unpin,
    R: AsyncRead + AsyncWrite + Unpin,
{
    let (from_relay, to_relay) = split(relay);
    let relay = join(from_relay, to_relay);
    // The relay ends the session: it answers a disconnect, and closes when a session is over.
    let link = EditorLink::new(join(editor, to_editor), relay, true, Duration::ZERO);
    let amended = |attach: &mut Value| {
        keep_listen(attach);
        amend(attach, block);
        show(attach, token);
    };
    let (_, no_notices) = mpsc::channel(1);
    let ended = Box::pin(link.run(amended, no_notices)).await;
    ended.map_err(|error| SessionError::Lost(Lost::Broken(error.to_string())))
}

/// VS Code starts a program only for a configuration with `listen`. The relay refuses that key, since a worker's
/// debugger would listen there. Move it into the relay's own block, so that sessions which the relay makes the editor
/// open are started the same way.
fn keep_listen(attach: &mut Value) {
    let Some(arguments) = attach.get_mut("arguments").and_then(Value::as_object_mut) else {
        return;
    };
    let Some(listen) = arguments.shift_remove("listen") else {
        return;
    };
    let own = arguments.entry("rayRelay").or_insert(Value::Null);
    // A string names one task, and no further session is opened.
    if own.is_null() || own.is_object() {
        match own.as_object_mut() {
            Some(own) => drop(own.insert("listen".to_owned(), listen)),
            None => *own = json!({ "listen": listen }),
        }
    }
}

/// The arguments of `attach`, made an object if needed.
fn arguments_of(attach: &mut Value) -> Option<&mut Value> {
    if !attach.get("arguments").is_some_and(Value::is_object) {
        put(attach, "arguments", json!({}));
    }
    attach.get_mut("arguments")
}

/// Adds the task to the attach arguments, if they do not name one.
fn amend(attach: &mut Value, block: Option<&Value>) {
    let Some(Value::Object(block)) = block else {
        return;
    };
    let arguments = arguments_of(attach).and_then(Value::as_object_mut);
    let Some(own) = arguments.map(|all| all.entry("rayRelay").or_insert(Value::Null)) else {
        return;
    };
    match own {
        Value::Null => *own = Value::Object(block.clone()),
        Value::Object(own)
            if !["breakpoint", "task", "worker", "next", "all"]
                .iter()
                .any(|key| own.contains_key(*key)) =>
        {
            own.extend(block.clone());
        }
        _ => {}
    }
}

/// Adds the token to the attach arguments, unless the editor has its own.
fn show(attach: &mut Value, token: Option<&str>) {
    let (Some(token), Some(arguments)) = (token, arguments_of(attach)) else {
        return;
    };
    let own = ["/rayRelay/token", "/rayRelay/ticket", "/rayRelayToken"];
    if own.iter().all(|place| arguments.pointer(place).is_none()) {
        put(arguments, "rayRelayToken", token);
    }
}

/// Answers the first request with `sentence`.
async fn refuse(
    mut editor: impl AsyncRead + Unpin,
    mut to_editor: impl AsyncWrite + Unpin,
    sentence: &str,
) {
    let mut frames = Frames::new(MAX_MESSAGE_BYTES);
    let answered = async {
        loop {
            while let Ok(Some(body)) = frames.next_body() {
                if let Some(request) = parse(&body).ok().as_mut().and_then(Request::read) {
                    to_editor
                        .write_all(&frame(&request.failure(sentence)))
                        .await?;
                    return to_editor.flush().await;
                }
            }
            if editor.read_buf(frames.buffer()).await? == 0 {
                return Ok(());
            }
        }
    };
    let _ = timeout(REFUSAL_TIMEOUT, answered).await;
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;
    use tokio::io::duplex;

    use super::*;
    use ray_relay_base::wire::dap::message::event;
    use ray_relay_base::wire::dap::names::Event;

    #[test]
    fn editor_settings_take_precedence() {
        let amended = |arguments: Value| {
            let mut attach =
                json!({"type": "request", "command": "attach", "arguments": arguments});
            amend(&mut attach, Some(&json!({"next": true})));
            attach["arguments"]["rayRelay"].take()
        };
        assert_eq!(amended(json!({})), json!({"next": true}));
        assert_eq!(amended(Value::Null), json!({"next": true}));
        assert_eq!(amended(json!({"rayRelay": "0123abcd"})), json!("0123abcd"));
        assert_eq!(
            amended(json!({"rayRelay": {"task": "x"}})),
            json!({"task": "x"})
        );
        assert_eq!(
            amended(json!({"rayRelay": {"localRoot": "/x"}})),
            json!({"localRoot": "/x", "next": true})
        );
    }

    #[test]
    fn listen_is_kept_for_child_sessions() {
        let kept_listen = |arguments: Value| {
            let mut attach =
                json!({"type": "request", "command": "attach", "arguments": arguments});
            keep_listen(&mut attach);
            amend(&mut attach, Some(&json!({"next": true})));
            attach["arguments"].take()
        };
        let listen = json!({"port": 5678});
        assert_eq!(
            kept_listen(json!({"listen": listen})),
            json!({"rayRelay": {"listen": listen, "next": true}})
        );
        assert_eq!(
            kept_listen(json!({"listen": listen, "rayRelay": {"breakpoint": "0123abcd"}})),
            json!({"rayRelay": {"breakpoint": "0123abcd", "listen": listen}})
        );
        assert_eq!(
            kept_listen(json!({"listen": listen, "rayRelay": "square"})),
            json!({"rayRelay": "square"})
        );
    }

    #[test]
    fn token_is_added_unless_the_editor_sends_one() {
        let with_credential = |arguments: Value| {
            let mut attach = json!({"arguments": arguments});
            show(&mut attach, Some("t"));
            attach["arguments"].take()
        };
        assert_eq!(with_credential(Value::Null), json!({"rayRelayToken": "t"}));
        let by_name = with_credential(json!({"rayRelay": "square"}));
        assert_eq!(by_name, json!({"rayRelay": "square", "rayRelayToken": "t"}));
        for own_credential in [
            json!({"rayRelay": {"token": "own"}}),
            json!({"rayRelay": {"ticket": "own"}}),
            json!({"rayRelayToken": "own"}),
        ] {
            assert_eq!(with_credential(own_credential.clone()), own_credential);
        }
    }

    #[tokio::test]
    async fn messages_pass_both_ways_and_attach_is_amended() {
        let (mut editor_in, stdin) = duplex(1 << 16);
        let (stdout, mut editor_out) = duplex(1 << 16);
        let (relay, mut relay_end) = duplex(1 << 16);
        let task = tokio::spawn(async move {
            serve(stdin, stdout, relay, Some(&json!({"next": true})), None).await
        });
        let initialize = json!({"seq": 1, "type": "request", "command": "initialize"});
        let attach = json!({"seq": 2, "type": "request", "command": "attach", "arguments": {}});
        let mut sent = frame(&initialize);
        sent.extend(frame(&attach));
        let threads = json!({"seq": 3, "type": "request", "command": "threads"});
        sent.extend(frame(&threads));
        editor_in.write_all(&sent).await.unwrap();
        drop(editor_in);
        let mut received = Vec::new();
        relay_end.read_to_end(&mut received).await.unwrap();
        let mut amended = attach.clone();
        amended["arguments"] = json!({"rayRelay": {"next": true}});
        assert_eq!(
            received,
            [frame(&initialize), frame(&amended), frame(&threads)].concat()
        );
        // Messages of the relay still arrive after the editor has closed its side.
        let last = frame(&event(Event::Terminated, Value::Null));
        relay_end.write_all(&last).await.unwrap();
        drop(relay_end);
        let mut received = Vec::new();
        editor_out.read_to_end(&mut received).await.unwrap();
        assert_eq!(received, last);
        task.await.unwrap().unwrap();
    }
}
