//! The links to a relay: a spare one for the next client, and one for each connection.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use aws_lc_rs::digest::{Context, SHA256};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};
use tokio_util::task::TaskTracker;

use super::clock;
use super::editor_notices::EditorNotices;
use super::line::{self, MAX_OTHER_REPLICAS, RECONNECT_BACKOFF, RelayLink, Watcher};
use super::printer::ConnectPrinter;
use crate::cli::RelayArgs;
use crate::cli::relay_client::RelayError;
use crate::cli::token_command::Dated;
use ray_relay_base::wire::human_time::span;
use ray_relay_base::wire::resumed::messages::Opener;
use ray_relay_base::wire::resumed::{LinkedStream, Phase};
use ray_relay_base::wire::tunnel::messages::Replica;
use ray_relay_base::wire::tunnel::text::Hex;

/// How long a new client waits for the relay.
const LINK_TIMEOUT: Duration = Duration::from_secs(20);

/// How long before its expiry a token is replaced, and the interval of checking for a new one.
const RENEWED_BEFORE: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_secs(10);

/// All links to one relay.
pub(super) struct RelayLinks {
    args: RelayArgs,
    opener: Opener,
    printer: Arc<ConnectPrinter>,
    holder: Mutex<HolderReplica>,
    /// Opened in advance, for the next client.
    spare: Mutex<Option<(Arc<RelayLink>, LinkedStream)>>,
    spare_taken: Notify,
    /// Makes every link reconnect.
    cut: watch::Sender<()>,
    /// Notifies that the relay was just reached.
    renewed: watch::Sender<()>,
    /// Notifies editors of a lost and restored network.
    notices: EditorNotices,
    tasks: TaskTracker,
}

/// The replica that holds the links, of several behind one name: a session and those that it opens need the same one.
#[derive(Default)]
struct HolderReplica {
    replica: Option<Replica>,
    /// Number of answers from others since it last answered.
    others: u32,
}

impl HolderReplica {
    /// Whether to use a link at `replica`: it is the current one, or that one no longer answers.
    fn takes(&mut self, replica: Replica) -> bool {
        let is_it = *self.replica.get_or_insert(replica) == replica;
        if !is_it && self.others < MAX_OTHER_REPLICAS {
            self.others += 1;
            return false;
        }
        *self = Self {
            replica: Some(replica),
            others: 0,
        };
        true
    }
}

impl RelayLinks {
    /// Creates the links to the relay of `args`, for clients of `address`.
    pub(super) fn new(args: RelayArgs, address: SocketAddr, printer: Arc<ConnectPrinter>) -> Self {
        Self {
            args,
            opener: opener(address),
            printer,
            holder: Mutex::default(),
            spare: Mutex::new(None),
            spare_taken: Notify::new(),
            cut: watch::Sender::new(()),
            renewed: watch::Sender::new(()),
            notices: EditorNotices::default(),
            tasks: TaskTracker::new(),
        }
    }

    pub(super) fn printer(&self) -> &ConnectPrinter {
        &self.printer
    }

    pub(super) fn notices(&self) -> &EditorNotices {
        &self.notices
    }

    /// Reports that the relay is unreachable because of `why`, and was last heard at `since`.
    fn away(&self, why: &str, since: SystemTime) {
        if self.printer.away(why, since) {
            let text = "network lost; your tasks stay paused; reconnecting";
            self.notices.notify(text);
        }
    }

    /// Reports that the relay is reached.
    fn reached(&self, since: Option<SystemTime>) {
        if let Some(away) = self.printer.reached(since) {
            let text = format!("connected again after {}", span(away));
            self.notices.notify(&text);
        }
    }

    /// Opens the first link, retrying while the relay is unreachable.
    ///
    /// # Errors
    /// [`RelayError`]: an error that the user has to resolve.
    pub(super) async fn first(self: &Arc<Self>) -> Result<(), RelayError> {
        let mut backoff = RECONNECT_BACKOFF;
        loop {
            match Box::pin(self.open()).await {
                Ok(spare) => {
                    *self.spare.lock() = Some(spare);
                    return Ok(());
                }
                Err(error) if error.is_passing() => {
                    self.away(&error.to_string(), SystemTime::now())
                }
                Err(error) => return Err(error),
            }
            sleep(backoff.pause()).await;
        }
    }

    /// Keeps a spare link ready, and all links authenticated. Runs until dropped.
    pub(super) async fn run(self: &Arc<Self>) -> Infallible {
        tokio::select! {
            never = self.keep_spare() => never,
            never = self.renew() => never,
            never = self.wake() => never,
        }
    }

