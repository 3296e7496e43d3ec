//! HTTP on the relay's port: its own page and API below `/relay/`, the Ray dashboard everywhere else.
//!
//! Called by the listener with each connection that speaks HTTP/1.1 or HTTP/2 (prior knowledge).
//! A request meets, in this order: [`guard`] (is it for this relay, on whose [`origin`], and not from another web
//! page?), `route` (where does it go?), `authenticate` (who is it, by which `credential`?), its row in `routes` or
//! `required_access` (is it allowed?), `audit`, and then its handler, or `dashboard`, which leaves out rows (`filter`), rewrites (`rewrite`, [`ray_relay_view::advertise`])
//! or becomes a WebSocket (`websocket`). Browsers come to a dashboard by its `entrance`. The files of `page` take no credential.
//!
//! Invariants: nothing of a request reaches a head before it is allowed, but for the dashboard's empty page; no client's
//! credential goes upstream and none of Ray's comes back; no address of a debugger leaves; nothing but the answers that are
//! rewritten is ever held as a whole; what streams ends with its principal.

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
mod running;
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
