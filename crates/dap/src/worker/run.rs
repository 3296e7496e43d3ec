//! The loop of a session: its events, and their handling.

use std::ops::ControlFlow;
use std::pin::pin;
use std::time::Duration;

use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, timeout};
use tracing::debug;

use super::phase::ClientState;
use super::reverse_requests::release_unopened;
use super::{ActiveSession, FINAL_NOTICE_TIMEOUT, HALF_CLOSED_TIMEOUT, SessionOutcome};
use super::{ending, in_passing};
use ray_relay_access::connection::on_wake::WakeForwarder;
use ray_relay_access::telemetry::metrics::Outcome;
use ray_relay_base::wire::dap::codec::FrameError;
use ray_relay_base::wire::dap::message::notice;
use ray_relay_base::wire::dap::names::Command;
use ray_relay_base::wire::dap::splice::{Side, SpliceEvent};
use ray_relay_base::wire::peer_stream::PeerStream;
use ray_relay_session::session::FromFamily;
use ray_relay_session::session::live::{Signal, until};
use ray_relay_session::session::worker_end::was_intended;

/// How long a client that was notified of the end keeps the worker's debugger, which answers it meanwhile. Then the
/// worker is detached, and the client alone is kept ([`Linger`](crate::linger::Linger)).
const LINGER_TIMEOUT: Duration = Duration::from_secs(5);

/// Deadline for the final writes to a client.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// Interval at which the byte counters of a session are updated.
const COUNT_INTERVAL: Duration = Duration::from_secs(5);

/// Next event of a session.
enum NextSession {
    Rare(Rare),
    Passes(SpliceEvent),
}

/// Events of a session other than messages.
enum Rare {
    Signal(Signal),
    Family(FromFamily),
    /// Whether the client's window was closed.
    Decided(bool),
    /// Another client probes whether the client is there, with this question, or no longer does.
    Doubted(Option<u64>),
    /// The task has not stopped; the text has its location.
    StillRuns(String),
    /// A delayed child session is due.
    Child,
    /// Subprocesses may wait, their sessions parked.
    Waiting,
    /// The counters must be updated.
    Tick,
}

