//! The socket where workers reach the agent: in a [folder](AgentFolder) of the agent's own among the sockets of Ray's
//! session.
//!
//! A peer is identified by its process credentials: it has to be a worker of this machine. The size of its message and
//! the time to read it are bounded.

mod folder;

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::geteuid;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::io::AsyncReadExt as _;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tracing::{debug, info};

pub(super) use self::folder::{AgentFolder, ArmedMarker, ArmedMarkers, directory, inside};

use self::folder::unusable;
use super::agent::Agent;
use ray_relay_base::wire::tunnel::messages::{FailedTask, Hex, Name, Node, Sentence};
use ray_relay_ray::ray::look::{Look, MAX_INSPECTION_BYTES};

/// The name of the socket in the agent's folder.
const SOCKET: &str = "failed";

/// The pause between two scans for Ray sessions and expired black boxes.
const SCAN_INTERVAL: Duration = Duration::from_secs(2);

/// The pause before Ray is asked for the jobs of workers: its task list lags by a second.
const JOB_INTERVAL: Duration = Duration::from_secs(2);

/// How long one worker is read from, and how many are at a time.
const READ_TIMEOUT: Duration = Duration::from_secs(5);
const MAX_READERS: usize = 8;

/// Bytes of a worker's message.
const MAX_MESSAGE_BYTES: u64 = MAX_INSPECTION_BYTES as u64 + 4096;

/// Bytes of a path in a row.
const MAX_PATH_BYTES: usize = 160;

/// The message of a worker.
#[derive(Deserialize)]
struct WorkerMessage<'a> {
    worker_id: String,
    task_id: String,
    exception: String,
    #[serde(borrow)]
    look: &'a RawValue,
}

/// A socket for the workers of one node.
struct HookSocket {
    folder: AgentFolder,
    listener: UnixListener,
}

/// Stores what workers leave, while a relay wants that, until the agent ends.
pub(super) async fn keep(agent: Arc<Agent>) {
    let slots = Arc::new(Semaphore::new(MAX_READERS));
    let mut doors: Vec<HookSocket> = Vec::new();
    let mut changes = agent.black_boxes.watch();
    loop {
        changes.mark_unchanged();
        match agent.black_boxes.are_enabled() {
            true => open(&agent, &mut doors).await,
            false => doors.clear(),
        }
        agent.black_boxes.forget();
        let pause = sleep(SCAN_INTERVAL);
        tokio::pin!(pause);
        loop {
            tokio::select! {
                () = agent.ending.cancelled() => return,
                () = &mut pause => break,
                _ = changes.changed() => {
                    // The stored boxes change often, the need for sockets seldom.
                    if agent.black_boxes.are_enabled() == doors.is_empty() { break }
                }
                accepted = next(&doors), if !doors.is_empty() => {
                    let Some((stream, node_id)) = accepted else {
                        // The agent has too many files open.
                        tokio::select! {
                            () = agent.ending.cancelled() => return,
                            () = &mut pause => break,
                        }
                    };
                    let Ok(slot) = Arc::clone(&slots).try_acquire_owned() else { continue };
                    let agent = Arc::clone(&agent);
                    let tasks = agent.tasks.clone();
                    tasks.spawn(async move {
                        match timeout(READ_TIMEOUT, receive(&agent, stream, node_id)).await {
                            Ok(Ok(())) => {}
                            Ok(Err(why)) => debug!(why, "who has come with a failure is not heard"),
                            Err(_) => debug!("a worker has not said in time what has failed"),
                        }
                        drop(slot);
                    });
                }
            }
        }
    }
}

/// Asks Ray for the jobs of workers, until the agent ends.
pub(super) async fn attribute(agent: Arc<Agent>) {
    let attributing = async {
        loop {
            sleep(JOB_INTERVAL).await;
            for task in agent.black_boxes.unattributed() {
                let job = agent.verifier.job_of(&task).await;
                agent.black_boxes.attribute(&task, job.as_deref());
            }
        }
    };
    tokio::select! {
        () = agent.ending.cancelled() => {}
        () = attributing => {}
    }
}

/// Accepts the next connection at any of `doors`. `None`: accepting failed, and the sockets have to be checked.
async fn next(doors: &[HookSocket]) -> Option<(UnixStream, Name)> {
    let accepting = doors
        .iter()
        .map(|door| Box::pin(async { (door.listener.accept().await, &door.folder.node_id) }));
    let ((accepted, node_id), ..) = futures_util::future::select_all(accepting).await;
    match accepted {
        Ok((stream, _)) => Some((stream, node_id.clone())),
        Err(_) => None,
    }
}

