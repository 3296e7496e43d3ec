//! `list --verbose`: the nodes below the list, with their agents. Pure.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use ray_relay_base::wire::human_time::span;
use ray_relay_base::wire::json::{self, typed_list};
use ray_relay_base::wire::text::replaced;
use ray_relay_view::listing::received::NodeAnswer;
use ray_relay_view::listing::text;

const TITLES: [&str; 6] = ["NODE", "ADDRESS", "CLUSTER", "AGENT", "ROUND TRIP", "LINK"];

/// Formats the nodes of the relay's `answer` as a table, each line ended by a line feed, for a terminal `columns` wide.
pub(super) fn table(answer: &Value, columns: Option<usize>) -> String {
    let nodes: Vec<NodeAnswer<'_>> = typed_list(answer, "nodes").collect();
    if nodes.is_empty() {
        return "No node is known.\n".to_owned();
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.unwrap_or_default();
    let mut lines = vec![TITLES.map(str::to_owned)];
    lines.extend(nodes.into_iter().map(|node| cells(node, now)));
    text::table(lines, columns)
}

/// Sentence about other relays linked to the same agents.
pub(super) fn footer(answer: &Value) -> String {
    let is_linked = |node: &NodeAnswer<'_>| node.link == Some("linked");
    let linked = typed_list(answer, "nodes").filter(is_linked).count();
    match (linked, json::list(answer, "other_relays").len()) {
        (0, _) => "No agent is linked: this relay knows only its own sessions.\n".to_owned(),
        (_, 0) => "No other relay is linked to these agents.\n".to_owned(),
        (_, 1) => "One other relay is linked with these agents.\n".to_owned(),
        (_, relays) => format!("{relays} other relays are linked with these agents.\n"),
    }
}

fn cells(node: NodeAnswer<'_>, now: Duration) -> [String; 6] {
    let text = |text: Option<&str>| replaced(text.unwrap_or("-")).into_owned();
    let ago = |since: Option<f64>| {
        let since = Duration::try_from_secs_f64(since.unwrap_or_default());
        span(now.saturating_sub(since.unwrap_or_default()))
    };
    let (agent, down) = (
        node.agent.unwrap_or_default(),
        node.down.unwrap_or_default(),
    );
    let link = match node.link {
        Some("linked") => format!("linked for {}", ago(agent.since)),
        Some("down") => format!("down for {}: {}", ago(down.since), text(down.why)),
        Some("contested") => "two agents claim it".to_owned(),
        _ => "no agent".to_owned(),
    };
    let id = text(node.node_id);
    [
        id.get(..12).unwrap_or(&id).to_owned(),
        text(node.address),
        text(node.cluster),
        text(agent.version),
        agent
            .round_trip_ms
            .map_or("-".to_owned(), |ms| format!("{ms:.1} ms")),
        link,
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_node_shows_its_agent_state() {
        let answer = json!({"nodes": [
            {"cluster": "default", "node_id": "0123456789abcdef", "address": "10.0.0.1", "link": "linked",
                "agent": {"version": "0.1.0", "since": 0.0, "round_trip_ms": 0.42}},
            {"cluster": "default", "node_id": "b2", "address": "fd00::2", "link": "down",
                "down": {"since": 0.0, "why": "it\u{1b}[2J broke"}},
            {"cluster": "default", "node_id": "c3", "address": "10.0.0.3", "link": "none"},
        ]});
        let text = table(&answer, None);
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines[0].starts_with("NODE          ADDRESS   CLUSTER"),
            "{text}"
        );
        assert!(
            lines[1].contains("0123456789ab  10.0.0.1  default  0.1.0  0.4 ms"),
            "{text}"
        );
        assert!(
            lines[2].contains("down for") && !text.contains('\u{1b}'),
            "{text}"
        );
        assert!(lines[3].ends_with("no agent"), "{text}");
        assert!(
            table(&answer, Some(30))
                .lines()
                .all(|line| text::width(line) <= 30)
        );
        assert_eq!(table(&json!({}), None), "No node is known.\n");
        let footer_with = |other_relays: Value| {
            let mut answer = answer.clone();
            answer["other_relays"] = other_relays;
            footer(&answer)
        };
        assert!(footer_with(json!([])).starts_with("No other relay"));
        assert!(footer_with(json!(["aa"])).starts_with("One other relay"));
        assert!(footer_with(json!(["aa", "bb"])).starts_with("2 other relays"));
        assert!(
            footer(&json!({"nodes": [], "other_relays": ["aa"]}))
                .contains("knows only its own sessions")
        );
    }
}
