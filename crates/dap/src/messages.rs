//! The table of messages: how each is handled in a session with a worker.
//!
//! Pure. Each known name has a row. A name without a row does not compile, and neither does a row without an arm where
//! its handling is carried out. Those places are [`super::worker`] for the relay itself, [`super::view_filter`] for a
//! view-only principal, and [`super::commands`] for the audit. The rows decide as well which messages are captured, and
//! for whom. Unforeseen messages count as the most dangerous of their kind: refused for view-only sessions, and audited
//! without their body. They are also withheld from the client, because its editor would act on them ([`super::wall`]).
//! Source: debugpy 1.8.0 to 1.8.22, its adapter and pydevd, read and on the wire.

use serde_json::Value;

use super::view_filter::requests::{self, ForView};
use super::view_filter::text::Text;
use ray_relay_base::wire::dap::names::{Command, Event, Reverse};
use ray_relay_base::wire::dap::peek::MessageType;

/// Handling of a client's request by the relay, once the worker is attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FromClient {
    /// The relay does nothing: the request passes.
    Pass,
    /// Refused: the session is attached already.
    AlreadyAttached,
    /// Commands for the relay are carried out; any other expression passes.
    Evaluate,
    /// Answered by the relay: a task cannot be started again.
    Restart,
    /// Answered by the relay, which interrupts the evaluation.
    Cancel,
    /// The client disconnects; only a permitted one ends the task.
    Disconnect,
    /// The client disconnects and ends the task; refused as a whole without the permission.
    Terminate,
    /// Rank words in it are replaced by Python.
    Breakpoints,
    /// The filter for a post-mortem stop is added.
    ExceptionFilters,
    /// The filter for a post-mortem stop is set first, if the client has set none.
    ConfigurationDone,
    /// The program resumes; answered by the relay if it runs already.
    Continue,
    /// The program resumes.
    Step,
}

/// Handling of a worker's message by the relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FromWorker {
    /// The relay does nothing: the message passes.
    Pass,
    /// Withheld from the client.
    Withhold,
    /// Refused: it would make the client's editor act for the worker.
    Refuse,
    /// The fields that an editor acts on are sanitized ([`super::wall`]).
    Look,
    /// The same, and withheld from some editors if a thread starts.
    Thread,
    /// The location is stored for a restart.
    Stopped,
    /// Passed once, with the reason.
    Terminated,
    /// The cluster's sockets are removed.
    Sockets,
    /// The requested child session is directed to the relay.
    Child,
    /// The session is attached, or the refusal is put into the relay's words.
    Attached,
    /// Answers the client's disconnect, or the relay's own.
    Disconnected,
    /// Ray's own threads are sorted last.
    Threads,
    /// The fields that an editor acts on are sanitized, and the location is recorded.
    Stack,
    /// It may answer a request of the relay itself.
    Own,
    /// The same, but captured only once the relay has a request pending
    /// ([`ray_relay_base::wire::dap::splice::Splice::capture_answers`]): users' evaluations pass unparsed.
    OwnOnceAsked,
}

/// Whether a request is audited, if the audit log includes commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnRecord {
    /// No: it shows something, or resumes the program in its own order.
    Never,
    /// Yes, unless it only names exception filters of debugpy, without code.
    UnlessFilters,
    /// Yes, unless it completes a name.
    UnlessName,
    /// Yes: it could run code or change something.
    Always,
}

/// Handling of a client's request and its answer.
#[derive(Debug, Clone, Copy)]
pub struct Request {
    /// Handling by the relay.
    pub handling: FromClient,
    /// Handling in a view-only session.
    pub view: ForView,
    /// Whether it is audited.
    pub record: OnRecord,
    /// Handling of the answer by the relay.
    pub answer: FromWorker,
    /// Text of the program in the answer.
    pub text: Text,
}

/// Handling of a worker's message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OfWorker {
    /// Handling by the relay.
    pub handling: FromWorker,
    /// Whether the view filter must see it.
    pub(crate) for_view: bool,
    /// Text of the program in it.
    pub text: Text,
}

