//! Folds the answers or stacks of many tasks into one: equal ones are merged with their members, and odd members are
//! named.
//!
//! Pure. [`who`] identifies a member: its group among the tasks that run the same, and its rank or a substitute.
//!
//! - Stacks: a [`Member`](member::Member) is one of the processes that were [`inspected`]. [`tree`] merges all stacks into one tree with
//!   members at its nodes, [`locations`] describes where each member is, and [`text`] formats both.
//! - Answers to one command: [`answers`] merges them, with odd ones and statistics, and [`answer_text`] formats them for
//!   people and scripts.
//! - Values, of paused and of running tasks: [`variable`] compares one with what is inside of it. What is equal in all
//!   three is decided by [`number`], [`noise`] and checksums of the tasks.
//!   Of running tasks, [`varying`] leaves out what has another value each time one looks.
//! - Frames of paused tasks: [`differences`] compares their locations and variables by name, and [`compared`] does so
//!   for all groups.
//! - Who holds a job up: [`verdict`] follows who waits for whom, and names the process or task at the end.

pub mod answer_text;
pub mod answers;
pub mod compared;
pub mod differences;
pub mod idle;
pub mod inspected;
mod known;
mod location;
pub mod locations;
pub mod member;
mod noise;
mod number;
pub mod ranks;
pub mod text;
mod tree;
mod variable;
mod varying;
pub mod verdict;
pub mod waits;
pub mod who;
