//! The debugger client, as its `initialize` describes it.

use serde_json::Value;

use super::selection::ChildSessions;
use ray_relay_access::telemetry::metrics::Editor;
use ray_relay_base::wire::json::typed_at;
use ray_relay_base::wire::text::shortened;

/// The debugger client as its `initialize` describes it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct DebugClient {
    /// Name of the client, for users.
    pub(super) name: String,
    /// The same for statistics.
    pub(super) editor: Editor,
    pub(super) children: ChildSessions,
    pub(super) disconnect_method: DisconnectMethod,
    pub(super) quirks: Quirks,
}

/// Deviations of a client in how it handles messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Quirks {
    /// It selects each thread that starts, and then shows no stop of another: Helix (25.07).
    pub(super) selects_threads: bool,
    /// It shows the body of a failure, as its own debuggers send it, and not its message: Helix (25.07).
    pub(super) shows_bodies: bool,
    /// It mixes sessions that stop at the same moment: dape (0.27).
    pub(super) mixes_sessions: bool,
    /// Its watches and buttons work only in a session with a thread: VS Code (1.139). So a cluster session has one.
    pub(super) needs_thread: bool,
}

/// How the client disconnects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DisconnectMethod {
    /// The client ends a session with `disconnect`; `terminate` means the end of the process.
    Disconnect,
    /// The client ends a session with `terminate`, and only if the adapter announces it: Helix (25.07) has no other
    /// command that ends a session. Without the capability it forgets the session with its connection open. Its own
    /// `disconnect` is the answer to `terminated`.
    Terminate,
    /// The client ends a session with `disconnect`, and has a command that leaves the task paused. It sends
    /// `suspendDebuggee` only if the adapter announces `terminateDebuggee` as well: VS Code (1.139). Otherwise its
    /// "Disconnect and Suspend" is a plain `disconnect`, and the task resumes.
    DisconnectOrSuspend,
}

impl DebugClient {
    pub(super) fn read(arguments: &Value) -> Self {
        let text = |key: &str| {
            let text: Option<&str> = typed_at(arguments, key);
            text.filter(|s| !s.trim().is_empty())
        };
        let can = |key: &str| arguments.get(key) == Some(&Value::Bool(true));
        let id = text("clientID");
        let name = text("clientName")
            .or(id)
            .map_or_else(|| "a debugger".to_owned(), |name| shortened(name, 40));
        let children = if can("supportsStartDebuggingRequest") {
            ChildSessions::StartDebugging
        } else if id == Some("vscode") && can("supportsProgressReporting") {
            // Versions before `startDebugging` (1.77): the Python extension handles debugpy's own event. Emacs'
            // dap-mode (0.7) calls itself VS Code and ignores the event; it lacks progress reporting.
            ChildSessions::DebugpyAttach
        } else {
            ChildSessions::None
        };
        let disconnect_method = match id {
            Some("hx") => DisconnectMethod::Terminate,
            Some("vscode") => DisconnectMethod::DisconnectOrSuspend,
            _ => DisconnectMethod::Disconnect,
        };
        Self {
            name,
            editor: id.map_or(Editor::Other, Editor::of),
            children,
            disconnect_method,
            quirks: Quirks {
                selects_threads: id == Some("hx"),
                shows_bodies: id == Some("hx"),
                mixes_sessions: id == Some("dape"),
                needs_thread: id == Some("vscode") && children == ChildSessions::StartDebugging,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The relevant part of each client's `initialize`.
    #[test]
    fn editors_are_recognised_by_their_initialize() {
        for (initialize, children, disconnect_method) in [
            (
                json!({"clientID": "vscode", "supportsProgressReporting": true, "supportsStartDebuggingRequest": true}),
                ChildSessions::StartDebugging,
                DisconnectMethod::DisconnectOrSuspend,
            ),
            (
                json!({"clientID": "vscode", "clientName": "Visual Studio Code", "supportsProgressReporting": true}),
                ChildSessions::DebugpyAttach,
                DisconnectMethod::DisconnectOrSuspend,
            ),
            // dap-mode 0.7.
            (
                json!({"clientID": "vscode", "clientName": "Visual Studio Code", "supportsVariablePaging": true}),
                ChildSessions::None,
                DisconnectMethod::DisconnectOrSuspend,
            ),
            // Helix 25.07.
            (
                json!({"clientID": "hx", "clientName": "helix", "supportsProgressReporting": false}),
                ChildSessions::None,
                DisconnectMethod::Terminate,
            ),
            (json!({}), ChildSessions::None, DisconnectMethod::Disconnect),
        ] {
            let client = DebugClient::read(&initialize);
            assert_eq!(
                (client.children, client.disconnect_method),
                (children, disconnect_method),
                "{initialize}"
            );
        }
    }

    #[test]
    fn statistics_map_client_ids_to_known_editors() {
        for (id, editor) in [
            ("vscode", Editor::VsCode),
            ("code-server vscode", Editor::VsCode),
            ("neovim", Editor::Neovim),
            ("nvim-dap", Editor::Neovim),
            ("emacs", Editor::Emacs),
            ("dape", Editor::Emacs),
            ("PyCharm", Editor::PyCharm),
            ("debugpy", Editor::Debugpy),
            ("ray-relay", Editor::Terminal),
            ("hx", Editor::Other),
            ("some{\"label\"}", Editor::Other),
        ] {
            assert_eq!(
                DebugClient::read(&json!({"clientID": id})).editor,
                editor,
                "{id}"
            );
        }
        assert_eq!(DebugClient::read(&json!({})).editor, Editor::Other);
    }
}
