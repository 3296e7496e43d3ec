//! Panics on demand: how `tests/essential.rs` sees that nothing essential ends unnoticed.
//!
//! Compiled with the feature `fault-injection` alone, which is in no default and refuses to be in an optimised build.

#[cfg(not(debug_assertions))]
compile_error!("the feature `fault-injection` is for tests: no relay that people use may have it");

/// Panics where `FAULT_INJECTION` in the environment names `place`.
pub(crate) fn strike(place: &str) {
    if std::env::var_os("FAULT_INJECTION").is_some_and(|named| named == place) {
        panic!("FAULT_INJECTION={place}");
    }
}
