//! A recognised client: the list, and what it picks. `attached` is the session that comes of that, `following` waits for the
//! next stop of a legacy one.

mod attached;
mod following;

use std::sync::Arc;
use std::time::Duration;

use serde_json::Map;
use tokio::io::AsyncRead;
use tokio::time::sleep;
use tracing::Instrument as _;

pub(super) use self::attached::Log;
use crate::context::Context;
use crate::identity::Principal;
use crate::lineproto::authenticate::enters;
use crate::lineproto::input::{Input, Typed};
use crate::lineproto::output::Out;
use crate::listing::browse::{Browse, Heard};
use crate::listing::json;
use crate::listing::menu::Menu;
use crate::listing::select::Choice;
use crate::moment::Moment;
use crate::policy::Scope;
use crate::ray::registry::{BadBreakpointId, Breakpoint, BreakpointId};
use crate::session::refusal::SessionRefusal;
use crate::session::{Denied, Permit, Session, audit, authorise, leaving, visible};
use crate::telemetry::metrics::{Outcome, SessionProtocol};
use crate::wire::text::replaced;

/// A connection that has said nothing: a browser's, for a page that it may want later.
const SILENT: Duration = Duration::from_secs(60);
/// Somebody who has said something, and says no more.
const IDLE: Duration = Duration::from_secs(30 * 60);

/// Rows of the list at a time: nobody knows how high this client's terminal is.
const PAGE: usize = 40;

/// What comes after a session.
enum Next {
    List,
    /// The same breakpoint, as soon as it has stopped after this stop.
    Follow(Arc<Breakpoint>),
    Ended(Outcome),
}

/// A recognised client, from its first list to its last session.
pub(super) struct TerminalSession<'a, R> {
    context: &'a Context,
    session: &'a Session,
    principal: Principal,
    input: &'a mut Input<R>,
    out: Out,
}

impl<'a, R: AsyncRead + Unpin> TerminalSession<'a, R> {
    pub(super) fn new(
        context: &'a Context,
        session: &'a Session,
        principal: Principal,
        input: &'a mut Input<R>,
        out: Out,
    ) -> Self {
        Self {
            context,
            session,
            principal,
            input,
            out,
        }
    }

    /// To the end of the connection. `enter`: it has named a breakpoint, and wants no list.
    pub(super) async fn serve(mut self, enter: Option<String>) -> Outcome {
        if let Some(id) = enter {
            return self.only(&id).await;
        }
        self.out
            .text("ray-relay: tasks that wait at a breakpoint\n\n")
            .await;
        let mut show = true;
        let mut menu = Menu::default();
        let mut browse = Browse::new(Choice::default(), Some(PAGE));
        // The Enter by which a person shows up asks for the list that comes anyway.
        let entered = |line: &str| line.trim().is_empty().then_some(());
        let mut patience = match self.input.take_if(entered).await {
            Some(()) => IDLE,
            None => SILENT,
        };
        loop {
            if std::mem::take(&mut show) {
                let seen = visible(&self.principal, &self.context.registry.snapshot());
                menu = browse.read(json::list(&seen));
                self.out.text(&browse.show(&menu, false, None)).await;
            }
            self.session.set_state(SessionProtocol::Terminal, "listing");
            self.out
                .text("Index, id or name (Enter refreshes, q leaves): ")
                .await;
            let typed = match self.typed(patience).await {
                Ok(typed) => typed,
                Err(outcome) => return outcome,
            };
            patience = IDLE;
            let line = match typed {
                Typed::Line(line) => Typed::text(&line).trim().to_owned(),
                Typed::TooLong | Typed::Interrupt => continue,
                Typed::End => return Outcome::Client,
            };
            match &*line {
                "" => show = true,
                "q" | "quit" | "exit" => return Outcome::Client,
                line => {
                    if let Some(id) = enters(line) {
                        return self.only(id).await;
                    }
                    match browse.hear(line, &menu) {
                        Heard::Changed => {
                            show = true;
                            continue;
                        }
                        Heard::Refused(sentence) => {
                            let sentence = replaced(&sentence);
                            self.out.text(&format!("*** {sentence}\n")).await;
                            continue;
                        }
                        Heard::Other => {}
                    }
                    let picked = menu.pick(line);
                    match picked.as_deref().map(str::parse) {
                        Ok(Ok(id)) => {
                            if let Next::Ended(outcome) = self.enter(id).await {
                                return outcome;
                            }
                            self.out.text("\n").await;
                            show = true;
                        }
                        // No row is without an id that can be read.
                        Ok(Err(BadBreakpointId)) => show = true,
                        Err(sentence) => {
                            let sentence = replaced(sentence);
                            self.out.text(&format!("*** {sentence}\n")).await;
                        }
                    }
                }
            }
        }
    }

