//! The shared parts of all rows: contestants, their processes, clients, rounds and the table.

pub(crate) mod agent;
pub(crate) mod background;
pub(crate) mod client;
pub(crate) mod contest;
pub(crate) mod credentials;
pub(crate) mod haproxy;
pub(crate) mod http;
pub(crate) mod process;
pub(crate) mod relay;
pub(crate) mod report;
pub(crate) mod scene;
pub(crate) mod ssh;
pub(crate) mod table;
pub(crate) mod yard;
