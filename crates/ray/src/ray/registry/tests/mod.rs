//! Tests of the registry as a whole; those of one pure part lie beside it.

mod claims;
mod current;
mod examined;
mod fake_head;
mod found;
mod gcs_tls;
mod held;
mod jobs;
mod legacy;
mod lookups;
mod lost_nodes;
mod polling;
mod recorded;
mod running;
