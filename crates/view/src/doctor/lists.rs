//! Findings from a relay's lists: `/relay/v1/breakpoints`, including ended ones, and `/relay/v1/nodes`.
//!
//! Pure. Read leniently, because a relay of another version may leave keys out, and cleaned for a terminal.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use super::{ChainLink, Fault, Finding, split_sentence};
use crate::listing::discovery::Discovery;
use crate::listing::received::{ClusterAnswer, NodeAnswer, RowAnswer};
use crate::listing::row::Row;
use ray_relay_base::wire::debugger::Kind;
use ray_relay_base::wire::human_time::span;
use ray_relay_base::wire::json::{typed_at, typed_list};
use ray_relay_base::wire::notebook::{INTO_A_MODULE, NO_SOURCE, is_cell};
use ray_relay_base::wire::text::shortened;

/// A list older than this, in seconds, is outdated: by default it is read each second.
const MAX_LIST_AGE: f64 = 10.0;

/// Findings of one kind that are listed one by one. The rest is counted.
pub(super) const MAX_LISTED_FINDINGS: usize = 8;

/// Longest sentence of an agent, in characters.
const MAX_REASON_CHARS: usize = 300;

const MAX_NAME_CHARS: usize = 120;

/// The first Ray whose `breakpoint()` uses debugpy by default.
pub(super) const DEBUGPY_BY_DEFAULT: (u32, u32) = (2, 39);

/// The first Ray whose head refuses stack dumps by default.
const FIRST_RAY_WITHOUT_STACKS: (u32, u32) = (2, 56);

/// Returns all findings from `list` and `nodes`, except those of [`heads`]. `nodes` is `None` if it was not
/// available.
pub fn findings(list: &Value, nodes: Option<&Value>) -> Vec<Finding> {
    let mut all = discovery(list);
    all.extend(ages(list));
    all.extend(nodes.map(agents).unwrap_or_default());
    all.extend(nodes.map(post_mortem).unwrap_or_default());
    all.extend(debuggers(list));
    all.extend(places(list));
    all.extend(tasks(list, nodes));
    all
}

/// Reports how the heads answer the relay, in the relay's own words.
pub fn heads(list: &Value) -> Vec<Finding> {
    let of_one = |cluster: ClusterAnswer<'_>| {
        let name = text(cluster.name);
        match (cluster.trouble, cluster.ray_version) {
            (Some(trouble), _) if cluster.pending => {
                // A RayCluster that is starting is no fault of the others.
                let (says, next) = split_sentence(trouble);
                let found = Finding::note(ChainLink::Head, format!("cluster {name}: {says}"));
                next.into_iter().fold(found, Finding::next)
            }
            (Some(trouble), _) if cluster.complete != Some(false) => head_trouble(&name, trouble),
            (None, None) if cluster.snapshot_age_seconds.is_none() => Finding::warning(
                ChainLink::Head,
                format!("the head of cluster {name} has not answered the relay yet"),
            )
            .next("ask again in some seconds"),
            (_, version) => Finding::ok(ChainLink::Head, answers(&name, version)),
        }
    };
    clusters(list).map(of_one).collect()
}

/// Reports where clusters are searched, and which of them are left out.
fn discovery(list: &Value) -> Vec<Finding> {
    let Some(scope) = list.pointer("/discovery/scope").and_then(Value::as_str) else {
        return Vec::new();
    };
    let scope = format!(
        "RayClusters are looked for in {}",
        shortened(scope, MAX_NAME_CHARS)
    );
    let troubles = Discovery::read(list).troubles().into_iter().map(|trouble| {
        let (says, next) = split_sentence(&trouble);
        let found = Finding::warning(ChainLink::Head, says);
        next.into_iter().fold(found, Finding::next)
    });
    std::iter::once(Finding::ok(ChainLink::Head, scope))
        .chain(troubles)
        .collect()
}

