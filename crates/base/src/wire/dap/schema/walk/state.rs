//! Where a walk is.

use crate::wire::dap::inside::Inside;

#[derive(Debug, Clone, Copy)]
pub(super) enum WalkState {
    /// Before the `{` of the message.
    Open,
    /// Before a field or the end of an object.
    Member,
    /// Before the first object or the end of a list.
    FirstItem,
    /// Behind an object in a list.
    AfterItem,
    /// In a string; whether it is overwritten.
    Text(bool),
    /// In a list or an object that is not examined; whether it is overwritten.
    Nested(Inside, bool),
    /// In a text for a console.
    Console,
    /// Behind the message.
    Over,
}
