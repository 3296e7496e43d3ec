//! Authorization: the rights of a principal, on which breakpoints.
//!
//! Pure: only rules, which know no principal. A [`Rule`] grants [`Scopes`] on whatever its [`BreakpointSelector`]
//! matches. [`Access`] holds all rules of one principal. Deny is the default: no rule, no access.

mod access;
mod breakpoint_selector;
mod file;
mod grants;
mod scope;

pub use access::{Access, NodeVoice, Rights, Rule, SessionObligations};
pub use breakpoint_selector::{BreakpointSelector, Pattern};
pub use file::{Policy, PolicyFile};
pub use grants::Granted;
pub use grants::Grants;
pub use scope::{BadScope, RelayScope, Scope, Scopes};
