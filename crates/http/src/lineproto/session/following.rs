//! A legacy session that continues in another task, which registers under the same key.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncRead;
use tokio::time::{Instant, sleep};

use crate::lineproto::input::Typed;
use crate::lineproto::session::{NextPrompt, TerminalSession};
use ray_relay_access::telemetry::metrics::Outcome;
use ray_relay_ray::ray::registry::Breakpoint;

/// How long to wait for its next stop.
const FOLLOW_TIMEOUT: Duration = Duration::from_secs(300);

impl<R: AsyncRead + Unpin> TerminalSession<'_, '_, R> {
    /// Waits until the breakpoint of `last` stops again.
    pub(super) async fn next_stop(&mut self, last: &Breakpoint) -> Result<(), NextPrompt> {
        self.out
            .text("Waiting for the session to go on in another task (Enter: back to the list).\n")
            .await;
        let until = Instant::now() + FOLLOW_TIMEOUT;
        let mut snapshots = self.context.registry.watch();
        loop {
            let stopped = |b: &&Arc<Breakpoint>| b.stop > last.stop && b.is_paused();
            if snapshots
                .borrow_and_update()
                .find(last.id)
                .filter(stopped)
                .is_some()
            {
                return Ok(());
            }
            let remaining = until.saturating_duration_since(Instant::now());
            tokio::select! {
                changed = snapshots.changed() => if changed.is_err() {
                    return Err(NextPrompt::Ended(Outcome::Drained));
                },
                typed = self.input.next() => {
                    return Err(match typed {
                        Typed::End => NextPrompt::Ended(Outcome::Client),
                        _ => NextPrompt::List,
                    });
                }
                () = self.context.registry.goes_no_further(last) => {
                    self.out.notice("it goes on in no other task: the one that was debugged has ended").await;
                    return Err(NextPrompt::List);
                }
                () = sleep(remaining) => {
                    self.out.notice("it did not go on within five minutes").await;
                    return Err(NextPrompt::List);
                }
                why = self.principal.ended() => {
                    self.out.final_notice(&format!("this session ends, because {why}"));
                    return Err(NextPrompt::Ended(Outcome::Revoked));
                }
                () = self.context.shutdown.drain.cancelled() => {
                    self.out.final_notice("the relay is being shut down");
                    return Err(NextPrompt::Ended(Outcome::Drained));
                }
            }
        }
    }
}
