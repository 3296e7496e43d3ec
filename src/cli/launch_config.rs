//! `ray-relay launch-config`: prints a debug configuration for an editor.
//!
//! Each text comes from a template, in the editor's own format and comments. What each editor does with it is
//! documented at its function, with the version that was examined.

use std::borrow::Cow;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use tokio::time::timeout;

use super::failure::{Exit, Fails};
use super::relay_client::RelayClient;
use super::terminal::print;
use super::{Editor, Failure, LaunchConfigArgs, RelayArgs};
use ray_relay_base::wire::relay_url::RelayUrl;
use ray_relay_ray::ray::registry::BreakpointId;

/// A VS Code debugger configuration with placeholders.
const VSCODE_CONFIGURATION: &str = include_str!("launch_config/vscode.json");

pub(super) const AFTER_HELP: &str = "\
Examples:
  ray-relay launch-config vscode --write
      makes .vscode/launch.json; a file that is there stays as it is
  ray-relay launch-config vscode
      prints the same: paste the block into the launch.json that you have
  ray-relay launch-config nvim --relay http://127.0.0.1:7000
  ray-relay launch-config zed --breakpoint 3k9x7a2q

Without --breakpoint the editor gets every paused task, now and later, each as a debug session of its own (VS Code, Cursor, code-server, Neovim, Zed, Emacs). An editor that cannot do that (PyCharm, Helix) gets the task that has waited longest.

Host and port are those of --relay. Attach arguments for any other client: a `rayRelay` block with {\"breakpoint\": ID}, {\"task\": NAME}, {\"worker\": ID}, {\"next\": true} or {\"all\": true}. In a cluster with others {\"all\": true, \"task\": \"train_*\"} leaves their tasks alone.";

/// Kubernetes options do not fit an editor, which connects to a port.
#[derive(Debug, thiserror::Error)]
#[error("an editor reaches a relay in Kubernetes by a port of this machine")]
struct InKubernetes;

impl Fails for InKubernetes {
    fn exit(&self) -> Exit {
        Exit::Usage
    }

    fn next_step(&self) -> Option<Cow<'static, str>> {
        Some("run `ray-relay connect --kube`, and this without --kube; or have it start `ray-relay dap --kube`".into())
    }
}

/// Why no file was written.
#[derive(Debug, thiserror::Error)]
enum NotWritten {
    #[error("there is a {0} here already, which stays as it is")]
    IsThere(&'static str),
    #[error("this editor has no such file in the folder of a project")]
    NoFile,
    #[error("cannot write {file}: {cause}")]
    Unwritable {
        file: &'static str,
        cause: io::Error,
    },
}

impl Fails for NotWritten {
    fn exit(&self) -> Exit {
        match self {
            Self::NoFile => Exit::Usage,
            Self::IsThere(_) | Self::Unwritable { .. } => Exit::Failed,
        }
    }

    fn next_step(&self) -> Option<Cow<'static, str>> {
        let step = match self {
            Self::IsThere(_) => "run this without --write, and paste the block into that file",
            Self::NoFile => "run this without --write: what it prints says where it belongs",
            Self::Unwritable { .. } => return None,
        };
        Some(step.into())
    }
}

/// Time limit for a relay to tell whether it authenticates users.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);

/// Whether the relay authenticates users: then it knows which jobs a user has submitted through it.
async fn knows_users(relay: &RelayArgs) -> bool {
    let Ok(client) = RelayClient::new(relay.clone()) else {
        return false;
    };
    let subject = timeout(ANSWER_TIMEOUT, client.subject()).await;
    matches!(subject, Ok(Ok(Some(subject))) if subject.is_string())
}

