//! `ray-relay demo`: a small real Ray cluster with tasks that stop at breakpoints, and the relay
//! in front of it.
//!
//! Called by the CLI. Invariant: however [`run`] ends, no
//! process and no file of it remains, except the virtual environment, which the next run reuses.

mod error;
mod installation;
mod instructions;
pub mod job;
mod stop;
mod submitted;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use self::error::DemoError;
use self::job::DemoJob;
use self::stop::StopListener;
use self::submitted::{Submitted, stops_before};
use crate::app::{self, Running};
use ray_relay_access::telemetry::progress::PreparationClock;
use ray_relay_base::config::{self, Config};
use ray_relay_cluster::processes::{self, ProcessGroup};
use ray_relay_cluster::venv;
use ray_relay_cluster::{LocalCluster, Plan};
use ray_relay_ray::ray::jobs::Jobs;

/// Time limit for sessions to end; their tasks end with the cluster anyway.
const DRAIN_PERIOD: Duration = Duration::from_secs(3);

/// `ray-relay demo`
#[derive(Debug, Clone, clap::Args)]
pub struct DemoArgs {
    /// Use the cluster whose dashboard is there instead of starting one; the sample job is
    /// submitted to it, and stopped at the end
    #[arg(long, value_name = "URL", value_hint = clap::ValueHint::Url)]
    pub ray_address: Option<String>,
    /// Submit no sample job (with --ray-address)
    #[arg(long, requires = "ray_address")]
    pub no_job: bool,
    /// Show what the sample job prints, as it comes
    #[arg(long)]
    pub job_log: bool,
    /// Ray to install
    #[arg(long, value_name = "VERSION", default_value = "2.60.0")]
    pub ray_version: String,
    /// Worker nodes beside the head
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(0..=8))]
    pub nodes: u8,
    /// Where Ray is installed, to be used again next time
    /// [default: ray-relay/demo in the user's cache directory]
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub dir: Option<PathBuf>,
    /// Where the relay listens; another free port is used where this one is taken
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:5678")]
    pub listen: SocketAddr,
}

/// Everything to clean up, filled as it is created.
#[derive(Default)]
struct Started {
    relay: Option<Running>,
    cluster: Option<LocalCluster>,
    /// A job in a foreign cluster, with the client that stops it.
    job: Option<(Jobs, String)>,
    folder: Option<PathBuf>,
    ready: bool,
}

/// Runs the demo until its job ends or a signal comes, and cleans up. Must be the only user of child processes in this
/// process: it ends all that remain.
///
/// # Errors
/// [`DemoError`].
pub async fn run(args: DemoArgs) -> Result<(), DemoError> {
    if venv::major_minor(&args.ray_version) < (2, 9) {
        return Err(DemoError::TooOld(args.ray_version));
    }
    if !args.listen.ip().is_loopback() {
        return Err(DemoError::NotLoopback(args.listen));
    }
    processes::adopt_orphans();
    let stop = StopListener::listen().map_err(|source| DemoError::System {
        what: "wait for signals",
        source,
    })?;
    let progress = PreparationClock::watched("demo");
    let mut started = Started::default();
    let outcome = tokio::select! {
        outcome = show(&args, &progress, &mut started) => outcome,
        () = stop.requested() => Err(DemoError::Interrupted),
    };
    let interrupted = matches!(outcome, Err(DemoError::Interrupted));
    let ready = started.ready;
    let survivors = clean_up(started, &stop, &progress).await;
    match outcome {
        outcome if !survivors.is_empty() => {
            if let Err(error) = outcome
                && !interrupted
            {
                progress.say(error);
            }
            Err(DemoError::Left(survivors))
        }
        Err(DemoError::Interrupted) if interrupted && ready => Ok(()),
        outcome => outcome,
    }
}

async fn show(
    args: &DemoArgs,
    progress: &PreparationClock,
    started: &mut Started,
) -> Result<(), DemoError> {
    let (job, relay, mut submitted) = match &args.ray_address {
        None => {
            let cluster = started.cluster.insert(own_cluster(args, progress).await?);
            let (dashboard, token_file) = (cluster.dashboard(), cluster.token_file());
            let gcs = config::Gcs::At(cluster.gcs().to_string());
            let relay = start_relay(args, dashboard, token_file, gcs, progress).await?;
            let relay = started.relay.insert(relay);
            let job = write_job(&cluster.dir().join("project"), relay)?;
            let jobs = cluster.jobs();
            let before = stops_before(relay).await;
            let id = job.submit_here(&jobs).await.map_err(DemoError::Submit)?;
            (job, relay, Submitted::new(jobs, id, before))
        }
        Some(address) => {
            let relay = start_relay(args, address, None, config::Gcs::Auto, progress).await?;
            let relay = started.relay.insert(relay);
            let before = stops_before(relay).await;
            if args.no_job {
                submitted::named(relay).await;
                instructions::print(relay, None);
                started.ready = true;
                return Err(app::Error::from(relay.failed().await).into());
            }
            // Through the relay's own port, because the relay has Ray's address and token.
            let jobs = Jobs::new(format!("http://{}", relay.local_addr()), None, false)?;
            let folder = ray_relay_cluster::make_short_dir()?;
            let job = write_job(&started.folder.insert(folder).join("project"), relay)?;
            let id = job.submit_packaged(&jobs).await?;
            started.job = Some((jobs.clone(), id.clone()));
            (job, relay, Submitted::new(jobs, id, before))
        }
    };
    submitted.wait_listed(relay, progress).await?;
    instructions::print(relay, Some(job.folder()));
    started.ready = true;
    tokio::select! {
        () = submitted.follow(args.job_log, progress) => Ok(()),
        unexpected_end = relay.failed() => Err(app::Error::from(unexpected_end).into()),
    }
}

