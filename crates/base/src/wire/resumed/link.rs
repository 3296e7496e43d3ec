//! The two halves of a link within one process: the stream that is read and written ([`LinkedStream`]), and the half
//! that a transport carries.

mod stream;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Waker;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use self::stream::LinkedStream;
use super::messages::ResumeMessage;
use super::offsets::{IncomingOffsets, Mismatch, Next, OutgoingOffsets};
use crate::memory::{Account, MemoryUse, Reservation};
use crate::wire::tunnel::MAX_FRAME_BYTES;

/// The state of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    /// A transport carries it.
    Attached,
    /// No transport carries it, since then.
    Detached(Instant),
    /// Both directions have ended, and both sides know.
    Done,
    /// It has failed for this reason, whatever was in transit.
    Broken(Arc<str>),
}

/// A link, for its transport and its supervisor.
#[derive(Debug)]
pub struct LinkHandle {
    state: Mutex<ResumedState>,
    /// Notifies that there may be something to send.
    pub(super) to_send: Notify,
    phase: watch::Sender<Phase>,
    used: CancellationToken,
    closed: CancellationToken,
    /// Since when the peer is doubted to be alive.
    doubted: watch::Sender<Option<Instant>>,
    /// Round-trip time of the last heartbeat in milliseconds, plus one; 0: none yet.
    round_trip: AtomicU32,
    /// When the peer was last heard from; the wall clock also runs while a machine sleeps.
    last_activity: Mutex<(SystemTime, Instant)>,
}

#[derive(Debug)]
struct ResumedState {
    outgoing: OutgoingOffsets,
    incoming: IncomingOffsets,
    reader: Option<Waker>,
    writer: Option<Waker>,
    /// The number of the current transport; former ones are ignored.
    transport: u64,
    replaced: CancellationToken,
    /// A client has connected here.
    used: bool,
    /// The peer was notified of that, over the current transport.
    used_sent: bool,
    /// The stream is not read or written here any more.
    closed: bool,
    /// The peer was notified of that, over the current transport.
    close_sent_here: bool,
    /// The peer was notified of that, over any transport.
    close_sent: bool,
    /// The peer no longer reads.
    gone: bool,
    /// Memory of the bytes in transit.
    reserved: Reservation,
}

/// The right of one transport to carry a link, until another one takes over.
///
/// Dropping it detaches the link: no transport carries it then.
#[derive(Debug)]
pub struct Attachment {
    link: Arc<LinkHandle>,
    number: u64,
    /// Position before which everything had been received when it began.
    pub received: u64,
    /// Cancelled when another transport carries the link.
    pub replaced: CancellationToken,
}

/// A transport's next action.
#[derive(Debug)]
pub(super) enum Sent {
    Bytes(bytes::Bytes),
    End,
    Message(ResumeMessage),
    /// There is nothing to send now.
    Nothing,
    /// Nothing will ever be sent again.
    Done,
    /// Another transport carries the link, or the link is over.
    Over,
}

impl LinkHandle {
    /// Creates a link without a transport, and its stream, with windows of `outgoing` and `incoming` bytes.
    pub fn new(outgoing: usize, incoming: usize) -> (Arc<Self>, LinkedStream) {
        Self::counted(outgoing, incoming, &Account::default())
    }

    /// The same, with its memory charged to `account`.
    pub fn counted(
        outgoing: usize,
        incoming: usize,
        account: &Account,
    ) -> (Arc<Self>, LinkedStream) {
        let link = Arc::new(Self {
            state: Mutex::new(ResumedState {
                outgoing: OutgoingOffsets::new(outgoing),
                incoming: IncomingOffsets::new(incoming),
                reader: None,
                writer: None,
                transport: 0,
                replaced: CancellationToken::new(),
                used: false,
                used_sent: false,
                closed: false,
                close_sent_here: false,
                close_sent: false,
                gone: false,
                reserved: account.empty(MemoryUse::Links),
            }),
            to_send: Notify::new(),
            phase: watch::Sender::new(Phase::Detached(Instant::now())),
            used: CancellationToken::new(),
            closed: CancellationToken::new(),
            doubted: watch::Sender::default(),
            round_trip: AtomicU32::new(0),
            last_activity: Mutex::new((SystemTime::now(), Instant::now())),
        });
        (Arc::clone(&link), LinkedStream(link))
    }

