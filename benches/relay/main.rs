//! What a debug session through the relay costs, against a direct connection and against HAProxy in
//! TCP mode: `cargo bench --bench relay`.
//!
//! All three paths carry the same debug sessions to the same fake workers, opened once and then used
//! in interleaved rounds, so that a slow moment of the machine meets all of them. Printed are medians
//! over the rounds, and medians of the ratios within a round. The relay and HAProxy (Debian package
//! `haproxy`, with its defaults) are processes of their own; client and workers share this one.
//!
//! `BENCH_ROUNDS` sets the number of rounds; about a minute and a half is the limit in any case.

mod bulk;
mod client;
mod frame;
mod head;
mod measure;
mod proxies;
mod report;
mod worker;

use std::time::{Duration, Instant};

use measure::Path;
use worker::Workers;

/// Debug sessions of each path, each with a worker of its own, since a worker takes one.
const SESSIONS: usize = 64;
/// Further ones, for the bulk transfers that an editor works beside.
const BULK_SESSIONS: usize = 4;
/// No further round starts after this.
const BUDGET: Duration = Duration::from_secs(90);

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn main() -> Result<()> {
    // `cargo test --benches` runs this binary too, without the flag and without optimisation.
    if !std::env::args().any(|arg| arg == "--bench") {
        println!("run this as: cargo bench --bench relay");
        return Ok(());
    }
    let rounds: usize = match std::env::var("BENCH_ROUNDS") {
        Ok(text) => text
            .parse()
            .map_err(|_| format!("BENCH_ROUNDS={text} is not a number"))?,
        Err(_) => 9,
    };
    let workers = Workers::start()?;
    // Ends before the process does; the runtime of the clients is this thread.
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(run(rounds.max(1), &workers))
}

async fn run(rounds: usize, workers: &Workers) -> Result<()> {
    let started = Instant::now();
    let directory = tempfile::tempdir()?;
    let mut paths = Vec::new();

    // The relay comes first: like a real one, a fake worker that somebody has attached to no longer
    // counts as paused, and so leaves the head's list.
    let relay = proxies::Relay::start(workers, directory.path()).await?;
    paths.push(Path::open("ray-relay", Some(relay.pid()), |i| relay.target(workers, i)).await?);
    let haproxy = proxies::HaProxy::start(workers, directory.path()).await?;
    if let Some(haproxy) = &haproxy {
        paths.push(Path::open("haproxy", Some(haproxy.pid()), |i| haproxy.target(i)).await?);
    } else {
        println!(
            "HAProxy is not installed (Debian package: haproxy); comparing with a direct connection only"
        );
    }
    paths.push(Path::open("direct", None, |i| workers.target(i)).await?);
    println!(
        "{SESSIONS} sessions a path are open after {:.1?}",
        started.elapsed()
    );

    // Uncounted, so that buffers, windows and processor clocks have settled.
    for path in &mut paths {
        path.round().await?;
    }
    let mut done = 0;
    while done < rounds && started.elapsed() < BUDGET {
        for turn in 0..paths.len() {
            let path = (turn + done) % paths.len();
            let sample = paths[path].round().await?;
            paths[path].samples.push(sample);
        }
        done += 1;
    }
    report::print(&paths, haproxy.as_ref().map(|h| h.version.as_str()));
    println!(
        "{done} rounds, {:.0} s in all",
        started.elapsed().as_secs_f64()
    );
    Ok(())
}
