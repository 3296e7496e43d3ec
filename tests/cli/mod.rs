//! The binary: help, errors, exit codes, and its commands against a small relay.

mod asking;
mod audit;
mod completing;
mod configuration;
mod editors;
mod list;
mod running;
mod support;
mod texts;
mod token;
mod usage;
mod watch;
mod words;
