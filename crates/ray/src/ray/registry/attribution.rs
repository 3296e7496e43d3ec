//! Ray's information about one debugger and about its nodes, requested on demand: for an agent, which keeps no list.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use crate::hold::RayNode;
use crate::ray::head::{HeadClient, HeadConfigError, HeadError};
use crate::ray::registry::breakpoint::{Breakpoint, Kind};
use crate::ray::registry::gcs::{GcsClient, GcsError, entry};
use crate::ray::registry::live_nodes;
use crate::ray::registry::query;
use crate::ray::registry::rows::WorkerRow;
use ray_relay_base::config;

/// Queries one cluster's head, and its GCS.
#[derive(Debug, Clone)]
pub struct Attribution {
    cluster: Arc<str>,
    head: HeadClient,
    gcs: Option<GcsClient>,
}

/// A debugger that Ray's registry attributes to a live worker. Only [`Attribution`] creates one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attributed {
    node_id: String,
    address: SocketAddr,
    owner: Owner,
}

/// The property that identifies the worker's process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Owner {
    /// Its process id on its node, as the worker sees it.
    Process(u32),
    /// The name of its task, which is in the process title behind `ray::`.
    Task(String),
}

impl Attributed {
    /// Ray's id of the worker's node; empty if Ray does not report it (the legacy debugger before Ray 2.40).
    pub fn node_id(&self) -> &str {
        &self.node_id
    }

    /// The debugger's address according to Ray. A loopback address is that of the worker's node.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The required owner of the listening socket.
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// The addresses to connect to, in order: Ray's address, then the loopback address of the same family. Empty if
    /// Ray's address is none of `own`, those of the worker's node.
    pub fn ways(&self, own: &[IpAddr]) -> Vec<SocketAddr> {
        let ip = self.address.ip().to_canonical();
        let loopback: IpAddr = match ip {
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        };
        if !(ip.is_loopback() || own.contains(&ip)) {
            return Vec::new();
        }
        let mut ways = vec![SocketAddr::new(ip, self.address.port())];
        if ip != loopback {
            ways.push(SocketAddr::new(loopback, self.address.port()));
            if loopback.is_ipv6() {
                // The hook binds 127.0.0.1 on every node.
                let ip = Ipv4Addr::LOCALHOST.into();
                ways.push(SocketAddr::new(ip, self.address.port()));
            }
        }
        ways
    }
}

/// A live worker, by its process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resident {
    /// Ray's id of the worker.
    pub worker_id: String,
    /// Ray's id of its node.
    pub node_id: String,
}

/// The reason why Ray could not be queried.
#[derive(Debug, thiserror::Error)]
pub enum AttributionError {
    /// An error of the head.
    #[error(transparent)]
    Head(#[from] HeadError),
    /// An error of the GCS.
    #[error("{0}")]
    Gcs(String),
    /// No GCS is known, and the legacy debugger registers only there.
    #[error("the GCS is not asked, where alone the legacy debugger registers: give --gcs-address")]
    NoGcs,
}

impl From<GcsError> for AttributionError {
    fn from(error: GcsError) -> Self {
        Self::Gcs(error.to_string())
    }
}

impl Attribution {
    /// Queries the head of `cluster`; each request takes at most `patience`. Ray's token is looked up as in Ray.
    ///
    /// # Errors
    /// [`HeadConfigError`].
    pub fn new(cluster: &config::Cluster, patience: Duration) -> Result<Self, HeadConfigError> {
        let head = HeadClient::new(cluster, patience, true)?;
        Ok(Self {
            cluster: cluster.name.as_str().into(),
            gcs: GcsClient::of(cluster, &head, patience),
            head,
        })
    }

    /// The nodes that are alive.
    ///
    /// # Errors
    /// [`AttributionError`].
    pub async fn nodes(&self) -> Result<Vec<RayNode>, AttributionError> {
        let rows = query::nodes(&self.head).await?.into_rows();
        Ok(live_nodes::alive(&self.cluster, &rows))
    }

    /// The debuggers of kind `kind` on `port` of the live worker `worker_id`: none if Ray knows none, and several if
    /// legacy debuggers report neither worker nor node.
    ///
    /// # Errors
    /// [`AttributionError`].
    pub async fn debuggers(
        &self,
        kind: Kind,
        worker_id: &str,
        port: u16,
    ) -> Result<Vec<Attributed>, AttributionError> {
        match kind {
            Kind::Debugpy => {
                let row = self.worker(worker_id).await?;
                Ok(row.and_then(|row| debugpy(row, port)).into_iter().collect())
            }
            Kind::Pdb => self.legacy(worker_id, port).await,
        }
    }

    /// The live workers with the process id `of` on their nodes.
    ///
    /// # Errors
    /// [`AttributionError`].
    pub async fn residents(&self, of: u32) -> Result<Vec<Resident>, AttributionError> {
        let mut rows = query::workers_of_process(&self.head, of).await?.into_rows();
        // Filters are checked again: old versions ignore unknown ones.
        rows.retain(|row| row.is_alive && pid(row) == Some(of) && !row.worker_id.is_empty());
        let resident = |row: WorkerRow| Resident {
            worker_id: row.worker_id,
            node_id: row.node_id,
        };
        Ok(rows.into_iter().map(resident).collect())
    }

    /// The job of `worker`, if the task `task_id` ran on it.
    ///
    /// # Errors
    /// [`AttributionError`].
    pub async fn job_of(
        &self,
        worker: &Resident,
        task_id: &str,
    ) -> Result<Option<String>, AttributionError> {
        let mut rows = query::task(&self.head, task_id).await?.into_rows();
        rows.retain(|row| {
            row.task_id == task_id && row.worker_id == worker.worker_id && !row.job_id.is_empty()
        });
        Ok(rows.pop().map(|row| row.job_id))
    }

