//! Protocols alone, without the relay's part in them, and helpers that every speaker of them needs. Nothing here knows
//! users.

pub mod backoff;
pub mod counted;
pub mod dap;
pub mod debugger;
pub mod descriptors;
pub mod gzip;
pub mod human_time;
pub mod json;
pub mod link;
pub mod notebook;
pub mod own_socket;
pub mod passed_descriptors;
pub mod peer_stream;
pub mod prefixed;
pub mod proc_net;
pub mod relay_url;
pub mod resumed;
pub mod stop_frames;
pub mod tcp;
pub mod text;
mod through;
pub mod tunnel;
pub mod turn;
pub mod watched_file;
pub mod zip;

pub use through::{read_through, write_through};
