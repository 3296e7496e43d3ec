//! An authenticated client: shows the list, and runs what the client picks. `attached` is a session with the debugger
//! from `reached`. `parked` keeps it without its client, and `following` waits for the next stop of a legacy one.
//! `running` stops tasks that wait at no breakpoint, and `all` is a prompt for many.

mod all;
mod attached;
mod following;
mod log;
mod parked;
mod reached;
mod running;

use std::sync::Arc;
use std::time::Duration;

use serde_json::Map;
use tokio::io::AsyncRead;
use tokio::time::sleep;
use tracing::Instrument as _;

pub(super) use self::log::Log;
pub(super) use self::parked::ParkedSession;
use crate::lineproto::authenticate::{FirstCommand, words_of_all};
use crate::lineproto::input::{ClientInput, Typed};
use crate::lineproto::output::Out;
use ray_relay_access::connection::ConnectionInfo;
use ray_relay_access::identity::Principal;
use ray_relay_access::policy::Scope;
use ray_relay_access::telemetry::metrics::{Outcome, SessionProtocol};
use ray_relay_base::timestamp::Timestamp;
use ray_relay_base::wire::text::replaced;
use ray_relay_debugger::debugger::unattended::Taker;
use ray_relay_ray::ray::registry::{BadBreakpointId, Breakpoint, BreakpointId, BreakpointIdPrefix};
use ray_relay_session::context::Context;
use ray_relay_session::session::authenticate::Authenticated;
use ray_relay_session::session::refusal::SessionRefusal;
use ray_relay_session::session::state::SessionState;
use ray_relay_session::session::{
    Authorized, Denied, Permit, Session, audit, authorise, leaving, visible,
};
use ray_relay_session::upstream::park::{self, Resumed, Terms};
use ray_relay_view::listing::browse::{Browse, BrowseStep};
use ray_relay_view::listing::json;
use ray_relay_view::listing::menu::Menu;
use ray_relay_view::listing::select::ListSelection;

/// How long a connection may send nothing at first, such as one that a browser opens in advance.
const FIRST_INPUT_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a client may pause after its first input.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// Rows per page of the list. The height of the client's terminal is unknown.
const PAGE_ROWS: usize = 40;

/// Hint below a list of several.
const ALL_HINT: &str = "`all` debugs all of this list at one prompt, `all NAME ranks=0-7,9` or `all job=ID` some of it.\n";

/// Client name recorded for the line protocol.
pub(super) const TERMINAL: &str = "terminal";

/// The step after a session.
enum NextPrompt {
    List,
    /// Wait for the same breakpoint to stop again after this stop.
    Follow(Arc<Breakpoint>),
    Ended(Outcome),
    /// The connection is closed, and the session is parked.
    Lost,
}

/// The step after a line typed at the list.
enum ListStep {
    /// Another question.
    Ask,
    /// The list, then another question.
    Show,
    End(Outcome),
}

/// How a client's connection ended.
pub(super) enum ClientEnding<'a> {
    Over(Outcome),
    Parked(ParkedSession<'a>),
}

/// An authenticated client, from its first list to its last session.
pub(super) struct TerminalSession<'a, 'i, R> {
    context: &'a Context,
    session: &'a Session,
    principal: Principal,
    connection: &'i ConnectionInfo,
    input: &'i mut ClientInput<R>,
    out: Out,
    /// The session parked when the connection was lost.
    parked: Option<ParkedSession<'a>>,
    /// Number of prompts for many tasks that the client has requested.
    groups: u32,
}

impl<'a, 'i, R: AsyncRead + Unpin> TerminalSession<'a, 'i, R> {
    pub(super) fn new(
        context: &'a Context,
        session: &'a Session,
        authenticated: Authenticated,
        connection: &'i ConnectionInfo,
        input: &'i mut ClientInput<R>,
        out: Out,
    ) -> Self {
        Self {
            context,
            session,
            principal: authenticated.principal,
            connection,
            input,
            out,
            parked: None,
            groups: 0,
        }
    }