/// Builds the sentence about a head that answers.
pub(super) fn answers(cluster: &str, version: Option<&str>) -> String {
    let version = version.map_or("Ray".to_owned(), |v| {
        format!("Ray {}", shortened(v, MAX_NAME_CHARS))
    });
    format!("the head of cluster {cluster} answers the relay: {version}")
}

/// Reports the relay's trouble with the head of `cluster`, which returns no list.
fn head_trouble(cluster: &str, trouble: &str) -> Finding {
    let (says, next) = split_sentence(trouble);
    // The relay's sentences about Ray's token, and about a refusal by an API server, have these words. Its sentences
    // about unreachable heads do not.
    let fault = match says.contains(" token") || says.contains(" refuses with ") {
        true => Fault::Misconfigured,
        false => Fault::Unreachable,
    };
    let found = Finding::error(ChainLink::Head, fault, format!("cluster {cluster}: {says}"));
    match next {
        Some(next) => found.next(next),
        None => found,
    }
}

/// Reports how old the lists of the clusters are, and whether they are complete.
fn ages(list: &Value) -> Vec<Finding> {
    let mut all = Vec::new();
    for cluster in clusters(list) {
        let name = text(cluster.name);
        if cluster.complete == Some(false) {
            let (says, next) = split_sentence(cluster.trouble.unwrap_or_default());
            let found = Finding::warning(ChainLink::List, format!("cluster {name}: {says}"));
            all.push(next.into_iter().fold(found, Finding::next));
        }
        let Some(age) = cluster.snapshot_age_seconds else {
            continue;
        };
        all.push(match age > MAX_LIST_AGE {
            true => Finding::warning(
                ChainLink::List,
                format!("the list of cluster {name} is {} old", seconds(age)),
            )
            .next("see the finding about its head, and the relay's log"),
            false => Finding::ok(
                ChainLink::List,
                format!("the list of cluster {name} is {age:.1} s old"),
            ),
        });
    }
    all
}

/// Reports the agents of the nodes.
fn agents(nodes: &Value) -> Vec<Finding> {
    let rows: Vec<NodeAnswer<'_>> = typed_list(nodes, "nodes").collect();
    let is_linked = |node: &&NodeAnswer<'_>| node.link == Some("linked");
    let linked = rows.iter().filter(is_linked).count();
    let mut findings = FirstFindings::new(ChainLink::Agents, "nodes");
    let mut without = 0;
    for node in &rows {
        let (cluster, node_name) = (text(node.cluster), text(node.address));
        let alone = node.path == Some("agent");
        let only = match alone {
            true => "; workers there are reached through agents alone",
            false => "",
        };
        let says = match node.link {
            Some("down") => {
                let down = node.down.unwrap_or_default();
                let (since, why) = (ago(down.since), text(down.why));
                format!("the agent of node {node_name} has been gone for {since} ({why}){only}")
            }
            Some("contested") => format!(
                "two agents claim node {node_name}, and both are refused for a minute{only}"
            ),
            Some("none") if alone => {
                format!("node {node_name} of cluster {cluster} has no agent{only}")
            }
            Some("none") => {
                without += 1;
                continue;
            }
            _ => continue,
        };
        // If nothing is reached through agents, a missing one does no harm.
        findings.push(match node.path {
            Some("direct") => Finding::note(ChainLink::Agents, says),
            _ if alone => {
                Finding::error(ChainLink::Agents, Fault::Unreachable, says).next(START_AGENT)
            }
            _ => Finding::warning(ChainLink::Agents, says).next(START_AGENT),
        });
    }
    let count = rows.len();
    let mut all = findings.findings();
    if without > 0 && linked > 0 {
        let says = format!(
            "{without} of {} no agent: the relay dials their debuggers itself",
            have(count, "node")
        );
        all.push(Finding::note(ChainLink::Agents, says));
    } else if all.is_empty() && count > 0 {
        all.push(Finding::ok(
            ChainLink::Agents,
            match linked {
                0 => format!(
                    "{} no agent: the relay dials debuggers itself",
                    have(count, "node")
                ),
                _ => format!(
                    "{linked} of {} an agent that is linked",
                    have(count, "node")
                ),
            },
        ));
    }
    all
}

