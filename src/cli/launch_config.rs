//! `ray-relay launch-config`: a debug configuration for an editor, ready to paste.
//!
//! Each text is in the editor's own format and comments; nothing is asked of the relay. What each
//! editor makes of it is described where the text is made, with the version that it was read from.

use std::io::{self, Write};

use clap::ValueEnum;

use super::{Error, LaunchConfigArgs, RelayUrl};
use crate::registry::BreakpointId;

pub(super) const AFTER_HELP: &str = "\
Examples:
  ray-relay launch-config vscode > .vscode/launch.json
  ray-relay launch-config nvim --relay http://127.0.0.1:7000
  ray-relay launch-config zed --breakpoint 3k9x7a2q > .zed/debug.json

Without --breakpoint the editor gets every paused task, now and later, each as a debug session of
its own where the editor can do that (VS Code, Cursor, code-server, Neovim, Zed, Emacs), and the
one that has waited longest where it cannot (PyCharm, Helix).

Host and port are those of --relay. Attach arguments for any other client: a `rayRelay` block with
{\"breakpoint\": ID}, {\"task\": NAME}, {\"worker\": ID}, {\"next\": true} or {\"all\": true}.";

/// Editors for which a configuration can be printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Editor {
    /// VS Code, Cursor, Windsurf, code-server: .vscode/launch.json
    Vscode,
    /// Neovim with nvim-dap: Lua
    Nvim,
    /// PyCharm 2025.3 and later: what to enter under "Attach to DAP"
    Pycharm,
    /// Zed: .zed/debug.json
    Zed,
    /// Emacs with dape: Emacs Lisp
    Emacs,
    /// Helix: languages.toml
    Helix,
}

pub(super) fn run(args: &LaunchConfigArgs) -> Result<(), Error> {
    let text = configuration(args.editor, &args.relay.relay, args.breakpoint);
    io::stdout().write_all(text.as_bytes())?;
    Ok(())
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
    breakpoint.map_or("Ray: every paused task".to_owned(), |id| {
        format!("Ray: breakpoint {id}")
    })
}

/// VS Code reads launch.json as JSON with comments, and passes keys that it does not know on to
/// the debugger (seen with the Python Debugger extension 2026.7).
fn vscode(relay: &RelayUrl, breakpoint: Option<BreakpointId>) -> String {
    let (note, selection) = match breakpoint {
        Some(id) => (
            "                // Ids change with each worker: see `ray-relay list`.".to_owned(),
            format!("\"breakpoint\": \"{id}\""),
        ),
        None => (
            "                // Every paused task, also those that pause later, each as a session of its own.\n                \
             // For the next one alone: \"next\": true; by name: \"task\": \"train_step\"."
                .to_owned(),
            "\"all\": true".to_owned(),
        ),
    };
    let (name, host, port) = (label(breakpoint), relay.host(), relay.port());
    format!(
        r#"{{
    // .vscode/launch.json; needs the extension "Python Debugger" (ms-python.debugpy).
    // In an existing file, add the block in "configurations" to yours. Then press F5.
    "version": "0.2.0",
    "configurations": [
        {{
            "name": "{name}",
            "type": "debugpy",
            "request": "attach",
            "connect": {{ "host": "{host}", "port": {port} }},
            "rayRelay": {{
                // Who you are, where the relay wants to know:
                // "token": "${{env:RAY_RELAY_TOKEN}}",
                // The local folder with the job's files, where that is not the one that is open:
                // "localRoot": "${{workspaceFolder}}/job",
{note}
                {selection}
            }}
        }}
    ]
}}
"#
    )
}

/// nvim-dap passes every key of a configuration on to the adapter, and starts sessions that the
/// adapter asks for (nvim-dap 0.9, `:help dap-adapter`, `dap-configuration`).
fn nvim(relay: &RelayUrl, breakpoint: Option<BreakpointId>) -> String {
    let selection = breakpoint.map_or("all = true".to_owned(), |id| format!("breakpoint = '{id}'"));
    let (name, host, port) = (label(breakpoint), relay.host(), relay.port());
    format!(
        "\
-- Neovim with nvim-dap: after require('dap') in your configuration. Then :DapNew, or :DapContinue
-- in a Python buffer, started in the folder that holds your source files.
local dap = require('dap')
dap.adapters.ray_relay = {{
  type = 'server',
  host = '{host}',
  port = {port},
  options = {{ source_filetype = 'python' }},
}}
dap.configurations.python = dap.configurations.python or {{}}
table.insert(dap.configurations.python, {{
  type = 'ray_relay',
  request = 'attach',
  name = '{name}',
  workspaceFolder = vim.fn.getcwd(), -- stands for the job's working_dir, where it has one
  rayRelay = {{
    -- token = vim.env.RAY_RELAY_TOKEN, -- who you are, where the relay wants to know
    -- localRoot = '/home/me/project', -- the folder with the job's files, where it is another one
    {selection},
  }},
}})
"
    )
}