    /// One breakpoint and nothing else.
    async fn only(&mut self, id: &str) -> Outcome {
        let Ok(id) = id.parse::<BreakpointId>() else {
            self.refuse(&SessionRefusal::Nothing(
                "that is no id of a breakpoint".to_owned(),
            ))
            .await;
            return Outcome::Refused;
        };
        match self.enter(id).await {
            Next::Ended(outcome) => outcome,
            Next::List | Next::Follow(_) => Outcome::Client,
        }
    }

    /// The next line of somebody who is in no session.
    async fn typed(&mut self, patience: Duration) -> Result<Typed, Outcome> {
        tokio::select! {
            typed = self.input.next() => Ok(typed),
            () = self.out.closed() => Err(Outcome::Client),
            why = self.principal.ended() => {
                self.out.farewell(&format!("this session ends, because {why}"));
                Err(Outcome::Revoked)
            }
            () = self.context.shutdown.drain.cancelled() => {
                self.out.farewell("the relay is being shut down");
                Err(Outcome::Drained)
            }
            () = sleep(patience) => {
                self.out.farewell("this connection is closed, because nothing was said for too long");
                Err(Outcome::Limit)
            }
        }
    }

    async fn refuse(&self, refusal: &SessionRefusal) {
        self.context.metrics.refused(refusal.kind());
        let sentence = self.session.summary().refusal(&refusal.to_string());
        self.out.notice(&sentence).await;
    }

    /// Sessions with the breakpoint `id`, wherever it goes on.
    async fn enter(&mut self, id: BreakpointId) -> Next {
        loop {
            let (registry, sessions) = (&self.context.registry, &self.context.sessions);
            let access = self.principal.access();
            let wanted =
                |b: &Breakpoint| b.id == id && access.rights(b).scopes.contains(Scope::Terminal);
            leaving::given_back(registry, sessions, wanted).await;
            let permit = match self.acquire(id) {
                Ok(permit) => permit,
                Err(refusal) => {
                    let all = self.context.registry.snapshot();
                    let mut details = Map::new();
                    details.insert("reason".into(), refusal.kind().label().into());
                    details.insert("asked".into(), id.to_string().into());
                    let known = all.find(id).cloned();
                    audit::denied(
                        &self.context.audit,
                        self.session,
                        &self.principal,
                        known,
                        details,
                    )
                    .await;
                    self.refuse(&refusal).await;
                    return Next::List;
                }
            };
            let span = permit.span();
            match self.recorded(permit).instrument(span).await {
                Next::Follow(stop) => {
                    if let Err(next) = self.next_stop(&stop).await {
                        return next;
                    }
                }
                next => return next,
            }
        }
    }

    fn acquire(&self, id: BreakpointId) -> Result<Permit, SessionRefusal> {
        let now = Moment::now();
        let list = visible(&self.principal, &self.context.registry.snapshot());
        let unknown = || SessionRefusal::unknown(&format!("has the id {id}"), &list);
        let breakpoint = match (list.find(id), list.find_ended(id)) {
            (Some(breakpoint), _) => breakpoint,
            (None, Some(ended)) => return Err(SessionRefusal::ended(ended, now)),
            (None, None) => return Err(unknown()),
        };
        let authorised = authorise(&self.principal, breakpoint, Scope::Terminal);
        let authorised = authorised.map_err(|why| match why {
            Denied::Hidden => unknown(),
            Denied::Missing { .. } => SessionRefusal::Forbidden(why.to_string()),
        })?;
        let holder = self.session.holder(&self.principal, "terminal");
        Permit::acquire(&self.context.registry, authorised, holder)
            .map_err(|why| SessionRefusal::unclaimed(why, breakpoint, unknown))
    }
}
