//! The two halves of a link within one process: the stream that is read and written ([`LinkedStream`]), and what a
//! transport carries.

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
use crate::memory::{Account, MemoryUse, Taken};
use crate::wire::tunnel::MAX_FRAME_BYTES;

/// How a link fares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    /// A transport carries it.
    Attached,
    /// None does, since then.
    Detached(Instant),
    /// Both directions have ended, and both sides know.
    Done,
    /// It is over for this reason, whatever was under way.
    Broken(Arc<str>),
}

/// A link, for who carries it and who looks after it.
#[derive(Debug)]
pub struct LinkHandle {
    state: Mutex<ResumedState>,
    /// There may be something to send.
    pub(super) to_send: Notify,
    phase: watch::Sender<Phase>,
    used: CancellationToken,
    left: CancellationToken,
    /// Since when it is doubted that the other side is there.
    doubted: watch::Sender<Option<Instant>>,
    /// Of the last heartbeat, in milliseconds, and one more; 0: none yet.
    round_trip: AtomicU32,
    /// When the other side was last heard, by the clock that runs while a machine sleeps.
    heard: Mutex<(SystemTime, Instant)>,
}

#[derive(Debug)]
struct ResumedState {
    outgoing: OutgoingOffsets,
    incoming: IncomingOffsets,
    reader: Option<Waker>,
    writer: Option<Waker>,
    /// The present transport, by number; the former ones count for nothing.
    transport: u64,
    replaced: CancellationToken,
    /// A client has connected here, and over the present transport the other side was told.
    used: bool,
    used_told: bool,
    /// The stream is not read or written here any more.
    left: bool,
    /// The other side was told so, over the present transport.
    left_told: bool,
    /// It was told so at all.
    left_said: bool,
    /// The other side reads no more.
    gone: bool,
    /// For what is under way.
    taken: Taken,
}

/// The right of one transport to carry a link, until another one has it.
///
/// Dropped, it gives the link back: no transport carries it then.
#[derive(Debug)]
pub struct Attachment {
    link: Arc<LinkHandle>,
    number: u64,
    /// Everything before that was received when it began.
    pub received: u64,
    /// Another transport carries the link.
    pub replaced: CancellationToken,
}

/// What a transport sends next.
#[derive(Debug)]
pub(super) enum Sent {
    Bytes(bytes::Bytes),
    End,
    Said(ResumeMessage),
    /// Nothing now.
    Nothing,
    /// Nothing more, ever.
    Done,
    /// Another transport has the link, or it is over.
    Over,
}

impl LinkHandle {
    /// A link that no transport carries yet, and its stream: with so many bytes under way from here, and so many towards here.
    pub fn new(outgoing: usize, incoming: usize) -> (Arc<Self>, LinkedStream) {
        Self::counted(outgoing, incoming, &Account::default())
    }

