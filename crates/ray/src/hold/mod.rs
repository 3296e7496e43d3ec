//! Who has which worker: the one place in which that is decided.
//!
//! Of each worker there is one [`Hold`]: a value that knows what is said of the worker by the three who may have it, and
//! decides which of them has it. It does no input or output, reads no clock and takes no lock; the registry has one in each
//! of its entries. Lists, refusals, sessions, metrics and what other relays are told are views of it.
//!
//! ```text
//!                     take                        show
//!          ┌───────────────────────►┌───────────────────────────┐
//!          │                        │ own: a session of this    │◄┐ parked, resumed
//!          │    ┌───────────────────┤ relay, live or parked     ├─┘
//!          │    │ give back,        └──▲──────────────────────┬─┘
//!          │    │ as it was            │ take over            │ give back, another
//!       ┌──┴────▼──┐                   │ (what is parked)     │ holder says it has it
//!       │   free   │                   │                      │
//!       └──┬────▲──┘                ┌──┴──────────────────────▼─┐
//!          │    │                   │ remote: an agent reports  │◄┐ parked, resumed
//!          │    └── a next stop     │ a session of another relay├─┘
//!          │                        └─▲──────────────────┬──────┘
//!          └──────────────────────────┘                  │ says so no longer, or says another session
//!             hear                                       ▼
//!                                                      over: the task may run on
//! ```
//!
//! What others say is kept in [`RemoteHolds`] by who says it, so that a word about a worker that is not listed yet is not
//! lost, and a link that breaks takes back its own words and no others. An agent decides among relays by its
//! [`NodeHolds`]. The registry's tests drive the
//! three together, with loss, delay and crashes (`ray/registry/state/simulation`).

mod merge;
mod node;
mod places;
mod remote;
mod row;

pub use merge::{Hold, MergeStep};
pub use node::{HoldId, NodeHolds};
pub use places::{EACH, FAMILY};
pub use places::{NoPlace, PlacesOfOne};
pub use remote::{KEPT, RemoteHold, RemoteHolds, Touched};
pub use row::{Holder, RayNode};
pub use row::{LOOK_CLIENT, Worker};
