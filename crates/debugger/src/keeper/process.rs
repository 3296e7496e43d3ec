//! The relay's end of the link with a `ray-relay keeper`.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};

use super::messages::{KeepKey, KeeperMessage, KeptPair, PROTOCOL};
use super::{Error, Keeper, UnclaimedConnection};
use ray_relay_base::wire::backoff::Backoff;
use ray_relay_base::wire::descriptors::{MessageReader, MessageWriter, channel};
use ray_relay_base::wire::own_socket;

/// Timeout for the keeper to send what it has.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);

/// How long to wait for a keeper that is not listening yet.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// Messages waiting to be written.
const MAX_UNSENT_MESSAGES: usize = 1024;

const FIRST_BACKOFF: Duration = Duration::from_millis(100);
const MAX_BACKOFF: Duration = Duration::from_secs(5);

/// A message to write.
#[derive(Debug)]
struct KeeperRequest {
    message: KeeperMessage,
    descriptor: Option<OwnedFd>,
    /// Notified when it is written.
    written: Option<oneshot::Sender<()>>,
}

/// The relay's end of the link with a `ray-relay keeper`.
#[derive(Debug)]
pub(super) struct KeeperProcess {
    path: PathBuf,
    outbox: mpsc::Sender<KeeperRequest>,
    /// The receiver of the outbox, and the first link.
    begins: Mutex<Option<(mpsc::Receiver<KeeperRequest>, KeeperLink)>>,
    is_there: AtomicBool,
}

/// A link with a keeper that has sent what it has.
#[derive(Debug)]
struct KeeperLink {
    incoming: KeptPairs,
    writer: MessageWriter,
}

/// The connections that the keeper returns.
#[derive(Debug)]
struct KeptPairs {
    reader: MessageReader<KeeperMessage>,
    /// Connections whose records have not arrived.
    connections: HashMap<KeepKey, OwnedFd>,
}

impl KeptPairs {
    /// Waits for the next unclaimed connection; `None`: that was all. Cancel safe.
    async fn next(&mut self) -> io::Result<Option<KeptPair>> {
        loop {
            match self.reader.read().await? {
                (KeeperMessage::Debugger { key }, Some(connection)) => {
                    self.connections.insert(key, connection);
                }
                (KeeperMessage::Record { key }, Some(record)) => {
                    if let Some(connection) = self.connections.remove(&key) {
                        return Ok(Some((key, connection, record)));
                    }
                }
                (KeeperMessage::All, _) => return Ok(None),
                _ => {}
            }
        }
    }
}

impl KeeperProcess {
    /// Connects to the keeper at `path`, and returns its unclaimed connections, too.
    pub(super) async fn dial(path: &Path) -> Result<(Self, Vec<KeptPair>), Error> {
        let until = Instant::now() + START_TIMEOUT;
        let mut backoff = Backoff::new(FIRST_BACKOFF, MAX_BACKOFF);
        let mut is_said = false;
        let (link, pairs) = loop {
            match dial(path).await {
                // Both may be starting at the same moment.
                Err(Error::NotListening(_)) if Instant::now() < until => {
                    if !std::mem::replace(&mut is_said, true) {
                        info!(path = %path.display(), "waiting for the keeper: none listens yet");
                    }
                    sleep(backoff.pause()).await;
                }
                dialled => break dialled?,
            }
        };
        let (outbox, to_write) = mpsc::channel(MAX_UNSENT_MESSAGES);
        let process = Self {
            path: path.to_owned(),
            outbox,
            begins: Mutex::new(Some((to_write, link))),
            is_there: AtomicBool::new(true),
        };
        Ok((process, pairs))
    }

    pub(super) fn is_there(&self) -> bool {
        self.is_there.load(Ordering::Relaxed)
    }

    pub(super) fn keep(
        &self,
        key: &KeepKey,
        connection: BorrowedFd<'_>,
        record: BorrowedFd<'_>,
    ) -> io::Result<oneshot::Receiver<()>> {
        if !self.is_there() {
            return Err(io::ErrorKind::NotConnected.into());
        }
        let (written, stored) = oneshot::channel();
        let messages = [
            (KeeperMessage::Debugger { key: *key }, connection, None),
            (KeeperMessage::Record { key: *key }, record, Some(written)),
        ];
        for (message, descriptor, written) in messages {
            let request = KeeperRequest {
                message,
                descriptor: Some(descriptor.try_clone_to_owned()?),
                written,
            };
            let full = |_| io::Error::from(io::ErrorKind::WouldBlock);
            self.outbox.try_send(request).map_err(full)?;
        }
        Ok(stored)
    }

