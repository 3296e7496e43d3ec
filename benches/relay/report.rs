//! The table at the end.

use crate::client::REQUEST;
use crate::measure::{BULK, Path, Sample, median};
use crate::worker::ANSWER;
use crate::{BULK_SESSIONS, SESSIONS};

/// A line of the table: its name, its value of a sample, and how that prints.
type Line = (String, fn(&Sample) -> f64, fn(f64) -> String);

pub(crate) fn print(paths: &[Path], haproxy: Option<&str>) {
    let lines: [Line; 8] = [
        (
            format!("round trip, {REQUEST} B -> {ANSWER} B"),
            |s| s.round_trip,
            |v| format!("{:.1} us", v * 1e6),
        ),
        (
            format!("the same beside {BULK_SESSIONS} bulk"),
            |s| s.beside_bulk,
            |v| format!("{:.1} us", v * 1e6),
        ),
        (
            "  its 99th percentile".to_owned(),
            |s| s.beside_tail,
            |v| format!("{:.1} us", v * 1e6),
        ),
        (
            "  and these meanwhile".to_owned(),
            |s| s.bulk_beside,
            |v| format!("{:.2} GB/s", v / 1e9),
        ),
        (
            format!("messages/s over {SESSIONS}"),
            |s| s.messages,
            |v| format!("{:.1} k", v / 1e3),
        ),
        (
            format!("bulk to client, {} MiB", BULK >> 20),
            |s| s.download,
            |v| format!("{:.2} GB/s", v / 1e9),
        ),
        (
            format!("bulk to worker, {} MiB", BULK >> 20),
            |s| s.upload,
            |v| format!("{:.2} GB/s", v / 1e9),
        ),
        (
            "processor time in bulk".to_owned(),
            |s| s.cpu,
            |v| format!("{:.2} s/GB", v * 1e9),
        ),
    ];
    if let Some(version) = haproxy {
        println!("HAProxy {version}, TCP mode, defaults");
    }
    let (relay, others) = paths.split_first().expect("the relay is always measured");
    print!("{:<32}", "median");
    for path in paths {
        print!("{:>14}", path.name);
    }
    for other in others {
        print!("{:>16}", format!("ratio {}", other.name));
    }
    println!();
    for (name, value, show) in &lines {
        print!("{name:<32}");
        for path in paths {
            let middle = median(path.samples.iter().map(value).collect());
            print!(
                "{:>14}",
                if middle > 0.0 {
                    show(middle)
                } else {
                    "-".to_owned()
                }
            );
        }
        for other in others {
            // Within a round, so that both met the same machine.
            let pairs = relay.samples.iter().zip(&other.samples);
            let ratio = median(pairs.map(|(a, b)| value(a) / value(b)).collect());
            print!(
                "{:>16}",
                if ratio.is_finite() {
                    format!("{ratio:.2}")
                } else {
                    "-".to_owned()
                }
            );
        }
        println!();
    }
}
