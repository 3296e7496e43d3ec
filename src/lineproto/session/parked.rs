//! A session whose client is lost while its task stands at the prompt.

use tokio::io::AsyncRead;
use tracing::{Instrument as _, Span};

use super::TerminalSession;
use super::reached::SessionDebugger;
use crate::debugger::unattended::Unattended;
use crate::session::live::Live;
use crate::telemetry::metrics::{Outcome, SessionProtocol};
use crate::timestamp::Timestamp;
use crate::upstream::park::{self, Park, ResumeState, Stay};
use crate::wire::human_time::span;

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
    /// Has the session go on without its client, for as long as `stay` says, once that is on record.
    ///
    /// # Errors
    /// What it is made of, where it is not to be kept, or cannot be.
    pub(super) async fn park(
        &mut self,
        live: Live<'a>,
        line: SessionDebugger,
        (stay, memory): (Option<Stay>, Option<ResumeState>),
    ) -> Result<(), (Live<'a>, SessionDebugger)> {
        let is_draining = self.context.shutdown.drain.is_cancelled();
        let can = match &line {
            SessionDebugger::Prompt(attached) => {
                let worker = attached.prompt.stream().get_ref();
                worker.stays() && (!is_draining || worker.is_kept())
            }
            SessionDebugger::Legacy(entered) => {
                entered.stays() && (!is_draining || entered.is_kept())
            }
            SessionDebugger::Opening(_) | SessionDebugger::Gone => false,
        };
        let Some(stay) = stay.filter(|_| can && !live.is_cut_off()) else {
            return Err((live, line));
        };
        let now = Timestamp::now();
        let until = stay.until(now);
        let keeps = now.until(until);
        let Some(place) = park::place(self.context, &live, keeps, None).await else {
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
        // Where the client has only closed its half, it hears of it.
        self.out.farewell(&format!(
            "this connection was closed without a word about the task, so the session with {} is parked for {}: come again to go on with it; `ray-relay release {}` lets the task run",
            breakpoint.title(),
            span(keeps),
            breakpoint.id
        ));
        let protocol = SessionProtocol::Terminal;
        let relay = (self.context, self.session);
        let left = self.session.left(until);
        self.parked = Some(ParkedSession {
            park: Park::begin(relay, protocol, live, place, left, (debugger, memory)),
            span: Span::current(),
        });
        Ok(())
    }
}
