//! All tests of `tests/` that need no Ray, in one binary: linking is most of what a binary costs.
#![allow(clippy::unwrap_used)]

mod architecture;
mod attacks;
mod cli;
mod counted;
mod documents;
mod door;
