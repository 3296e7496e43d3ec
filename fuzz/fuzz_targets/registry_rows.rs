//! Answers of a head's State API: any JSON is taken in, and only workers that can be reached are
//! listed.
#![no_main]

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use ray_relay_ray::ray::registry::BreakpointId;
use ray_relay_ray::ray::registry::fuzzing::{looked_up, polled};

#[derive(Debug, Arbitrary)]
struct Input<'a> {
    workers: &'a str,
    nodes: &'a str,
    others: &'a str,
}

fuzz_target!(|input: Input<'_>| {
    for breakpoint in polled(input.workers.as_bytes(), input.nodes.as_bytes()) {
        assert!(breakpoint.port != 0 && breakpoint.paused_threads > 0);
        assert!(!breakpoint.worker_id.is_empty() && breakpoint.is_paused());
        let id = BreakpointId::derive("default", &breakpoint.worker_id);
        assert_eq!(breakpoint.id, id);
        assert_eq!(id.to_string().parse(), Ok(id));
    }
    looked_up(input.others.as_bytes());
});