#[rustfmt::skip]
fn request(command: Option<Command>) -> Request {
    use Command as C;
    use FromClient::{AlreadyAttached, Breakpoints as SetsBreakpoints, Cancel, Continue, ConfigurationDone, Disconnect, Evaluate, ExceptionFilters, Pass, Restart, Step, Terminate};
    use FromWorker::{Attached, Disconnected, Look, Own, OwnOnceAsked, Pass as Passes, Stack, Threads};
    use ForView::{Answered, Arguments, Breakpoints, ChangesDebugger, ChangesVariable, Completions, Disconnects, Evaluates,
        Filters, FunctionBreakpoints, Jumps, Scopes, Terminates, Unknown, Variables};
    use OnRecord::{Always, Never, UnlessFilters, UnlessName};
    use Text::{Completions as Names, Exception, Nothing, Threads as ThreadNames, Unknown as Any};
    let Some(command) = command else {
        return row(Pass, Unknown, Always, Look, Any);
    };
    match command {
        //                                  the request        where one may only look            on record      the answer    its text
        C::Initialize                => row(AlreadyAttached,   Unknown,                           Always,        Look,         Nothing),
        C::Attach                    => row(AlreadyAttached,   Unknown,                           Always,        Attached,     Nothing),
        C::Launch                    => row(AlreadyAttached,   Unknown,                           Always,        Look,         Any),
        C::Restart                   => row(Restart,           Unknown,                           Always,        Look,         Any),
        C::Disconnect                => row(Disconnect,        Disconnects,                       Always,        Disconnected, Nothing),
        C::Terminate                 => row(Terminate,         Terminates,                        Always,        Disconnected, Nothing),
        C::ConfigurationDone         => row(ConfigurationDone, Arguments(requests::NONE),         Never,         Passes,       Nothing),
        C::SetBreakpoints            => row(SetsBreakpoints,   Breakpoints,                       Always,        Look,         Nothing),
        C::SetFunctionBreakpoints    => row(Pass,              FunctionBreakpoints,               Always,        Own,          Nothing),
        C::SetExceptionBreakpoints   => row(ExceptionFilters,  Filters,                           UnlessFilters, Own,          Nothing),
        C::SetDataBreakpoints        => row(Pass,              Unknown,                           Always,        Look,         Any),
        C::SetInstructionBreakpoints => row(Pass,              Unknown,                           Always,        Look,         Any),
        C::BreakpointLocations       => row(Pass,              Unknown,                           Never,         Look,         Nothing),
        // These resume the program in its own order, as the end of the session would.
        C::Continue                  => row(Continue,          Arguments(requests::CONTINUE),     Never,         Own,          Nothing),
        C::Next                      => row(Step,              Arguments(requests::STEP),         Never,         Own,          Nothing),
        C::StepIn                    => row(Step,              Arguments(requests::STEP_IN),      Never,         Own,          Nothing),
        C::StepOut                   => row(Step,              Arguments(requests::STEP),         Never,         Own,          Nothing),
        C::StepInTargets             => row(Pass,              Arguments(requests::FRAME),        Never,         Passes,       Nothing),
        C::Pause                     => row(Pass,              Arguments(requests::THREAD),       Never,         Own,          Nothing),
        C::Goto                      => row(Pass,              Jumps,                             Always,        Passes,       Nothing),
        C::GotoTargets               => row(Pass,              Jumps,                             Never,         Passes,       Nothing),
        C::Threads                   => row(Pass,              Arguments(requests::NONE),         Never,         Threads,      ThreadNames),
        C::StackTrace                => row(Pass,              Arguments(requests::STACK),        Never,         Stack,        Nothing),
        C::Scopes                    => row(Pass,              Scopes,                            Never,         Passes,       Any),
        C::Variables                 => row(Pass,              Variables,                         Never,         Passes,       Any),
        C::Source                    => row(Pass,              Arguments(requests::SOURCE_TEXT),  Never,         Look,         Nothing),
        C::Modules                   => row(Pass,              Arguments(requests::MODULES),      Never,         Passes,       Nothing),
        C::LoadedSources             => row(Pass,              Unknown,                           Never,         Look,         Nothing),
        C::ExceptionInfo             => row(Pass,              Arguments(requests::THREAD),       Never,         Passes,       Exception),
        C::Evaluate                  => row(Evaluate,          Evaluates,                         Always,        OwnOnceAsked, Any),
        C::Completions               => row(Pass,              Completions,                       UnlessName,    Own,          Names),
        C::SetVariable               => row(Pass,              ChangesVariable,                   Always,        Passes,       Any),
        C::SetExpression             => row(Pass,              ChangesVariable,                   Always,        Passes,       Any),
        // debugpy does not support it.
        C::Cancel                    => row(Cancel,            Answered,                          Never,         Passes,       Any),
        C::DebugpySystemInfo         => row(Pass,              Arguments(requests::NONE),         Never,         Passes,       Nothing),
        C::PydevdSystemInfo          => row(Pass,              Arguments(requests::NONE),         Never,         Passes,       Nothing),
        C::SetDebuggerProperty       => row(Pass,              ChangesDebugger,                   Always,        Own,          Any),
        C::SetPydevdSourceMap        => row(Pass,              ChangesDebugger,                   Always,        Passes,       Any),
    }
}