impl<'a, S: PeerStream> ActiveSession<'a, S> {
    /// Runs the session until its client is lost, or to its audited end.
    pub(crate) async fn run(mut self: Box<Self>) -> SessionOutcome<'a, S> {
        // Messages that only pass do not reach this loop, so the counters are updated periodically.
        let sampling = self.live.sampling().unwrap_or(COUNT_INTERVAL);
        let every = sampling.min(COUNT_INTERVAL);
        let mut count = interval_at(Instant::now() + every, every);
        count.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let beside = WakeForwarder::default();
        loop {
            let next = self.next(&mut count, &beside).await;
            self.count();
            match next {
                NextSession::Rare(Rare::Signal(signal)) => {
                    if let Some(event) = self.live.judge(signal)
                        && self.on_session(event).is_break()
                    {
                        break;
                    }
                }
                NextSession::Rare(Rare::Family(FromFamily::Ended(how))) => {
                    self.end_with_parent(how)
                }
                NextSession::Rare(Rare::Family(FromFamily::Asked(request))) => {
                    Box::pin(self.on_lead_request(request)).await;
                    Box::pin(self.process_answers()).await;
                }
                NextSession::Rare(Rare::Decided(closed)) => self.disconnected(closed),
                NextSession::Rare(Rare::Doubted(question)) => {
                    self.client.probe(question, self.session, &mut self.traffic);
                }
                NextSession::Rare(Rare::StillRuns(place)) => self.report_location(&place),
                NextSession::Rare(Rare::Child) => self.editor().open_children(),
                NextSession::Rare(Rare::Waiting) => self.editor().open_waiting(),
                NextSession::Rare(Rare::Tick) => {}
                NextSession::Passes(event) => {
                    // Boxed, so that it takes no space while the session waits.
                    match Box::pin(self.on_event(event)).await {
                        ControlFlow::Continue(None) => {}
                        ControlFlow::Continue(Some(because)) => {
                            let patience = match self.client.state.is_closed() {
                                true => HALF_CLOSED_TIMEOUT,
                                false => LINGER_TIMEOUT,
                            };
                            self.live.end_within(patience, because);
                        }
                        ControlFlow::Break(because) => {
                            self.live.end_within(Duration::ZERO, because);
                            break;
                        }
                    }
                    if self.member.is_some() || self.traffic.own.questions.has_answers() {
                        Box::pin(self.process_answers()).await;
                    }
                    if self.traffic.splice.finished() || self.is_done() {
                        break;
                    }
                }
            }
        }
        if self.client.state.is_lost() && self.may_park() {
            self = match Box::pin(self.parked()).await {
                Ok(park) => return SessionOutcome::Parked(park),
                Err(ends) => ends,
            };
        }
        let patience = match self.live.is_cut_off() {
            true => FINAL_NOTICE_TIMEOUT,
            false => FLUSH_TIMEOUT,
        };
        let _ = timeout(patience, self.traffic.splice.flush(Side::Client)).await;
        let outcome = self.outcome();
        release_unopened(self.context, &self.live, outcome);
        let (up, down) = self.traffic.splice.bytes();
        self.session.set_bytes(up, down);
        let (farewell, closing) = self.part();
        closing.end(outcome).await;
        SessionOutcome::Over(outcome, farewell.map(Box::new))
    }

    /// How the session ends. The death of a worker whose job has ended is no failure.
    fn outcome(&self) -> Outcome {
        let id = self.live.worker.breakpoint().id;
        match self.live.outcome() {
            Outcome::Died if was_intended(&self.context.registry.snapshot(), id) => {
                Outcome::Finished
            }
            outcome => outcome,
        }
    }

    /// Resolves with the next event; `count` ticks when the counters must be updated.
    ///
    /// Both branches are cancel safe: the splice keeps partial messages, and
    /// [`Live::next`](ray_relay_session::session::live::Live::next) checks everything again.
    async fn next(&mut self, count: &mut Interval, beside: &WakeForwarder) -> NextSession {
        // If the client disconnects, or the session is recorded, every message is seen.
        let all_seen = self.live.capture.is_on()
            || self.live.is_cut_off()
            || self.client.state.is_closed()
            || !self.worker.is_attached();
        let gone = self.is_over_for_client();
        let child = self.reverse_requests.next_child().filter(|_| !gone);
        let opens = !gone && self.resumption.is_none() && self.live.worker.holds();
        let free = self.filter.has_no_rules() && !self.live.audit.wants_commands() && !gone;
        let wants_stacks = self.wants_stacks();
        let rare = pin!(async {
            tokio::select! {
                // A subprocess that parks with its task's session must not be opened again by the client.
                biased;
                signal = self.live.next() => Rare::Signal(signal),
                event = ending::from_family(&mut self.member), if !gone => Rare::Family(event),
                closed = self.client.state.decided() => Rare::Decided(closed),
                doubted = self.session.liveness().doubted() => Rare::Doubted(doubted),
                place = self.task.pausing.still_runs(), if !gone => Rare::StillRuns(place),
                () = until(child) => Rare::Child,
                () = self.reverse_requests.subprocess_parked(), if opens => Rare::Waiting,
                _ = count.tick() => Rare::Tick,
            }
        });
        let (splice, filter) = (&mut self.traffic.splice, &self.filter);
        let stack = Command::StackTrace.as_str().as_bytes();
        splice.capture_answers(Side::Worker, stack, wants_stacks);
        let passes = async move {
            match all_seen {
                true => splice.next().await,
                false => in_passing::next(splice, filter, free, wants_stacks).await,
            }
        };
        tokio::select! {
            // Rare events first: they cost nothing if there are none, and a flood of messages must not starve them.
            biased;
            rare = beside.run(rare) => NextSession::Rare(rare),
            event = passes => NextSession::Passes(event),
        }
    }

    /// Updates the byte counters, and the time of the client's activity.
    fn count(&mut self) {
        let (up, down) = self.traffic.splice.bytes();
        if up != self.session.bytes().0 {
            self.live.active(Instant::now());
        }
        self.session.set_bytes(up, down);
    }

    /// Handles a message or the end of a connection. `Continue(Some)`: the session is ending, and has
    /// [`LINGER_TIMEOUT`] to do so.
    async fn on_event(&mut self, seen: SpliceEvent) -> ControlFlow<Outcome, Option<Outcome>> {
        match seen {
            SpliceEvent::Captured(Side::Client, _) if self.is_over_for_client() => {}
            SpliceEvent::Captured(Side::Client, body) => {
                if self.traffic.capture_from_client(&body).is_ok() {
                    return self.on_client(&body).await;
                }
            }
            SpliceEvent::Captured(Side::Worker, body) => {
                self.on_worker(body).await;
                if !self.worker.is_attached() {
                    // The adapter stays as long as its client, and clients answer with a disconnect of their own.
                    return ControlFlow::Continue(Some(match self.live.is_leaving() {
                        true => Outcome::Client,
                        false => Outcome::Died,
                    }));
                }
            }
            SpliceEvent::Eof(Side::Client)
                if let ClientState::Deciding { closed, .. } = &mut self.client.state =>
            {
                *closed = true;
            }
            SpliceEvent::Eof(Side::Client) if self.may_park() => {
                self.client.state = ClientState::Lost;
                return ControlFlow::Continue(Some(Outcome::Client));
            }
            SpliceEvent::Eof(Side::Client) => {
                let said_goodbye = self.live.leave();
                self.client.state = ClientState::Closed;
                if !said_goodbye {
                    self.traffic.send_disconnect();
                }
                return ControlFlow::Continue(Some(Outcome::Client));
            }
            SpliceEvent::Eof(Side::Worker) => {
                return ControlFlow::Break(self.on_worker_gone(false).await);
            }
            SpliceEvent::Failed(Side::Worker, error) => {
                debug!(%error, "the connection to the worker failed");
                return ControlFlow::Break(self.on_worker_gone(true).await);
            }
            SpliceEvent::Failed(Side::Client, error) => {
                debug!(%error, "the connection to the client failed");
                match std::mem::replace(&mut self.client.state, ClientState::Lost) {
                    ClientState::Deciding { decision, .. } => {
                        let closed = decision.await;
                        self.disconnected(closed);
                    }
                    ClientState::Present | ClientState::Closed | ClientState::Lost => {}
                }
                return ControlFlow::Break(Outcome::Client);
            }
            // A client that exceeds the memory, by requests or answers, has not asked for the task to resume.
            SpliceEvent::Malformed(_, FrameError::Short(short))
                if self.leave_parked(&short.to_string(), true) =>
            {
                return ControlFlow::Continue(Some(Outcome::Client));
            }
            SpliceEvent::Malformed(Side::Client, error) => {
                self.traffic.send_to_client(&notice(&format!("this session ends, because the client sent something that is not understood: {error}"), true));
                self.traffic.send_terminated();
                return ControlFlow::Break(Outcome::Failed);
            }
            SpliceEvent::Malformed(Side::Worker, error) => {
                self.traffic.send_to_client(&notice(&format!("this session ends, because the worker's debugger sent something that is not understood: {error}"), true));
                self.traffic.send_terminated();
                return ControlFlow::Break(Outcome::Failed);
            }
        }
        ControlFlow::Continue(None)
    }
}
