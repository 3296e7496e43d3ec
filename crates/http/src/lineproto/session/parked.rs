//! Parking: a session whose client is lost while its task is paused at the prompt.

use tokio::io::AsyncRead;
use tracing::{Instrument as _, Span};

use super::TerminalSession;
use super::attached::stays_for;
use super::reached::{Parking, SessionDebugger};
use ray_relay_access::telemetry::metrics::{Outcome, SessionProtocol};
use ray_relay_base::timestamp::Timestamp;
use ray_relay_base::wire::human_time::span;
use ray_relay_debugger::debugger::unattended::Unattended;
use ray_relay_session::session::live::{Live, SessionEnd};
use ray_relay_session::upstream::park::{self, Park, ResumableDebugger};

/// A session that continues without its client.
pub(in crate::lineproto) struct ParkedSession<'a> {
    park: Box<Park<'a>>,
    span: Span,
}

impl ParkedSession<'_> {
    /// Waits until the park ends, which has been recorded when this returns.
    pub(in crate::lineproto) async fn wait(self) -> Outcome {
        self.park.wait().instrument(self.span).await
    }
}

impl<'a, R: AsyncRead + Unpin> TerminalSession<'a, '_, R> {
    /// Parks the session for as long as `stay` allows, once that is recorded. `ends` is [`Outcome::Drained`] if the
    /// relay shuts down, rather than the client being lost.
    ///
    /// # Errors
    /// Returns the session's parts, if it may not or cannot be parked.
    pub(super) async fn park(
        &mut self,
        live: Live<'a>,
        debugger: SessionDebugger,
        parking: Parking,
        ends: Outcome,
    ) -> Result<(), (Live<'a>, SessionDebugger)> {
        let Parking { stay, memory } = parking;
        let can = match &debugger {
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
            return Err((live, debugger));
        };
        let now = Timestamp::now();
        let until = stay.until(now);
        let duration = now.until(until);
        let Some(slot) = park::slot(self.context, &live, duration, None).await else {
            return Err((live, debugger));
        };
        let Some(memory) = memory else {
            return Err((live, debugger));
        };
        let keep = memory.keep(&live, Some(duration));
        let mut debugger = match debugger {
            SessionDebugger::Prompt(attached) => Unattended::prompt(Box::new(attached.prompt)),
            SessionDebugger::Legacy(entered) => Unattended::legacy(entered),
            debugger => return Err((live, debugger)),
        };
        if let Some(keep) = keep {
            debugger.keep_by(None, &keep).await;
        }
        let breakpoint = live.worker.breakpoint();
        let (title, id) = (breakpoint.title(), breakpoint.id);
        // Reaches a client that has only closed its half.
        self.out.final_notice(&match ends {
            Outcome::Drained => format!("{}; {}", SessionEnd::Aborted, stays_for(duration)),
            _ => format!(
                "this connection was closed without a word about the task, so the session with {title} is parked for {}: come again to go on with it; `ray-relay release {id}` lets the task run",
                span(duration)
            ),
        });
        let protocol = SessionProtocol::Terminal;
        let (context, session) = (self.context, self.session);
        let remaining = session.park_view(until);
        let debugger = ResumableDebugger { debugger, memory };
        self.parked = Some(ParkedSession {
            park: Park::begin(context, session, protocol, live, slot, remaining, debugger),
            span: Span::current(),
        });
        Ok(())
    }
}
