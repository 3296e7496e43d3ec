//! Measures the cost of a large cluster's list: `cargo bench --bench registry`.
//!
//! A stand-in for a head, in a process of its own, has 1,000 and then 10,000 paused workers, each with a task of its own,
//! in rows as wide as Ray's. Printed are the processor seconds of the registry until all of them have their names, how long
//! that took, the greatest age that the list had meanwhile, what a second costs once all is known, how many breakpoints can
//! then be claimed and given back in a second and what each costs (with the polls that this has made), and how long it
//! took until half of the workers, let go in the middle of the naming, had left the list.

mod head;

use std::time::{Duration, Instant};

use ray_relay_base::config;
use ray_relay_base::timestamp::Timestamp;
use ray_relay_ray::ray::registry::{Holder, Registry};
use rustix::time::{ClockId, clock_gettime};
use tokio_util::sync::CancellationToken;

use head::Head;

const SIZES: [usize; 2] = [1_000, 10_000];
const HEAD_POLL_INTERVAL: Duration = Duration::from_secs(1);
const ROUND_TIMEOUT: Duration = Duration::from_secs(120);
const CLAIM_DURATION: Duration = Duration::from_secs(3);
const POLL_INTERVAL: Duration = Duration::from_millis(5);

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().collect();
    if let [_, role, rows] = args.as_slice()
        && role == head::ROLE
    {
        return head::serve(rows.parse()?);
    }
    if !args.iter().any(|arg| arg == "--bench") {
        println!("run this as: cargo bench --bench registry");
        return Ok(());
    }
    println!(
        "{:>7} {:>10} {:>9} {:>12} {:>14} {:>10} {:>11} {:>12}",
        "workers",
        "CPU s",
        "named s",
        "max. age s",
        "CPU s/s after",
        "claims/s",
        "CPU us each",
        "left after s"
    );
    for size in SIZES {
        let quiet = round(size, false)?;
        let busy = round(size, true)?;
        println!(
            "{size:>7} {:>10.2} {:>9.2} {:>12.2} {:>14.4} {:>10.0} {:>11.0} {:>12.2}",
            quiet.cpu,
            quiet.named,
            quiet.age,
            quiet.after,
            quiet.claims,
            quiet.claim * 1e6,
            busy.released_after
        );
    }
    Ok(())
}

/// The figures of one round, in seconds.
#[derive(Default)]
struct Figures {
    cpu: f64,
    named: f64,
    age: f64,
    after: f64,
    /// In a second.
    claims: f64,
    /// CPU of each.
    claim: f64,
    released_after: f64,
}

fn round(size: usize, half_leave: bool) -> Result<Figures> {
    let head = Head::start(size)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let registry = Registry::new(&[cluster(&head)], &settings())?;
    let shutdown = CancellationToken::new();
    let (cpu, began) = (cpu(), Instant::now());
    let running = runtime.spawn({
        let (registry, shutdown) = (registry.clone(), shutdown.clone());
        async move { registry.run(shutdown).await }
    });
    let mut figures = Figures::default();
    let mut released_at = None;
    loop {
        std::thread::sleep(POLL_INTERVAL);
        let list = registry.snapshot();
        if began.elapsed() > ROUND_TIMEOUT {
            return Err(format!("{size} workers: not done within {ROUND_TIMEOUT:?}").into());
        }
        if let Some(age) = list.age(Instant::now()) {
            figures.age = figures.age.max(age.as_secs_f64());
        }
        if half_leave {
            match released_at {
                None if list.live.len() == size => {
                    head.half_leave()?;
                    released_at = Some(Instant::now());
                }
                Some(since) if list.live.len() <= size.div_ceil(2) => {
                    figures.released_after = Instant::elapsed(&since).as_secs_f64();
                    break;
                }
                _ => {}
            }
        } else if list.live.len() == size && list.live.iter().all(|b| b.names.name.is_some()) {
            figures.named = began.elapsed().as_secs_f64();
            figures.cpu = self::cpu() - cpu;
            break;
        }
    }
    if !half_leave {
        // Past the question that confirms the names.
        std::thread::sleep(3 * HEAD_POLL_INTERVAL);
        let (cpu, began) = (self::cpu(), Instant::now());
        std::thread::sleep(3 * HEAD_POLL_INTERVAL);
        figures.after = (self::cpu() - cpu) / began.elapsed().as_secs_f64();
        let (cpu, began) = (self::cpu(), Instant::now());
        let claims = claim_all(&registry)?;
        figures.claims = claims / began.elapsed().as_secs_f64();
        figures.claim = (self::cpu() - cpu) / claims;
    }
    shutdown.cancel();
    runtime.block_on(running)?;
    Ok(figures)
}

/// Takes one breakpoint after the other and gives it back, as far as it gets in [`CLAIM_DURATION`]; says how many times.
fn claim_all(registry: &Registry) -> Result<f64> {
    let began = Instant::now();
    let mut claims = 0_u32;
    let list = registry.snapshot();
    for breakpoint in list.live.iter().cycle() {
        let holder = Holder {
            session: 1,
            subject: None,
            client: "bench".to_owned(),
            peer: Some(([127, 0, 0, 1], 1).into()),
            replica: None,
            parked_until: None,
            evaluates: false,
            since: Timestamp::now(),
        };
        let claim = registry.claim(breakpoint.id, holder);
        drop(claim.map_err(|why| format!("{why:?}"))?);
        claims += 1;
        if began.elapsed() > CLAIM_DURATION {
            break;
        }
    }
    Ok(f64::from(claims))
}

/// Processor seconds of this process so far.
fn cpu() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn cluster(head: &Head) -> config::Cluster {
    config::Cluster {
        name: "default".to_owned(),
        ray_address: format!("http://{}", head.address),
        token_file: Some("/nonexistent/token".into()),
        gcs_address: config::Gcs::Off,
        ..config::Cluster::default()
    }
}

fn settings() -> config::Registry {
    config::Registry {
        poll_interval: HEAD_POLL_INTERVAL,
        request_timeout: Duration::from_secs(10),
        backoff_max: Duration::from_secs(30),
        node_interval: Duration::from_secs(10),
        locations: true,
    }
}