pub(super) async fn run(args: &LaunchConfigArgs) -> Result<(), Failure> {
    if args.relay.kube.is_requested() {
        return Err(InKubernetes.into());
    }
    let mine = args.breakpoint.is_none() && knows_users(&args.relay).await;
    let text = match (args.editor, mine) {
        (Editor::Vscode, true) => vscode_of_own(&args.relay.relay),
        _ => configuration(args.editor, &args.relay.relay, args.breakpoint),
    };
    if args.write {
        let file = written(Path::new(""), args.editor, &text)?;
        return Ok(print(&format!("{file} is made.\n"))?);
    }
    io::stdout().write_all(text.as_bytes())?;
    Ok(())
}

/// Writes the file that `editor` reads in `folder`, and returns its name. Never overwrites an existing one.
fn written(folder: &Path, editor: Editor, text: &str) -> Result<&'static str, NotWritten> {
    let file = match editor {
        Editor::Vscode => ".vscode/launch.json",
        Editor::Zed => ".zed/debug.json",
        Editor::Nvim | Editor::Pycharm | Editor::Emacs | Editor::Helix => {
            return Err(NotWritten::NoFile);
        }
    };
    let path = folder.join(file);
    let made = path.parent().map_or(Ok(()), fs::create_dir_all);
    let made = made.and_then(|()| File::create_new(&path));
    let put = made.and_then(|mut made| made.write_all(text.as_bytes()));
    put.map(|()| file).map_err(|cause| match cause.kind() {
        io::ErrorKind::AlreadyExists => NotWritten::IsThere(file),
        _ => NotWritten::Unwritable { file, cause },
    })
}

fn configuration(editor: Editor, relay: &RelayUrl, breakpoint: Option<BreakpointId>) -> String {
    match editor {
        Editor::Vscode => vscode(relay, breakpoint),
        Editor::Nvim => nvim(relay, breakpoint),
        Editor::Pycharm => pycharm(relay, breakpoint),
        Editor::Zed => zed(relay, breakpoint),
        Editor::Emacs => emacs(relay, breakpoint),
        Editor::Helix => helix(relay, breakpoint),
    }
}

fn label(breakpoint: Option<BreakpointId>) -> String {
    breakpoint.map_or("Ray".to_owned(), |id| format!("Ray: breakpoint {id}"))
}

/// VS Code reads launch.json as JSON with comments, and passes unknown keys on to the debugger (seen with the Python
/// Debugger extension 2026.7).
fn vscode(relay: &RelayUrl, breakpoint: Option<BreakpointId>) -> String {
    let note = match breakpoint {
        Some(_) => "// Ids change with each worker: see `ray-relay list`.",
        None => {
            "// Every paused task that you may attach to, colleagues' too, now and later, each as\n\
             // a session of its own. Besides, for those of a name alone: \"task\": \"train_*\".\n\
             // In its place, for the next one: \"next\": true."
        }
    };
    let name = label(breakpoint);
    let selection = selected_in_json(breakpoint);
    let values = [("name", &*name), ("note", note), ("selection", &selection)];
    filled(VSCODE_CONFIGURATION, relay, &values)
}

/// The same for a relay that authenticates users.
fn vscode_of_own(relay: &RelayUrl) -> String {
    let note = "// The paused tasks of the jobs that you submitted through this relay, now and later, each\n\
         // as a session of its own. In place of \"mine\": true, for all that you may attach to; besides\n\
         // that, for one job: \"job\": \"raysubmit_...\", as `ray-relay list` shows it.";
    let values = [
        ("name", "Ray"),
        ("note", note),
        ("selection", "\"all\": \"mine\""),
    ];
    filled(VSCODE_CONFIGURATION, relay, &values)
}

/// nvim-dap passes every key of a configuration on to the adapter, and starts sessions that the adapter requests
/// (nvim-dap 0.9, `:help dap-adapter`, `dap-configuration`).
fn nvim(relay: &RelayUrl, breakpoint: Option<BreakpointId>) -> String {
    let name = label(breakpoint);
    let selection = breakpoint.map_or("all = true".to_owned(), |id| format!("breakpoint = '{id}'"));
    let values = [("name", &*name), ("selection", &selection)];
    filled(include_str!("launch_config/nvim.lua"), relay, &values)
}

