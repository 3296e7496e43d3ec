//! Attach arguments of any shape: read without a panic, and `rayRelay` and `rayRelayToken`, which hold tokens,
//! go neither to the worker nor, but for the folder, into child sessions.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use ray_relay_dap::attach::{Pass, RelayEndpoint, child_configuration, for_worker};
use ray_relay_dap::attach_selector::read_selector;
use ray_relay_dap::selection::{ChildSessions, Hint, choose};
use ray_relay_base::timestamp::Timestamp;
use ray_relay_fuzz::paused;
use ray_relay_ray::ray::registry::Snapshot;
use serde_json::Value;

fuzz_target!(|text: &[u8]| {
    let Ok(arguments) = serde_json::from_slice::<Value>(text) else {
        return;
    };
    let breakpoint = paused("aa11");
    let snapshot = Snapshot {
        live: [Arc::new(breakpoint.clone())].into_iter().collect(),
        ..Snapshot::default()
    };
    let selector = read_selector(&arguments);
    if let Ok(selector) = &selector {
        for children in [ChildSessions::StartDebugging, ChildSessions::None] {
            let _ = choose(selector, Hint::None, children, &snapshot, Timestamp::now());
        }
    }

    let root = selector.ok().and_then(|selector| selector.local_root);
    let upstream = for_worker(&arguments, &breakpoint, root.as_deref());
    let upstream = upstream.as_object().expect("arguments are an object");
    assert!(!upstream.contains_key("rayRelay") && !upstream.contains_key("rayRelayToken"));
    for (key, value) in arguments.as_object().into_iter().flatten() {
        if !matches!(
            key.as_str(),
            "rayRelay" | "rayRelayToken" | "rules" | "pathMappings"
        ) {
            assert_eq!(upstream.get(key), Some(value), "{key}");
        }
    }

    let dialled = RelayEndpoint::read(&arguments, 5678);
    let child = child_configuration(&arguments, &breakpoint, &dialled, Pass::default());
    let relay = child["rayRelay"].as_object().expect("routing");
    assert!(
        relay
            .keys()
            .all(|key| key == "breakpoint" || key == "localRoot")
    );
    assert!(child["name"].as_str().is_some_and(|name| name.len() < 1000));
});
