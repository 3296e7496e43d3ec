//! Tests of the whole registry. Unit tests are next to their code.

mod claims;
mod current;
mod dead;
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