/// Keeps one socket open for each of this agent's nodes in each Ray session, and no others.
async fn open(agent: &Agent, doors: &mut Vec<HookSocket>) {
    let nodes = agent.black_boxes.nodes();
    let sessions = agent.verifier.sessions().await;
    let mut trouble = None;
    let is_of = |node: &Node, addresses: &[String]| {
        addresses.is_empty() || addresses.contains(&node.address.to_string())
    };
    doors.retain(|door| {
        let session_exists = sessions
            .iter()
            .any(|session| session.folder == door.folder.session);
        session_exists
            && nodes.iter().any(|node| node.node_id == door.folder.node_id)
            && door.is_open()
    });
    for session in &sessions {
        for node in nodes.iter().filter(|node| is_of(node, &session.addresses)) {
            let is_it = |door: &HookSocket| {
                door.folder.session == session.folder && door.folder.node_id == node.node_id
            };
            if doors.iter().any(is_it) {
                continue;
            }
            match HookSocket::open(&session.folder, &node.node_id) {
                Ok(door) => {
                    info!(node = %node.node_id, "black boxes of tasks that fail are kept");
                    doors.push(door);
                }
                Err(why) => trouble = Some(why),
            }
        }
    }
    if doors.is_empty() && trouble.is_none() {
        trouble = Some("the agent sees no session of Ray's on its node: run it as the workers' user and in their process namespace".to_owned());
    }
    if let Some(why) = &trouble {
        debug!(why, "workers do not find the agent");
    }
    agent
        .black_boxes
        .set_trouble(trouble.as_deref().map(Sentence::new));
}

impl HookSocket {
    /// Opens a socket among those in `session`. Blocks for a moment only: the files are in memory.
    fn open(session: &Path, node_id: &Name) -> Result<Self, String> {
        let folder = AgentFolder::open(session, node_id)?;
        let of_socket = if geteuid().is_root() { 0o666 } else { 0o600 };
        let bound = || {
            let socket = folder.path(SOCKET);
            match fs::remove_file(&socket) {
                Err(why) if why.kind() != io::ErrorKind::NotFound => return Err(why),
                _ => {}
            }
            let listener = UnixListener::bind(&socket)?;
            fs::set_permissions(&socket, Permissions::from_mode(of_socket))?;
            Ok(listener)
        };
        let listener = bound().map_err(|why| unusable(&why))?;
        Ok(Self { folder, listener })
    }

    /// Whether workers still find the socket by its name.
    fn is_open(&self) -> bool {
        self.folder.is_found() && fs::symlink_metadata(self.folder.path(SOCKET)).is_ok()
    }
}

impl Drop for HookSocket {
    fn drop(&mut self) {
        if self.is_open() {
            _ = fs::remove_file(self.folder.path(SOCKET));
        }
    }
}

/// Stores the message on `stream`. An error says why it is not stored, and repeats none of it.
async fn receive(agent: &Agent, mut stream: UnixStream, node_id: Name) -> Result<(), &'static str> {
    let peer = stream
        .peer_cred()
        .map_err(|_| "the system does not say who it is")?;
    let pid = peer.pid().and_then(|pid| u32::try_from(pid).ok());
    let pid = pid
        .filter(|pid| *pid != 0)
        .ok_or("its process is in another namespace")?;
    let worker = agent.verifier.worker(pid, peer.uid()).await;
    let number = worker.ok_or("it is no worker of this machine")?;
    let mut message = Vec::new();
    let read = (&mut stream)
        .take(MAX_MESSAGE_BYTES + 1)
        .read_to_end(&mut message)
        .await;
    read.map_err(|_| "its connection broke")?;
    if message.len() as u64 > MAX_MESSAGE_BYTES {
        return Err("it says too much");
    }
    let message: WorkerMessage<'_> =
        serde_json::from_slice(&message).map_err(|_| "it says something else")?;
    let look = Look::read(message.look.get().as_bytes()).map_err(|_| "what it says is no look")?;
    let innermost = look
        .threads
        .first()
        .and_then(|thread| thread.frames.first());
    let (file, function) = innermost.map_or(("", ""), |frame| (&*frame.file, &*frame.function));
    // The end of a path says more than its beginning.
    let mut file = file;
    while file.len() > MAX_PATH_BYTES {
        file = file.split_once('/').map_or("", |(_, rest)| rest);
    }
    let id = Hex::random().ok_or("the system has no random numbers")?;
    let task = FailedTask {
        id,
        node_id,
        worker_id: Name::new(&message.worker_id),
        task_id: Name::new(&message.task_id),
        pid: number,
        ago_ms: 0,
        exception: message.exception.as_str().into(),
        file: file.into(),
        line: innermost.map_or(0, |frame| frame.line),
        function: function.into(),
    };
    let look = Look {
        pid: number,
        ..look
    };
    // Strings and numbers only: this cannot fail.
    let json = serde_json::to_vec(&look).unwrap_or_default();
    if json.len() > MAX_INSPECTION_BYTES {
        return Err("what it says is too long");
    }
    info!(
        pid = number,
        "what is left of a task that has failed is kept"
    );
    agent.black_boxes.put(task, json);
    Ok(())
}
