//! What every session is, whatever protocol it speaks: who may have one, why a client gets none, its permit without which
//! no worker is reached, its limits, its record, and the table of the live ones.
//!
//! `live` is the session itself while it lasts: one place for what it holds and for each cause of its end, whatever the
//! protocol.
//!
//! [`authorise()`] is the source of the [`Authorized`] without which there is no [`Permit`]; what is left by another process
//! is kept without it, and who goes on with that is authorised as anew.

pub mod audit;
pub mod authenticate;
mod authorise;
mod collective;
pub mod family;
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

pub use authorise::{Authorized, Denied, authorise, authorise_end};
pub use family::{ChildEnding, Families, FromFamily, GroupMember, GroupRoot, Initiator};
pub use parks::Parks;
pub use permit::{Attached, Permit};
pub use table::{Session, SessionRow, SessionTable};
pub use visible::{may, may_list, newer, sees, visible, within};
pub use worker_end::WorkerEnd;
