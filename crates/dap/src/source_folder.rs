//! Commands typed as expressions: `ray-relay localRoot FOLDER` maps the job's `working_dir` to a folder while the task
//! is paused; `ray-relay missing [PATHS]` is sent by `connect` and `dap` on their own.
//!
//! Pure. Only the editor sees its disk, and it asks no debugger for what it does not find there. Attaching again with
//! another `rayRelay.localRoot` would resume the task.

use memchr::memmem;
use serde::Deserialize;
use serde_json::{Value, json};

use ray_relay_base::wire::dap::mappings::{ClientFiles, MISSING};
use ray_relay_base::wire::dap::message::Request;
use ray_relay_base::wire::dap::names::Command;
use ray_relay_base::wire::dap::peek::{Depth, MessageType, Peek, Walk};
use ray_relay_base::wire::json;
use ray_relay_base::wire::text::shortened;

/// Prefix of the command: not a Python expression.
pub(super) const LOCAL_ROOT_COMMAND: &str = "ray-relay localRoot";

/// Prefix of all commands for the relay. None of them is ever sent to a task.
const COMMAND_PREFIX: &str = "ray-relay";

const USAGE: &str = "say `ray-relay localRoot FOLDER` with the whole path of the folder on your machine that holds the files of the job's working_dir, or `ray-relay localRoot \"\"` to be shown the worker's own";

const MAX_PATH_BYTES: usize = 4096;

/// Missing files in one command.
const MAX_MISSING: usize = 64;

/// The arguments of an `evaluate`.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Evaluation<'a> {
    pub(super) expression: &'a str,
    /// Context of the evaluation: `repl` if a user has typed it.
    pub(super) context: Option<&'a str>,
}

/// Whether the request with this body evaluates an expression, and not a command for the relay.
pub(super) fn is_expression(body: &[u8]) -> bool {
    let seen = Walk::new(Depth::Whole).peek(body, body.len());
    seen == Peek::Known(MessageType::Request, Command::Evaluate.as_str().as_bytes())
        && memmem::find(body, COMMAND_PREFIX.as_bytes()).is_none()
}

/// The files in the command that `message` has, if a user has typed one; the error is a sentence on its usage.
pub(super) fn command_in(message: &Value) -> Option<Result<ClientFiles, &'static str>> {
    let evaluates = Request::is(message, Command::Evaluate);
    evaluates.then(|| typed(message.get("arguments")?))?
}

/// The same of the arguments of an `evaluate`.
pub(super) fn typed(arguments: &Value) -> Option<Result<ClientFiles, &'static str>> {
    let Evaluation {
        expression,
        context,
    } = json::typed(arguments);
    // Evaluations by the editor itself (watches, hovers) are no commands.
    if context != Some("repl") {
        return None;
    }
    let text = expression.trim();
    let rest = text.strip_prefix(COMMAND_PREFIX)?;
    if !rest.is_empty() && !rest.starts_with(char::is_whitespace) {
        return None;
    }
    if let Some(paths) = text.strip_prefix(MISSING) {
        let paths: Option<Vec<String>> = serde_json::from_str(paths).ok();
        let paths = paths.filter(|all| all.len() <= MAX_MISSING);
        let paths = paths.filter(|all| all.iter().all(|path| path.len() <= MAX_PATH_BYTES));
        return Some(paths.map_or(Err(USAGE), |all| Ok(ClientFiles::Without(all.into()))));
    }
    let Some(rest) = text.strip_prefix(LOCAL_ROOT_COMMAND) else {
        return Some(Err(USAGE));
    };
    if !rest.is_empty() && !rest.starts_with(char::is_whitespace) {
        return Some(Err(USAGE));
    }
    let rest = rest.trim();
    let quoted = ['"', '\'']
        .iter()
        .find_map(|quote| rest.strip_prefix(*quote)?.strip_suffix(*quote));
    let folder = quoted.unwrap_or(rest);
    let drive = |path: &str| path.as_bytes().get(1) == Some(&b':');
    let whole = folder.starts_with(['/', '\\']) || drive(folder);
    let none = folder.is_empty() && quoted.is_some();
    Some(match (none || whole) && folder.len() <= MAX_PATH_BYTES {
        true => Ok(ClientFiles::Below(folder.into())),
        false => Err(USAGE),
    })
}

/// The answer to `request`, once `files` are mapped.
pub(super) fn done(request: &Request, files: &ClientFiles) -> Value {
    request.success(json!({"result": holds(files), "variablesReference": 0}))
}

