//! Common to all sessions, in any protocol: authorisation, refusals, the permit without which no worker is reached,
//! limits, audit, and the table of live sessions.
//!
//! `live` is the running session: one place for its state and for each cause of its end.
//!
//! [`authorise()`] makes the [`Authorized`] without which there is no [`Permit`]. A park of an earlier process is kept
//! without it, and its user is authorised again on resuming.

mod armed_summary;
pub mod audit;
pub mod authenticate;
mod authorise;
mod collective;
pub mod family;
mod jobs;
pub mod leaving;
pub mod limits;
pub mod live;
pub mod liveness;
pub mod parks;
pub mod permit;
pub mod refusal;
pub mod shares;
pub mod state;
pub mod table;
mod visible;
pub mod worker_end;

pub use armed_summary::ArmedSummary;
pub use authorise::{Authorized, Denied, authorise, authorise_end};
pub use family::{ChildEnding, Families, FromFamily, GroupMember, GroupRoot, Initiator};
pub use jobs::{NoJob, find_jobs};
pub use parks::Parks;
pub use permit::{Attached, Permit};
pub use table::{Ends, Session, SessionRow, SessionTable};
pub use visible::{may, may_list, newer, sees, visible, within};
pub use worker_end::WorkerEnd;
