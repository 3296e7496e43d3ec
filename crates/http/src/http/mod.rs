//! HTTP on the relay's port: its own page and API below `/relay/`, the Ray dashboard everywhere else.
//!
//! The listener calls it with each connection that speaks HTTP/1.1 or HTTP/2 (prior knowledge). A request passes, in
//! this order:
//! - [`guard`]: is it for this relay, on whose [`origin`], and not from another web page?
//! - `route`: where does it go?
//! - `authenticate`: which principal sent it, by which `credential`?
//! - its row in `routes` or `required_access`: is it allowed?
//! - `audit`
//! - its handler, or `dashboard`, which removes rows (`filter`), rewrites (`rewrite`, [`ray_relay_view::advertise`]) or
//!   becomes a WebSocket (`websocket`).
//!
//! Browsers reach a dashboard through its `entrance`. The files of `page` need no credential.
//!
//! Invariants: no request reaches a head before it is allowed, except for the dashboard's empty page. No client's
//! credential goes upstream, and none of Ray's comes back. No address of a debugger leaves. Only answers that are
//! rewritten are buffered as a whole. A stream ends with its principal.

mod answer;
pub mod api;
mod audit;
mod authenticate;
mod body;
mod compare;
mod connect;
mod connection;
mod credential;
mod dashboard;
mod doctor;
mod entrance;
mod events;
mod exchange;
mod filter;
pub mod group;
mod guard;
mod hop;
mod in_progress;
mod jobs;
mod moving;
mod nodes;
pub mod origin;
mod own_connection;
pub mod page;
mod park;
mod query;
mod refusal;
mod release;
mod required_access;
mod reverse;
mod revocations;
pub mod rewrite;
mod route;
mod routes;
pub mod running;
mod sessions;
mod snapshot;
mod terminal;
mod tunnel;
mod websocket;
mod whoami;

pub use connection::IDLE_WEIGHT;
pub use connection::serve_connection;

/// The rows of `docs/reference.md` with the routes, in their order.
#[cfg(any(test, feature = "testing"))]
pub fn described() -> impl Iterator<Item = [String; 4]> {
    routes::ROUTES.iter().filter_map(routes::Route::described)
}

#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
pub mod tests;