    /// Position before which everything was received.
    pub fn received(&self) -> u64 {
        self.state.lock().incoming.received()
    }

    /// Attaches a new transport, over which the peer reports that it has everything before `received`.
    ///
    /// # Errors
    /// [`Mismatch`]: the link is broken then, as its state is unknown.
    pub fn attach(self: &Arc<Self>, received: u64) -> Result<Attachment, Mismatch> {
        let mut state = self.state.lock();
        if let Err(mismatch) = state.outgoing.resume(received) {
            drop(state);
            self.break_off(&mismatch.to_string());
            return Err(mismatch);
        }
        state.incoming.resume();
        (state.used_sent, state.close_sent_here) = (false, false);
        state.transport += 1;
        state.replaced.cancel();
        state.replaced = CancellationToken::new();
        let attachment = Attachment {
            link: Arc::clone(self),
            number: state.transport,
            received: state.incoming.received(),
            replaced: state.replaced.clone(),
        };
        self.become_unless_over(Phase::Attached);
        drop(state);
        self.to_send.notify_one();
        Ok(attachment)
    }

    /// Ends the link for good, whatever is in transit. `why` is the end of a sentence.
    pub fn break_off(&self, why: &str) {
        self.become_unless_over(Phase::Broken(why.into()));
        let mut state = self.state.lock();
        state.wake();
        drop(state);
        self.to_send.notify_one();
    }

    /// Records that the peer has everything, and expects nothing more.
    pub(super) fn done(&self) {
        self.become_unless_over(Phase::Done);
    }

    fn become_unless_over(&self, next: Phase) {
        self.phase.send_if_modified(|phase| {
            let over = matches!(phase, Phase::Done | Phase::Broken(_));
            if !over {
                *phase = next;
            }
            !over
        });
    }

    /// Subscribes to the state of the link.
    pub fn phase(&self) -> watch::Receiver<Phase> {
        self.phase.subscribe()
    }

    fn broken(&self) -> Option<Arc<str>> {
        match &*self.phase.borrow() {
            Phase::Broken(why) => Some(Arc::clone(why)),
            _ => None,
        }
    }

    /// Whether nothing is lost if the link ends now: everything that the peer wrote was received, and the peer has
    /// received everything but perhaps the end.
    pub fn owes_nothing(&self) -> bool {
        let state = self.state.lock();
        let read = state.closed || state.incoming.is_whole();
        read && (state.gone || state.closed && state.outgoing.stored() == 0)
    }

    /// Records that a client has connected here, and notifies the peer.
    pub fn take_up(&self) {
        self.state.lock().used = true;
        self.used.cancel();
        self.to_send.notify_one();
    }

    /// Whether a client has connected, at either side.
    pub fn is_used(&self) -> bool {
        self.used.is_cancelled()
    }

    /// Waits until a client has connected, at either side, or the peer has sent bytes. Cancel safe.
    pub async fn used(&self) {
        self.used.cancelled().await;
    }

    /// Waits until the stream was dropped. Cancel safe.
    pub async fn closed(&self) {
        self.closed.cancelled().await;
    }

    /// Subscribes to the time since when the peer is doubted to be alive.
    pub fn doubted(&self) -> watch::Receiver<Option<Instant>> {
        self.doubted.subscribe()
    }

    /// The round-trip time of the last heartbeat.
    pub fn round_trip(&self) -> Option<Duration> {
        let millis = self.round_trip.load(Ordering::Relaxed).checked_sub(1)?;
        Some(Duration::from_millis(millis.into()))
    }

    /// When the peer was last heard from.
    pub fn last_heard(&self) -> SystemTime {
        self.last_activity.lock().0
    }

    /// Records a sign of life from the peer.
    pub(super) fn record_activity(&self) {
        *self.last_activity.lock() = (SystemTime::now(), Instant::now());
    }

    pub(super) fn measured(&self, round_trip: Duration) {
        let millis = u32::try_from(round_trip.as_millis()).unwrap_or(u32::MAX - 1);
        self.round_trip
            .store(millis.saturating_add(1), Ordering::Relaxed);
    }

