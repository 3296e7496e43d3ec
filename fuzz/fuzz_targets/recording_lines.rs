//! Recordings: whatever stands in a line is read or refused without harm.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ray_relay_access::recording::format::{read_header, read_line};

fuzz_target!(|text: &[u8]| {
    let _ = read_header(text);
    let _ = read_line(text);
});
