//! The Debug Adapter Protocol alone: frames, messages, and partial parsing.

pub mod codec;
pub mod conversation;
mod inside;
pub mod mappings;
pub mod message;
pub mod names;
pub mod peek;
pub mod post_mortem;
pub mod reattach;
pub mod scanner;
pub mod schema;
pub mod splice;
pub mod stack;
pub mod stopped_threads;
pub mod stored_messages;
