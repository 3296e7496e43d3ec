//! `GET /relay/v1/whoami`: the caller's name and its permissions somewhere, or with `?breakpoint=ID` on that
//! breakpoint. Also its permissions on the relay itself.

use hyper::http::request::Parts;
use hyper::{Response, StatusCode};
use serde_json::json;

use super::answer::{self, Body};
use super::exchange::Exchange;
use super::query;
use ray_relay_access::identity::Principal;
use ray_relay_access::policy::{RelayScope, Scope, Scopes};
use ray_relay_base::timestamp::Timestamp;
use ray_relay_ray::ray::registry::BreakpointId;
use ray_relay_session::context::Context;
use ray_relay_session::session::may_list;

/// Answers `principal` with its own details.
pub(super) async fn answer(
    exchange: &Exchange<'_>,
    parts: &Parts,
    principal: &Principal,
) -> Response<Body> {
    let parameters = match query::pairs(parts.uri.query()) {
        Ok(pairs) => pairs,
        Err(sentence) => return answer::error(StatusCode::BAD_REQUEST, sentence),
    };
    let scopes = match parameters.as_slice() {
        [] => somewhere(principal),
        [(key, id)] if key == "breakpoint" => on(exchange.ctx, principal, id),
        _ => {
            let sentence = "the only parameter of /relay/v1/whoami is breakpoint=ID, which asks for the permissions on that one";
            return answer::error(StatusCode::BAD_REQUEST, sentence);
        }
    };
    let words: Vec<&str> = scopes.iter().map(Scope::word).collect();
    let on_relay: Vec<&str> = [RelayScope::Admin]
        .into_iter()
        .filter(|scope| principal.access().may_on_relay(*scope))
        .map(RelayScope::word)
        .collect();
    let body = json!({
        "subject": principal.known_subject(),
        "expires": principal.expires().map(Timestamp::announced),
        "scopes": words,
        "relay_scopes": on_relay,
    });
    answer::json(StatusCode::OK, &body)
}

fn somewhere(principal: &Principal) -> Scopes {
    let access = principal.access();
    let has = Scope::ALL
        .into_iter()
        .filter(|scope| access.may_anywhere(*scope));
    has.fold(Scopes::NONE, Scopes::with)
}

/// Permissions on the breakpoint `id`. Empty if it is unknown, or `principal` may not know of it.
fn on(ctx: &Context, principal: &Principal, id: &str) -> Scopes {
    let id: Option<BreakpointId> = id.parse().ok();
    let snapshot = ctx.registry.snapshot();
    let breakpoint = id.and_then(|id| snapshot.find(id));
    match breakpoint.filter(|breakpoint| may_list(principal, breakpoint)) {
        Some(breakpoint) => principal.access().rights(breakpoint).scopes,
        None => Scopes::NONE,
    }
}