#[rustfmt::skip]
fn event(event: Option<Event>) -> (FromWorker, Text) {
    use Event as E;
    use FromWorker::{Child, Look, Pass, Sockets, Stopped, Terminated, Thread, Withhold};
    use Text::{Nothing, Output, Stopped as Stop, Unknown};
    let Some(event) = event else {
        return (Withhold, Unknown);
    };
    match event {
        E::Initialized             => (Pass,       Nothing),
        E::Stopped                 => (Stopped,    Stop),
        E::Continued               => (Pass,       Nothing),
        E::Exited                  => (Pass,       Nothing),
        E::Terminated              => (Terminated, Nothing),
        E::Thread                  => (Thread,     Nothing),
        E::Output                  => (Look,       Output),
        E::Breakpoint              => (Look,       Nothing),
        E::Module                  => (Pass,       Nothing),
        E::Process                 => (Pass,       Nothing),
        E::Invalidated             => (Pass,       Nothing),
        E::PydevdInputRequested    => (Pass,       Nothing),
        // No debugpy sends them (1.8.0 to 1.8.22), and an editor would offer what is refused, or list files.
        E::Capabilities            => (Withhold,   Nothing),
        E::LoadedSource            => (Withhold,   Nothing),
        E::DebugpySockets          => (Sockets,    Nothing),
        E::DebugpyWaitingForServer => (Withhold,   Nothing),
        E::DebugpyAttach           => (Child,      Nothing),
    }
}

/// A reverse request of the worker's debugger; it carries no text of the program.
fn reverse(request: Option<Reverse>) -> FromWorker {
    match request {
        Some(Reverse::StartDebugging) => FromWorker::Child,
        Some(Reverse::RunInTerminal) | None => FromWorker::Refuse,
    }
}

fn row(
    handling: FromClient,
    view: ForView,
    record: OnRecord,
    answer: FromWorker,
    text: Text,
) -> Request {
    Request {
        handling,
        view,
        record,
        answer,
        text,
    }
}

impl Request {
    /// The row of a client's request `command`.
    pub fn of(command: &[u8]) -> Self {
        request(Command::parse(command))
    }

    /// The row of a client's `message`. One that is no request gets the row of an unknown one.
    pub(crate) fn of_message(message: &Value) -> Self {
        let command = message.get("command").and_then(Value::as_str);
        match message.get("type").and_then(Value::as_str) {
            Some("request") => Self::of(command.unwrap_or_default().as_bytes()),
            _ => request(None),
        }
    }

    fn on_record(self) -> bool {
        self.handling != FromClient::Pass || self.record != OnRecord::Never
    }
}

