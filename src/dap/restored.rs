//! Sessions of a relay that was killed: each is parked here, as if its client had been lost at this moment.

use serde_json::{Map, Value};
use tracing::{Instrument as _, info};

use super::park::Spliced;
use crate::connection::summary::Summary;
use crate::context::Context;
use crate::moment::Moment;
use crate::recording::Protocol;
use crate::session::Session;
use crate::session::live::Begun;
use crate::telemetry::metrics::{Outcome, SessionProtocol};
use crate::upstream::park::{self, Asked, Memory, Park};
use crate::upstream::restored::{Claimed, LostSession};
use crate::wire::dap::splice::Splice;

/// Keeps `claimed` until whoever had it comes again, or to its end.
pub(crate) async fn run(context: &Context, claimed: Claimed) {
    let _busy = context.shutdown.busy.token();
    let session = context.sessions.open(&Summary::new(claimed.session.peer));
    session.set_principal(claimed.permit.principal().clone());
    session.set_client(claimed.session.client.clone());
    let span = claimed.permit.span();
    let kept = Box::pin(keep(context, &session, claimed)).instrument(span);
    let outcome = kept.await;
    session.ended(outcome);
}

async fn keep(context: &Context, session: &Session, claimed: Claimed) -> Outcome {
    let Some((claimed, from_worker, kept)) = Box::pin(claimed.synced()).await else {
        return Outcome::Upstream;
    };
    let Claimed {
        permit,
        worker,
        session: lost,
    } = claimed;
    let LostSession {
        number,
        client,
        keep,
        left,
        began,
        ..
    } = lost;
    let mut details = Map::new();
    details.insert("resumes".into(), number.into());
    details.insert("restored".into(), Value::Bool(true));
    let begun = Begun::begin(
        context.services(),
        session,
        permit,
        Protocol::Dap,
        &client,
        details,
    );
    let begun = match Box::pin(begun).await {
        Ok(begun) => begun,
        Err(why) => {
            info!(%why, "a session of the process before cannot go on");
            return Outcome::Refused;
        }
    };
    let mut live = begun.attached_since(began);
    if kept.runs() {
        live.task.resumed();
    }
    let keeps = Moment::now().until(left.until);
    let Some(place) = park::place(context, &live, keeps, None).await else {
        let (worker_hold, closing) = live.part();
        drop(worker);
        worker_hold.end(park::GIVEN_BACK).await;
        closing.end(Outcome::Limit).await;
        return Outcome::Limit;
    };
    let account = context.account(live.worker.principal());
    let most = context.config.dap.max_frame;
    let splice = Splice::keeping(account, worker, from_worker, most);
    let spliced = Spliced {
        splice,
        memory: Memory::of(&keep),
        kept,
        asked: Asked::default(),
    };
    let relay = (context, session);
    let park = Park::begin(relay, SessionProtocol::Dap, live, place, left, spliced);
    park.wait().await
}