/// The sentence that `files` are mapped.
pub(super) fn holds(files: &ClientFiles) -> String {
    let ClientFiles::Below(folder) = files else {
        return "these files are shown as the worker has them, read-only".to_owned();
    };
    let sentence = match &**folder {
        "" => "files are shown as the worker has them, read-only".to_owned(),
        folder => format!(
            "{} stands for the folder that the task runs in",
            shortened(folder, 200)
        ),
    };
    format!(
        "{sentence}; for the next time: \"rayRelay\": {{\"localRoot\": {}}} in the configuration",
        Value::from(shortened(folder, 200))
    )
}

/// Sets `folder` in the `arguments` of a client's own `attach`, for child sessions.
pub(super) fn put_into(arguments: &mut Value, folder: &str) {
    let Some(arguments) = arguments.as_object_mut() else {
        return;
    };
    arguments.shift_remove("pathMappings");
    let relay = arguments.entry("rayRelay").or_insert(Value::Null);
    match relay {
        Value::Object(keys) => _ = keys.insert("localRoot".into(), folder.into()),
        // The task is selected by now.
        other => *other = json!({"localRoot": folder}),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use ray_relay_base::wire::dap::mappings;

    fn read(expression: &str) -> Option<Result<ClientFiles, &'static str>> {
        let arguments = json!({"expression": expression, "context": "repl", "frameId": 2});
        let request =
            json!({"seq": 3, "type": "request", "command": "evaluate", "arguments": arguments});
        let is_plain = is_expression(request.to_string().as_bytes());
        let folder = command_in(&request);
        assert!(!(is_plain && folder.is_some()), "{expression}");
        folder
    }

    #[test]
    fn source_folder_must_be_an_absolute_path_or_empty() {
        for (expression, folder) in [
            ("ray-relay localRoot \"\"", ""),
            ("  ray-relay localRoot  ''  ", ""),
            ("ray-relay localRoot /home/ada/a job", "/home/ada/a job"),
            ("ray-relay localRoot \"/home/ada\"", "/home/ada"),
            ("ray-relay localRoot c:\\ada", "c:\\ada"),
        ] {
            assert_eq!(
                read(expression),
                Some(Ok(ClientFiles::Below(folder.into()))),
                "{expression}"
            );
        }
        let long = format!("ray-relay localRoot /{}", "x".repeat(MAX_PATH_BYTES));
        let paths = ["/home/a \"b\".py".to_owned()];
        let missing = mappings::missing(&paths);
        let expected = ClientFiles::Without(paths.to_vec().into());
        assert_eq!(read(&missing), Some(Ok(expected)));
        let too_many = mappings::missing(&vec![String::new(); MAX_MISSING + 1]);
        for expression in [
            "ray-relay missing /a.py",
            "ray-relay missing {}",
            "ray-relay missing [1]",
            &too_many,
            "ray-relay localRoot",
            "ray-relay localRoot job",
            "ray-relay localRoot ~/job",
            &long,
        ] {
            assert_eq!(read(expression), Some(Err(USAGE)), "{expression}");
        }
        // Unknown `ray-relay` commands are refused, not evaluated as Python.
        for expression in ["ray-relay", "ray-relay localRoots", "ray-relay list"] {
            assert_eq!(read(expression), Some(Err(USAGE)), "{expression}");
        }
        for expression in ["1", "x = 'ray-relay localRoot /'", "ray-relayed", "ray"] {
            assert_eq!(read(expression), None, "{expression}");
        }
    }

    #[test]
    fn watch_and_hover_are_never_relay_commands() {
        for context in [json!("watch"), json!("hover"), Value::Null] {
            let arguments = json!({"expression": "ray-relay localRoot \"\"", "context": context});
            let request =
                json!({"seq": 3, "type": "request", "command": "evaluate", "arguments": arguments});
            assert_eq!(command_in(&request), None, "{context}");
        }
    }

    #[test]
    fn child_sessions_inherit_the_source_folder() {
        let mut arguments =
            json!({"pathMappings": [{"localRoot": "/a", "remoteRoot": "."}], "rayRelay": "square"});
        put_into(&mut arguments, "/b");
        assert_eq!(arguments, json!({"rayRelay": {"localRoot": "/b"}}));
        let mut arguments = json!({"rayRelay": {"onClose": "park"}});
        put_into(&mut arguments, "");
        assert_eq!(
            arguments["rayRelay"],
            json!({"onClose": "park", "localRoot": ""})
        );
    }
}
