//! `GET /relay/v1/doctor`: the relay's own findings about the chain behind it, for administrators.
//!
//! The same sentences that `ray-relay doctor` derives from the lists, and those that need more requests to the heads.

use std::time::Duration;

use hyper::http::request::Parts;
use hyper::{Response, StatusCode};
use serde_json::json;
use tokio::time::timeout;

use super::answer::{self, Body};
use super::exchange::Exchange;
use super::nodes;
use ray_relay_access::identity::Principal;
use ray_relay_access::policy::Scope;
use ray_relay_base::timestamp::Timestamp;
use ray_relay_base::wire::json::{list_mut, typed_at};
use ray_relay_ray::ray::registry::Examined;
use ray_relay_session::context::Context;
use ray_relay_session::session::within;
use ray_relay_view::doctor::{ChainLink, Fault, Finding, head, lists};
use ray_relay_view::listing::json as rows;

/// Time limit of one examination, including earlier ones in the queue.
const EXAMINATION_TIMEOUT: Duration = Duration::from_secs(20);

/// The findings, in the order of the chain. Those about breakpoints and nodes cover what `principal` may list.
pub(super) async fn findings(
    exchange: &Exchange<'_>,
    _: &Parts,
    principal: &Principal,
) -> Response<Body> {
    let ctx = exchange.ctx;
    let draining = exchange.connection.closing.is_cancelled();
    let examined = timeout(EXAMINATION_TIMEOUT, ctx.registry.examined());
    let (heads, nodes) = tokio::join!(examined, nodes::listed(ctx, principal));
    let Ok(heads) = heads else {
        let sentence = "the heads are being examined for another request; ask again in a minute";
        return answer::error(StatusCode::SERVICE_UNAVAILABLE, sentence);
    };
    let mut all = vec![of_relay(ctx, draining)];
    all.extend(heads.iter().flat_map(head::findings));
    all.extend(without_head(ctx, &heads));
    let snapshot = within(principal, Scope::List, &ctx.registry.snapshot());
    let mut list = rows::list(&snapshot);
    if let Some(breakpoints) = list_mut(&mut list, "breakpoints") {
        let now = Timestamp::now();
        let ended = snapshot.ended.iter();
        breakpoints.extend(ended.map(|b| json!(rows::JsonRow::new(b, now))));
    }
    all.extend(lists::findings(&list, Some(&nodes)));
    answer::json(StatusCode::OK, &json!({ "findings": all }))
}

/// Findings from the list about clusters without a known head.
fn without_head(ctx: &Context, heads: &[Examined]) -> Vec<Finding> {
    let mut list = rows::list(&ctx.registry.snapshot());
    if let Some(clusters) = list_mut(&mut list, "clusters") {
        clusters.retain(|cluster| {
            heads
                .iter()
                .all(|head| typed_at::<&str>(cluster, "name") != &*head.cluster)
        });
    }
    lists::heads(&list)
}

/// The finding about the relay itself.
fn of_relay(ctx: &Context, draining: bool) -> Finding {
    match (ctx.audit.failing(), draining) {
        (Some(why), _) => {
            let says = format!(
                "the relay cannot write its audit log, and allows nothing that has to be in it: {why}"
            );
            Finding::error(ChainLink::Relay, Fault::Misconfigured, says)
                .next("make room, or make the file writable (`[audit]`)")
        }
        (None, true) => Finding::warning(ChainLink::Relay, "the relay is being shut down")
            .next("ask again when it is back"),
        (None, false) => Finding::ok(ChainLink::Relay, "the relay serves"),
    }
}