    /// The same, with its memory from `account`.
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
                used_told: false,
                left: false,
                left_told: false,
                left_said: false,
                gone: false,
                taken: account.nothing(MemoryUse::Links),
            }),
            to_send: Notify::new(),
            phase: watch::Sender::new(Phase::Detached(Instant::now())),
            used: CancellationToken::new(),
            left: CancellationToken::new(),
            doubted: watch::Sender::default(),
            round_trip: AtomicU32::new(0),
            heard: Mutex::new((SystemTime::now(), Instant::now())),
        });
        (Arc::clone(&link), LinkedStream(link))
    }

    /// Everything before that was received.
    pub fn received(&self) -> u64 {
        self.state.lock().incoming.received()
    }

    /// Gives the link to a new transport, over which the other side says that it has everything before `received`.
    ///
    /// # Errors
    /// [`Mismatch`]: the link is broken then, as nothing can be told from it any more.
    pub fn attach(self: &Arc<Self>, received: u64) -> Result<Attachment, Mismatch> {
        let mut state = self.state.lock();
        if let Err(mismatch) = state.outgoing.resume(received) {
            drop(state);
            self.break_off(&mismatch.to_string());
            return Err(mismatch);
        }
        state.incoming.resume();
        (state.used_told, state.left_told) = (false, false);
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

    /// The link is over, whatever was under way, for a reason that is the end of a sentence. It stays over.
    pub fn break_off(&self, why: &str) {
        self.become_unless_over(Phase::Broken(why.into()));
        let mut state = self.state.lock();
        state.wake();
        drop(state);
        self.to_send.notify_one();
    }

    /// The other side has everything, and wants nothing more.
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

    /// How it fares, and how it goes on.
    pub fn phase(&self) -> watch::Receiver<Phase> {
        self.phase.subscribe()
    }

    fn broken(&self) -> Option<Arc<str>> {
        match &*self.phase.borrow() {
            Phase::Broken(why) => Some(Arc::clone(why)),
            _ => None,
        }
    }

    /// Whether nothing is lost where the link is: everything that the other side wrote was received, and it has received
    /// everything but perhaps the end.
    pub fn owes_nothing(&self) -> bool {
        let state = self.state.lock();
        let read = state.left || state.incoming.is_whole();
        read && (state.gone || state.left && state.outgoing.kept() == 0)
    }

    /// A client has connected here, of which the other side is told.
    pub fn take_up(&self) {
        self.state.lock().used = true;
        self.used.cancel();
        self.to_send.notify_one();
    }

    /// Whether a client has connected, at either side.
    pub fn is_used(&self) -> bool {
        self.used.is_cancelled()
    }

    /// A client has connected at the other side, or said something. Cancel safe.
    pub async fn used(&self) {
        self.used.cancelled().await;
    }

    /// Its stream was dropped. Cancel safe.
    pub async fn left(&self) {
        self.left.cancelled().await;
    }

    /// Since when it is doubted that the other side is there, and how that goes on.
    pub fn doubted(&self) -> watch::Receiver<Option<Instant>> {
        self.doubted.subscribe()
    }

    /// The time of the last heartbeat to the other side and back.
    pub fn round_trip(&self) -> Option<Duration> {
        let millis = self.round_trip.load(Ordering::Relaxed).checked_sub(1)?;
        Some(Duration::from_millis(millis.into()))
    }

    /// When the other side was last heard.
    pub fn last_heard(&self) -> SystemTime {
        self.heard.lock().0
    }

    /// It is heard now.
    pub(super) fn heard(&self) {
        *self.heard.lock() = (SystemTime::now(), Instant::now());
    }

    pub(super) fn measured(&self, round_trip: Duration) {
        let millis = u32::try_from(round_trip.as_millis()).unwrap_or(u32::MAX - 1);
        self.round_trip
            .store(millis.saturating_add(1), Ordering::Relaxed);
    }

    /// What this transport sends next; with `all`, also what is only due with a heartbeat.
    pub(super) fn next(&self, attachment: &Attachment, all: bool) -> Sent {
        let mut state = self.state.lock();
        if state.transport != attachment.number || self.broken().is_some() {
            return Sent::Over;
        }
        if state.used && !state.used_told {
            state.used_told = true;
            return Sent::Said(ResumeMessage::Used);
        }
        if let Some(before) = state.incoming.tell(all) {
            return Sent::Said(ResumeMessage::Taken { before });
        }
        match state.outgoing.send(MAX_FRAME_BYTES) {
            Some(Next::Bytes(bytes)) => return Sent::Bytes(bytes),
            Some(Next::End) => return Sent::End,
            None => {}
        }
        if state.left && !state.left_told {
            (state.left_told, state.left_said) = (true, true);
            return Sent::Said(ResumeMessage::Gone);
        }
        match state.is_done() {
            true => {
                self.become_unless_over(Phase::Done);
                Sent::Done
            }
            false => Sent::Nothing,
        }
    }

    /// Bytes have come over this transport.
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
                state.taken.resize(more).map_err(Mismatch::Short)?;
                state.incoming.receive(bytes)?;
            }
        }
        if state.left {
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

    /// The other side has said something over this transport.
    ///
    /// # Errors
    /// [`Mismatch`].
    pub(super) fn hear(
        &self,
        attachment: &Attachment,
        said: ResumeMessage,
    ) -> Result<(), Mismatch> {
        let mut state = self.state.lock();
        if state.transport != attachment.number {
            return Ok(());
        }
        match said {
            ResumeMessage::Taken { before } => {
                state.outgoing.taken(before)?;
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
    /// What it carries.
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
    /// How many bytes are under way.
    fn held(&self) -> usize {
        self.outgoing.kept() + self.incoming.held()
    }

    /// Less is under way than before.
    fn count(&mut self) {
        let held = self.held();
        self.taken.insist(held);
    }

    /// How much of what is written here may be kept as well: always a little, as what is kept goes out some time.
    fn room(&mut self, wanted: usize) -> usize {
        let wanted = wanted.min(self.outgoing.room());
        let held = self.held();
        if self.taken.resize(held + wanted).is_ok() {
            return wanted;
        }
        let least = MAX_FRAME_BYTES.saturating_sub(self.outgoing.kept());
        let least = wanted.min(least);
        self.taken.insist(held + least);
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
        let read = self.incoming.is_done() || self.left && self.left_said;
        read && self.outgoing.is_done()
    }
}
