//! One task at the prompt for many: opens its prompt, and runs lines in it.

use std::pin::pin;
use std::time::Duration;

use futures_util::stream::{self, StreamExt as _};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::sleep;

use super::MAX_CONCURRENT_OPENS;
use super::kept::KeptOutput;
use super::members::{MeantTasks, ready};
use ray_relay_base::wire::json::typed_at;
use ray_relay_base::wire::text::replaced;
use ray_relay_debugger::pdb::{After, Options, Piece, Prompt, PromptEnd, PromptError};

/// How long a resumed task may delay those that paused after it.
pub(super) const RESUME_ORDER_TIMEOUT: Duration = Duration::from_millis(250);

/// Pieces of one task's output that may be queued.
const MAX_QUEUED_PIECES: usize = 64;

/// One task at the prompt.
pub struct LivePrompt<S> {
    /// Its index among all members.
    pub(super) at: usize,
    pub(super) prompt: Prompt<S>,
    pieces: mpsc::Receiver<Piece>,
    /// Its position in the order in which the tasks paused.
    pub(super) since: usize,
}

/// The result of opening a prompt on the member at an index: the prompt and its first output, or why there is none.
pub type Opened<S> = (usize, Result<(LivePrompt<S>, KeptOutput), String>);

/// Opens a prompt on each of `members` that is free or parked, on the connection that `dial` makes for its index and
/// id. Stores at most `room` bytes of output for each.
pub async fn open_all<S, F>(
    members: &MeantTasks,
    room: usize,
    dial: impl Fn(usize, String) -> F,
) -> Vec<Opened<S>>
where
    S: AsyncRead + AsyncWrite + Unpin,
    F: Future<Output = Result<(S, Options), String>>,
{
    let mut opening = Vec::with_capacity(members.len());
    for (at, row) in members.rows.iter().enumerate() {
        let ready = ready(row).map_err(|why| why.to_string());
        let dialled = ready.map(|()| dial(at, typed_at(row, "id")));
        let mut output = KeptOutput::new(room);
        output.asks_rank = members.lacks_rank(at);
        opening.push(Box::pin(async move {
            let opened = match dialled {
                Ok(dialled) => open(at, dialled, output).await,
                Err(why) => Err(why),
            };
            (at, opened)
        }));
    }
    stream::iter(opening)
        .buffered(MAX_CONCURRENT_OPENS)
        .collect()
        .await
}

/// Opens a prompt on the member `at` this index, and stores its first output: its location.
///
/// # Errors
/// Why there is no prompt.
async fn open<S>(
    at: usize,
    dialled: impl Future<Output = Result<(S, Options), String>>,
    mut output: KeptOutput,
) -> Result<(LivePrompt<S>, KeptOutput), String>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (stream, options) = dialled.await?;
    let (sender, mut pieces) = mpsc::channel(MAX_QUEUED_PIECES);
    output.begin();
    let opening = Prompt::open(stream, &options, sender);
    let opened = output.of(opening, &mut pieces).await.map_err(|why| {
        let why = match why {
            PromptError::Lost(lost) => format!("no session came about: {lost}"),
            why => why.to_string(),
        };
        replaced(&why).into_owned()
    });
    let mut prompt = match opened? {
        (prompt, After::Prompt) => prompt,
        (_, After::Ended(end)) => return Err(ended(&end, false)),
    };
    if output.asks_rank {
        let rank = prompt.rank().await;
        output.rank = rank.map_err(|lost| format!("the session broke off: {lost}"))?;
    }
    let live = LivePrompt {
        at,
        prompt,
        pieces,
        since: 0,
    };
    Ok((live, output))
}

/// The outcome for a task that was detached, unless an expression still runs in it.
const RESUMED_CLAUSE: &str = "the task runs on without a debugger";
const EVALUATING_CLAUSE: &str = "an expression goes on in the task, which runs on when that ends";

/// Describes the end of a session as a clause about its task, in which an expression may still be `evaluated`.
pub(super) fn ended(end: &PromptEnd, evaluated: bool) -> String {
    match end {
        PromptEnd::TaskEnded => "the task has ended".to_owned(),
        PromptEnd::Left if evaluated => EVALUATING_CLAUSE.to_owned(),
        PromptEnd::Left => RESUMED_CLAUSE.to_owned(),
        PromptEnd::Killed => "the worker process is killed".to_owned(),
        PromptEnd::Terminated => {
            "the worker process ended, or the relay closed the session".to_owned()
        }
        PromptEnd::Lost(lost) => format!("the session broke off: {lost}"),
    }
}

/// The signal that lets one task resume, and the sender that releases the next one.
pub(super) type Order = (Option<oneshot::Receiver<()>>, oneshot::Sender<()>);

/// The result of a line in one task.
pub struct LineDone {
    pub(super) at: usize,
    pub(super) after: After,
    pub(super) output: KeptOutput,
    /// Whether the task has resumed, and so may have paused again.
    pub(super) has_run: bool,
    /// Whether an expression still runs in the task.
    pub(super) evaluates: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> LivePrompt<S> {
    /// Detaches from the task. Returns the outcome as a clause.
    pub(super) async fn leave(&mut self) -> String {
        self.prompt.leave().await;
        ended(&PromptEnd::Left, self.prompt.evaluates())
    }

    /// Runs `line`, and stores at most `room` bytes of output. If the line may resume the task, it waits for its turn
    /// in `order`.
    pub(super) async fn does(
        &mut self,
        line: String,
        room: usize,
        order: Option<Order>,
    ) -> LineDone {
        let mut output = KeptOutput::new(room);
        output.begin();
        let (turn, goes_on) = order.unzip();
        if let Some(turn) = turn.flatten() {
            // The channel carries no value: the turn comes when the previous one drops its end.
            let _ = turn.await;
        }
        let resumed = self.prompt.resumed();
        let doing = Box::pin(output.of(self.prompt.line(&line), &mut self.pieces));
        let has_run = resumed.clone();
        let after = in_order(doing, resumed, goes_on).await;
        let has_run = has_run.has_changed().unwrap_or_default();
        output.ends(&line, self.prompt.calls());
        LineDone {
            at: self.at,
            after,
            output,
            has_run,
            evaluates: self.prompt.evaluates(),
        }
    }
}

/// Awaits `doing`, and drops `goes_on` once the task has `resumed`, or delays the next one for too long.
async fn in_order<T>(
    doing: impl Future<Output = T>,
    mut resumed: watch::Receiver<u64>,
    goes_on: Option<oneshot::Sender<()>>,
) -> T {
    let mut doing = pin!(doing);
    if let Some(goes_on) = goes_on {
        tokio::select! {
            biased;
            done = &mut doing => return done,
            _ = resumed.changed() => {}
            () = sleep(RESUME_ORDER_TIMEOUT) => {}
        }
        drop(goes_on);
    }
    doing.await
}
