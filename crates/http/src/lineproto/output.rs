//! Output to a client: a bounded queue for its connection, charged to the client's memory budget.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::timeout;

use ray_relay_access::recording::{CaptureTee, Direction};
use ray_relay_base::memory::{Account, MemoryUse, Reservation};

/// Length of the queue to the client, in pieces. The longest value that the prompt prints makes one piece.
const QUEUED_WRITES: usize = 16;

/// Bytes that can always be queued: enough for a prompt and a sentence.
const UNRESERVED_BYTES: usize = 4 * 1024;

/// How long a piece waits for memory. Whatever the client reads meanwhile frees some.
const MEMORY_TIMEOUT: Duration = Duration::from_secs(10);

/// Time limit for writing one piece; after that the client counts as gone.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// Counter of the bytes sent.
#[derive(Debug, Default)]
pub(super) struct Counts(AtomicU64);

impl Counts {
    /// Number of bytes written to the client.
    pub(super) fn written(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Queued bytes with their memory reservation.
#[derive(Debug)]
pub(super) struct Queued(Bytes, Reservation);

/// The writing half of a client's connection. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Out {
    pieces: mpsc::Sender<Queued>,
    counts: Arc<Counts>,
    /// The memory account of the principal, once known.
    account: Arc<OnceLock<Account>>,
}

impl Out {
    /// Creates the queue, and returns the receiver for [`pump`].
    pub(super) fn new() -> (Self, mpsc::Receiver<Queued>) {
        let (pieces, queued) = mpsc::channel(QUEUED_WRITES);
        let out = Self {
            pieces,
            counts: Arc::default(),
            account: Arc::default(),
        };
        (out, queued)
    }

    /// From now on charges queued bytes to `account`. Only the first call has an effect.
    pub(super) fn count(&self, account: Account) {
        let _ = self.account.set(account);
    }

    pub(super) fn counts(&self) -> Arc<Counts> {
        self.counts.clone()
    }

    /// Queues text of the relay or of the prompt. Waits for a slow client.
    pub(super) async fn text(&self, text: &str) {
        self.raw(text.as_bytes()).await;
    }

    /// Queues a worker's bytes, unchanged.
    pub(super) async fn raw(&self, bytes: &[u8]) {
        self.send(bytes.to_vec()).await;
    }

    /// Queues a sentence of the relay on a line of its own.
    pub(super) async fn notice(&self, sentence: &str) {
        self.text(&format!("\n*** {sentence}\n")).await;
    }

    /// Like [`Out::notice`], without waiting: if the queue is full, the sentence is lost.
    pub(super) fn final_notice(&self, sentence: &str) {
        let bytes = format!("\r\n*** {sentence}\r\n").into_bytes();
        let mut reservation = self.nothing();
        reservation.insist(bytes.len());
        let _ = self.pieces.try_send(Queued(bytes.into(), reservation));
    }

    fn nothing(&self) -> Reservation {
        let account = self.account.get().cloned().unwrap_or_default();
        account.empty(MemoryUse::Messages)
    }

    /// Resolves when the client reads no more. Cancel safe.
    pub(super) async fn closed(&self) {
        self.pieces.closed().await;
    }

    async fn send(&self, bytes: Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        let (mut bytes, mut reservation) = (bytes, self.nothing());
        if reservation
            .resize_beyond(UNRESERVED_BYTES, bytes.len())
            .is_err()
            && let Err(short) = reservation.resize_within(bytes.len(), MEMORY_TIMEOUT).await
        {
            bytes = format!("\n*** {} bytes are not shown: {short}\n", bytes.len()).into_bytes();
            reservation.insist(bytes.len());
        }
        // An error means that the connection is closing, which its owner notices.
        let _ = self.pieces.send(Queued(bytes.into(), reservation)).await;
    }
}

/// Writes queued pieces until the last [`Out`] is dropped or a write fails.
pub(super) async fn pump<W: AsyncWrite + Unpin>(
    mut pieces: mpsc::Receiver<Queued>,
    mut writer: W,
    counts: Arc<Counts>,
) {
    while let Some(Queued(piece, _taken)) = pieces.recv().await {
        let written = async {
            writer.write_all(&piece).await?;
            writer.flush().await
        };
        match timeout(WRITE_TIMEOUT, written).await {
            Ok(Ok(())) => counts.0.fetch_add(piece.len() as u64, Ordering::Relaxed),
            Ok(Err(_)) | Err(_) => return,
        };
    }
    let _ = writer.shutdown().await;
}

/// Output of a worker to the client, captured if the session is recorded.
pub(super) struct WorkerOutput {
    out: Out,
    capture: CaptureTee,
}

impl WorkerOutput {
    pub(super) fn new(out: Out, capture: CaptureTee) -> Self {
        Self { out, capture }
    }

    /// Captures and queues text of the prompt.
    pub(super) async fn text(&mut self, text: &str) {
        self.record(text.as_bytes());
        self.out.text(text).await;
    }

    /// Captures `bytes`. If that fails, the session ends by [`CaptureTee::failed`].
    fn record(&self, bytes: &[u8]) {
        let _ = self.capture.take(Direction::Down, bytes);
    }

    /// Captures and queues bytes of a socket.
    pub(super) async fn raw(&mut self, bytes: &[u8]) {
        self.record(bytes);
        self.out.raw(bytes).await;
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use ray_relay_base::memory::Memory;

    #[tokio::test(start_paused = true)]
    async fn unread_output_counts_against_the_users_memory() {
        let memory = Memory::new(64 << 20);
        let (out, mut pieces) = Out::new();
        out.count(memory.account(Some("ann")));
        let limit = memory.owner_limit();
        let text = "x".repeat(limit / 2 + 1);
        out.text(&text).await;
        assert_eq!(memory.used(MemoryUse::Messages), text.len());
        out.text(&text).await;
        out.text("(Pdb) ").await;
        let shown = |pieces: &mut mpsc::Receiver<Queued>| pieces.try_recv().unwrap().0;
        assert_eq!(shown(&mut pieces).len(), text.len());
        let notice = shown(&mut pieces);
        let notice = String::from_utf8_lossy(&notice);
        assert!(
            notice.contains(&format!(
                "*** {} bytes are not shown: your requests",
                text.len()
            )),
            "{notice:.200}"
        );
        assert_eq!(&*shown(&mut pieces), b"(Pdb) ");
        assert_eq!(memory.used(MemoryUse::Messages), 0);
    }

    #[tokio::test]
    async fn split_character_of_worker_output_stays_whole() {
        let (out, mut pieces) = Out::new();
        let mut of_worker = WorkerOutput::new(out, CaptureTee::default());
        let said = "größe".as_bytes();
        for piece in said.chunks(3) {
            of_worker.raw(piece).await;
        }
        let mut heard = Vec::new();
        while let Ok(Queued(piece, _)) = pieces.try_recv() {
            heard.extend_from_slice(&piece);
        }
        assert_eq!(heard, said);
    }
}
