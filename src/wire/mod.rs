//! What goes over a connection, and knows nobody: protocols alone, without the relay's part in them.

pub mod dap;
