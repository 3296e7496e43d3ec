//! What goes over a connection, and knows no person: protocols alone without the relay's part in them, and what everybody
//! needs to speak them.

pub(crate) mod backoff;
pub mod counted;
pub mod dap;
pub mod debugger;
pub(crate) mod descriptors;
pub(crate) mod gzip;
pub(crate) mod human_time;
pub(crate) mod json;
pub(crate) mod link;
pub(crate) mod notebook;
pub(crate) mod own_socket;
pub(crate) mod passed_descriptors;
pub mod peer_stream;
pub mod prefixed;
pub(crate) mod proc_net;
pub mod relay_url;
pub mod resumed;
pub mod tcp;
pub(crate) mod text;
mod through;
pub mod tunnel;
pub(crate) mod turn;
pub(crate) mod watched_file;
pub(crate) mod zip;

pub(crate) use through::{read_through, write_through};
