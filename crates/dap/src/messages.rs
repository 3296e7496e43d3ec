//! The table of messages: what is done with each in a session with a worker.
//!
//! Pure. There is a row for each name that the relay knows. A name without a row does not compile, and neither does a row
//! whose handling has no arm where it is carried out: [`super::worker`] for what the relay does itself,
//! [`super::view_filter`] for a principal that may only look, [`super::commands`] for the record. Which messages are captured,
//! for whom, follows from the rows. What was not thought of here is treated as the most dangerous of its kind: refused where
//! code must not be run, put on record, without anything of its body, and kept from the client: its editor would act upon it ([`super::wall`]).
//! Source: debugpy 1.8.0 to 1.8.22, its adapter and pydevd, read and on the wire.

use serde_json::Value;

use super::view_filter::requests::{self, ForView};
use super::view_filter::text::Text;
use ray_relay_base::wire::dap::names::{Command, Event, Reverse};
use ray_relay_base::wire::dap::peek::MessageType;

/// What the relay itself does with a request of a client whose worker is attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FromClient {
    /// The relay does nothing: the request passes.
    Pass,
    /// It is refused, because the session is attached already.
    AlreadyAttached,
    /// What a person has typed for the relay is carried out by it; any other expression passes.
    Evaluate,
    /// It is answered in the worker's place: a task cannot be started again.
    Restart,
    /// It is answered in the worker's place, and what is evaluated is interrupted.
    Cancel,
    /// The client leaves; the task is ended only by who may.
    Disconnect,
    /// The client leaves and ends the task; refused as a whole to who may not.
    Terminate,
    /// What stands for a rank in it is made Python.
    Breakpoints,
    /// The filter for a post-mortem stop is added.
    ExceptionFilters,
    /// The filter for a post-mortem stop is set first, where the client has set none.
    ConfigurationDone,
    /// The program runs on; answered in the worker's place where nothing stands.
    Continue,
    /// The program runs on.
    Step,
}

/// What the relay itself does with a message of a worker's debugger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FromWorker {
    /// The relay does nothing: the message passes.
    Pass,
    /// The client is not told.
    Withhold,
    /// It would have the client's editor do something for the worker: it is refused.
    Refuse,
    /// What an editor acts upon in it is looked at ([`super::wall`]).
    Look,
    /// The same, and some editors are not told of threads that begin.
    Thread,
    /// The place where the program stands is kept for a restart.
    Stopped,
    /// The client is told once, and why.
    Terminated,
    /// The cluster's sockets are taken out.
    Sockets,
    /// The child session that it asks for comes back to the relay.
    Child,
    /// The session is attached, or its refusal is put into the relay's words.
    Attached,
    /// The client's goodbye is answered, or the relay's own.
    Goodbye,
    /// Ray's own threads go behind the program's.
    Threads,
    /// What an editor acts upon in it is looked at, and where the program stands is noted.
    Stack,
    /// The relay may have asked for it itself.
    Own,
    /// The same, and captured only once the relay does ask ([`ray_relay_base::wire::dap::splice::Splice::capture_answers`]): what people
    /// evaluate passes unseen.
    OwnOnceAsked,
}

/// Whether a request goes into the audit log, where that wants commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnRecord {
    /// The request shows something, or lets the program run in its own order.
    Never,
    /// It goes on record, unless it names exception filters of debugpy's, and no code with them.
    UnlessFilters,
    /// It goes on record, unless it completes a name.
    UnlessName,
    /// It goes on record: it could run code or change something.
    Always,
}

/// What is done with a request of a client's, and with its answer.
#[derive(Debug, Clone, Copy)]
pub struct Request {
    /// What the relay itself does with it.
    pub handling: FromClient,
    /// What becomes of it where the client may only look.
    pub view: ForView,
    /// Whether it goes into the audit log.
    pub record: OnRecord,
    /// What the relay itself does with the answer.
    pub answer: FromWorker,
    /// Which text of the program the answer carries.
    pub text: Text,
}

/// What is done with a message of a worker's debugger.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OfWorker {
    /// What the relay itself does with it.
    pub handling: FromWorker,
    /// Whether the filter of a client that may only look has to see it.
    pub(crate) for_view: bool,
    /// Which text of the program it carries.
    pub text: Text,
}

#[rustfmt::skip]
fn request(command: Option<Command>) -> Request {
    use Command as C;
    use FromClient::{AlreadyAttached, Breakpoints as SetsBreakpoints, Cancel, Continue, ConfigurationDone, Disconnect, Evaluate, ExceptionFilters, Pass, Restart, Step, Terminate};
    use FromWorker::{Attached, Goodbye, Look, Own, OwnOnceAsked, Pass as Passes, Stack, Threads};
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
        C::Disconnect                => row(Disconnect,        Disconnects,                       Always,        Goodbye,      Nothing),
        C::Terminate                 => row(Terminate,         Terminates,                        Always,        Goodbye,      Nothing),
        C::ConfigurationDone         => row(ConfigurationDone, Arguments(requests::NONE),         Never,         Passes,       Nothing),
        C::SetBreakpoints            => row(SetsBreakpoints,   Breakpoints,                       Always,        Look,         Nothing),
        C::SetFunctionBreakpoints    => row(Pass,              FunctionBreakpoints,               Always,        Own,          Nothing),
        C::SetExceptionBreakpoints   => row(ExceptionFilters,  Filters,                           UnlessFilters, Own,          Nothing),
        C::SetDataBreakpoints        => row(Pass,              Unknown,                           Always,        Look,         Any),
        C::SetInstructionBreakpoints => row(Pass,              Unknown,                           Always,        Look,         Any),
        C::BreakpointLocations       => row(Pass,              Unknown,                           Never,         Look,         Nothing),
        // These let the program go on in its own order, as the end of the session would.
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
        // debugpy knows no such thing.
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

/// A request of the worker's debugger; it carries no text of the program.
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
    /// What is done with a request `command` of a client's.
    pub fn of(command: &[u8]) -> Self {
        request(Command::parse(command))
    }

    /// What is done with `message` of a client's. One that is no request has no handling.
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
    /// What is done with a message of this type and command or event.
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
                // It may be answered then.
                for_view: true,
                text: Text::Nothing,
            },
        }
    }

    /// What is done with `message`. One of no type is one of an unknown event.
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

/// Messages of a client that the relay has to see for itself.
pub fn captures_from_client(kind: MessageType, name: &[u8]) -> bool {
    kind == MessageType::Request && Request::of(name).handling != FromClient::Pass
}

/// Messages of a client that the relay has to see where the audit log wants commands.
pub(crate) fn captures_for_record(kind: MessageType, name: &[u8]) -> bool {
    match kind {
        MessageType::Request => Request::of(name).on_record(),
        // The protocol knows no events of a client's, so it is not known what they do.
        MessageType::Event => true,
        MessageType::Response => false,
    }
}

/// Messages of a worker's debugger that the relay has to see for itself.
pub fn captures_from_worker(kind: MessageType, name: &[u8]) -> bool {
    OfWorker::of(kind, name).handled()
}

/// Messages of a worker's debugger that the relay has to see for a client that may only look.
pub(super) fn captures_for_view(kind: MessageType, name: &[u8]) -> bool {
    let row = OfWorker::of(kind, name);
    row.handled() || row.for_view || row.text != Text::Nothing
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_has_thought_of_is_treated_as_the_most_dangerous_of_its_kind() {
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
    fn a_rule_only_adds_to_what_is_looked_at() {
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
