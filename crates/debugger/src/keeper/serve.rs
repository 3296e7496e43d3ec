//! `ray-relay keeper`: holds duplicates of relays' connections to debuggers, and does nothing else.
//!
//! A connection belongs to the relay that handed it over, until that relay removes it or is gone. Then it is
//! unclaimed, and the next relay that connects, or one that is connected, gets it. Bounds: [`MAX_CONNECTIONS`]
//! connections, [`MAX_RELAYS`] relays at a time, and [`UNCLAIMED_PERIOD`] for unclaimed connections.

use std::collections::HashMap;
use std::fs::DirBuilder;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::net::UnixStream;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, info, warn};

use super::Error;
use super::messages::{KeepKey, KeeperMessage, PROTOCOL};
use ray_relay_base::shutdown::Signals;
use ray_relay_base::wire::descriptors::{MessageReader, MessageWriter, channel};
use ray_relay_base::wire::own_socket::{self, OwnSocket};

/// Connections to keep at a time.
pub const MAX_CONNECTIONS: usize = 4096;

/// Linked relays at a time: one, and those that it replaces.
const MAX_RELAYS: usize = 16;

/// Timeout of a relay's first message.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);

/// How long an unclaimed connection is kept, and its task stays stopped.
const UNCLAIMED_PERIOD: Duration = Duration::from_secs(24 * 3600);

/// Pause after `accept` failed.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// Interval of checks for expired connections.
const EXPIRY_CHECK_INTERVAL: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
struct ConnectionStore {
    entries: Mutex<HashMap<KeepKey, Duplicate>>,
    /// Notified when something is unclaimed, or gone.
    changed: Notify,
}

#[derive(Debug)]
struct Duplicate {
    connection: Arc<OwnedFd>,
    record: Option<Arc<OwnedFd>>,
    owner: DuplicateOwner,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DuplicateOwner {
    /// The relay of this link.
    Link(u64),
    /// Unclaimed, since then.
    Unclaimed(Instant),
}

type Offered = (KeepKey, Arc<OwnedFd>, Arc<OwnedFd>);

impl ConnectionStore {
    /// Processes a message of `link`.
    fn process(&self, link: u64, message: &KeeperMessage, descriptor: Option<OwnedFd>) {
        let mut entries = self.entries.lock();
        match (message, descriptor) {
            (KeeperMessage::Debugger { key }, Some(connection))
                if entries.len() < MAX_CONNECTIONS =>
            {
                let entry = Duplicate {
                    connection: Arc::new(connection),
                    record: None,
                    owner: DuplicateOwner::Link(link),
                };
                entries.entry(*key).or_insert(entry);
            }
            (KeeperMessage::Record { key }, Some(record)) => {
                let own = entries.get_mut(key);
                if let Some(entry) = own.filter(|entry| entry.owner == DuplicateOwner::Link(link)) {
                    entry.record = Some(Arc::new(record));
                }
            }
            (KeeperMessage::Remove { key }, _) => {
                let is_own =
                    entries.get(key).map(|entry| entry.owner) == Some(DuplicateOwner::Link(link));
                is_own.then(|| entries.remove(key));
                self.changed.notify_waiters();
            }
            _ => {}
        }
    }

    /// Marks the connections of `link` as unclaimed, since its relay is gone.
    fn unclaim(&self, link: u64) {
        let mut entries = self.entries.lock();
        let now = Instant::now();
        // An entry without a record is incomplete: its purpose is unknown.
        entries
            .retain(|_, entry| entry.owner != DuplicateOwner::Link(link) || entry.record.is_some());
        for entry in entries.values_mut() {
            if entry.owner == DuplicateOwner::Link(link) {
                entry.owner = DuplicateOwner::Unclaimed(now);
            }
        }
        self.changed.notify_waiters();
    }

    /// Assigns everything unclaimed to `link`, and returns it.
    fn assign_unclaimed(&self, link: u64) -> Vec<Offered> {
        let mut entries = self.entries.lock();
        let mut offered = Vec::new();
        for (key, entry) in entries.iter_mut() {
            if let (DuplicateOwner::Unclaimed(_), Some(record)) = (entry.owner, &entry.record) {
                entry.owner = DuplicateOwner::Link(link);
                offered.push((*key, Arc::clone(&entry.connection), Arc::clone(record)));
            }
        }
        offered
    }

    /// Closes connections that no relay has claimed in time.
    fn close_expired(&self) {
        let now = Instant::now();
        self.entries.lock().retain(|_, entry| match entry.owner {
            DuplicateOwner::Unclaimed(since) if since + UNCLAIMED_PERIOD <= now => {
                warn!(
                    "no relay has claimed a connection for a day: it is closed, and its task runs on"
                );
                false
            }
            DuplicateOwner::Unclaimed(_) | DuplicateOwner::Link(_) => true,
        });
    }

