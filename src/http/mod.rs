//! wip
pub mod spelling;
pub mod advertise;
mod rewrite;
mod hop;
mod answer;
