//! Determines which running workers have the hook (`GET /relay/v1/tasks?hook=true`). It asks the agent of each node
//! once, on request.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::stream::{self, StreamExt as _};
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use ray_relay_base::wire::json::put;
use ray_relay_base::wire::tunnel::messages::{Hooked, PYTORCH_DEBUG_PORT};
use ray_relay_ray::ray::registry::Running;
use ray_relay_session::context::Context;

/// Time limit for one agent, and for all of them.
const AGENT_TIMEOUT: Duration = Duration::from_secs(3);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Number of agents asked at a time.
const MAX_CONCURRENT_QUERIES: usize = 32;

/// The workers of one node with the hook and those that serve PyTorch's debug pages, or why they are unknown.
type NodeHooks = Result<Hooked, String>;

/// Adds to each of `rows`, which belong to `running`, whether its worker has the hook, or why that is unknown, and the
/// port of PyTorch's debug pages if it serves them.
pub(super) async fn annotate(ctx: &Context, running: &[&Running], rows: &mut [Value]) {
    let of_nodes = query_nodes(ctx, running).await;
    for (one, row) in running.iter().zip(rows) {
        let of_node = of_nodes.get(&(&*one.cluster, &*one.node_id));
        let known = match (of_node, one.pid) {
            (Some(Ok(hooked)), Some(pid)) => {
                if hooked.pytorch_debug.contains(&pid) {
                    put(row, "pytorch_debug_port", PYTORCH_DEBUG_PORT);
                }
                Ok(hooked.pids.contains(&pid))
            }
            (Some(Err(why)), _) => Err(&**why),
            (_, None) | (None, _) => Err("Ray does not say which process it is"),
        };
        match known {
            Ok(has) => put(row, "hook", has),
            Err(why) => {
                put(row, "hook", Value::Null);
                put(row, "hook_unknown", why);
            }
        }
    }
}

async fn query_nodes<'a>(
    ctx: &Context,
    running: &[&'a Running],
) -> HashMap<(&'a str, &'a str), NodeHooks> {
    let nodes: BTreeSet<(&str, &str)> = running
        .iter()
        .map(|one| (&*one.cluster, &*one.node_id))
        .collect();
    let until = Instant::now() + REQUEST_TIMEOUT;
    // Boxed here: as a closure of the stream they would have to be valid for every lifetime.
    let queries = nodes.into_iter().map(|(cluster, node_id)| {
        async move {
            let hooked = ctx.peers.agents.hooked(cluster, node_id, AGENT_TIMEOUT);
            let of_node = match timeout_at(until, hooked).await {
                Ok(hooked) => hooked.map_err(|why| why.to_string()),
                Err(_) => Err("there was no time left to ask the agent of its node".to_owned()),
            };
            ((cluster, node_id), of_node)
        }
        .boxed()
    });
    let queries: Vec<_> = queries.collect();
    stream::iter(queries)
        .buffer_unordered(MAX_CONCURRENT_QUERIES)
        .collect()
        .await
}