    fn unclaimed_count(&self) -> usize {
        let entries = self.entries.lock();
        let is_unclaimed = |entry: &&Duplicate| matches!(entry.owner, DuplicateOwner::Unclaimed(_));
        entries.values().filter(is_unclaimed).count()
    }
}

/// Keeps connections for relays that connect to `path`, whose folder is created if missing, until SIGTERM or Ctrl-C.
/// If it is the only holder of a connection then, it continues until a relay has claimed that, or until a second
/// signal.
///
/// # Errors
/// [`Error::Path`]: the path is not to be trusted, or a process listens there.
pub async fn serve(path: &Path, mut signals: Signals) -> Result<(), Error> {
    let wrong = |why: String| Error::Path(path.display().to_string(), why);
    if let Some(folder) = path
        .parent()
        .filter(|folder| path.is_absolute() && !folder.exists())
    {
        let made = DirBuilder::new().mode(0o700).create(folder);
        made.map_err(|why| wrong(format!("its folder cannot be made: {why}")))?;
    }
    if own_socket::dial(path).await.map_err(wrong)?.is_some() {
        let why = "a keeper listens there already, or another process: name another path";
        return Err(wrong(why.to_owned()));
    }
    let socket = OwnSocket::bind(path).map_err(wrong)?;
    info!(path = %path.display(), "keeping the connections of relays; start one with `ray-relay serve --keeper` and this path");
    let store = Arc::<ConnectionStore>::default();
    let mut ending = false;
    {
        let mut accepting = std::pin::pin!(accept(&socket, &store));
        while !ending || store.unclaimed_count() > 0 {
            let changed = store.changed.notified();
            tokio::select! {
                () = &mut accepting => {}
                () = signals.next() => {
                    let waits = store.unclaimed_count();
                    if ending || waits == 0 {
                        break;
                    }
                    warn!(connections = waits, "connections are kept that no relay has: this ends once a relay has claimed them; a second signal closes them, and their tasks run on");
                    ending = true;
                }
                () = changed => {}
                () = sleep(EXPIRY_CHECK_INTERVAL) => store.close_expired(),
            }
        }
    }
    socket.remove();
    Ok(())
}

/// Serves relays that connect. Never resolves.
async fn accept(socket: &OwnSocket, store: &Arc<ConnectionStore>) {
    let mut relays = JoinSet::new();
    let mut link = 0;
    loop {
        tokio::select! {
            accepted = socket.accept(), if relays.len() < MAX_RELAYS => match accepted {
                Ok(relay) => {
                    link += 1;
                    let store = Arc::clone(store);
                    relays.spawn(async move { serve_relay(&store, link, relay).await });
                }
                Err(why) => {
                    warn!(%why, "cannot accept a relay at the moment; trying again");
                    sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(_) = relays.join_next() => {}
        }
    }
}

/// Serves one relay to its end.
async fn serve_relay(store: &ConnectionStore, link: u64, relay: UnixStream) {
    let (reader, writer) = channel(relay);
    let ended = exchange(store, link, reader, writer).await;
    debug!(link, why = ?ended.err(), "a relay is gone");
    store.unclaim(link);
}

async fn exchange(
    store: &ConnectionStore,
    link: u64,
    mut reader: MessageReader<KeeperMessage>,
    writer: MessageWriter,
) -> io::Result<()> {
    writer
        .write(&KeeperMessage::Hello { protocol: PROTOCOL }, None)
        .await?;
    let hello = timeout(HELLO_TIMEOUT, reader.read()).await;
    match hello.unwrap_or(Err(io::ErrorKind::TimedOut.into()))? {
        (KeeperMessage::Hello { protocol: PROTOCOL }, _) => {}
        // It has read the version of this keeper.
        _ => return Ok(()),
    }
    send_unclaimed(store, link, &writer).await?;
    writer.write(&KeeperMessage::All, None).await?;
    let read = async {
        loop {
            let (message, descriptor) = reader.read().await?;
            store.process(link, &message, descriptor);
        }
    };
    let write = async {
        loop {
            let changed = store.changed.notified();
            send_unclaimed(store, link, &writer).await?;
            changed.await;
        }
    };
    tokio::select! {
        ended = read => ended,
        ended = write => ended,
    }
}

/// Hands unclaimed connections to the relay of `link`.
async fn send_unclaimed(
    store: &ConnectionStore,
    link: u64,
    writer: &MessageWriter,
) -> io::Result<()> {
    let offered = store.assign_unclaimed(link);
    if !offered.is_empty() {
        info!(connections = offered.len(), "given back to a relay");
    }
    for (key, connection, record) in offered {
        let connection = Some(connection.as_fd());
        writer
            .write(&KeeperMessage::Debugger { key }, connection)
            .await?;
        writer
            .write(&KeeperMessage::Record { key }, Some(record.as_fd()))
            .await?;
    }
    Ok(())
}