/// Reports whether black boxes of failed tasks are kept, if the relay is configured for that.
fn post_mortem(nodes: &Value) -> Vec<Finding> {
    if !typed_at::<bool>(nodes, "post_mortem") {
        return Vec::new();
    }
    let mut findings = FirstFindings::new(ChainLink::Agents, "nodes");
    let (mut storing_nodes, mut stored) = (0, 0);
    for node in typed_list::<NodeAnswer<'_>>(nodes, "nodes") {
        let name = text(node.address);
        let agent = node.agent;
        let why = match agent.map(|agent| (agent.failures, agent.keeps_no_failures)) {
            None => "it has no agent".to_owned(),
            Some((_, Some(why))) => shortened(why, MAX_REASON_CHARS),
            Some((None, None)) => "its agent is older than the relay: update it".to_owned(),
            Some((Some(count), None)) => {
                (storing_nodes, stored) = (storing_nodes + 1, stored + count);
                continue;
            }
        };
        let says =
            format!("of tasks that fail on node {name} nothing is kept ([post_mortem]): {why}");
        findings.push(Finding::warning(ChainLink::Agents, says).next(START_AGENT));
    }
    let mut all = findings.findings();
    if storing_nodes > 0 {
        let says = format!(
            "of tasks that fail stack and variables are kept on {storing_nodes} of the nodes, at present {stored} ([post_mortem])"
        );
        let next = "`ray-relay list --failed` has them; a worker without the hook (`ray-relay hook --help`) leaves nothing";
        all.push(Finding::ok(ChainLink::Agents, says).next(next));
    }
    all
}

const START_AGENT: &str =
    "start `ray-relay node` there, or `ray-relay deploy` on the cluster, and see what it logs";

/// Reports which debugger Ray starts, if editors cannot use it.
fn debuggers(list: &Value) -> Vec<Finding> {
    let mut all = Vec::new();
    let is_legacy = |kind: &Kind| match kind {
        Kind::Debugpy => false,
        Kind::Pdb => true,
    };
    let legacy = live(list).filter_map(|row| row.debugger());
    let legacy = legacy.filter(is_legacy).count();
    let old = |cluster: &ClusterAnswer<'_>| {
        let version = cluster.ray_version.and_then(release);
        version.is_some_and(|version| version < DEBUGPY_BY_DEFAULT)
    };
    let is_old = clusters(list).any(|cluster| old(&cluster));
    let otherwise = match is_old {
        true => "for an editor, run the job with RAY_DEBUG=1 in its environment",
        false => "for an editor, run the job without RAY_DEBUG=legacy in its environment",
    };
    if legacy > 0 {
        let says = format!(
            "{} in Ray's legacy debugger, which no editor can speak with",
            paused_clause(legacy)
        );
        let next = format!("enter it with `ray-relay debug` or `nc`; {otherwise}");
        all.push(Finding::note(ChainLink::Debugger, says).next(next));
    }
    for cluster in clusters(list).filter(|c| legacy == 0 && old(c)) {
        let (name, version) = (text(cluster.name), text(cluster.ray_version));
        let says = format!(
            "cluster {name} has Ray {version}, whose breakpoint() opens the legacy debugger unless told otherwise"
        );
        all.push(Finding::note(ChainLink::Debugger, says).next(otherwise));
    }
    all
}

