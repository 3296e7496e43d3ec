//! `POST /relay/v1/compare`: `{"ids": ["3kfz0q8m", "7k2m9qxd"]}` looks at tasks that wait, which stay as they are, and answers with
//! what differs between them, as `ray-relay diff --json` has it; `"locals": false` and `"limit": 1000` as for a snapshot.
//!
//! Each look is one of [`super::snapshot`], by the permission `view`: on record, masked, and with a session of its own. A task that
//! cannot be looked at has an `error`, and the others are compared. What its caller may not see is among the `unknown`, as is what does
//! not exist.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::stream::{self, StreamExt as _};
use hyper::Response;
use serde::Deserialize;
use serde_json::json;
use tokio::time::{Instant, timeout_at};

use super::answer::{self, Body};
use super::exchange::Post;
use super::refusal::HttpRefusal;
use super::running::held;
use super::snapshot::{self, LONGEST_VALUE, NoSnapshot};
use super::{audit, body};
use crate::group::members::MeantTasks;
use crate::listing::fold::compared::Compared;
use crate::listing::fold::differences::{NO_THREAD, Stands};
use crate::listing::json::JsonRow;
use crate::pdb::SnapshotLimits;
use crate::policy::Scope;
use crate::ray::registry::BreakpointId;
use crate::session::visible;
use crate::timestamp::Timestamp;

/// Largest body of a request, in bytes.
const LARGEST: usize = 16 * 1024;
/// Tasks of one request, and of these so many at a time.
const MOST: usize = 256;
const AT_ONCE: usize = 4;
/// How long all looks of a request may take.
const ALL: Duration = Duration::from_secs(50);
/// What is wrong with a body.
const WANTED: &str = "the body has to be {\"ids\": [\"ID\"]}, with 1 to 256 ids as in /relay/v1/breakpoints, and maybe \"locals\": false and \"limit\": 1000, up to 100000";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CompareRequest {
    ids: Vec<String>,
    /// Whether values of variables are compared, which are made by the program's own code.
    #[serde(default = "body::yes")]
    locals: bool,
    /// Longest value, in characters.
    limit: Option<usize>,
}

impl CompareRequest {
    fn is_bounded(&self) -> bool {
        let limit = self.limit.unwrap_or(1);
        (1..=MOST).contains(&self.ids.len()) && (1..=LONGEST_VALUE).contains(&limit)
    }
}

/// Compares those that the body names.
pub(super) async fn answer(post: Post<'_>) -> Result<Response<Body>, HttpRefusal> {
    let (exchange, principal) = (post.exchange, post.principal);
    let ctx = exchange.ctx;
    let wanted: Option<CompareRequest> = body::json(post.body, LARGEST).await;
    let wanted = wanted.filter(CompareRequest::is_bounded);
    let wanted = wanted.ok_or(HttpRefusal::Malformed(WANTED.into()))?;
    let share = ctx.snapshots.take(principal).map_err(HttpRefusal::Busy)?;
    let share = Arc::new(share);
    let usual = SnapshotLimits::default();
    let limits = SnapshotLimits {
        value: wanted.limit.unwrap_or(usual.value),
        locals: wanted.locals,
        account: ctx.account(principal),
        ..usual
    };
    let seen = visible(principal, &ctx.registry.snapshot());
    let (mut rows, mut unknown) = (Vec::new(), Vec::new());
    for id in wanted.ids.iter().collect::<BTreeSet<_>>() {
        let known: Option<BreakpointId> = id.parse().ok();
        match known.and_then(|id| seen.find(id)) {
            Some(one) => rows.push(json!(JsonRow::new(one, Timestamp::now()))),
            None => {
                audit::deny_on(exchange, principal, Scope::View, known).await;
                unknown.push(id.clone());
            }
        }
    }
    let members = MeantTasks::numbered(rows, None);
    let until = Instant::now() + ALL;
    let looks = members.ids().into_iter().enumerate().map(|(at, id)| {
        let look = snapshot::look(exchange, principal, id, limits.clone(), Arc::clone(&share));
        let look = timeout_at(until, look);
        async move { (at, look.await) }.boxed()
    });
    let looks: Vec<_> = looks.collect();
    let mut looks = stream::iter(looks).buffer_unordered(AT_ONCE);
    let (mut stands, mut errors, mut memory) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
    while let Some((at, look)) = looks.next().await {
        match look {
            Ok(Ok((threads, taken))) => match Stands::read(&threads) {
                Some(one) => {
                    stands.insert(at, one);
                    memory.push(taken);
                }
                None => drop(errors.insert(at, NO_THREAD.to_owned())),
            },
            Ok(Err(why)) => drop(errors.insert(at, why.to_string())),
            Err(_) => drop(errors.insert(at, "there was no time left for it".to_owned())),
        }
    }
    drop(looks);
    // A person who may not look any more sees nothing of what was looked at before.
    if let Some(ended) = principal.is_over() {
        return Err(HttpRefusal::Ended(ended));
    }
    // As long as the values are, so long it takes to compare them.
    let compared = tokio::task::spawn_blocking(move || {
        // What it is made of is held as long as it is made.
        let _held = memory;
        members.compared(&Compared::new(members.names(), &stands), &errors)
    });
    Ok(match compared.await {
        Ok(mut told) => {
            told["unknown"] = unknown.into();
            held(exchange, principal, &told)
        }
        Err(_) => answer::error(NoSnapshot::Ending.status(), NoSnapshot::Ending),
    })
}