impl OfWorker {
    /// The row of a message of this type and command or event.
    pub(crate) fn of(kind: MessageType, name: &[u8]) -> Self {
        match kind {
            MessageType::Response => {
                let row = Request::of(name);
                Self {
                    handling: row.answer,
                    for_view: row.view.sees_answer(),
                    text: row.text,
                }
            }
            MessageType::Event => {
                let (handling, text) = event(Event::parse(name));
                Self {
                    handling,
                    for_view: false,
                    text,
                }
            }
            MessageType::Request => Self {
                handling: reverse(Reverse::parse(name)),
                // So that the client's answer is accepted.
                for_view: true,
                text: Text::Nothing,
            },
        }
    }

    /// The row of `message`. One without a type counts as an unknown event.
    pub(crate) fn of_message(message: &Value) -> Self {
        let text = |key: &str| message.get(key).and_then(Value::as_str).unwrap_or_default();
        let (kind, name) = match text("type") {
            "response" => (MessageType::Response, text("command")),
            "request" => (MessageType::Request, text("command")),
            "event" => (MessageType::Event, text("event")),
            _ => (MessageType::Event, ""),
        };
        Self::of(kind, name.as_bytes())
    }

    fn handled(self) -> bool {
        !matches!(self.handling, FromWorker::Pass | FromWorker::OwnOnceAsked)
    }
}

/// Whether the relay itself needs this client message.
pub fn captures_from_client(kind: MessageType, name: &[u8]) -> bool {
    kind == MessageType::Request && Request::of(name).handling != FromClient::Pass
}

/// Whether the relay needs this client message when commands are audited.
pub(crate) fn captures_for_record(kind: MessageType, name: &[u8]) -> bool {
    match kind {
        MessageType::Request => Request::of(name).on_record(),
        // The protocol has no client events, so their effect is unknown.
        MessageType::Event => true,
        MessageType::Response => false,
    }
}

/// Whether the relay itself needs this worker message.
pub fn captures_from_worker(kind: MessageType, name: &[u8]) -> bool {
    OfWorker::of(kind, name).handled()
}

/// Whether the relay needs this worker message in a view-only session.
pub(super) fn captures_for_view(kind: MessageType, name: &[u8]) -> bool {
    let row = OfWorker::of(kind, name);
    row.handled() || row.for_view || row.text != Text::Nothing
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_message_gets_the_strictest_handling() {
        let name = b"notYetInvented";
        let request = Request::of(name);
        assert!(matches!(request.view, ForView::Unknown), "{request:?}");
        assert_eq!(request.record, OnRecord::Always);
        assert!(captures_for_record(MessageType::Request, name));
        for kind in [MessageType::Response, MessageType::Event] {
            assert_eq!(OfWorker::of(kind, name).text, Text::Unknown);
            assert!(captures_for_view(kind, name));
        }
        for kind in [
            MessageType::Request,
            MessageType::Response,
            MessageType::Event,
        ] {
            assert!(captures_from_worker(kind, name), "{kind:?}");
        }
        let handling = |kind| OfWorker::of(kind, name).handling;
        assert_eq!(handling(MessageType::Request), FromWorker::Refuse);
        assert_eq!(handling(MessageType::Event), FromWorker::Withhold);
    }

    #[test]
    fn stricter_rules_only_add_captured_messages() {
        let commands = Command::ALL.iter().map(|command| command.as_str());
        let events = Event::ALL.iter().map(|event| event.as_str());
        let reverse = Reverse::ALL.iter().map(|request| request.as_str());
        let names = commands.chain(events).chain(reverse).chain(["x"]);
        for name in names.map(str::as_bytes) {
            for kind in [
                MessageType::Request,
                MessageType::Response,
                MessageType::Event,
            ] {
                for narrower_first in [
                    [captures_from_client, captures_for_record],
                    [captures_from_worker, captures_for_view],
                ] {
                    let captured = narrower_first.map(|captures| captures(kind, name));
                    assert!(captured.is_sorted(), "{kind:?} {}", name.escape_ascii());
                }
            }
        }
    }
}