    async fn legacy(
        &self,
        worker_id: &str,
        port: u16,
    ) -> Result<Vec<Attributed>, AttributionError> {
        let gcs = self.gcs.as_ref().ok_or(AttributionError::NoGcs)?;
        let entries = gcs.breakpoints().await?;
        let read = |(key, value): &(String, Vec<u8>)| {
            let stop = entry::read(&self.cluster, key, value)?;
            (stop.port == port && *stop.worker_id == *worker_id).then_some(stop)
        };
        let stops: Vec<Breakpoint> = entries.iter().filter_map(read).collect();
        if worker_id.is_empty() {
            return Ok(stops.iter().filter_map(|stop| pdb(stop, None)).collect());
        }
        // An entry outlives its worker.
        let Some(row) = self.worker(worker_id).await? else {
            return Ok(Vec::new());
        };
        let of_it = |stop| pdb(stop, Some(&row));
        Ok(stops.iter().filter_map(of_it).collect())
    }

    /// The row of a live worker.
    async fn worker(&self, worker_id: &str) -> Result<Option<WorkerRow>, HeadError> {
        let mut rows = query::worker(&self.head, worker_id).await?.into_rows();
        rows.retain(|row| row.is_alive && row.worker_id == worker_id);
        Ok(rows.pop())
    }
}

fn debugpy(row: WorkerRow, port: u16) -> Option<Attributed> {
    let (ip, registered) = row.debugger()?;
    (registered == port).then_some(())?;
    Some(Attributed {
        owner: Owner::Process(pid(&row)?),
        address: SocketAddr::new(ip, port),
        node_id: row.node_id,
    })
}

fn pdb(stop: &Breakpoint, row: Option<&WorkerRow>) -> Option<Attributed> {
    let owner = match row {
        Some(row) if *row.node_id == *stop.node_id => Owner::Process(pid(row)?),
        Some(_) => return None,
        None => Owner::Task(stop.names.name.clone()?),
    };
    Some(Attributed {
        owner,
        address: stop.upstream(),
        node_id: stop.node_id.to_string(),
    })
}

fn pid(row: &WorkerRow) -> Option<u32> {
    row.pid
        .and_then(|pid| u32::try_from(pid).ok())
        .filter(|pid| *pid != 0)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    fn row(change: &serde_json::Value) -> WorkerRow {
        let mut row = json!({"worker_id": "beef", "is_alive": true, "node_id": "aaaa", "ip": "10.0.0.7", "pid": 41, "debugger_port": 4000});
        for (key, value) in change.as_object().unwrap() {
            row[key] = value.clone();
        }
        serde_json::from_value(row).unwrap()
    }

    fn stop(address: &str, node_id: &str) -> Breakpoint {
        let value = json!({"proctitle": "ray::fails()", "pdb_address": address, "node_id": node_id,
            "worker_id": if node_id.is_empty() { "" } else { "beef" }});
        entry::read(&"default".into(), "RAY_PDB_1", value.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn debugger_addresses_are_the_listed_one_and_loopback() {
        let addresses = |ip: &str, own_addresses: &[&str]| {
            let own_addresses: Vec<IpAddr> =
                own_addresses.iter().map(|ip| ip.parse().unwrap()).collect();
            let addresses = debugpy(row(&json!({"ip": ip})), 4000)
                .unwrap()
                .ways(&own_addresses);
            addresses
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            addresses("10.0.0.7", &["10.0.0.7"]),
            ["10.0.0.7:4000", "127.0.0.1:4000"]
        );
        assert_eq!(
            addresses("2001:db8::7", &["2001:db8::7"]),
            ["[2001:db8::7]:4000", "[::1]:4000", "127.0.0.1:4000"]
        );
        assert_eq!(addresses("127.0.0.1", &[]), ["127.0.0.1:4000"]);
        // A node of `ray-relay demo`.
        assert_eq!(
            addresses("127.0.0.3", &[]),
            ["127.0.0.3:4000", "127.0.0.1:4000"]
        );
        assert_eq!(addresses("10.0.0.8", &["10.0.0.7"]), [""; 0]);
        assert_eq!(addresses("::ffff:10.0.0.7", &["10.0.0.7"]).len(), 2);
    }

    #[test]
    fn debugger_is_the_registered_port_of_a_live_worker() {
        assert!(debugpy(row(&json!({})), 4000).is_some());
        assert_eq!(debugpy(row(&json!({})), 4001), None);
        for change in [
            json!({"debugger_port": 0}),
            json!({"debugger_port": null}),
            json!({"is_alive": false}),
            json!({"pid": 0}),
            json!({"pid": null}),
            json!({"ip": "evil.example.com"}),
        ] {
            assert_eq!(debugpy(row(&change), 4000), None, "{change}");
        }
    }

    #[test]
    fn legacy_prompt_belongs_to_its_worker_or_a_titled_process() {
        let of_worker = pdb(&stop("10.0.0.7:41001", "aaaa"), Some(&row(&json!({})))).unwrap();
        assert_eq!(of_worker.owner(), &Owner::Process(41));
        assert_eq!(of_worker.node_id(), "aaaa");
        // The entry names another node than that of its worker.
        assert_eq!(
            pdb(&stop("10.0.0.7:41001", "bbbb"), Some(&row(&json!({})))),
            None
        );
        let of_task = pdb(&stop("localhost:41001", ""), None).unwrap();
        assert_eq!(of_task.owner(), &Owner::Task("fails".to_owned()));
        assert_eq!(of_task.address(), "127.0.0.1:41001".parse().unwrap());
    }
}
