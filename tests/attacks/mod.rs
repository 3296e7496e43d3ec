//! Attacks by clients with few or no credentials, and by heads, on a relay in a separate process: its memory, and the clients that
//! they could lock out. Each attack is bounded in connections and time, and uses hundreds of connections.

mod head;
mod relay;
mod shipped;

mod agents;
mod credentials;
mod crowds;
mod debuggers;
mod lists;
mod memory;