/// Counts the tasks whose location is unknown because their head returns no stacks.
pub fn places(list: &Value) -> Vec<Finding> {
    let gives_none = |cluster: &ClusterAnswer<'_>| {
        let version = cluster.ray_version.and_then(release);
        version.is_some_and(|version| version >= FIRST_RAY_WITHOUT_STACKS)
    };
    let unknown = |cluster: &ClusterAnswer<'_>| {
        let of_it = live(list).filter(|row| row.cluster == cluster.name);
        // The GCS knows the location of a registered one.
        let on_head = |kind: Kind| !kind.is_registered();
        let unknown =
            of_it.filter(|row| row.debugger().is_some_and(on_head) && row.location.is_none());
        unknown
            .filter(|row| row.waiting_seconds.is_some_and(|s| s > MAX_LIST_AGE))
            .count()
    };
    let clusters = clusters(list).filter(gives_none);
    let finding = |cluster: ClusterAnswer<'_>| {
        let (name, count) = (text(cluster.name), unknown(&cluster));
        let says = format!(
            "WHERE is not known of {count} in cluster {name}: its head gives no stacks unless told to"
        );
        let next = "set RAY_DASHBOARD_ENABLE_PROFILING=1 for the head (`ray start --head`); for tasks that an editor or the relay's page has shown, the list knows it anyway";
        (count > 0).then(|| Finding::note(ChainLink::Head, says).next(next))
    };
    clusters.filter_map(finding).collect()
}

/// Reports the paused tasks, and those that cannot be attached to. Ports are judged only from registry and agents.
fn tasks(list: &Value, nodes: Option<&Value>) -> Vec<Finding> {
    // By cluster and node: nodes that are reached through agents only, and whose agent is missing.
    let mut closed = BTreeSet::new();
    for node in nodes
        .into_iter()
        .flat_map(|nodes| typed_list::<NodeAnswer<'_>>(nodes, "nodes"))
    {
        if node.path == Some("agent") && node.link != Some("linked") {
            closed.insert((node.cluster, node.node_id));
        }
    }
    let mut unreachable = FirstFindings::new(ChainLink::Tasks, "tasks that cannot be reached");
    let (mut open, mut held) = (
        0,
        FirstFindings::new(ChainLink::Tasks, "tasks that are being debugged"),
    );
    let mut ended = FirstFindings::new(ChainLink::Tasks, "tasks that have ended");
    let mut cells = FirstFindings::new(ChainLink::Tasks, "tasks in cells of notebooks");
    for row in typed_list::<RowAnswer<'_>>(list, "breakpoints") {
        let (id, name) = (text(row.id), text(row.name));
        let (node, why) = (text(row.node_ip), text(row.why));
        if row.location.and_then(|at| at.file).is_some_and(is_cell) {
            let says = format!("{name} ({id}) is paused in {NO_SOURCE}");
            cells.push(Finding::note(ChainLink::Tasks, says).next(INTO_A_MODULE));
        }
        match row.state.unwrap_or_default() {
            "paused" if closed.contains(&(row.cluster, row.node_id)) => {
                let says = format!("{name} ({id}) cannot be reached: node {node} has no agent");
                let found = Finding::error(ChainLink::Tasks, Fault::Unreachable, says);
                unreachable.push(found.next(START_AGENT));
            }
            "paused" => open += 1,
            "unreachable" => {
                let says = format!("{name} ({id}) on node {node} cannot be attached to: {why}");
                let next = format!(
                    "is the node's network open to the relay? Where its debugger is gone, `ray-relay release --force {id}` ends the worker"
                );
                let found = Finding::error(ChainLink::Tasks, Fault::Unreachable, says);
                unreachable.push(found.next(next));
            }
            "attached" => {
                let says = format!("{name} ({id}) is being debugged by {}", holder(&row));
                let next = "wait until that session ends, or ask for it; `admin` sees all in /relay/v1/sessions";
                held.push(Finding::note(ChainLink::Tasks, says).next(next));
            }
            "parked" => {
                // `parked by ann for 12m more`
                let says = format!("{name} ({id}) is {}", Row::of(&row).holder);
                let next = "its holder resumes it by attaching; `ray-relay release` lets it run on";
                held.push(Finding::note(ChainLink::Tasks, says).next(next));
            }
            "died" => {
                let says = format!("{name} ({id}) is gone: {why}");
                let next = "see the worker's log (`ray logs`), and run the job again";
                ended.push(Finding::note(ChainLink::Tasks, says).next(next));
            }
            _ => {}
        }
    }
    let mut all = unreachable.findings();
    all.extend(held.findings());
    all.extend(ended.findings());
    all.extend(cells.findings());
    if open > 0 {
        all.push(Finding::ok(
            ChainLink::Tasks,
            match open {
                1 => "1 task waits for a debugger".to_owned(),
                open => format!("{open} tasks wait for a debugger"),
            },
        ));
    } else if live(list).next().is_none() && heads_answer(list) {
        let says = "no task waits at a breakpoint";
        all.push(Finding::note(ChainLink::Tasks, says).next(NOTHING_WAITS));
    }
    all
}

