//! The stand-in for a Ray cluster: a head and its workers, in a process of their own. Its processor time and descriptors
//! then count for no contestant. Each contestant has its own, since an attached worker is unavailable to others.

pub(crate) mod frame;
mod head;
mod worker;

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use serde::{Deserialize, Serialize};

use crate::Result;
use worker::Worker;
pub(crate) use worker::{ANSWER_BYTES, RECORDED};

/// The dimensions of the cluster.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Size {
    /// Workers that can be attached to.
    pub(crate) workers: usize,
    /// Further ones, on a thread of their own, for transfers beside what is measured.
    pub(crate) bulk: usize,
    /// Further rows of the list, without a listener.
    pub(crate) rows: usize,
    /// The number of those rows that are there from the beginning.
    pub(crate) shown: usize,
    /// Further nodes, all at the address of the real one.
    pub(crate) nodes: usize,
}

/// The addresses it listens on, printed on its first line.
#[derive(Debug, Serialize, Deserialize)]
struct Addresses {
    head: SocketAddr,
    /// Of the workers, then of those for transfers.
    workers: Vec<SocketAddr>,
}

/// The process, ended when dropped.
pub(crate) struct StandIn {
    child: Child,
    addresses: Addresses,
    size: Size,
}

impl StandIn {
    pub(crate) fn start(size: Size, log: &Path) -> Result<Self> {
        // An agent dials children of a raylet: the shell is called one, and has the option by which it is told.
        let mut child = Command::new("/bin/sh")
            .arg0("/stand-in/raylet")
            .args(["-c", "\"$@\"; exit $?", "--raylet_socket_name=none"])
            .arg(std::env::current_exe()?)
            .arg("--stand-in")
            .arg(serde_json::to_string(&size)?)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(log)?)
            .spawn()?;
        let out = child.stdout.take().ok_or("no output")?;
        let mut line = String::new();
        BufReader::new(out).read_line(&mut line)?;
        let addresses = serde_json::from_str(&line);
        Ok(Self {
            child,
            addresses: addresses.map_err(|_| format!("the stand-in did not start: {line}"))?,
            size,
        })
    }

    pub(crate) fn size(&self) -> Size {
        self.size
    }

    /// The address of its dashboard.
    pub(crate) fn head(&self) -> SocketAddr {
        self.addresses.head
    }

    /// The debug port of worker `index`, counted over those for transfers too.
    pub(crate) fn worker(&self, index: usize) -> Result<SocketAddr> {
        let address = self.addresses.workers.get(index);
        Ok(*address.ok_or_else(|| format!("there is no worker {index}"))?)
    }

    /// From now on `rows` of the rows without a listener are in the list.
    pub(crate) fn show(&self, rows: usize) -> Result<()> {
        let mut stdin = self.child.stdin.as_ref().ok_or("no input")?;
        Ok(writeln!(stdin, "{rows}")?)
    }
}

impl Drop for StandIn {
    /// The stand-in itself ends with its input.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the id of a node: 0 is the one with all workers.
pub(crate) fn node_id(index: usize) -> String {
    format!("b33d556f9b56cb0ac73db2bfdc214db09cf4243e3f60f2f9{index:08x}")
}

/// The id of worker `index`, as scattered as Ray's own.
pub(crate) fn worker_id(index: usize) -> String {
    let scattered = (index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    format!("{scattered:016x}{index:040x}")
}

/// The shared state of head and workers.
struct Cluster {
    size: Size,
    workers: Vec<Worker>,
    shown: AtomicUsize,
    /// Counts what changes in the list.
    version: AtomicU64,
}

/// Serves until standard input ends; each line of it is for [`StandIn::show`].
pub(crate) fn serve(size: &str) -> Result<()> {
    let size: Size = serde_json::from_str(size)?;
    let mut listeners = Vec::new();
    let mut workers = Vec::new();
    for _ in 0..size.workers + size.bulk {
        let listener = listener()?;
        workers.push(Worker::new(listener.local_addr()?));
        listeners.push(listener);
    }
    let dashboard = listener()?;
    let addresses = Addresses {
        head: dashboard.local_addr()?,
        workers: workers.iter().map(|worker| worker.address).collect(),
    };
    let cluster = Arc::new(Cluster {
        size,
        workers,
        shown: AtomicUsize::new(size.shown),
        version: AtomicU64::new(0),
    });
    let bulk = listeners.split_off(size.workers);
    let beside = Arc::clone(&cluster);
    on_a_thread(async move {
        for (index, listener) in bulk.into_iter().enumerate() {
            tokio::spawn(worker::accept(
                listener,
                beside.clone(),
                size.workers + index,
            ));
        }
        std::future::pending().await
    })?;
    let served = Arc::clone(&cluster);
    on_a_thread(async move {
        for (index, listener) in listeners.into_iter().enumerate() {
            tokio::spawn(worker::accept(listener, served.clone(), index));
        }
        if let Err(error) = head::serve(dashboard, served).await {
            eprintln!("head: {error}");
        }
    })?;
    println!("{}", serde_json::to_string(&addresses)?);
    for line in std::io::stdin().lines() {
        cluster
            .shown
            .store(line?.trim().parse()?, Ordering::Relaxed);
        cluster.version.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

fn listener() -> Result<TcpListener> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Lives as long as the process.
fn on_a_thread(work: impl Future<Output = ()> + Send + 'static) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    std::thread::spawn(move || runtime.block_on(work));
    Ok(())
}
