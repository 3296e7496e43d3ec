//! The protocol of a connection: decided early, and then for good.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ray_relay::listener::detect::{MAX_PREFIX_BYTES, detect};

fuzz_target!(|first: &[u8]| {
    let answer = detect(first);
    assert!(answer.is_some() || first.len() < MAX_PREFIX_BYTES);
    for seen in 0..first.len().min(2 * MAX_PREFIX_BYTES) {
        if let Some(early) = detect(&first[..seen]) {
            assert_eq!(answer, Some(early), "after {seen} bytes");
        }
    }
});
