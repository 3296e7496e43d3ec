//! State of a deployment: combines the driver's reports with the nodes that Ray lists.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use ray_relay_base::wire::human_time::moment;
use ray_relay_base::wire::text::{one_line, replaced};
use ray_relay_ray::ray::jobs::JobState;
use ray_relay_view::listing::text;

/// Prefix of the driver's output lines with JSON for this program.
const MARK: &str = "@ray-relay ";

/// Kind of process on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Role {
    Relay,
    Agent,
}

/// State of one process, as last reported by the driver.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
pub(super) struct DeployedProcess {
    #[serde(skip_serializing)]
    pub(super) role: Role,
    #[serde(skip_serializing)]
    node: String,
    /// Host name of the node.
    #[serde(skip_serializing)]
    name: String,
    /// `starting`, `running`, `restarting` (its actor), `ended`, `stopped`, `gone` (its node).
    pub(super) state: String,
    pub(super) pid: Option<u32>,
    /// Start time as Unix time, in seconds.
    pub(super) since: Option<f64>,
    #[serde(default)]
    restarts: u64,
    /// Why it does not run.
    pub(super) why: Option<String>,
}

/// Parsed output of the driver.
#[derive(Debug, Default)]
pub(super) struct DriverReport {
    /// The public key for sealing the credential.
    pub(super) key: Option<String>,
    /// Why it could not start.
    pub(super) fatal: Option<String>,
    /// The driver ended everything itself, except on these nodes.
    pub(super) left: Option<Vec<String>>,
    processes: BTreeMap<(Role, String), DeployedProcess>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum StateLine {
    Key { key: String },
    Fatal { fatal: String },
    Ended { left: Vec<String> },
    Process(DeployedProcess),
}

impl DriverReport {
    /// Parses the driver's output. The last report on each process counts.
    pub(super) fn read(output: &str) -> Self {
        let mut report = Self::default();
        // An incomplete line is skipped.
        let whole = output.rfind('\n').map_or("", |end| &output[..end]);
        for line in whole.lines().filter_map(|line| line.strip_prefix(MARK)) {
            match serde_json::from_str(line) {
                Ok(StateLine::Key { key }) => report.key = Some(key),
                Ok(StateLine::Fatal { fatal }) => report.fatal = Some(one_line(&fatal)),
                Ok(StateLine::Ended { left }) => report.left = Some(left),
                Ok(StateLine::Process(process)) => {
                    let of = (process.role, process.node.clone());
                    report.processes.insert(of, process);
                }
                // From a driver newer than this program.
                Err(_) => {}
            }
        }
        report
    }
}

/// One node that Ray lists as alive.
#[derive(Debug)]
pub(super) struct NodeState {
    id: String,
    address: String,
    name: String,
    pub(super) agent: Option<DeployedProcess>,
    pub(super) relay: Option<DeployedProcess>,
}

/// A deployment at one moment.
#[derive(Debug)]
pub(super) struct DeploymentState {
    name: String,
    pub(super) job: Option<JobState>,
    pub(super) nodes: Vec<NodeState>,
}

impl DeploymentState {
    /// Creates the state. `rows` are the live nodes of the State API.
    pub(super) fn new(
        name: &str,
        job: Option<JobState>,
        rows: &[Value],
        report: &DriverReport,
    ) -> Self {
        let runs = job.as_ref().is_some_and(|job| !job.ended());
        let nodes = rows.iter().map(|row| {
            let text = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
            let of = |role| {
                let process = report.processes.get(&(role, text("node_id")));
                process.filter(|_| runs).cloned()
            };
            let agent = of(Role::Agent);
            // Ray's name of a node is its address, unless configured.
            let name = agent.as_ref().map(|agent| agent.name.clone());
            NodeState {
                id: text("node_id"),
                address: text("node_ip"),
                name: name.unwrap_or_else(|| text("node_name")),
                agent,
                relay: of(Role::Relay),
            }
        });
        let mut nodes: Vec<_> = nodes.collect();
        nodes.sort_by(|one, other| (&one.address, &one.id).cmp(&(&other.address, &other.id)));
        Self {
            name: name.to_owned(),
            nodes,
            job,
        }
    }

    /// Number of nodes with a running agent, and of all nodes.
    pub(super) fn running(&self) -> (usize, usize) {
        let running = self.nodes.iter().filter(|node| runs(node.agent.as_ref()));
        (running.count(), self.nodes.len())
    }

    /// Whether the agents of all nodes run, and every relay that was started.
    pub(super) fn is_complete(&self) -> bool {
        self.each().all(|(_, _, process)| runs(process))
    }

    /// Whether each process runs or has ended, and none is starting.
    pub(super) fn is_settled(&self) -> bool {
        let mut states = self
            .each()
            .map(|(_, _, process)| process.map(|process| &*process.state));
        states.all(|state| matches!(state, Some("running" | "ended")))
    }

    /// State of each process.
    pub(super) fn processes(&self) -> Vec<Option<DeployedProcess>> {
        self.each()
            .map(|(_, _, process)| process.cloned())
            .collect()
    }

    /// For each node, its relay if it has one, and its agent.
    fn each(&self) -> impl Iterator<Item = (&NodeState, Role, Option<&DeployedProcess>)> {
        self.nodes.iter().flat_map(|node| {
            let relay = node
                .relay
                .as_ref()
                .map(|relay| (node, Role::Relay, Some(relay)));
            relay
                .into_iter()
                .chain([(node, Role::Agent, node.agent.as_ref())])
        })
    }