/// The fields are those of JetBrains' page "Run/debug configuration: Attach to DAP" (2025.3 to
/// 2026.2). It has no field for further attach arguments.
fn pycharm(relay: &RelayUrl, breakpoint: Option<BreakpointId>) -> String {
    let which = match breakpoint {
        Some(id) => format!(
            "PyCharm cannot pass the id {id} on: it has no field for further attach arguments. With\n\
             advertise.mode = \"ports\" each breakpoint has a port of its own, which can be entered as\n\
             the remote address; the dashboard's answers (`ray list workers --detail`) show it.\n"
        ),
        None => "It attaches to the only paused task, or to the one that has waited longest.\n"
            .to_owned(),
    };
    let address = address(relay);
    format!(
        "\
PyCharm 2025.3 or later (older ones, and pydevd_pycharm.settrace, speak another protocol and cannot
attach to a Ray task):

  Run | Edit Configurations | + | Attach to DAP

  Name                  {}
  Remote address        {address}
  Local project path    the folder with your source files
  Remote project path   the same folder where the task runs: that folder itself where the code
                        is at the same place on the nodes; for a job with a working_dir, the
                        worker's current directory (os.getcwd() in the task)

Then press Debug.
{which}PyCharm cannot say who you are either: where the relay wants a token, reach it with a client
certificate instead, through socat (README, TLS).
",
        breakpoint.map_or("Ray".to_owned(), |id| format!("Ray {id}"))
    )
}

/// Zed's `Debugpy` adapter connects to `connect` since November 2025 (zed-industries/zed #41690);
/// it dials 127.0.0.1 whatever the host is (#42727).
fn zed(relay: &RelayUrl, breakpoint: Option<BreakpointId>) -> String {
    let selection = breakpoint.map_or("\"all\": true".to_owned(), |id| {
        format!("\"breakpoint\": \"{id}\"")
    });
    let note = match relay.host() {
        "127.0.0.1" => "",
        _ => "// Zed dials 127.0.0.1 whatever the host is, so forward the port to this machine.\n",
    };
    let remote = "// In a project on another machine (SSH) that one's 127.0.0.1 is meant: forward the port to there.\n";
    let (name, host, port) = (label(breakpoint), relay.host(), relay.port());
    format!(
        r#"// .zed/debug.json; Zed of November 2025 or later. Then run "debugger: start" (F4).
{note}{remote}[
  {{
    "label": "{name}",
    "adapter": "Debugpy",
    "request": "attach",
    "connect": {{ "host": "{host}", "port": {port} }},
    "workspaceFolder": "$ZED_WORKTREE_ROOT",
    "rayRelay": {{
      // Who you are, where the relay wants to know:
      // "token": "…",
      // The local folder with the job's files, where that is not the one that is open:
      // "localRoot": "$ZED_WORKTREE_ROOT/job",
      {selection}
    }}
  }}
]
"#
    )
}

/// dape connects to `host` and `port` where a configuration has no `command`, evaluates functions
/// such as `dape-cwd`, and sends the keywords (dape 0.26).
fn emacs(relay: &RelayUrl, breakpoint: Option<BreakpointId>) -> String {
    let selection = breakpoint.map_or(":all t".to_owned(), |id| format!(":breakpoint \"{id}\""));
    let (host, port) = (relay.host(), relay.port());
    format!(
        "\
;; Emacs with dape: in your init file. Then, in a Python buffer, M-x dape RET RET: dape fills in
;; `ray-relay` itself where no other configuration fits.
(with-eval-after-load 'dape
  (add-to-list 'dape-configs
               '(ray-relay
                 modes (python-mode python-ts-mode)
                 host \"{host}\"
                 port {port}
                 :type \"python\"
                 :request \"attach\"
                 ;; Stands for the job's working_dir, where it has one. Where the job's files are in
                 ;; another folder: :localRoot \"…\" behind {selection}.
                 :workspaceFolder dape-cwd
                 ;; Who you are, where the relay wants to know:
                 ;; :rayRelayToken \"…\"
                 :rayRelay ({selection}))))
"
    )
}

