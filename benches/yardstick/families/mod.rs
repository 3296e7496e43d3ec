//! The rows of the table, a file for each family of them.

mod agents;
mod attach;
mod beside;
mod bulk;
mod dashboard;
mod events;
mod idle;
mod leave;
mod many;
mod trips;
mod tunnel;

use crate::harness::contest::Contest;
use crate::harness::scene::Access;

/// The families that can be run alone.
pub(crate) const NAMES: [&str; 12] = [
    "trips",
    "bulk",
    "beside",
    "attach",
    "view",
    "idle",
    "dashboard",
    "many",
    "events",
    "leave",
    "tunnel",
    "agents",
];

/// Everything that is asked for, in the order of the table.
pub(crate) async fn run(contest: &mut Contest<'_>) {
    use Access::{Audited, Everybody, ViewMasked};
    for pinned in [false, true] {
        let trips = trips::Trips::new(pinned, Everybody);
        contest.hold("trips", trips).await;
    }
    for pinned in [false, true] {
        let bulk = bulk::Bulk::new(pinned, Everybody);
        contest.hold("bulk", bulk).await;
    }
    for pinned in [false, true] {
        let both_ways = false;
        let beside = beside::Beside { pinned, both_ways };
        contest.hold("beside", beside).await;
    }
    let (pinned, both_ways) = (true, true);
    let beside = beside::Beside { pinned, both_ways };
    contest.hold("beside", beside).await;
    for among in [None, Some(2048)] {
        for access in [Everybody, Audited] {
            let attach = attach::Attach { access, among };
            contest.hold("attach", attach).await;
        }
    }
    let trips = trips::Trips::new(false, ViewMasked);
    contest.hold("view", trips).await;
    contest
        .hold("view", bulk::Bulk::new(false, ViewMasked))
        .await;
    for sessions in idle::sizes(contest.yard) {
        for tls in [false, true] {
            contest.hold("idle", idle::Idle { sessions, tls }).await;
        }
    }
    contest.hold("dashboard", dashboard::Dashboard).await;
    contest.hold("many", many::Many).await;
    contest.hold("events", events::Events).await;
    contest.hold("leave", leave::Leave).await;
    for tls in [false, true] {
        contest.hold("tunnel", tunnel::Tunnel { tls }).await;
    }
    contest.hold("agents", agents::Agents).await;
}
