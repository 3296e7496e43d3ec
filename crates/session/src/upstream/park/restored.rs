//! Restores sessions of an earlier relay process: parks each, as if its client had been lost at this moment.

use std::time::Duration;

use serde_json::{Map, Value};
use tokio::time::timeout;
use tracing::{Instrument as _, info};

use super::{Park, RETURN_TIMEOUT, ResumableDebugger, ResumeState, has_task_of, slot};
use crate::context::Context;
use crate::session::Session;
use crate::session::live::{Begun, RecordedClient};
use crate::upstream::restored::{Claimed, LostSession};
use ray_relay_access::connection::summary::Summary;
use ray_relay_access::recording::Protocol;
use ray_relay_access::telemetry::metrics::{Outcome, SessionProtocol};
use ray_relay_base::timestamp::Timestamp;
use ray_relay_ray::ray::registry::{Kind, Snapshot};

/// Deadline for the parent task of a subprocess to be restored as well.
const TASK_RESTORE_TIMEOUT: Duration = Duration::from_secs(15);

/// Parks `claimed` until its owner returns, or to its end.
pub async fn run(context: &Context, claimed: Claimed) {
    let _busy = context.shutdown.busy.token();
    let session = context
        .sessions
        .table
        .open(&Summary::new(claimed.session.peer));
    session.set_principal(claimed.permit.principal().clone());
    session.set_client(claimed.session.view.client.clone());
    let span = claimed.permit.span();
    let park = Box::pin(keep(context, &session, claimed)).instrument(span);
    let outcome = park.await;
    session.ended(outcome);
}

async fn keep(context: &Context, session: &Session, claimed: Claimed) -> Outcome {
    let Claimed {
        permit,
        debugger,
        session: lost,
    } = claimed;
    let most = context.config.dap.max_frame;
    let account = context.account(permit.principal());
    let id = permit.breakpoint().id;
    let Some(mut debugger) = Box::pin(debugger.synced(id, account, most)).await else {
        return Outcome::Upstream;
    };
    let LostSession {
        number,
        keep,
        view,
        began,
        ..
    } = lost;
    let mut details = Map::new();
    details.insert("resumes".into(), number.into());
    details.insert("restored".into(), Value::Bool(true));
    let (recorded_as, protocol) = match permit.breakpoint().kind {
        Kind::Debugpy => (Protocol::Dap, SessionProtocol::Dap),
        Kind::Pdb => (Protocol::Terminal, SessionProtocol::Terminal),
    };
    let lease = permit.lease();
    let drain = &context.shutdown.drain;
    let client = RecordedClient {
        protocol: recorded_as,
        name: &view.client,
    };
    let begun = Begun::begin_waiting(
        context.services(),
        session,
        permit,
        client,
        details,
        Some(drain),
    );
    let begun = match Box::pin(begun).await {
        Ok(begun) => begun,
        Err(_) if drain.is_cancelled() => {
            // If it is not kept beyond this process, it resumes.
            if debugger.abandon()
                && let Some(lease) = lease
            {
                lease.leave();
            }
            return Outcome::Drained;
        }
        Err(why) => {
            info!(%why, "a session of the previous process cannot go on");
            return Outcome::Refused;
        }
    };
    // The lease would keep the claim alive beyond this session.
    drop(lease);
    let mut live = begun.attached_since(began);
    if debugger.runs() {
        live.task.resumed();
    }
    // Task and subprocess are restored concurrently.
    let mut lists = context.registry.watch();
    let is_held = |list: &Snapshot| list.find(id).is_some_and(|task| task.holder().is_some());
    let is_there = lists.wait_for(|list| is_held(list) || has_task_of(context, &live));
    let _ = timeout(TASK_RESTORE_TIMEOUT, is_there).await;
    let keeps = Timestamp::now().until(view.until);
    let Some(slot) = slot(context, &live, keeps, None).await else {
        let (worker, closing) = live.part();
        drop(debugger);
        worker.end(RETURN_TIMEOUT).await;
        closing.end(Outcome::Limit).await;
        return Outcome::Limit;
    };
    let waits = ResumableDebugger {
        debugger,
        memory: ResumeState::of(&keep),
    };
    Park::begin(context, session, protocol, live, slot, view, waits)
        .apart()
        .wait()
        .await
}
