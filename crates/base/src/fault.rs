//! Panics on demand: how `tests/essential.rs` sees that nothing essential ends unnoticed.
//!
//! Does nothing without the feature `fault-injection`, which is in no default and refuses to be in an optimised build.

#[cfg(all(feature = "fault-injection", not(debug_assertions)))]
compile_error!("the feature `fault-injection` is for tests: no relay that people use may have it");

/// Panics where `FAULT_INJECTION` in the environment names `place`.
pub fn strike(place: &str) {
    if cfg!(feature = "fault-injection")
        && std::env::var_os("FAULT_INJECTION").is_some_and(|named| named == place)
    {
        panic!("FAULT_INJECTION={place}");
    }
}