/// Helix takes an IP address alone in `:debug-remote`, and strings, lists and booleans alone as arguments of a template,
/// into which it puts what follows the template's name for `{0}` (Helix 25.07). `rayRelay` may be a string: an id or a
/// task. Helix opens no sessions that an adapter asks for.
fn helix(relay: &RelayUrl, breakpoint: Option<BreakpointId>) -> String {
    let which = match breakpoint {
        Some(id) => format!("breakpoint {id}"),
        None => "the task that has waited longest".to_owned(),
    };
    let selection = breakpoint.map_or_else(String::new, |id| format!("rayRelay = \"{id}\"\n"));
    let further = "\
# rayRelayToken = \"…\"                     # where the relay wants to know who you are
# workspaceFolder = \"/home/me/project\"    # stands for the job's working_dir
";
    let address = match relay.host() {
        "localhost" => format!("127.0.0.1:{}", relay.port()),
        _ => address(relay),
    };
    format!(
        r#"# Helix: ~/.config/helix/languages.toml, or .helix/languages.toml of a project. Then, in a
# Python buffer:
#   :debug-remote {address} ray-relay           {which}
#   :debug-remote {address} ray-relay-one NAME  a task of that name, or the id of a breakpoint
# The address has to be an IP address. Helix has one session at a time; "terminate" in its debug
# menu ends it, and the task runs on.
[[language]]
name = "python"

[language.debugger]
name = "debugpy"
transport = "tcp"
command = "python3"
args = ["-m", "debugpy.adapter"]

[[language.debugger.templates]]
name = "ray-relay"
request = "attach"
completion = []
[language.debugger.templates.args]
justMyCode = true
{selection}{further}
[[language.debugger.templates]]
name = "ray-relay-one"
request = "attach"
completion = ["id or task"]
[language.debugger.templates.args]
justMyCode = true
rayRelay = "{{0}}"
{further}"#
    )
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
    use super::*;
    use serde_json::{Value, json};

    fn relay() -> RelayUrl {
        "http://127.0.0.1:7000".parse().unwrap()
    }

    /// JSON without the whole-line comments.
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
        assert_eq!(
            one["configurations"][0]["rayRelay"],
            json!({"breakpoint": id.to_string()})
        );
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
            // With its commented lines as well.
            for text in [text.clone(), uncommented(&text)] {
                let table: toml::Table = text.parse().unwrap();
                let templates = table["language"][0]["debugger"]["templates"].clone();
                assert_eq!(templates[0]["request"].as_str(), Some("attach"));
                let chosen = templates[0]["args"].get("rayRelay");
                assert_eq!(
                    chosen.and_then(|chosen| chosen.as_str().map(str::to_owned)),
                    breakpoint.map(|id| id.to_string())
                );
                assert_eq!(templates[1]["name"].as_str(), Some("ray-relay-one"));
                assert_eq!(templates[1]["args"]["rayRelay"].as_str(), Some("{0}"));
            }
        }
    }

    /// The lines that are settings, put into force.
    fn uncommented(text: &str) -> String {
        let lines = text.lines().map(|line| match line.strip_prefix("# ") {
            Some(setting) if setting.contains(" = ") => setting,
            _ => line,
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Helix starts no sessions that an adapter asks for, and dape fills in the name itself.
    #[test]
    fn what_an_editor_cannot_do_is_not_promised() {
        for breakpoint in [None, Some(BreakpointId::derive("default", "w"))] {
            assert!(!helix(&relay(), breakpoint).contains("every paused task"));
        }
        let sessions_of_their_own = AFTER_HELP.split("(PyCharm").next().unwrap();
        assert!(!sessions_of_their_own.contains("Helix"));
        assert!(emacs(&relay(), None).contains("M-x dape RET RET"));
    }

    #[test]
    fn every_editor_gets_host_and_port_and_says_what_to_do() {
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
                assert!(
                    text.lines().all(|line| line.chars().count() <= 100),
                    "{text}"
                );
            }
        }
    }

    /// `localRoot` holds whatever the job is; in one that runs where its files are, nothing would be found.
    #[test]
    fn a_folder_stands_only_for_the_working_dir_of_a_job_that_has_one() {
        for text in [
            vscode(&relay(), None),
            nvim(&relay(), None),
            zed(&relay(), None),
            emacs(&relay(), None),
        ] {
            let in_force = text.lines().map(str::trim_start).filter(|line| {
                let comment = ["//", "--", ";;"];
                !comment.iter().any(|mark| line.starts_with(mark))
            });
            assert!(
                !in_force.collect::<String>().contains("localRoot"),
                "{text}"
            );
        }
    }

    #[test]
    fn every_editor_is_shown_where_a_token_and_the_folder_go() {
        for editor in Editor::value_variants() {
            let text = configuration(*editor, &relay(), None);
            assert!(text.contains("token") || text.contains("Token"), "{text}");
            let folder = ["localRoot", "workspaceFolder", "Local project path"];
            assert!(folder.iter().any(|key| text.contains(key)), "{text}");
        }
    }

    /// What is commented out is right as soon as it is not.
    #[test]
    fn commented_settings_can_be_put_into_force() {
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
