//! What several fuzz targets compare with.

use ray_relay::ray::registry::{Breakpoint, BreakpointId, Kind, Names, Reason, State};
use ray_relay::timestamp::Timestamp;
use serde_json::Value;

/// `text` as Python's `json.loads` reads it (debugpy does), or `None` where that fails. Python
/// takes more than serde_json: `NaN`, `Infinity`, and halves of surrogate pairs. They are replaced
/// by something else of their kind.
pub fn as_python(text: &[u8]) -> Option<Value> {
    let mut plain = Vec::with_capacity(text.len());
    let mut quoted = false;
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        let rest = &text[at..];
        let word = [&b"-Infinity"[..], b"Infinity", b"NaN"]
            .into_iter()
            .find(|word| !quoted && rest.starts_with(word));
        if let Some(word) = word {
            plain.push(b'0');
            at += word.len();
            continue;
        }
        plain.push(*byte);
        at += 1;
        match byte {
            b'"' => quoted = !quoted,
            b'\\' if quoted => {
                let half = matches!(
                    rest,
                    [
                        _,
                        b'u',
                        b'd' | b'D',
                        b'8' | b'9' | b'a'..=b'f' | b'A'..=b'F',
                        ..,
                    ]
                );
                if half {
                    plain.extend_from_slice(b"u00");
                    at += 3;
                } else if let Some(escaped) = rest.get(1) {
                    plain.push(*escaped);
                    at += 1;
                }
            }
            _ => {}
        }
    }
    serde_json::from_slice(&plain).ok()
}

/// `bytes` cut into pieces whose lengths `cuts` gives again and again.
pub fn pieces<'a>(bytes: &'a [u8], cuts: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
    let mut rest = bytes;
    let mut cuts = cuts.iter().cycle();
    std::iter::from_fn(move || {
        let length = cuts.next().map_or(usize::MAX, |cut| usize::from(*cut) + 1);
        let (piece, later) = rest.split_at(length.min(rest.len()));
        rest = later;
        (!piece.is_empty()).then_some(piece)
    })
}

/// A worker that waits.
pub fn paused(worker_id: &str) -> Breakpoint {
    Breakpoint {
        id: BreakpointId::derive("default", worker_id),
        kind: Kind::Debugpy,
        cluster: "default".into(),
        node_id: "0a".repeat(28).into(),
        node_ip: [10, 88, 0, 10].into(),
        worker_id: worker_id.into(),
        pid: 495,
        port: 38645,
        paused_threads: 1,
        names: Names {
            name: Some("square".to_owned()),
            unpacked_working_dir: true,
            ..Names::default()
        }
        .into(),
        reason: Reason::Breakpoint,
        location: None,
        exception: None,
        first_seen: Timestamp::now(),
        stop: 1,
        state: State::Paused,
        task_ended: None,
        registered: None,
    }
}
