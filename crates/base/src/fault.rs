//! Panics on demand: `tests/essential.rs` uses them to check that no essential task ends unnoticed.
//!
//! Does nothing without the feature `fault-injection`, which is not in the default features and does not compile in an
//! optimised build.

#[cfg(all(feature = "fault-injection", not(debug_assertions)))]
compile_error!("the feature `fault-injection` is for tests: no relay that people use may have it");

/// Panics if `FAULT_INJECTION` in the environment names `place`.
pub fn strike(place: &str) {
    if cfg!(feature = "fault-injection")
        && std::env::var_os("FAULT_INJECTION").is_some_and(|named| named == place)
    {
        panic!("FAULT_INJECTION={place}");
    }
}
