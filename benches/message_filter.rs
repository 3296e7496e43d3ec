//! Measures the cost of each policy level per message of a debugger: `cargo bench --bench message_filter`.
//!
//! The same stream of answers to `variables`, goes through the frame scanner and, where the
//! level has them looked at, through the rules; no sockets, so that nothing else is measured. Interleaved rounds,
//! medians printed. Bare scanning is what a session costs that may do and see everything.

use std::time::Instant;

use ray_relay_access::identity::Principal;
use ray_relay_access::policy::{Rights, Scope, Scopes, SessionObligations};
use ray_relay_base::wire::dap::codec::{frame, parse, put_frame};
use ray_relay_base::wire::dap::peek::Depth;
use ray_relay_base::wire::dap::scanner::{Rules, ScanStep, Scanner};
use ray_relay_dap::message_filter::{Action, MessageFilter};
use serde_json::json;

const ROUNDS: usize = 21;
/// Answers in a round, and variables in an answer: a frame of a training loop.
const ANSWERS: usize = 200;
const VARIABLES: usize = 100;

fn main() {
    if !std::env::args().any(|arg| arg == "--bench") {
        println!("run this as: cargo bench --bench message_filter");
        return;
    }
    let levels = [("debug", Scope::Debug), ("view", Scope::View)];
    let stream = answers();
    let mut times = levels.map(|_| Vec::new());
    for round in 0..=ROUNDS {
        for (level, (_, scope)) in levels.iter().enumerate() {
            let rights = Rights {
                scopes: Scopes::NONE.with(*scope),
                obligations: SessionObligations::default(),
            };
            let mut stream = stream.clone();
            let start = Instant::now();
            let sent = relay(
                &mut stream,
                MessageFilter::new(&rights, &Principal::anonymous()),
            );
            let elapsed = start.elapsed().as_secs_f64();
            assert!(sent > 0, "every answer comes out again");
            // The first round settles caches.
            if round > 0 {
                times[level].push(elapsed);
            }
        }
    }
    println!("{:16} {:>12} {:>10}", "level", "µs/answer", "MB/s");
    for ((name, ..), times) in levels.iter().zip(&mut times) {
        times.sort_by(f64::total_cmp);
        let median = times[times.len() / 2];
        println!(
            "{name:16} {:>12.1} {:>10.0}",
            median * 1e6 / ANSWERS as f64,
            stream.len() as f64 / median / 1e6
        );
    }
}

/// As debugpy's adapter writes them.
fn answers() -> Vec<u8> {
    let mut stream = Vec::new();
    for answer in 0..ANSWERS {
        let variables: Vec<_> = (0..VARIABLES)
            .map(|n| match n % 10 {
                0 => json!({"name": "api_key", "value": "'0123456789abcdef'", "type": "str", "evaluateName": "api_key", "variablesReference": 0}),
                1 => json!({"name": format!("config_{n}"), "value": "{'user': 'ada', 'password': 'hunter2', 'layers': [64, 128, 256]}",
                    "type": "dict", "evaluateName": format!("config_{n}"), "variablesReference": n}),
                _ => json!({"name": format!("tensor_{n}"), "value": "tensor([[0.1314, 0.2718], [0.5772, 1.6180]], device='cuda:0')",
                    "type": "Tensor", "evaluateName": format!("tensor_{n}"), "variablesReference": n}),
            })
            .collect();
        let body = json!({"seq": answer, "type": "response", "request_seq": answer, "success": true,
            "command": "variables", "body": {"variables": variables}});
        put_frame(&mut stream, body.to_string().as_bytes());
    }
    stream
}

/// Bytes that reach the client.
fn relay(mut rest: &mut [u8], mut filter: MessageFilter) -> usize {
    let mut scanner = Scanner::new(Rules {
        depth: Depth::Deciding,
        captures: filter.captures_from_worker(),
        examined: filter.examined(),
        max_captured: 64 << 20,
        max_passed: 64 << 20,
    });
    let mut sent = 0;
    while !rest.is_empty() {
        match scanner.step(rest) {
            Ok(ScanStep::Forward(n)) => {
                sent += n;
                rest = &mut rest[n..];
            }
            Ok(ScanStep::Captured { head, frame: whole }) => {
                if filter.passes(&mut rest[head..whole], false) {
                    sent += whole;
                    rest = &mut rest[whole..];
                    continue;
                }
                let message = parse(&rest[head..whole]).expect("it is JSON");
                for action in filter.on_worker(message) {
                    if let Action::ToClient(message) = action {
                        sent += frame(&message).len();
                    }
                }
                rest = &mut rest[whole..];
            }
            Ok(ScanStep::More) | Err(_) => break,
        }
    }
    sent
}