    /// Serves the client until its connection closes. With a `first_command`, it skips the list.
    pub(super) async fn serve(mut self, first_command: Option<FirstCommand>) -> ClientEnding<'a> {
        let outcome = match first_command {
            Some(first_command) => self.only(&first_command).await,
            None => self.lists().await,
        };
        self.parked
            .map_or(ClientEnding::Over(outcome), ClientEnding::Parked)
    }

    async fn lists(&mut self) -> Outcome {
        self.out
            .text("ray-relay: tasks that wait at a breakpoint\n\n")
            .await;
        let mut show = true;
        let mut menu = Menu::default();
        let own = self.principal.known_subject().into();
        let mut browse = Browse::new(ListSelection::default(), Some(PAGE_ROWS)).owned_by(own);
        // An initial Enter asks for the list that is shown anyway.
        let entered = |line: &str| line.trim().is_empty().then_some(());
        let mut idle_timeout = match self.input.take_if(entered).await {
            Some(()) => IDLE_TIMEOUT,
            None => FIRST_INPUT_TIMEOUT,
        };
        loop {
            if std::mem::take(&mut show) {
                let permitted = visible(&self.principal, &self.context.registry.snapshot());
                menu = browse.read(json::list(&permitted));
                self.out.text(&browse.show(&menu, false, None)).await;
                if menu.len() > 1 {
                    self.out.text(ALL_HINT).await;
                }
            }
            self.session
                .set_state(SessionProtocol::Terminal, SessionState::Listing);
            self.out
                .text("Index, id or name (Enter refreshes, q leaves): ")
                .await;
            let typed = match self.typed(idle_timeout).await {
                Ok(typed) => typed,
                Err(outcome) => return outcome,
            };
            idle_timeout = IDLE_TIMEOUT;
            let line = match typed {
                Typed::Line(line) => Typed::text(&line).trim().to_owned(),
                Typed::TooLong | Typed::Interrupt => continue,
                Typed::End => return Outcome::Client,
            };
            match self.picked(&line, &mut browse, &menu).await {
                ListStep::Ask => {}
                ListStep::Show => show = true,
                ListStep::End(outcome) => return outcome,
            }
        }
    }

    /// Runs what `line`, typed at the list, picks.
    async fn picked(&mut self, line: &str, browse: &mut Browse, menu: &Menu) -> ListStep {
        match line {
            "" => return ListStep::Show,
            "q" | "quit" | "exit" => return ListStep::End(Outcome::Client),
            _ => {}
        }
        if let Some(words) = words_of_all(line) {
            return match Box::pin(self.all(words, &browse.choice)).await {
                Ok(()) => {
                    self.out.text("\n").await;
                    ListStep::Show
                }
                Err(outcome) => ListStep::End(outcome),
            };
        }
        if let Some(first_command) = FirstCommand::read(line) {
            return ListStep::End(self.only(&first_command).await);
        }
        match browse.handle_line(line, menu) {
            BrowseStep::Changed => return ListStep::Show,
            BrowseStep::Refused(sentence) => {
                let sentence = replaced(&sentence);
                self.out.text(&format!("*** {sentence}\n")).await;
                return ListStep::Ask;
            }
            BrowseStep::Other => {}
        }
        match menu.pick(line).as_deref().map(str::parse) {
            Ok(Ok(id)) => {
                match self.enter(id, false).await {
                    NextPrompt::Ended(outcome) => return ListStep::End(outcome),
                    NextPrompt::Lost => return ListStep::End(Outcome::Client),
                    NextPrompt::List | NextPrompt::Follow(_) => {}
                }
                self.out.text("\n").await;
                ListStep::Show
            }
            // Unreachable: the id of every row parses.
            Ok(Err(BadBreakpointId)) => ListStep::Show,
            Err(sentence) => {
                let sentence = replaced(sentence);
                self.out.text(&format!("*** {sentence}\n")).await;
                ListStep::Ask
            }
        }
    }

    /// Runs `first_command`, without the list.
    async fn only(&mut self, first_command: &FirstCommand) -> Outcome {
        let enter = match first_command {
            FirstCommand::Enter(enter) => enter,
            FirstCommand::Stop(running) => return Box::pin(self.running(running)).await,
            FirstCommand::All(words) => {
                let all = Box::pin(self.all(words, &ListSelection::default())).await;
                return all.err().unwrap_or(Outcome::Client);
            }
        };
        let id = match self.named(&enter.id) {
            Ok(id) => id,
            Err(refusal) => {
                self.refuse(&refusal).await;
                return Outcome::Refused;
            }
        };
        match self.enter(id, enter.take_over).await {
            NextPrompt::Ended(outcome) => outcome,
            NextPrompt::List | NextPrompt::Follow(_) | NextPrompt::Lost => Outcome::Client,
        }
    }

    /// Resolves `text`, an id or a unique prefix of one, among the visible breakpoints.
    fn named(&self, text: &str) -> Result<BreakpointId, SessionRefusal> {
        if let Ok(id) = text.parse() {
            return Ok(id);
        }
        let begun = text.parse::<BreakpointIdPrefix>();
        let begun = begun.map_err(|why| SessionRefusal::Nothing(why.to_string()))?;
        let permitted = visible(&self.principal, &self.context.registry.snapshot());
        let found = begun.find(&permitted);
        let found = found.map_err(|several| SessionRefusal::Nothing(several.to_string()))?;
        let unknown =
            || SessionRefusal::unknown(&format!("has an id that begins with {begun}"), &permitted);
        found.ok_or_else(unknown)
    }

    /// Returns the next line of a client that is in no session.
    async fn typed(&mut self, idle_timeout: Duration) -> Result<Typed, Outcome> {
        tokio::select! {
            typed = self.input.next() => Ok(typed),
            () = self.out.closed() => Err(Outcome::Client),
            why = self.principal.ended() => {
                self.out.final_notice(&format!("this session ends, because {why}"));
                Err(Outcome::Revoked)
            }
            () = self.context.shutdown.drain.cancelled() => {
                self.out.final_notice("the relay is being shut down");
                Err(Outcome::Drained)
            }
            () = sleep(idle_timeout) => {
                self.out.final_notice("this connection is closed, because nothing was said for too long");
                Err(Outcome::Limit)
            }
        }
    }

    async fn refuse(&self, refusal: &SessionRefusal) {
        self.context.metrics.refused(refusal.kind());
        let sentence = self.session.summary().refusal(&refusal.to_string());
        self.out.notice(&sentence).await;
    }

    /// Runs sessions with the breakpoint `id`, following its stops. With `take_over`, this includes a session that
    /// another user has parked.
    async fn enter(&mut self, id: BreakpointId, take_over: bool) -> NextPrompt {
        loop {
            let (registry, sessions) = (&self.context.registry, &self.context.sessions.table);
            let access = self.principal.access();
            let may_enter =
                |b: &Breakpoint| b.id == id && access.rights(b).scopes.contains(Scope::Terminal);
            leaving::wait_for_release(registry, sessions, may_enter).await;
            let mut acquired = self.take(id, take_over).await;
            if let Err(SessionRefusal::InUse { .. }) = acquired {
                // The holder may be an earlier client of the same principal that is gone: probe it.
                leaving::probe_clients(registry, sessions, &self.principal, may_enter).await;
                acquired = self.take(id, take_over).await;
            }
            let (permit, resumed) = match acquired {
                Ok(acquired) => acquired,
                Err(refusal) => {
                    self.denied(id, &refusal).await;
                    self.refuse(&refusal).await;
                    return NextPrompt::List;
                }
            };
            let span = permit.span();
            match self.recorded(permit, resumed).instrument(span).await {
                NextPrompt::Follow(stop) => {
                    if let Err(next) = self.next_stop(&stop).await {
                        return next;
                    }
                }
                next => return next,
            }
        }
    }

    /// Records that access to the breakpoint `id` was denied.
    async fn denied(&self, id: BreakpointId, refusal: &SessionRefusal) {
        let all = self.context.registry.snapshot();
        let mut details = Map::new();
        details.insert("reason".into(), refusal.kind().label().into());
        details.insert("asked".into(), id.to_string().into());
        let (audit, known) = (&self.context.audit, all.find(id).cloned());
        audit::denied(audit, self.session, &self.principal, known, details).await;
    }

    /// Acquires the permit for the breakpoint `id`. If the principal may resume a session parked there, returns that
    /// too.
    async fn take(
        &self,
        id: BreakpointId,
        take_over: bool,
    ) -> Result<(Permit, Option<Resumed>), SessionRefusal> {
        let all = self.context.registry.snapshot();
        let Some(held) = park::parked_for(&all, id, &self.principal, take_over) else {
            let permit = self.acquire(id);
            let refused = |why| park::explained(self.context, &self.principal, id, why);
            return permit.map(|permit| (permit, None)).map_err(refused);
        };
        let authorised = self.authorised(held)?;
        let terms = Terms {
            client: TERMINAL,
            take_over,
            taker: Taker::Prompt,
        };
        let acquired = park::take(self.context, self.session, held, authorised, terms);
        let (permit, resumed) = Box::pin(acquired).await?;
        Ok((permit, Some(resumed)))
    }

    fn acquire(&self, id: BreakpointId) -> Result<Permit, SessionRefusal> {
        let now = Timestamp::now();
        let list = visible(&self.principal, &self.context.registry.snapshot());
        let unknown = || SessionRefusal::unknown(&format!("has the id {id}"), &list);
        let breakpoint = match (list.find(id), list.find_ended(id)) {
            (Some(breakpoint), _) => breakpoint,
            (None, Some(ended)) => return Err(SessionRefusal::ended(ended, now)),
            (None, None) => return Err(unknown()),
        };
        let authorised = self.authorised(breakpoint)?;
        let holder = self.session.holder(&self.principal, TERMINAL);
        Permit::acquire(&self.context.registry, authorised, holder)
            .map_err(|why| SessionRefusal::unclaimed(why, breakpoint, unknown))
    }

    fn authorised(&self, breakpoint: &Arc<Breakpoint>) -> Result<Authorized, SessionRefusal> {
        authorise(&self.principal, breakpoint, Scope::Terminal).map_err(|why| match why {
            Denied::Hidden => {
                let list = visible(&self.principal, &self.context.registry.snapshot());
                SessionRefusal::unknown(&format!("has the id {}", breakpoint.id), &list)
            }
            Denied::Missing { .. } => SessionRefusal::Forbidden(why.to_string()),
        })
    }
}