    pub(super) fn remove(&self, key: &KeepKey) {
        // If there is no space, the next relay finds a connection that is over.
        _ = self.outbox.try_send(KeeperRequest {
            message: KeeperMessage::Remove { key: *key },
            descriptor: None,
            written: None,
        });
    }

    /// Runs the link with the keeper, and reconnects whenever that is lost.
    pub(super) async fn run(&self, keeper: &Arc<Keeper>, leave: mpsc::Sender<UnclaimedConnection>) {
        let Some((mut to_write, first)) = self.begins.lock().take() else {
            return std::future::pending().await;
        };
        let mut link = Some(first);
        let mut backoff = Backoff::new(FIRST_BACKOFF, MAX_BACKOFF);
        loop {
            if let Some(link) = link.take() {
                let why = linked(keeper, link, &mut to_write, &leave).await;
                self.is_there.store(false, Ordering::Relaxed);
                warn!(path = %self.path.display(), %why, "the keeper is gone: sessions end if this process is killed; trying again until a keeper is back");
                // They concern connections that are no longer kept.
                while to_write.try_recv().is_ok() {}
            }
            sleep(backoff.pause()).await;
            if let Ok((again, pairs)) = dial(&self.path).await {
                self.is_there.store(true, Ordering::Relaxed);
                info!("a keeper is there again: sessions from now on outlive this process");
                backoff.reset();
                for pair in pairs {
                    let unclaimed = UnclaimedConnection::new(keeper, pair);
                    _ = unclaimed.map(|unclaimed| leave.try_send(unclaimed));
                }
                link = Some(again);
            }
        }
    }
}

async fn dial(path: &Path) -> Result<(KeeperLink, Vec<KeptPair>), Error> {
    let named = || path.display().to_string();
    // A keeper creates its folder.
    if path.parent().is_some_and(|folder| !folder.exists()) {
        return Err(Error::NotListening(named()));
    }
    let dialled = own_socket::dial(path).await;
    let socket = dialled.map_err(|why| Error::Path(named(), why))?;
    let socket = socket.ok_or_else(|| Error::NotListening(named()))?;
    let (mut reader, writer) = channel(socket);
    let hello = async {
        let own = KeeperMessage::Hello { protocol: PROTOCOL };
        writer.write(&own, None).await?;
        match reader.read().await? {
            (KeeperMessage::Hello { protocol: PROTOCOL }, _) => {}
            (KeeperMessage::Hello { protocol }, _) => {
                let why = format!(
                    "it speaks version {protocol} of the protocol, and this relay {PROTOCOL}: start the keeper of the same release"
                );
                return Err(io::Error::other(why));
            }
            _ => return Err(io::ErrorKind::InvalidData.into()),
        }
        let mut incoming = KeptPairs {
            reader,
            connections: HashMap::new(),
        };
        let mut all = Vec::new();
        while let Some(pair) = incoming.next().await? {
            all.push(pair);
        }
        Ok((incoming, all))
    };
    let hello = timeout(HELLO_TIMEOUT, hello).await;
    let hello = hello.unwrap_or(Err(io::ErrorKind::TimedOut.into()));
    let (incoming, pairs) = hello.map_err(|why| Error::Silent(named(), why.to_string()))?;
    Ok((KeeperLink { incoming, writer }, pairs))
}

/// Runs the link until it breaks, and returns the reason.
async fn linked(
    keeper: &Arc<Keeper>,
    link: KeeperLink,
    to_write: &mut mpsc::Receiver<KeeperRequest>,
    leave: &mpsc::Sender<UnclaimedConnection>,
) -> io::Error {
    let KeeperLink {
        mut incoming,
        writer,
    } = link;
    let read = async {
        loop {
            match incoming.next().await {
                // If there are too many, the slot that is dropped here removes it.
                Ok(Some(pair)) => {
                    _ = UnclaimedConnection::new(keeper, pair)
                        .map(|unclaimed| leave.try_send(unclaimed))
                }
                Ok(None) => {}
                Err(why) => return why,
            }
        }
    };
    let write = async {
        while let Some(request) = to_write.recv().await {
            let descriptor = request
                .descriptor
                .as_ref()
                .map(|descriptor| descriptor.as_fd());
            if let Err(why) = writer.write(&request.message, descriptor).await {
                return why;
            }
            if let Some(written) = request.written {
                // The waiting task may be gone.
                _ = written.send(());
            }
        }
        io::ErrorKind::BrokenPipe.into()
    };
    tokio::select! {
        why = read => why,
        why = write => why,
    }
}
