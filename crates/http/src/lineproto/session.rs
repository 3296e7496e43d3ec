//! A recognised client: the list, and what it picks. `attached` is the session that comes of that with the debugger of
//! `reached`, `parked` what becomes of
//! it without its client, `following` waits for the next stop of a legacy one; `passed` is for what another process has, `running` for tasks
//! that wait at no breakpoint, and `all` for many that do.

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
use crate::lineproto::authenticate::{Errand, words_of_all};
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

/// A connection that has said nothing: a browser's, for a page that it may want later.
const SILENT: Duration = Duration::from_secs(60);
/// A client that has said something, and says no more.
const IDLE: Duration = Duration::from_secs(30 * 60);

/// Rows of the list at a time: it is not known how high this client's terminal is.
const PAGE: usize = 40;

/// What is said below a list of several.
const ALL_HINT: &str = "`all` debugs all of this list at one prompt, `all NAME ranks=0-7,9` or `all job=ID` some of it.\n";

/// What a client with plain lines is called.
pub(super) const TERMINAL: &str = "terminal";

/// What comes after a session.
enum NextPrompt {
    List,
    /// The same breakpoint, as soon as it has stopped after this stop.
    Follow(Arc<Breakpoint>),
    Ended(Outcome),
    /// The connection is over, and the session is parked.
    Lost,
}

/// What is left of a client whose connection is over.
pub(super) enum ClientEnding<'a> {
    Over(Outcome),
    Parked(ParkedSession<'a>),
}

/// A recognised client, from its first list to its last session.
pub(super) struct TerminalSession<'a, 'i, R> {
    context: &'a Context,
    session: &'a Session,
    principal: Principal,
    connection: &'i ConnectionInfo,
    input: &'i mut ClientInput<R>,
    out: Out,
    /// The session that its connection has left behind.
    parked: Option<ParkedSession<'a>>,
    /// Prompts for many that it has asked for.
    groups: u32,
}

impl<'a, 'i, R: AsyncRead + Unpin> TerminalSession<'a, 'i, R> {
    pub(super) fn new(
        context: &'a Context,
        session: &'a Session,
        who: Authenticated,
        connection: &'i ConnectionInfo,
        input: &'i mut ClientInput<R>,
        out: Out,
    ) -> Self {
        Self {
            context,
            session,
            principal: who.principal,
            connection,
            input,
            out,
            parked: None,
            groups: 0,
        }
    }

    /// To the end of the connection. `errand`: it has said what it is here for, and wants no list.
    pub(super) async fn serve(mut self, errand: Option<Errand>) -> ClientEnding<'a> {
        let outcome = match errand {
            Some(errand) => self.only(&errand).await,
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
        let mut browse = Browse::new(ListSelection::default(), Some(PAGE)).owned_by(own);
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
                if menu.len() > 1 {
                    self.out.text(ALL_HINT).await;
                }
            }
            self.session
                .set_state(SessionProtocol::Terminal, SessionState::Listing);
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
                    if let Some(words) = words_of_all(line) {
                        match Box::pin(self.all(words, &browse.choice)).await {
                            Ok(()) => show = true,
                            Err(outcome) => return outcome,
                        }
                        self.out.text("\n").await;
                        continue;
                    }
                    if let Some(errand) = Errand::read(line) {
                        return self.only(&errand).await;
                    }
                    match browse.handle_line(line, &menu) {
                        BrowseStep::Changed => {
                            show = true;
                            continue;
                        }
                        BrowseStep::Refused(sentence) => {
                            let sentence = replaced(&sentence);
                            self.out.text(&format!("*** {sentence}\n")).await;
                            continue;
                        }
                        BrowseStep::Other => {}
                    }
                    let picked = menu.pick(line);
                    match picked.as_deref().map(str::parse) {
                        Ok(Ok(id)) => {
                            match self.enter(id, false).await {
                                NextPrompt::Ended(outcome) => return outcome,
                                NextPrompt::Lost => return Outcome::Client,
                                NextPrompt::List | NextPrompt::Follow(_) => {}
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

    /// One task and nothing else.
    async fn only(&mut self, errand: &Errand) -> Outcome {
        let enter = match errand {
            Errand::Enter(enter) => enter,
            Errand::Stop(running) => return Box::pin(self.running(running)).await,
            Errand::All(words) => {
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

    /// The breakpoint with the id `text`, or with one that begins so, of those that can be seen.
    fn named(&self, text: &str) -> Result<BreakpointId, SessionRefusal> {
        if let Ok(id) = text.parse() {
            return Ok(id);
        }
        let begun = text.parse::<BreakpointIdPrefix>();
        let begun = begun.map_err(|why| SessionRefusal::Nothing(why.to_string()))?;
        let seen = visible(&self.principal, &self.context.registry.snapshot());
        let found = begun.find(&seen);
        let found = found.map_err(|several| SessionRefusal::Nothing(several.to_string()))?;
        let unknown =
            || SessionRefusal::unknown(&format!("has an id that begins with {begun}"), &seen);
        found.ok_or_else(unknown)
    }

    /// The next line of a person who is in no session.
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

    /// Sessions with the breakpoint `id`, wherever it goes on, also with what another person has parked there where it is to
    /// `take_over`.
    async fn enter(&mut self, id: BreakpointId, take_over: bool) -> NextPrompt {
        loop {
            let (registry, sessions) = (&self.context.registry, &self.context.sessions.table);
            let access = self.principal.access();
            let wanted =
                |b: &Breakpoint| b.id == id && access.rights(b).scopes.contains(Scope::Terminal);
            leaving::given_back(registry, sessions, wanted).await;
            let mut taken = self.take(id, take_over).await;
            if let Err(SessionRefusal::InUse { .. }) = taken {
                // One's own whose client is gone without a word.
                leaving::made_sure(registry, sessions, &self.principal, wanted).await;
                taken = self.take(id, take_over).await;
            }
            let (permit, resumed) = match taken {
                Ok(taken) => taken,
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

    /// Puts on record that there is no session with the breakpoint `id`.
    async fn denied(&self, id: BreakpointId, refusal: &SessionRefusal) {
        let all = self.context.registry.snapshot();
        let mut details = Map::new();
        details.insert("reason".into(), refusal.kind().label().into());
        details.insert("asked".into(), id.to_string().into());
        let (audit, known) = (&self.context.audit, all.find(id).cloned());
        audit::denied(audit, self.session, &self.principal, known, details).await;
    }

    /// The permit for the breakpoint `id`, and what it goes on with, where that is a park that the principal may go on with.
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
        let taken = park::take((self.context, self.session), held, authorised, terms);
        let (permit, resumed) = Box::pin(taken).await?;
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