/// The fields are those of JetBrains' page "Run/debug configuration: Attach to DAP" (2025.3 to 2026.2). It has no field
/// for further attach arguments.
fn pycharm(relay: &RelayUrl, breakpoint: Option<BreakpointId>) -> String {
    let name = breakpoint.map_or("Ray".to_owned(), |id| format!("Ray {id}"));
    let which = match breakpoint {
        Some(id) => format!(
            "PyCharm cannot pass the id {id} on: it has no field for further attach arguments. With\n\
             advertise.mode = \"ports\" each breakpoint has a port of its own, which can be entered as\n\
             the remote address; the dashboard's answers (`ray list workers --detail`) show it."
        ),
        None => {
            "It attaches to the only paused task, or to the one that has waited longest.".to_owned()
        }
    };
    let values = [("name", &*name), ("which", &which)];
    filled(include_str!("launch_config/pycharm.txt"), relay, &values)
}

/// Zed's `Debugpy` adapter connects to `connect` since November 2025 (zed-industries/zed #41690). It dials 127.0.0.1
/// regardless of the host (#42727).
fn zed(relay: &RelayUrl, breakpoint: Option<BreakpointId>) -> String {
    let note = match relay.host() {
        "127.0.0.1" => "",
        _ => "// Zed dials 127.0.0.1 whatever the host is, so forward the port to this machine.",
    };
    let name = label(breakpoint);
    let selection = selected_in_json(breakpoint);
    let values = [("name", &*name), ("note", note), ("selection", &selection)];
    filled(include_str!("launch_config/zed.json"), relay, &values)
}

/// dape connects to `host` and `port` if a configuration has no `command`, evaluates functions such as `dape-cwd`, and
/// sends the keywords (dape 0.26).
fn emacs(relay: &RelayUrl, breakpoint: Option<BreakpointId>) -> String {
    let selection = breakpoint.map_or(":all t".to_owned(), |id| format!(":breakpoint \"{id}\""));
    let values = [("selection", &*selection)];
    filled(include_str!("launch_config/emacs.el"), relay, &values)
}

/// Helix accepts only an IP address in `:debug-remote`, and only strings, lists and booleans as arguments of a
/// template. It replaces `{0}` in these by the text after the template's name (Helix 25.07). `rayRelay` may be a
/// string: an id or a task. Helix opens no sessions that an adapter requests.
fn helix(relay: &RelayUrl, breakpoint: Option<BreakpointId>) -> String {
    let which = match breakpoint {
        Some(id) => format!("breakpoint {id}"),
        None => "the task that has waited longest".to_owned(),
    };
    let selection = breakpoint.map_or_else(String::new, |id| format!("rayRelay = \"{id}\""));
    let dialled = match relay.host() {
        "localhost" => format!("127.0.0.1:{}", relay.port()),
        _ => address(relay),
    };
    let values = [
        ("which", &*which),
        ("selection", &selection),
        ("dialled", &dialled),
    ];
    filled(include_str!("launch_config/helix.toml"), relay, &values)
}

fn selected_in_json(breakpoint: Option<BreakpointId>) -> String {
    breakpoint.map_or("\"all\": true".to_owned(), |id| {
        format!("\"breakpoint\": \"{id}\"")
    })
}

/// Fills `template` with `values` and the relay's address, at their names between two `@`. A value of several lines is
/// indented like its first. A line that becomes empty by an empty value is removed.
fn filled(template: &str, relay: &RelayUrl, values: &[(&str, &str)]) -> String {
    let (port, address) = (relay.port().to_string(), address(relay));
    let of_relay = [
        ("host", relay.host()),
        ("port", &port),
        ("address", &address),
    ];
    let mut text = String::new();
    for line in template.lines() {
        let indent = &line[..line.len() - line.trim_start().len()];
        let mut filled = line.to_owned();
        for (name, value) in of_relay.iter().chain(values) {
            let value = value.replace('\n', &format!("\n{indent}"));
            filled = filled.replace(&format!("@{name}@"), &value);
        }
        if line.is_empty() || !filled.trim().is_empty() {
            text += &filled;
            text.push('\n');
        }
    }
    text
}