async fn own_cluster(
    args: &DemoArgs,
    progress: &PreparationClock,
) -> Result<LocalCluster, DemoError> {
    let version = args.ray_version.as_str();
    let root = match &args.dir {
        // Absolute, because scripts in the environment contain its path.
        Some(dir) => std::path::absolute(dir).map_err(|source| DemoError::System {
            what: "find --dir",
            source,
        })?,
        None => installation::directory().ok_or(DemoError::NoCacheDirectory)?,
    };
    let requirements = installation::requirements(version);
    let venv = venv::prepare(
        &root.join(version),
        version,
        (3, 0),
        &requirements,
        progress,
    )
    .await?;
    // Up to 2.38 the debugger is pdb unless this is set. Later any value selects the default.
    let debugger = [("RAY_DEBUG", "1")];
    let plan = Plan {
        venv: &venv,
        ray: version,
        workers: args.nodes.into(),
        env: if venv::major_minor(version) <= (2, 38) {
            &debugger
        } else {
            &[]
        },
    };
    Ok(LocalCluster::start(plan, progress).await?)
}

async fn start_relay(
    args: &DemoArgs,
    ray_address: &str,
    token_file: Option<PathBuf>,
    gcs: config::Gcs,
    progress: &PreparationClock,
) -> Result<Running, DemoError> {
    let mut config = Config::default();
    config.listen.address = args.listen;
    config.clusters = vec![config::Cluster {
        name: "default".to_owned(),
        ray_address: ray_address.to_owned(),
        token_file,
        gcs_address: gcs,
        ..config::Cluster::default()
    }];
    // Checked first, so that a second demo next to a first one needs no flag.
    let in_use = std::net::TcpListener::bind(args.listen)
        .is_err_and(|error| error.kind() == std::io::ErrorKind::AddrInUse);
    if in_use {
        config.listen.address.set_port(0);
    }
    let relay = app::start(config).await?;
    let address = relay.local_addr();
    let why = match in_use {
        true => format!("{} is taken, so ", args.listen),
        false => String::new(),
    };
    progress.say(format_args!("{why}the relay listens on {address}"));
    Ok(relay)
}

fn write_job(folder: &Path, relay: &Running) -> Result<DemoJob, DemoError> {
    DemoJob::write(folder, relay.local_addr()).map_err(|source| DemoError::System {
        what: "write the sample job",
        source,
    })
}

/// Cleans up everything; the second signal shortens each step. Returns the processes that would not die.
async fn clean_up(started: Started, stop: &StopListener, progress: &PreparationClock) -> Vec<i32> {
    let step = progress.step("cleaning up");
    if let Some((jobs, id)) = started.job {
        tokio::select! {
            _ = jobs.stop(&id) => {}
            () = stop.hurried() => {}
        }
    }
    if let Some(relay) = started.relay {
        let drained = tokio::select! {
            drained = tokio::time::timeout(DRAIN_PERIOD, relay.drain()) => drained.is_ok(),
            () = stop.hurried() => false,
        };
        if !drained {
            relay.abort().await;
        }
    }
    let hurry = stop.hurry();
    let ending = tokio::task::spawn_blocking(move || {
        let mut survivors = started.cluster.map_or(Vec::new(), |c| c.stop(&hurry));
        // Any other descendants of this process, such as an installation that was cut short.
        survivors.extend(ProcessGroup::everything().end(Duration::from_secs(1), &hurry, || {}));
        survivors.sort_unstable();
        survivors.dedup();
        // The second round may have ended what the first could not.
        survivors.retain(|pid| processes::is_alive(*pid));
        survivors
    });
    let survivors = match ending.await {
        Ok(survivors) => survivors,
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    };
    if let Some(folder) = started.folder {
        let _ = std::fs::remove_dir_all(folder);
    }
    if survivors.is_empty() {
        step.done("nothing is left running");
    }
    survivors
}
