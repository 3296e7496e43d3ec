//! The debugger of a session, of whichever kind, and how it is reached.

use tokio::time::Instant;

use crate::lineproto::prompt::{OpenedPrompt, Opening};
use ray_relay_base::wire::prefixed::Prefixed;
use ray_relay_debugger::debugger::Worker;
use ray_relay_debugger::debugger::legacy::LegacySession;
use ray_relay_debugger::debugger::unattended;
use ray_relay_ray::ray::registry::Kind;
use ray_relay_session::context::Context;
use ray_relay_session::session::Permit;
use ray_relay_session::upstream::park::{Origin, ResumeState, Stay, YOUR};
use ray_relay_session::upstream::{self, MAX_HANDSHAKE_FRAME};

/// The debugger of a session. Dropped, it is left in order, and the task runs on.
pub(super) enum SessionDebugger {
    /// debugpy, of which nothing was shown yet.
    Opening(Opening),
    /// The prompt on it.
    Prompt(Box<OpenedPrompt<Prefixed<Worker>>>),
    /// Ray's own.
    Legacy(Box<LegacySession>),
    /// None any more.
    Gone,
}

/// A worker that was reached.
pub(super) struct ReachedWorker {
    pub(super) line: SessionDebugger,
    /// What the session with debugpy before this one remembered.
    pub(super) memory: Option<ResumeState>,
    /// When the first session with it began.
    pub(super) began: Instant,
}

impl ReachedWorker {
    /// For a permit, or for what a session goes on with; it is to `stay` for so long when the client is lost.
    pub(super) async fn of(
        context: &Context,
        permit: &mut Permit,
        origin: Option<Origin>,
        stay: Option<Stay>,
    ) -> Result<Self, upstream::ConnectError> {
        let new = |line| Self {
            line,
            memory: None,
            began: Instant::now(),
        };
        let Some(origin) = origin else {
            let keep = stay.and_then(|stay| ResumeState::of_prompt(stay).keep_from_now(permit));
            return match permit.breakpoint().kind {
                Kind::Debugpy => {
                    let worker = upstream::connect(context, permit, MAX_HANDSHAKE_FRAME).await?;
                    let (mut stream, read) = worker.into_parts();
                    // It is told anew once it is attached; until then this process may be killed, with the task at its stop.
                    if let Some(keep) = keep {
                        Box::pin(stream.keep_by(&keep)).await;
                    }
                    let stream = Prefixed::new(read.into(), stream);
                    Ok(new(SessionDebugger::Opening(Opening::New(Box::new(
                        stream,
                    )))))
                }
                Kind::Pdb => {
                    let entered = upstream::connect_pdb(context, permit, keep).await?;
                    Ok(new(SessionDebugger::Legacy(Box::new(entered))))
                }
            };
        };
        let (parked, began) = origin.reach(context, permit).await?;
        let kept = parked.kept;
        let line = match parked.line {
            unattended::IdleConnection::Worker(worker) => {
                SessionDebugger::Opening(Opening::Kept(worker, kept))
            }
            unattended::IdleConnection::Prompt(prompt) => {
                SessionDebugger::Opening(Opening::Prompt(prompt, kept))
            }
            unattended::IdleConnection::Legacy(entered) => SessionDebugger::Legacy(entered),
        };
        Ok(Self {
            line,
            memory: Some(parked.memory),
            began,
        })
    }

    /// What a person is told who goes on with `whose` session with `title`, which was parked `duration_text`.
    pub(super) fn told(&self, whose: &str, title: &str, duration_text: &str) -> String {
        let standing = match &self.line {
            SessionDebugger::Opening(opening) => opening.standing(),
            _ => None,
        };
        match standing.filter(|_| whose == YOUR) {
            Some(place) => format!("you were parked at {place}{duration_text}; going on"),
            None => {
                format!(
                    "this resumes {whose} session with {title}, which was parked{duration_text}"
                )
            }
        }
    }
}

impl SessionDebugger {
    /// The connection to debugpy, where that is attached.
    pub(super) fn worker(&mut self) -> Option<&mut Worker> {
        match self {
            Self::Prompt(attached) => Some(attached.prompt.stream_mut().get_mut()),
            Self::Opening(_) | Self::Legacy(_) | Self::Gone => None,
        }
    }

    /// An agent keeps the debugger, where this end may be lost by now.
    pub(super) fn was_kept(&mut self) -> bool {
        match self {
            Self::Legacy(entered) => entered.was_kept(),
            _ => self.worker().is_some_and(|worker| worker.was_kept()),
        }
    }

    /// Loses this end where the debugger is kept then, and says whether it is.
    pub(super) fn abandon(&mut self) -> bool {
        match self {
            Self::Legacy(entered) => entered.abandon(),
            _ => self.worker().is_some_and(Worker::abandon),
        }
    }
}
