use proptest::prelude::*;
use serde_json::json;

use super::*;
use ray_relay_base::wire::dap::codec::frame;

fn request(command: &str) -> Value {
    json!({"seq": 1, "type": "request", "command": command, "arguments": {"x": "y".repeat(10_000)}})
}

fn response(command: &str, success: bool) -> Value {
    json!({"seq": 1, "type": "response", "request_seq": 2, "success": success, "command": command, "body": {}})
}

fn event(name: &str) -> Value {
    json!({"seq": 1, "type": "event", "event": name, "body": {"x": "y".repeat(9_000)}})
}

#[test]
fn session_is_tracked_from_greeting_to_disconnect() {
    let mut ledger = ProtocolTracker::default();
    ledger.received(&frame(&event("output")));
    assert!(ledger.progress.greeted && ledger.progress.attach == Attach::No);
    ledger.sent(&frame(&request("attach")));
    assert_eq!(ledger.progress.attach, Attach::Sent);
    ledger.received(&frame(&event("initialized")));
    assert_eq!(ledger.progress.attach, Attach::Initialized);
    ledger.received(&frame(&event("stopped")));
    assert!(!ledger.progress.stopped, "in another session");
    ledger.sent(&frame(&request("configurationDone")));
    ledger.received(&frame(&response("attach", true)));
    assert!(
        ledger.progress.configured
            && ledger.progress.attach == Attach::Initialized
            && !ledger.progress.stopped
    );
    ledger.received(&frame(&event("stopped")));
    assert!(ledger.progress.stopped);
    assert!(
        ledger.stays() && !ledger.is_quiet(),
        "one answer is to come"
    );
    ledger.sent(&frame(&request("disconnect")));
    assert!(!ledger.stays(), "it is being left");
    assert!(ledger.progress.disconnect && !ledger.progress.answered);
    ledger.received(&frame(&response("disconnect", true)));
    assert!(ledger.progress.answered && !ledger.lost);
    assert!(!ledger.owes_nothing(), "configurationDone was not answered");
    ledger.received(&frame(&response("configurationDone", true)));
    assert!(ledger.owes_nothing());
}

#[test]
fn evaluations_are_counted_and_disconnect_is_located() {
    let mut ledger = ProtocolTracker::default();
    ledger.sent(&frame(&request("evaluate")));
    ledger.sent(&frame(&request("evaluate")));
    ledger.received(&frame(&response("evaluate", false)));
    assert_eq!(ledger.progress.evaluating, 1);
    let threads = frame(&request("threads"));
    let sent = [&threads[..], &frame(&request("disconnect")), &threads].concat();
    let end = sent.len() - threads.len();
    assert_eq!(ledger.up_to_disconnect(&sent), (threads.len(), end));
    let at_boundary = (threads.len(), threads.len());
    assert_eq!(ledger.up_to_disconnect(&threads), at_boundary);
    ledger.received(&frame(&response("evaluate", true)));
    assert_eq!(ledger.up_to_disconnect(&sent), (end, end));
    let evaluate = frame(&request("evaluate"));
    let all = [&evaluate[..], &sent].concat();
    let before = evaluate.len() + threads.len();
    assert_eq!(
        ledger.up_to_disconnect(&all),
        (before, evaluate.len() + end)
    );
    ledger.sent(&sent);
    assert_eq!(ledger.up_to_disconnect(&threads), (0, 0));
}

#[test]
fn attach_with_path_mappings_is_recognised() {
    let mapped = json!([{"localRoot": "/home/ann", "remoteRoot": "."}]);
    for (mappings, expected) in [
        (mapped, true),
        (mappings::none(), false),
        (json!([]), false),
    ] {
        let mut attach = request("attach");
        attach["arguments"]["pathMappings"] = mappings;
        let mut ledger = ProtocolTracker::default();
        ledger.sent(&frame(&attach));
        assert_eq!(ledger.progress.mapped, expected, "{attach}");
    }
}

#[test]
fn refused_attach_differs_from_a_pending_one() {
    let mut ledger = ProtocolTracker::default();
    ledger.sent(&frame(&request("attach")));
    ledger.received(&frame(&response("attach", false)));
    assert_eq!(ledger.progress.attach, Attach::Refused);
}

#[test]
fn tracking_stops_at_non_dap_bytes() {
    let mut ledger = ProtocolTracker::default();
    ledger.received(b"SSH-2.0-OpenSSH_9.2p1\r\n\r\n");
    assert!(ledger.lost && !ledger.progress.greeted);
    ledger.received(&frame(&event("initialized")));
    assert!(ledger.lost && !ledger.progress.greeted);
}

proptest! {
    #[test]
    fn tracking_is_the_same_at_any_split(
        names in proptest::collection::vec(0usize..7, 1..12),
        cuts in proptest::collection::vec(1usize..6000, 1..20),
    ) {
        let commands = ["attach", "configurationDone", "continue", "disconnect", "threads", "next", "evaluate"];
        let events = ["output", "initialized", "stopped", "thread", "terminated", "process", "module"];
        let sent: Vec<u8> = names.iter().flat_map(|n| frame(&request(commands[*n]))).collect();
        let received: Vec<u8> = names.iter().flat_map(|n| frame(&event(events[*n]))).collect();
        let (mut is_complete, mut chunked) = (ProtocolTracker::default(), ProtocolTracker::default());
        is_complete.sent(&sent);
        is_complete.received(&received);
        for (bytes, is_upstream) in [(&sent, true), (&received, false)] {
            let mut rest = &bytes[..];
            for cut in cuts.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (now, later) = rest.split_at((*cut).min(rest.len()));
                if is_upstream {
                    // Exactly the rest of the interrupted message is expected.
                    let remaining = chunked.under_way(rest);
                    let mut tracked = chunked.sent.clone();
                    let is_complete = tracked.cut(&rest[..remaining], |_, _| ()).is_ok() && tracked.between();
                    prop_assert!(is_complete);
                }
                match is_upstream {
                    true => chunked.sent(now),
                    false => chunked.received(now),
                }
                prop_assert!(chunked.sent.part.len() <= MAX_STORED_BYTES + 512 && chunked.received.part.len() <= MAX_STORED_BYTES + 512);
                rest = later;
            }
        }
        let progress = |l: &ProtocolTracker| (l.progress.greeted, l.progress.attach, l.progress.configured, l.progress.disconnect, l.lost);
        prop_assert_eq!(progress(&is_complete), progress(&chunked));
        prop_assert!(chunked.between_messages());
    }
}
