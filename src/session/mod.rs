//! Live sessions, and the permit without which no worker is reached.

pub mod family;
pub mod permit;
pub(crate) mod shares;
pub mod table;
pub mod task_end;

pub use family::{Families, Founder, Member, Parent};
pub use permit::Permit;
pub use table::{Session, SessionRow, SessionTable};
pub use task_end::TaskEnd;
