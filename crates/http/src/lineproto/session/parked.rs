//! A session whose client is lost while its task stands at the prompt.

use tokio::io::AsyncRead;
use tracing::{Instrument as _, Span};

use super::TerminalSession;
use super::attached::stays_for;
use super::reached::SessionDebugger;
use ray_relay_access::telemetry::metrics::{Outcome, SessionProtocol};
use ray_relay_base::timestamp::Timestamp;
use ray_relay_base::wire::human_time::span;
use ray_relay_debugger::debugger::unattended::Unattended;
use ray_relay_session::session::live::{Live, SessionEnd};
use ray_relay_session::upstream::park::{self, Park, ResumeState, Stay};

/// A session that goes on without its client.
pub(in crate::lineproto) struct ParkedSession<'a> {
    park: Box<Park<'a>>,
    span: Span,
}

impl ParkedSession<'_> {
    /// Waits to its end, which is on record when this returns.
    pub(in crate::lineproto) async fn wait(self) -> Outcome {
        self.park.wait().instrument(self.span).await
    }
}

impl<'a, R: AsyncRead + Unpin> TerminalSession<'a, '_, R> {
    /// Has the session go on without its client, for as long as `stay` says, once that is on record. `ends` is
    /// [`Outcome::Drained`] where it is this process that ends, and not its client that is lost.
    ///
    /// # Errors
    /// What it is made of, where it is not to be kept, or cannot be.
    pub(super) async fn park(
        &mut self,
        live: Live<'a>,
        line: SessionDebugger,
        (stay, memory): (Option<Stay>, Option<ResumeState>),
        ends: Outcome,
    ) -> Result<(), (Live<'a>, SessionDebugger)> {
        let can = match &line {
            SessionDebugger::Prompt(attached) => {
                let worker = attached.prompt.stream().get_ref();
                worker.stays() && park::outlives_drain(self.context, worker.is_kept())
            }
            SessionDebugger::Legacy(entered) => {
                entered.stays() && park::outlives_drain(self.context, entered.is_kept())
            }
            SessionDebugger::Opening(_) | SessionDebugger::Gone => false,
        };
        let Some(stay) = stay.filter(|_| can && !live.is_cut_off()) else {
            return Err((live, line));
        };
        let now = Timestamp::now();
        let until = stay.until(now);
        let keeps = now.until(until);
        let Some(slot) = park::slot(self.context, &live, keeps, None).await else {
            return Err((live, line));
        };
        let Some(memory) = memory else {
            return Err((live, line));
        };
        let keep = memory.keep(&live, Some(keeps));
        let mut debugger = match line {
            SessionDebugger::Prompt(attached) => Unattended::prompt(Box::new(attached.prompt)),
            SessionDebugger::Legacy(entered) => Unattended::legacy(entered),
            line => return Err((live, line)),
        };
        if let Some(keep) = keep {
            debugger.keep_by(None, &keep).await;
        }
        let breakpoint = live.worker.breakpoint();
        let (title, id) = (breakpoint.title(), breakpoint.id);
        // Where the client has only closed its half, it hears of it.
        self.out.farewell(&match ends {
            Outcome::Drained => format!("{}; {}", SessionEnd::Aborted, stays_for(keeps)),
            _ => format!(
                "this connection was closed without a word about the task, so the session with {title} is parked for {}: come again to go on with it; `ray-relay release {id}` lets the task run",
                span(keeps)
            ),
        });
        let protocol = SessionProtocol::Terminal;
        let relay = (self.context, self.session);
        let left = self.session.park_view(until);
        self.parked = Some(ParkedSession {
            park: Park::begin(relay, protocol, live, slot, left, (debugger, memory)),
            span: Span::current(),
        });
        Ok(())
    }
}