    /// Ends the links in order, except those without a transport.
    pub(super) async fn end(&self) {
        drop(self.spare.lock().take());
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Returns the stream of a link for a new client; `None`: the relay is unreachable, which was reported.
    pub(super) async fn take(self: &Arc<Self>) -> Option<LinkedStream> {
        let spare = self.spare.lock().take();
        self.spare_taken.notify_one();
        let ready =
            spare.filter(|(relay_link, _)| *relay_link.link.phase().borrow() == Phase::Attached);
        let opened = async {
            if let Some(ready) = ready {
                return Some(ready);
            }
            let mut backoff = RECONNECT_BACKOFF;
            loop {
                match Box::pin(self.open()).await {
                    Ok(opened) => return Some(opened),
                    Err(error) => self.away(&error.to_string(), SystemTime::now()),
                }
                sleep(backoff.pause()).await;
            }
        };
        let (relay_link, stream) = timeout(LINK_TIMEOUT, opened).await.ok().flatten()?;
        relay_link.link.take_up();
        Some(stream)
    }

    /// Opens a link at the replica that holds the others, and keeps it carried from now on.
    async fn open(self: &Arc<Self>) -> Result<(Arc<RelayLink>, LinkedStream), RelayError> {
        loop {
            // A link at another replica is dropped, and so ends in order.
            let opened = Box::pin(self.open_anywhere()).await?;
            if self.holder.lock().takes(opened.0.replica) {
                return Ok(opened);
            }
        }
    }

    async fn open_anywhere(self: &Arc<Self>) -> Result<(Arc<RelayLink>, LinkedStream), RelayError> {
        let (relay_link, stream, socket) = line::begin(&self.args, &self.opener).await?;
        self.reached(None);
        self.renewed.send_replace(());
        let relay_link = Arc::new(relay_link);
        let (links, held) = (Arc::clone(self), Arc::clone(&relay_link));
        // Ends with its link: when its stream is dropped and the relay knows, or the relay is unreachable for too long.
        self.tasks.spawn(async move {
            let (cut, reached) = (links.cut.subscribe(), links.renewed.subscribe());
            let watcher: &dyn Watcher = &*links;
            Box::pin(held.keep(&links.args, socket, cut, reached, watcher)).await;
        });
        Ok((relay_link, stream))
    }

    async fn keep_spare(self: &Arc<Self>) -> Infallible {
        let mut backoff = RECONNECT_BACKOFF;
        loop {
            let relay_link = self
                .spare
                .lock()
                .as_ref()
                .map(|(relay_link, _)| Arc::clone(relay_link));
            if let Some(relay_link) = relay_link {
                self.watched(&relay_link).await;
            }
            let is_ready = {
                let mut spare = self.spare.lock();
                drop(spare.take_if(|(relay_link, _)| {
                    *relay_link.link.phase().borrow() != Phase::Attached
                }));
                spare.is_some()
            };
            if is_ready {
                continue;
            }
            match Box::pin(self.open()).await {
                Ok(spare) => {
                    *self.spare.lock() = Some(spare);
                    backoff.reset();
                }
                Err(error) => {
                    self.away(&error.to_string(), SystemTime::now());
                    sleep(backoff.pause()).await;
                }
            }
        }
    }

    /// Resolves when the spare link was used, or has ended. Shows its round trip meanwhile.
    async fn watched(&self, relay_link: &RelayLink) {
        let mut phase = relay_link.link.phase();
        let over = phase.wait_for(|phase| *phase != Phase::Attached);
        tokio::pin!(over);
        let interval = Duration::from_secs(1);
        loop {
            tokio::select! {
                _ = &mut over => return,
                () = self.spare_taken.notified() => return,
                () = sleep(interval) => self.printer.round_trip(relay_link.link.round_trip()),
            }
        }
    }

    /// Renews the token before it expires.
    async fn renew(self: &Arc<Self>) -> Infallible {
        let time_left = |at: SystemTime| at.duration_since(SystemTime::now()).unwrap_or_default();
        let mut current = self.current(None).await;
        // For a short-lived token: its last third.
        let ends = |current: &Option<Dated>| current.as_ref().and_then(|dated| dated.expires);
        let mut renewed_before =
            ends(&current).map_or(RENEWED_BEFORE, |at| RENEWED_BEFORE.min(time_left(at) / 3));
        loop {
            let waits = ends(&current).map(|at| time_left(at).saturating_sub(renewed_before));
            if waits != Some(Duration::ZERO) {
                // In short steps, because the wall clock decides.
                sleep(waits.unwrap_or(POLL_INTERVAL).min(POLL_INTERVAL)).await;
            } else {
                self.args.renew().await;
            }
            let next = self.current(current.clone()).await;
            if next == current {
                if waits == Some(Duration::ZERO) {
                    sleep(Duration::from_secs(1).max(renewed_before / 6)).await;
                }
                continue;
            }
            renewed_before =
                ends(&next).map_or(RENEWED_BEFORE, |at| RENEWED_BEFORE.min(time_left(at) / 3));
            current = next;
            self.cut.send_replace(());
        }
    }

    /// The current token; `current` if it cannot be obtained.
    async fn current(&self, current: Option<Dated>) -> Option<Dated> {
        match self.args.dated().await {
            Ok(dated) => dated,
            Err(error) => {
                self.away(&error.to_string(), SystemTime::now());
                current
            }
        }
    }

    /// Reconnects everything after the machine has slept: the old connections are gone.
    async fn wake(&self) -> Infallible {
        loop {
            let slept = clock::suspended().await;
            self.printer.slept(slept);
            self.cut.send_replace(());
            self.renewed.send_replace(());
        }
    }
}

impl Watcher for RelayLinks {
    fn lost(&self, why: &str, since: SystemTime) {
        self.away(why, since);
    }

    fn resumed(&self, since: SystemTime) {
        self.reached(Some(since));
        self.renewed.send_replace(());
    }

    fn gone(&self, why: &str) {
        self.printer.gone(why);
    }
}

/// Identifies this command: the next one of this user that listens at `address` on this machine supersedes it.
fn opener(address: SocketAddr) -> Opener {
    let machine = std::fs::read("/etc/machine-id");
    let machine = machine.unwrap_or_else(|_| rustix::system::uname().nodename().to_bytes().into());
    let user = rustix::process::getuid().as_raw();
    let mut hash = Context::new(&SHA256);
    hash.update(&machine);
    hash.update(format!(" {user} {address}").as_bytes());
    let mut digest = [0; 8];
    digest.copy_from_slice(&hash.finish().as_ref()[..8]);
    Opener {
        place: Hex(digest),
        process: Hex(rand::random()),
    }
}
