//! The holders of workers: the single place that decides about them.
//!
//! There is one [`Hold`] for each worker: a value with the reports of the three possible holders, which decides among
//! them. It does no input or output, reads no clock and takes no lock; the registry has one in each of its entries.
//! Lists, refusals, sessions, metrics and messages to other relays are views of it.
//!
//! ```text
//!                     take                        show
//!          ┌───────────────────────►┌───────────────────────────┐
//!          │                        │ own: a session of this    │◄┐ parked, resumed
//!          │    ┌───────────────────┤ relay, live or parked     ├─┘
//!          │    │ release,          └──▲──────────────────────┬─┘
//!          │    │ as it was            │ take over            │ release, another
//!       ┌──┴────▼──┐                   │ (what is parked)     │ holder says it has it
//!       │   free   │                   │                      │
//!       └──┬────▲──┘                ┌──┴──────────────────────▼─┐
//!          │    │                   │ remote: an agent reports  │◄┐ parked, resumed
//!          │    └── a next stop     │ a session of another relay├─┘
//!          │                        └─▲──────────────────┬──────┘
//!          └──────────────────────────┘                  │ says so no longer, or says another session
//!       set_remote                                       ▼
//!                                                      over: the task may run on
//! ```
//!
//! [`RemoteHolds`] stores the remote reports by their sender. So a report about a worker that is not listed yet is not
//! lost, and a broken link withdraws its own reports and no others. An agent decides among relays with its
//! [`NodeHolds`]. The registry's tests run the three together, with loss, delay and crashes
//! (`ray/registry/state/simulation`).

mod merge;
mod node;
mod remote;
mod row;
mod slots;

pub use merge::{Hold, MergeStep};
pub use node::{HoldId, NodeHolds};
pub use remote::{REPORT_VALIDITY, RemoteHold, RemoteHolds, Touched};
pub use row::{Holder, RayNode};
pub use row::{LOOK_CLIENT, Worker};
pub use slots::{NoSlot, UserSlots};
pub use slots::{SESSIONS_PER_SLOT, SLOTS_PER_USER};