/// `HOST:PORT`, IPv6 in brackets.
fn address(relay: &RelayUrl) -> String {
    match relay.host() {
        host if host.contains(':') => format!("[{host}]:{}", relay.port()),
        host => format!("{host}:{}", relay.port()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use clap::ValueEnum as _;

    use super::*;
    use serde_json::{Value, json};

    fn relay() -> RelayUrl {
        "http://127.0.0.1:7000".parse().unwrap()
    }

    /// Parses JSON after removing whole-line comments.
    fn json(text: &str) -> Value {
        let lines: Vec<&str> = text
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"))
            .collect();
        serde_json::from_str(&lines.join("\n")).unwrap()
    }

    #[test]
    fn vscode_gets_a_launch_json() {
        let id = BreakpointId::derive("default", "w");
        let all = json(&vscode(&relay(), None));
        let one = json(&vscode(&relay(), Some(id)));
        let configuration = &all["configurations"][0];
        assert_eq!(configuration["type"], "debugpy");
        assert_eq!(configuration["request"], "attach");
        assert_eq!(
            configuration["connect"],
            json!({"host": "127.0.0.1", "port": 7000})
        );
        assert_eq!(configuration["rayRelay"], json!({"all": true}));
        let own_tasks = json(&vscode_of_own(&relay()));
        let block = &own_tasks["configurations"][0]["rayRelay"];
        assert_eq!(*block, json!({"all": "mine"}));
        assert_eq!(
            one["configurations"][0]["rayRelay"],
            json!({"breakpoint": id.to_string()})
        );
    }

    #[test]
    fn missing_file_is_written_and_an_existing_one_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let text = vscode(&relay(), None);
        let file = written(folder.path(), Editor::Vscode, &text).unwrap();
        let read = || fs::read_to_string(folder.path().join(file)).unwrap();
        assert_eq!((file, read()), (".vscode/launch.json", text));
        let existing = written(folder.path(), Editor::Vscode, "other").unwrap_err();
        assert_eq!(existing.exit(), Exit::Failed);
        assert!(existing.next_step().unwrap().contains("paste the block"));
        assert_eq!(json(&read())["version"], "0.2.0");
        assert!(written(folder.path(), Editor::Zed, "[]").is_ok());
        let unsupported = written(folder.path(), Editor::Nvim, "").unwrap_err();
        assert_eq!(unsupported.exit(), Exit::Usage);
    }

    #[test]
    fn zed_gets_a_debug_json() {
        let scenario = &json(&zed(&relay(), None))[0];
        assert_eq!(scenario["adapter"], "Debugpy");
        assert_eq!(scenario["connect"]["port"], 7000);
        assert_eq!(scenario["rayRelay"]["all"], true);
    }

    #[test]
    fn helix_gets_toml() {
        let id = BreakpointId::derive("default", "w");
        for breakpoint in [None, Some(id)] {
            let text = helix(&relay(), breakpoint);
            assert!(text.contains(":debug-remote 127.0.0.1:7000 ray-relay"));
            // The commented lines must also be valid.
            for text in [text.clone(), uncomment(&text)] {
                let table: toml::Table = text.parse().unwrap();
                let templates = table["language"][0]["debugger"]["templates"].clone();
                assert_eq!(templates[0]["request"].as_str(), Some("attach"));
                let task = templates[0]["args"].get("rayRelay");
                assert_eq!(
                    task.and_then(|task| task.as_str().map(str::to_owned)),
                    breakpoint.map(|id| id.to_string())
                );
                assert_eq!(templates[1]["name"].as_str(), Some("ray-relay-one"));
                assert_eq!(templates[1]["args"]["rayRelay"].as_str(), Some("{0}"));
            }
        }
    }

    /// Uncomments the lines that contain settings.
    fn uncomment(text: &str) -> String {
        let lines = text.lines().map(|line| match line.strip_prefix("# ") {
            Some(setting) if setting.contains(" = ") => setting,
            _ => line,
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Helix ignores `startDebugging` requests, and dape fills in the name itself.
    #[test]
    fn unsupported_editor_features_are_not_offered() {
        for breakpoint in [None, Some(BreakpointId::derive("default", "w"))] {
            assert!(!helix(&relay(), breakpoint).contains("every paused task"));
        }
        let editors_with_sessions = AFTER_HELP.split("(PyCharm").next().unwrap();
        assert!(!editors_with_sessions.contains("Helix"));
        assert!(emacs(&relay(), None).contains("M-x dape RET RET"));
    }

    #[test]
    fn every_editor_gets_host_port_and_instructions() {
        let id = BreakpointId::derive("default", "w");
        for editor in Editor::value_variants() {
            for breakpoint in [None, Some(id)] {
                let text = configuration(*editor, &relay(), breakpoint);
                assert!(
                    text.contains("127.0.0.1") && text.contains("7000"),
                    "{text}"
                );
                assert_eq!(
                    text.contains(&id.to_string()),
                    breakpoint.is_some(),
                    "{text}"
                );
                assert!(text.contains("Then"), "{text}");
                assert!(!text.contains('@'), "a value is missing in {text}");
                assert!(
                    text.lines().all(|line| line.chars().count() <= 100),
                    "{text}"
                );
            }
        }
    }

    /// `localRoot` would apply to every job, and break those whose files are at the same path.
    #[test]
    fn local_root_is_only_suggested_in_a_comment() {
        for text in [
            vscode(&relay(), None),
            nvim(&relay(), None),
            zed(&relay(), None),
            emacs(&relay(), None),
        ] {
            let active_lines = text.lines().map(str::trim_start).filter(|line| {
                let comment = ["//", "--", ";;"];
                !comment.iter().any(|mark| line.starts_with(mark))
            });
            assert!(
                !active_lines.collect::<String>().contains("localRoot"),
                "{text}"
            );
        }
    }

    #[test]
    fn every_editor_template_mentions_token_and_folder() {
        for editor in Editor::value_variants() {
            let text = configuration(*editor, &relay(), None);
            assert!(text.contains("token") || text.contains("Token"), "{text}");
            let folder = ["localRoot", "workspaceFolder", "Local project path"];
            assert!(folder.iter().any(|key| text.contains(key)), "{text}");
        }
    }

    #[test]
    fn commented_settings_are_valid_once_uncommented() {
        for text in [vscode(&relay(), None), zed(&relay(), None)] {
            let setting = |line: &str| line.trim_start().strip_prefix("// \"").is_some();
            let lines = text.lines().map(|line| match setting(line) {
                true => line.replacen("// ", "", 1),
                false => line.to_owned(),
            });
            let all = json(&lines.collect::<Vec<_>>().join("\n"));
            let block = all.pointer("/configurations/0/rayRelay");
            let block = block.or_else(|| all.pointer("/0/rayRelay")).unwrap();
            assert!(block["token"].is_string() && block["localRoot"].is_string());
            assert_eq!(block["all"], true);
        }
    }

    #[test]
    fn brackets_balance_in_lua_and_lisp() {
        for text in [nvim(&relay(), None), emacs(&relay(), None)] {
            for (open, close) in [('(', ')'), ('{', '}'), ('[', ']')] {
                assert_eq!(
                    text.matches(open).count(),
                    text.matches(close).count(),
                    "{text}"
                );
            }
        }
    }
}
