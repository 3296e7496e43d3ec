//! What many are asked or seen to be, as one: what is the same is there once with who it is of, and who is odd is named.
//!
//! Pure. [`who`] has who a member is: its group among those that run the same, and its rank or what stands for it.
//!
//! - Of stacks: a [`Member`](member::Member) is one process that was looked at. [`tree`] has the stacks of all as one tree with
//!   members at its nodes, [`places`] where each is, in words, and [`text`] what people see of both.
//! - Of answers to one command: [`answers`] has them once each, with the odd ones and the figures of numbers, and [`told`] what people
//!   and scripts see of them.
//! - Of frames of paused tasks: [`differences`] compares their places and variables by name, and [`compared`] does so for all groups.

pub mod answers;
pub mod compared;
pub mod differences;
pub mod idle;
mod known;
pub mod member;
mod place;
pub mod places;
pub mod ranks;
pub mod text;
pub mod told;
mod tree;
pub mod waits;
pub mod who;
