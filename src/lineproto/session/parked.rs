//! A session whose client is lost while its task stands at the prompt.

use std::os::fd::OwnedFd;
use std::time::Duration;

use bytes::BytesMut;
use serde_json::Value;
use tokio::io::AsyncRead;
use tokio::time::timeout;
use tracing::{Instrument as _, Span};

use super::TerminalSession;
use super::attached::Line;
use crate::debugger::kept::Stored;
use crate::debugger::legacy::{Entered, Said};
use crate::moment::Moment;
use crate::session::live::Live;
use crate::session::parks::Taker;
use crate::telemetry::metrics::{Outcome, SessionProtocol};
use crate::upstream::park::{
    self, Asked, Debugpy, Heard, Keeping, Memory, Park, Parked, Stay, TerminalPrompt,
};
use crate::wire::dap::kept::Kept;
use crate::wire::human_time::span;

/// How long a debugger that stands may take to be written a question.
const SENT: Duration = Duration::from_secs(5);

/// A prompt at which nobody is.
enum Unattended {
    Prompt {
        prompt: Box<TerminalPrompt>,
        memory: Memory,
        kept: Kept,
        /// What the relay itself has asked of the debugger.
        asked: Asked,
    },
    Legacy(Entered, Said),
}

/// A session that goes on without its client.
pub(in crate::lineproto) struct ParkedSession<'a> {
    park: Box<Park<'a, Unattended>>,
    span: Span,
}

impl ParkedSession<'_> {
    /// Waits to its end, which is on record when this returns.
    pub(in crate::lineproto) async fn wait(self) -> Outcome {
        self.park.wait().instrument(self.span).await
    }
}

impl Keeping for Unattended {
    async fn next(&mut self) -> Heard {
        match self {
            Self::Prompt {
                prompt,
                kept,
                asked,
                ..
            } => match prompt.overhear().await {
                Ok(Some(body)) => match asked.answered(&body) {
                    Some(value) => value,
                    None => Heard::of(&body, kept),
                },
                Ok(None) => {
                    kept.passed_over();
                    Heard::Nothing
                }
                Err(_) if prompt.stream().get_ref().was_kept() => Heard::Ended(Outcome::Upstream),
                Err(_) => Heard::Gone,
            },
            Self::Legacy(entered, said) => {
                let mut bytes = BytesMut::with_capacity(4096);
                match entered.hear(&mut bytes).await {
                    Ok(1..) => {
                        said.miss(&bytes);
                        Heard::Nothing
                    }
                    // It closed by itself.
                    Ok(0) | Err(_) => {
                        entered.stream = None;
                        Heard::Ended(Outcome::Upstream)
                    }
                }
            }
        }
    }

    fn is_ready(&self, taker: Taker) -> bool {
        match self {
            Self::Prompt { prompt, kept, .. } => {
                let is_quiet = prompt.is_whole() && prompt.stream().get_ref().is_quiet();
                is_quiet && (taker == Taker::Editor || !kept.runs())
            }
            Self::Legacy(..) => taker == Taker::Prompt,
        }
    }

    async fn evaluate(&mut self, expression: &str) -> bool {
        if !self.is_ready(Taker::Editor) {
            return false;
        }
        match self {
            Self::Prompt { prompt, asked, .. } => {
                let arguments = park::question(expression);
                let sent = timeout(SENT, prompt.evaluate(arguments)).await;
                let Ok(Ok(seq)) = sent else { return false };
                *asked = Asked::by(seq);
                true
            }
            Self::Legacy(..) => false,
        }
    }

    fn abandon(&mut self) -> bool {
        match self {
            Self::Prompt { prompt, .. } => prompt.stream_mut().get_mut().abandon(),
            Self::Legacy(..) => false,
        }
    }

    fn pass_on(
        &mut self,
        live: &Live<'_>,
        tenant: Value,
        left: Duration,
    ) -> Option<(OwnedFd, Stored)> {
        match self {
            Self::Prompt {
                prompt,
                memory,
                kept,
                ..
            } => {
                let keep = memory.keep(live, Some(left))?;
                let worker = prompt.stream_mut().get_mut();
                worker.hand_over(tenant, &keep, kept)
            }
            // Ray does not list it again.
            Self::Legacy(..) => None,
        }
    }

    fn handed_over(self) -> Parked {
        match self {
            Self::Prompt {
                prompt,
                memory,
                kept,
                ..
            } => Parked::Debugpy(Box::new(Debugpy {
                line: park::Line::Prompt(prompt),
                memory,
                kept,
            })),
            Self::Legacy(entered, said) => Parked::Legacy(entered, said),
        }
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
        line: Line,
        (stay, memory): (Option<Stay>, Option<Memory>),
    ) -> Result<(), (Live<'a>, Line)> {
        let is_draining = self.context.shutdown.drain.is_cancelled();
        let can = match &line {
            Line::Prompt(attached) => {
                let worker = attached.prompt.stream().get_ref();
                worker.stays() && (!is_draining || worker.is_kept())
            }
            Line::Legacy(entered, _) => entered.stream.is_some() && !is_draining,
            Line::Opening(_) | Line::Gone => false,
        };
        let Some(stay) = stay.filter(|_| can && !live.is_cut_off()) else {
            return Err((live, line));
        };
        let now = Moment::now();
        let until = stay.until(now);
        let keeps = now.until(until);
        let Some(place) = park::place(self.context, &live, keeps, None).await else {
            return Err((live, line));
        };
        let unattended = match (line, memory) {
            (Line::Prompt(attached), Some(memory)) => {
                let mut prompt = Box::new(attached.prompt);
                if let Some(keep) = memory.keep(&live, Some(keeps)) {
                    let worker = prompt.stream_mut().get_mut();
                    Box::pin(worker.keep_by(&keep)).await;
                }
                let mut kept = Kept::default();
                kept.stopped(&prompt.stopped());
                Unattended::Prompt {
                    prompt,
                    memory,
                    kept,
                    asked: Asked::default(),
                }
            }
            (Line::Legacy(entered, said), _) => Unattended::Legacy(entered, said),
            (line, _) => return Err((live, line)),
        };
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
            park: Park::begin(relay, protocol, live, place, left, unattended),
            span: Span::current(),
        });
        Ok(())
    }
}
