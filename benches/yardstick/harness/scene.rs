//! One contestant with a cluster of its own behind it.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::time::sleep;
use tokio_rustls::TlsConnector;

use crate::Result;
use crate::harness::client::Target;
use crate::harness::contest::Contestant;
use crate::harness::http::Http;
use crate::harness::process::{Process, START_TIMEOUT};
use crate::harness::yard::Yard;
use crate::harness::{agent, haproxy, relay, ssh};
use crate::stand_in::{Size, StandIn, worker_id};

/// A relay leaves a debugger alone for a while (300 ms) when it has closed.
const SETTLE_TIME: Duration = Duration::from_millis(350);

/// How clients authenticate, and what else the relay does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Access {
    /// No authentication, no recording.
    #[default]
    Everybody,
    /// A key, a token that may attach, and the record in a file.
    Audited,
    /// A key, and a token with the scope `view`.
    ViewMasked,
}

/// The settings of a contestant.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) size: Size,
    /// One thread of the contestant, on one core.
    pub(crate) pinned: bool,
    pub(crate) access: Access,
    /// On the way from the client.
    pub(crate) tls: bool,
    /// Workers are reached by TLS through a process next to them: for a relay its agent.
    pub(crate) tunnel: bool,
    /// Connections at a time, at most.
    pub(crate) connections: usize,
    /// How often a relay polls the head.
    pub(crate) poll: Duration,
}

impl Plan {
    pub(crate) fn new(size: Size) -> Self {
        Self {
            size,
            pinned: false,
            access: Access::default(),
            tls: false,
            tunnel: false,
            connections: size.workers + size.bulk,
            poll: Duration::from_secs(1),
        }
    }
}

pub(crate) struct Scene {
    pub(crate) contestant: Contestant,
    pub(crate) stand_in: StandIn,
    proxies: Vec<Process>,
    worker: Option<SocketAddr>,
    bulk: Option<SocketAddr>,
    dashboard: SocketAddr,
    token: Option<String>,
    tls: Option<TlsConnector>,
}

impl Scene {
    /// Returns once everything that waits is known to the contestant, by its name.
    pub(crate) async fn open(yard: &Yard, contestant: Contestant, plan: &Plan) -> Result<Self> {
        let folder = yard.folder()?;
        let stand_in = StandIn::start(plan.size, &folder.join("stand-in.log"))?;
        let head = stand_in.head();
        let mut scene = Self {
            contestant,
            stand_in,
            proxies: Vec::new(),
            worker: None,
            bulk: None,
            dashboard: head,
            token: None,
            tls: plan.tls.then(|| yard.credentials.connector.clone()),
        };
        match contestant {
            Contestant::Relay | Contestant::Base => {
                scene.token = match plan.access {
                    Access::Everybody => None,
                    Access::Audited => Some(yard.credentials.debug.clone()),
                    Access::ViewMasked => Some(yard.credentials.view.clone()),
                };
                let (process, address) =
                    relay::start(yard, contestant, plan, head, &folder).await?;
                scene.proxies.push(process);
                (scene.worker, scene.bulk) = (Some(address), Some(address));
                scene.dashboard = address;
                if plan.tunnel {
                    let agent = agent::start(yard, contestant, address, head, &folder)?;
                    scene.proxies.push(agent);
                    scene.until_nodes_are_linked(1).await?;
                }
            }
            Contestant::HaProxy => {
                let (processes, addresses) =
                    haproxy::start(yard, plan, &scene.stand_in, &folder).await?;
                scene.proxies = processes;
                scene.worker = Some(addresses.worker);
                scene.bulk = Some(addresses.bulk);
                scene.dashboard = addresses.dashboard;
            }
            Contestant::Ssh => {
                let (processes, [worker, bulk]) =
                    ssh::start(yard, &scene.stand_in, &folder).await?;
                scene.proxies = processes;
                (scene.worker, scene.bulk) = (Some(worker), Some(bulk));
            }
            Contestant::Direct => {}
        }
        scene.until_all_wait().await?;
        Ok(scene)
    }

