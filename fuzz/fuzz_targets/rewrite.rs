//! Addresses in Ray's lists of workers: all replaced, and nothing else.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ray_relay_http::http::rewrite::rewrite;
use ray_relay_fuzz::as_python;
use serde_json::Value;

const OWN: (&str, u16) = ("relay.example.com", 5678);

fuzz_target!(|text: &[u8]| {
    let Ok(new) = rewrite(text, &mut |_, new| here(new)) else {
        return;
    };
    let changed = new.is_some();
    let new = new.unwrap_or_else(|| text.to_vec());
    let Some(before) = as_python(text) else {
        return;
    };
    let after = as_python(&new).expect("it was JSON and still is");
    assert!(same(&before, &after), "{before} became {after}");
    assert!(own(&after), "{after}");
    if changed {
        assert_ne!(text, new);
    }
    // Once more changes nothing.
    let again = rewrite(&new, &mut |_, new| here(new));
    assert_eq!(
        again.expect("still walked").unwrap_or_else(|| new.clone()),
        new
    );
});

/// Puts the relay's own address there.
fn here(new: &mut Vec<u8>) -> u16 {
    new.extend_from_slice(OWN.0.as_bytes());
    OWN.1
}

/// Equal but for addresses.
fn same(before: &Value, after: &Value) -> bool {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            before.len() == after.len()
                && before.iter().zip(after).all(|((key, old), (name, new))| {
                    key == name && (key == "ip" || key == "debugger_port" || same(old, new))
                })
        }
        (Value::Array(before), Value::Array(after)) => {
            before.len() == after.len() && before.iter().zip(after).all(|(a, b)| same(a, b))
        }
        _ => before == after,
    }
}

/// No row names a debugger elsewhere.
fn own(value: &Value) -> bool {
    match value {
        Value::Object(row) => {
            let port = row.get("debugger_port").unwrap_or(&Value::Null);
            let none = port.is_null() || *port == 0 || *port == "" || *port == "0";
            let here = *port == OWN.1 || *port == OWN.1.to_string();
            let ip = row.get("ip").is_none_or(|ip| *ip == OWN.0);
            (none || (here && ip)) && row.values().all(own)
        }
        Value::Array(values) => values.iter().all(own),
        _ => true,
    }
}
