//! Tests of the registry as a whole; those of one pure part lie beside it.

mod fake_head;
mod polling;
mod recorded;
