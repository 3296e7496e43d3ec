//! Many looks as one: whose stacks are the same, and who is elsewhere than the others.
//!
//! Pure. A [`Member`](member::Member) is one process, called by its rank among those that run the same, or by its name where it has none.
//! [`tree`] has the stacks of all as one tree with members at its nodes, [`places`] where each is, in words, and [`text`]
//! what people see of both.

mod known;
pub(crate) mod member;
mod place;
pub(crate) mod places;
mod ranks;
pub(crate) mod text;
mod tree;
