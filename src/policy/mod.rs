//! What a principal may do, and with which breakpoints.
//!
//! Pure. A [`Rule`] grants [`Scopes`] on what its [`Narrowing`] fits; [`Access`] is all the rules that hold for one
//! principal; [`authorise`] is the only source of the [`Authorized`] without which there is no
//! [`crate::session::Permit`]. Deny is the default: no rule, no access.

mod access;
mod file;
mod narrowing;
mod scope;
mod visible;

pub use access::{Access, Authorized, Denied, Handling, Rights, Rule, authorise, authorise_end};
pub use file::{Policy, PolicyFile};
pub use narrowing::{Narrowing, Pattern};
pub use scope::{BadScope, Scope, Scopes};
pub use visible::{may_list, sees, visible, within};