const NOTHING_WAITS: &str = "where a task should, install debugpy 1.8.0 or newer on the nodes (`pip install debugpy`): without it, and with RAY_DEBUG=0, Ray skips breakpoint()";

/// Findings of one kind, of which only the first ones are listed.
struct FirstFindings {
    link: ChainLink,
    noun: &'static str,
    findings: Vec<Finding>,
    more: usize,
}

impl FirstFindings {
    fn new(link: ChainLink, noun: &'static str) -> Self {
        Self {
            link,
            noun,
            findings: Vec::new(),
            more: 0,
        }
    }

    fn push(&mut self, finding: Finding) {
        match self.findings.len() < MAX_LISTED_FINDINGS {
            true => self.findings.push(finding),
            false => self.more += 1,
        }
    }

    fn findings(mut self) -> Vec<Finding> {
        if self.more > 0 {
            let says = format!("and {} more {}", self.more, self.noun);
            self.findings.push(Finding::note(self.link, says));
        }
        self.findings
    }
}

fn clusters(list: &Value) -> impl Iterator<Item = ClusterAnswer<'_>> {
    typed_list(list, "clusters")
}

/// Returns the rows of breakpoints that have not ended.
fn live(list: &Value) -> impl Iterator<Item = RowAnswer<'_>> {
    let over = [Some("released"), Some("died"), Some("finished")];
    typed_list(list, "breakpoints").filter(move |row: &RowAnswer<'_>| !over.contains(&row.state))
}

fn heads_answer(list: &Value) -> bool {
    clusters(list).all(|cluster| cluster.trouble.is_none())
}

fn holder(row: &RowAnswer<'_>) -> String {
    let holder = row.holder.unwrap_or_default();
    let word = |word: Option<&str>| {
        let word = text(word);
        (word != "?" && !word.is_empty()).then_some(word)
    };
    let who = match (word(holder.subject), word(holder.client)) {
        (Some(subject), Some(client)) => format!("{subject} with {client}"),
        (Some(one), None) | (None, Some(one)) => one,
        (None, None) => "a client".to_owned(),
    };
    let from = word(holder.peer).map_or(String::new(), |peer| format!(" from {peer}"));
    let since = match holder.since {
        Some(_) => format!(" for {}", ago(holder.since)),
        None => String::new(),
    };
    format!("{who}{from}{since}")
}

fn text(text: Option<&str>) -> String {
    shortened(text.unwrap_or("?"), MAX_NAME_CHARS)
}

fn have(count: usize, noun: &str) -> String {
    match count {
        1 => format!("1 {noun} has"),
        _ => format!("{count} {noun}s have"),
    }
}

fn paused_clause(count: usize) -> String {
    match count {
        1 => "1 task stands".to_owned(),
        _ => format!("{count} tasks stand"),
    }
}

fn seconds(seconds: f64) -> String {
    span(Duration::try_from_secs_f64(seconds).unwrap_or_default())
}

/// Formats the time since `since`, in seconds since 1970.
fn ago(since: Option<f64>) -> String {
    let since = Duration::try_from_secs_f64(since.unwrap_or_default());
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.unwrap_or_default();
    span(now.saturating_sub(since.unwrap_or_default()))
}

/// Parses `2.9` from `2.9.3`.
pub(super) fn release(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
#[path = "lists/tests.rs"]
mod tests;
