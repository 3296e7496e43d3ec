//! The debugger of a session, and how it is reached.

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

/// The debugger of a session. Dropping it detaches in order, and the task resumes.
pub(super) enum SessionDebugger {
    /// debugpy, before anything was shown.
    Opening(Opening),
    /// A prompt on debugpy.
    Prompt(Box<OpenedPrompt<Prefixed<Worker>>>),
    /// Ray's legacy debugger.
    Legacy(Box<LegacySession>),
    /// No debugger any more.
    Gone,
}

/// A worker that was reached.
pub(super) struct ReachedWorker {
    pub(super) debugger: SessionDebugger,
    /// State retained from an earlier session with debugpy.
    pub(super) memory: Option<ResumeState>,
    /// When the first session with the worker began.
    pub(super) began: Instant,
}

/// How a session is parked if its client is lost. `None`: it is not.
pub(super) struct Parking {
    pub(super) stay: Option<Stay>,
    /// For the session that resumes it; set once the debugger is attached.
    pub(super) memory: Option<ResumeState>,
}

impl ReachedWorker {
    /// Reaches the worker for a permit, or resumes `origin`. If the client is lost, the session is kept according to
    /// `stay`.
    pub(super) async fn of(
        context: &Context,
        permit: &mut Permit,
        origin: Option<Origin>,
        stay: Option<Stay>,
    ) -> Result<Self, upstream::ConnectError> {
        let new = |debugger| Self {
            debugger,
            memory: None,
            began: Instant::now(),
        };
        let Some(origin) = origin else {
            let keep = stay.and_then(|stay| ResumeState::of_prompt(stay).keep_from_now(permit));
            return match permit.breakpoint().kind {
                Kind::Debugpy => {
                    let worker = upstream::connect(context, permit, MAX_HANDSHAKE_FRAME).await?;
                    let (mut stream, read) = worker.into_parts();
                    // The lease is renewed once attached. Until then this process may be killed with the task at its
                    // stop.
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
        let state = parked.kept;
        let debugger = match parked.line {
            unattended::IdleConnection::Worker(worker) => {
                SessionDebugger::Opening(Opening::Kept(worker, state))
            }
            unattended::IdleConnection::Prompt(prompt) => {
                SessionDebugger::Opening(Opening::Prompt(prompt, state))
            }
            unattended::IdleConnection::Legacy(entered) => SessionDebugger::Legacy(entered),
        };
        Ok(Self {
            debugger,
            memory: Some(parked.memory),
            began,
        })
    }

    /// Notice for resuming `whose` session with `title`, which was parked `for_how_long`.
    pub(super) fn resume_notice(&self, whose: &str, title: &str, for_how_long: &str) -> String {
        let standing = match &self.debugger {
            SessionDebugger::Opening(opening) => opening.standing(),
            _ => None,
        };
        match standing.filter(|_| whose == YOUR) {
            Some(location) => format!("you were parked at {location}{for_how_long}; going on"),
            None => {
                format!("this resumes {whose} session with {title}, which was parked{for_how_long}")
            }
        }
    }
}

impl SessionDebugger {
    /// The connection to debugpy, if attached.
    pub(super) fn worker(&mut self) -> Option<&mut Worker> {
        match self {
            Self::Prompt(attached) => Some(attached.prompt.stream_mut().get_mut()),
            Self::Opening(_) | Self::Legacy(_) | Self::Gone => None,
        }
    }

    /// Whether an agent keeps the debugger, although this connection may be lost by now.
    pub(super) fn was_kept(&mut self) -> bool {
        match self {
            Self::Legacy(entered) => entered.was_kept(),
            _ => self.worker().is_some_and(|worker| worker.was_kept()),
        }
    }

    /// Drops this connection if the debugger is kept afterwards, and returns whether it is.
    pub(super) fn abandon(&mut self) -> bool {
        match self {
            Self::Legacy(entered) => entered.abandon(),
            _ => self.worker().is_some_and(Worker::abandon),
        }
    }
}