    /// The next action of this transport; `all` includes acknowledgements that are only due with a heartbeat.
    pub(super) fn next(&self, attachment: &Attachment, all: bool) -> Sent {
        let mut state = self.state.lock();
        if state.transport != attachment.number || self.broken().is_some() {
            return Sent::Over;
        }
        if state.used && !state.used_sent {
            state.used_sent = true;
            return Sent::Message(ResumeMessage::Used);
        }
        if let Some(before) = state.incoming.acknowledge(all) {
            return Sent::Message(ResumeMessage::Taken { before });
        }
        match state.outgoing.send(MAX_FRAME_BYTES) {
            Some(Next::Bytes(bytes)) => return Sent::Bytes(bytes),
            Some(Next::End) => return Sent::End,
            None => {}
        }
        if state.closed && !state.close_sent_here {
            (state.close_sent_here, state.close_sent) = (true, true);
            return Sent::Message(ResumeMessage::Gone);
        }
        match state.is_done() {
            true => {
                self.become_unless_over(Phase::Done);
                Sent::Done
            }
            false => Sent::Nothing,
        }
    }

    /// Processes bytes received over this transport.
    ///
    /// # Errors
    /// [`Mismatch`].
    pub(super) fn receive(&self, attachment: &Attachment, bytes: &[u8]) -> Result<(), Mismatch> {
        let mut state = self.state.lock();
        if state.transport != attachment.number {
            return Ok(());
        }
        match bytes.is_empty() {
            true => state.incoming.finish()?,
            false => {
                let more = state.held() + bytes.len();
                state.reserved.resize(more).map_err(Mismatch::Short)?;
                state.incoming.receive(bytes)?;
            }
        }
        if state.closed {
            state.incoming.discard();
            state.count();
            self.to_send.notify_one();
        }
        if let Some(reader) = state.reader.take() {
            reader.wake();
        }
        drop(state);
        self.used.cancel();
        Ok(())
    }

    /// Processes a message received over this transport.
    ///
    /// # Errors
    /// [`Mismatch`].
    pub(super) fn receive_message(
        &self,
        attachment: &Attachment,
        message: ResumeMessage,
    ) -> Result<(), Mismatch> {
        let mut state = self.state.lock();
        if state.transport != attachment.number {
            return Ok(());
        }
        match message {
            ResumeMessage::Taken { before } => {
                state.outgoing.acknowledged(before)?;
                state.count();
            }
            ResumeMessage::Gone => {
                state.gone = true;
                state.outgoing.abandon();
                state.count();
            }
            ResumeMessage::Used => self.used.cancel(),
            ResumeMessage::Begun { .. }
            | ResumeMessage::Resumed { .. }
            | ResumeMessage::Unknown => return Ok(()),
        }
        if let Some(writer) = state.writer.take() {
            writer.wake();
        }
        drop(state);
        self.to_send.notify_one();
        Ok(())
    }
}

impl Attachment {
    /// The link that it carries.
    pub(super) fn link(&self) -> &LinkHandle {
        &self.link
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        let mut state = self.link.state.lock();
        if state.transport == self.number {
            state.transport += 1;
            let now = Phase::Detached(Instant::now());
            self.link.become_unless_over(now);
        }
    }
}

impl ResumedState {
    /// Number of bytes in transit.
    fn held(&self) -> usize {
        self.outgoing.stored() + self.incoming.held()
    }

    /// Adjusts the memory after bytes have left.
    fn count(&mut self) {
        let held = self.held();
        self.reserved.insist(held);
    }

    /// Number of bytes that a write may add: always a few, since they will be sent eventually.
    fn room(&mut self, requested: usize) -> usize {
        let requested = requested.min(self.outgoing.room());
        let held = self.held();
        if self.reserved.resize(held + requested).is_ok() {
            return requested;
        }
        let least = MAX_FRAME_BYTES.saturating_sub(self.outgoing.stored());
        let least = requested.min(least);
        self.reserved.insist(held + least);
        least
    }

    fn wake(&mut self) {
        for waker in [self.reader.take(), self.writer.take()]
            .into_iter()
            .flatten()
        {
            waker.wake();
        }
    }

    fn is_done(&self) -> bool {
        let read = self.incoming.is_done() || self.closed && self.close_sent;
        read && self.outgoing.is_done()
    }
}