    /// Returns the address of session `index`; transfers count too.
    pub(crate) fn target(&self, index: usize) -> Result<Target> {
        let is_bulk = index >= self.stand_in.size().workers;
        let address = if is_bulk { self.bulk } else { self.worker };
        Ok(Target {
            address: match address {
                Some(address) => address,
                None => self.stand_in.worker(index)?,
            },
            worker: self.contestant.is_relay().then(|| worker_id(index)),
            token: self.token.clone(),
            // `ssh -L` listens beside its client; and without anybody there is nobody to speak TLS with.
            tls: match self.contestant {
                Contestant::Direct | Contestant::Ssh => None,
                _ => self.tls.clone(),
            },
        })
    }

    /// A connection to the dashboard, or to the proxy in front of it.
    pub(crate) async fn http(&self) -> Result<Http> {
        Http::open(self.dashboard, self.token.as_deref()).await
    }

    /// Processor seconds of the contestant so far; 0 for a direct connection.
    pub(crate) fn cpu(&self) -> Result<f64> {
        self.proxies.iter().map(Process::cpu).sum()
    }

    /// Returns its memory in bytes.
    pub(crate) fn memory(&self) -> Result<f64> {
        self.proxies.iter().map(Process::memory).sum()
    }

    /// Returns once a relay lists `count` nodes whose agent is linked.
    pub(crate) async fn until_nodes_are_linked(&self, count: usize) -> Result<()> {
        // A long list takes its time to write.
        let pause = Duration::from_millis(if count > 100 { 300 } else { 10 });
        let begin = Instant::now();
        loop {
            // With many agents at once, a relay may reject some.
            let linked = self.linked().await;
            if matches!(linked, Ok(linked) if linked == count) {
                return Ok(());
            }
            if begin.elapsed() > START_TIMEOUT {
                return Err(format!("{count} nodes are to have an agent: {linked:?}").into());
            }
            sleep(pause).await;
        }
    }

    async fn linked(&self) -> Result<usize> {
        let answer = self.http().await?.get("/relay/v1/nodes", None).await?;
        let list: Value = serde_json::from_slice(answer.body())?;
        let rows = list["nodes"].as_array().ok_or("no list of nodes")?;
        Ok(rows.iter().filter(|row| row["link"] == "linked").count())
    }

    /// Returns once a relay lists all workers but `attached` of them as waiting, and dials each of these at once.
    pub(crate) async fn until_can_be_dialled(&self, attached: usize) -> Result<()> {
        self.until_wait(attached).await?;
        if self.contestant.is_relay() {
            sleep(SETTLE_TIME).await;
        }
        Ok(())
    }

    /// Returns once a relay lists all workers, by name and detached.
    pub(crate) async fn until_all_wait(&self) -> Result<()> {
        self.until_wait(0).await
    }

    async fn until_wait(&self, attached: usize) -> Result<()> {
        if !self.contestant.is_relay() {
            return Ok(());
        }
        let size = self.stand_in.size();
        let expected = size.workers + size.bulk + size.shown - attached;
        // A long list takes its time to write.
        let pause = Duration::from_millis(if expected > 1000 { 300 } else { 10 });
        let begin = Instant::now();
        let mut http = self.http().await?;
        loop {
            let answer = http.get("/relay/v1/breakpoints", None).await?;
            let list: Value = serde_json::from_slice(answer.body())?;
            let rows = list["breakpoints"].as_array().ok_or("no list")?;
            let waits = |row: &&Value| row["state"] == "paused" && row["task_id"].is_string();
            let waiting = rows.iter().filter(waits).count();
            if waiting == expected {
                return Ok(());
            }
            if begin.elapsed() > START_TIMEOUT {
                let listed = rows.len();
                return Err(
                    format!("{waiting} of {expected} wait, {listed} are in the list").into(),
                );
            }
            sleep(pause).await;
        }
    }
}