    /// Output of `--json`.
    pub(super) fn json(&self) -> Value {
        let nodes = self.nodes.iter().map(|node| {
            json!({
                "node_id": node.id, "address": node.address, "name": node.name,
                "agent": node.agent, "relay": node.relay,
            })
        });
        let job = self.job.as_ref().map(|job| {
            json!({
                "submission_id": job.submission_id, "status": job.status, "message": job.message,
                "metadata": job.metadata,
            })
        });
        json!({"deployment": self.name, "job": job, "nodes": nodes.collect::<Vec<_>>()})
    }

    /// Output for users: a line for each expected process.
    pub(super) fn table(&self, now: SystemTime) -> String {
        let mut rows =
            vec![["NODE", "ADDRESS", "NAME", "PROCESS", "RESTARTS", "STATE"].map(str::to_owned)];
        for (node, role, process) in self.each() {
            let role = match role {
                Role::Relay => "relay",
                Role::Agent => "agent",
            };
            let restarts = process.map_or(0, |process| process.restarts);
            rows.push([
                replaced(&node.id.chars().take(8).collect::<String>()).into_owned(),
                replaced(&node.address).into_owned(),
                replaced(&node.name).into_owned(),
                role.to_owned(),
                restarts.to_string(),
                state(process, now),
            ]);
        }
        text::table(rows, None)
    }
}

fn runs(process: Option<&DeployedProcess>) -> bool {
    process.is_some_and(|process| process.state == "running")
}

fn state(process: Option<&DeployedProcess>, now: SystemTime) -> String {
    let Some(process) = process else {
        return "none".to_owned();
    };
    let since = process
        .since
        .and_then(|since| Duration::try_from_secs_f64(since).ok());
    let since = since.and_then(|since| SystemTime::UNIX_EPOCH.checked_add(since));
    match (&*process.state, since, &process.why) {
        ("running", Some(since), _) => format!("running since {}", moment(since, now)),
        (state, _, Some(why)) => format!("{}: {}", replaced(state), one_line(why)),
        (state, _, None) => replaced(state).into_owned(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const OUTPUT: &str = r#"2026-01-01 INFO worker.py: Connecting
@ray-relay {"key": "AAAA"}
@ray-relay {"role": "agent", "node": "aa", "address": "10.0.0.1", "name": "head", "restarts": 0, "state": "starting"}
@ray-relay {"role": "agent", "node": "aa", "address": "10.0.0.1", "name": "head", "restarts": 2, "state": "running", "pid": 7, "since": 1000.5}
@ray-relay {"role": "relay", "node": "aa", "address": "10.0.0.1", "name": "head", "restarts": 0, "state": "running", "pid": 8, "since": 1000.5}
@ray-relay {"role": "agent", "node": "bb", "address": "10.0.0.2", "name": "w1", "restarts": 0, "state": "ended", "why": "its processor is aarch64"}
@ray-relay {"role": "agent", "node": "cc", "address": "10.0.0.3", "name": "w2", "restarts": 0, "state": "gone"}
@ray-relay {"something": "new"}
@ray-relay {"role": "agent", "node": "bb", "#;

    fn state_of(status: &str) -> DeploymentState {
        let job = JobState {
            submission_id: "ray-relay-agents-01".to_owned(),
            start_time: 0,
            status: status.to_owned(),
            message: String::new(),
            job_id: None,
            metadata: Value::Null,
        };
        let row = |id, address, name| json!({"node_id": id, "node_ip": address, "node_name": name});
        let rows = [
            row("bb", "10.0.0.2", "w1"),
            row("aa", "10.0.0.1", "head"),
            row("dd", "10.0.0.4", "w\u{1b}3"),
        ];
        DeploymentState::new("agents", Some(job), &rows, &DriverReport::read(OUTPUT))
    }

    #[test]
    fn latest_report_per_process_counts_for_live_nodes() {
        let report = DriverReport::read(OUTPUT);
        assert_eq!((report.key.as_deref(), report.left), (Some("AAAA"), None));
        let state = state_of("RUNNING");
        assert_eq!(state.running(), (1, 3));
        assert!(!state.is_complete());
        let table = state.table(SystemTime::UNIX_EPOCH + Duration::from_secs(1060));
        let lines: Vec<_> = table.lines().collect();
        assert_eq!(lines.len(), 5, "{table}");
        assert!(
            lines[1].contains("relay") && lines[1].contains("running since"),
            "{table}"
        );
        assert!(
            lines[2].contains(" 2 ") && lines[2].starts_with("aa "),
            "{table}"
        );
        assert!(
            lines[3].ends_with("ended: its processor is aarch64"),
            "{table}"
        );
        assert!(
            lines[4].ends_with("none") && !table.contains('\u{1b}'),
            "{table}"
        );
        let json = state.json();
        assert_eq!(json["nodes"][0]["agent"]["pid"], 7);
        assert_eq!(json["nodes"][2]["agent"], Value::Null);
    }

    #[test]
    fn ended_job_has_no_running_processes() {
        assert_eq!(state_of("FAILED").running(), (0, 3));
        let ended = format!("{MARK}{{\"ended\": 3, \"left\": [\"aa\"]}}\n");
        assert_eq!(DriverReport::read(&ended).left.unwrap(), ["aa"]);
    }
}
