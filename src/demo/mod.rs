//! `ray-relay demo`: a small real Ray cluster with tasks that stop at breakpoints, and the relay
//! in front of it.
//!
//! Called by the CLI; the end-to-end tests use [`venv`] and [`cluster`] too. Invariant: however
//! [`run`] ends, no process and no file of it is left, except the virtual environment, which the
//! next run uses again.

pub mod cluster;
pub mod head_api;
mod instructions;
pub mod job;
pub mod processes;
pub mod progress;
mod stop;
pub mod venv;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use self::cluster::{Cluster, ClusterError, Plan};
use self::head_api::{ApiError, HeadApi};
use self::job::Job;
use self::processes::Family;
use self::progress::Progress;
use self::stop::Stop;
use crate::app::{self, Running};
use crate::config::{self, Config};

/// For the job's breakpoints to be listed; debugpy starts within seconds.
const LISTED_DEADLINE: Duration = Duration::from_secs(90);
/// For names: the State API shows a task up to a second after it stopped.
const NAMED_DEADLINE: Duration = Duration::from_secs(5);
/// How often the job's output is asked for.
const FOLLOW: Duration = Duration::from_millis(700);
/// Sessions get this long to end; their tasks end with the cluster anyway.
const DRAIN: Duration = Duration::from_secs(3);

/// `ray-relay demo`
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Use the cluster whose dashboard is there instead of starting one; the sample job is
    /// submitted to it, and stopped at the end
    #[arg(long, value_name = "URL", value_hint = clap::ValueHint::Url)]
    pub ray_address: Option<String>,
    /// Submit no sample job (with --ray-address)
    #[arg(long, requires = "ray_address")]
    pub no_job: bool,
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

/// Why the demo ended early. `Display` is a sentence with the next step.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The version cannot be shown.
    #[error(
        "Ray {0} has no debugger that this relay covers; take 2.9 or newer, or leave --ray-version out"
    )]
    TooOld(String),
    /// `--listen`
    #[error(
        "the demo listens on this machine only, because nobody is authenticated: give an address such as 127.0.0.1:5678, not {0}"
    )]
    NotLoopback(SocketAddr),
    /// No place for Ray.
    #[error("no directory to install Ray in: HOME is not set; give one with --dir")]
    NoCacheDirectory,
    /// Ray could not be installed.
    #[error(transparent)]
    Venv(#[from] venv::VenvError),
    /// Ray did not start.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// The relay did not start.
    #[error(transparent)]
    Relay(#[from] app::Error),
    /// The job could not be submitted.
    #[error("the sample job could not be submitted: {0}; does `curl` reach that address?")]
    Submit(#[source] ApiError),
    /// The job ended, or nothing stopped.
    #[error("{what}. The job said:\n{output}")]
    NoBreakpoints {
        /// What happened.
        what: String,
        /// End of the job's output.
        output: String,
    },
    /// Files or signals.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The system's words.
        source: std::io::Error,
    },
    /// A signal came before everything was up.
    #[error("stopped before the demo was ready; nothing is left running")]
    Interrupted,
    /// A process did not die.
    #[error("these processes would not end; kill them by hand: {0:?}")]
    Left(Vec<i32>),
}

/// What has to be undone, filled as it comes to be.
#[derive(Default)]
struct Held {
    relay: Option<Running>,
    cluster: Option<Cluster>,
    /// Through which a job in a cluster of somebody else's is stopped.
    job: Option<(HeadApi, String)>,
    folder: Option<PathBuf>,
    ready: bool,
}

/// Runs the demo until its job ends or a signal comes, and cleans up. Must be the only user of
/// child processes in this process: it ends all that are left.
///
/// # Errors
/// [`Error`].
pub async fn run(args: Args) -> Result<(), Error> {
    if venv::major_minor(&args.ray_version) < (2, 9) {
        return Err(Error::TooOld(args.ray_version));
    }
    if !args.listen.ip().is_loopback() {
        return Err(Error::NotLoopback(args.listen));
    }
    processes::adopt_orphans();
    let stop = Stop::listen().map_err(|source| Error::System {
        what: "wait for signals",
        source,
    })?;
    let progress = Progress::new("demo");
    let mut held = Held::default();
    let outcome = tokio::select! {
        outcome = show(&args, &progress, &mut held) => outcome,
        () = stop.asked() => Err(Error::Interrupted),
    };
    let interrupted = matches!(outcome, Err(Error::Interrupted));
    let ready = held.ready;
    let left = clean_up(held, &stop, &progress).await;
    match outcome {
        _ if !left.is_empty() => Err(Error::Left(left)),
        Err(Error::Interrupted) if interrupted && ready => Ok(()),
        outcome => outcome,
    }
}

async fn show(args: &Args, progress: &Progress, held: &mut Held) -> Result<(), Error> {
    let (job, relay) = match &args.ray_address {
        None => {
            let cluster = held.cluster.insert(own_cluster(args, progress).await?);
            let api = cluster.api();
            let folder = cluster.dir().join("project");
            let relay =
                start_relay(args, cluster.dashboard(), cluster.token_file(), progress).await?;
            let relay = held.relay.insert(relay);
            let job = write_job(&folder, relay)?;
            let id = job.submit_here(&api).await.map_err(Error::Submit)?;
            (Some((job, api, id)), relay)
        }
        Some(address) => {
            let relay = start_relay(args, address, None, progress).await?;
            let relay = held.relay.insert(relay);
            if args.no_job {
                (None, relay)
            } else {
                // Through the relay's own port: it knows the way, and Ray's token.
                let api = HeadApi::new(format!("http://{}", relay.local_addr()), None);
                let folder = cluster::make_short_dir()?;
                let job = write_job(&held.folder.insert(folder).join("project"), relay)?;
                let id = job.submit_packaged(&api).await.map_err(Error::Submit)?;
                held.job = Some((api.clone(), id.clone()));
                (Some((job, api, id)), relay)
            }
        }
    };
    let Some((job, api, id)) = job else {
        instructions::print(relay, None);
        held.ready = true;
        return std::future::pending().await;
    };
    wait_listed(relay, &api, &id, progress).await?;
    instructions::print(relay, Some(job.folder()));
    held.ready = true;
    follow(&api, &id, progress).await;
    Ok(())
}

async fn own_cluster(args: &Args, progress: &Progress) -> Result<Cluster, Error> {
    let version = args.ray_version.as_str();
    let root = match &args.dir {
        // Scripts in the environment hold its path.
        Some(dir) => std::path::absolute(dir).map_err(|source| Error::System {
            what: "find --dir",
            source,
        })?,
        None => cache_directory().ok_or(Error::NoCacheDirectory)?,
    };
    let venv = venv::prepare(
        &root.join(version),
        version,
        &requirements(version),
        progress,
    )
    .await?;
    // Up to 2.38 the debugger is pdb unless this is set; later any value means what is default.
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
    Ok(Cluster::start(plan, progress).await?)
}

/// What pip is to install.
fn requirements(version: &str) -> Vec<String> {
    let mut requirements = vec![
        format!("ray[default]=={version}"),
        "debugpy>=1.8.1,<2".to_owned(),
    ];
    if venv::major_minor(version) < (2, 50) {
        // Older ones import what newer releases of these two removed.
        requirements.extend(["click<8.2".to_owned(), "setuptools<70".to_owned()]);
    }
    requirements
}

fn cache_directory() -> Option<PathBuf> {
    let absolute = |name| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|p| p.is_absolute())
    };
    let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
    Some(cache?.join("ray-relay/demo"))
}

async fn start_relay(
    args: &Args,
    ray_address: &str,
    token_file: Option<PathBuf>,
    progress: &Progress,
) -> Result<Running, Error> {
    let mut config = Config::default();
    config.listen.address = args.listen;
    config.clusters = vec![config::Cluster {
        name: "default".to_owned(),
        ray_address: ray_address.to_owned(),
        token_file,
    }];
    // Asked before, so that a second demo beside a first one needs no flag.
    let taken = std::net::TcpListener::bind(args.listen)
        .is_err_and(|error| error.kind() == std::io::ErrorKind::AddrInUse);
    if taken {
        config.listen.address.set_port(0);
    }
    let relay = app::start(config).await?;
    let address = relay.local_addr();
    if taken {
        progress.say(format_args!(
            "{} is taken, so the relay listens on {address}",
            args.listen
        ));
    } else {
        progress.say(format_args!("the relay listens on {address}"));
    }
    Ok(relay)
}

fn write_job(folder: &Path, relay: &Running) -> Result<Job, Error> {
    Job::write(folder, relay.local_addr()).map_err(|source| Error::System {
        what: "write the sample job",
        source,
    })
}

/// Waits until the relay lists the job's breakpoints, and a little longer for their names.
async fn wait_listed(
    relay: &Running,
    api: &HeadApi,
    id: &str,
    progress: &Progress,
) -> Result<(), Error> {
    let mut step = progress.step("the sample job runs until its breakpoints");
    let mut snapshots = relay.registry().watch();
    let mut seen = 0;
    let mut complete = None;
    loop {
        let (count, named) = {
            let snapshot = snapshots.borrow_and_update();
            let named = snapshot.paused().all(|b| b.names.name.is_some());
            (snapshot.paused().count(), named)
        };
        if count > seen {
            seen = count;
            step.note(format_args!("{seen} of {} listed", job::BREAKPOINTS));
        }
        if count >= job::BREAKPOINTS {
            let since = *complete.get_or_insert_with(std::time::Instant::now);
            if named || since.elapsed() > NAMED_DEADLINE {
                step.done("the job waits at its breakpoints");
                return Ok(());
            }
        }
        let what = match api.job(id).await {
            Ok(job) if job.ended() => Some(format!(
                "the sample job ended ({}) before its breakpoints: {}",
                job.status, job.message
            )),
            _ if step.elapsed() > LISTED_DEADLINE => Some(format!(
                "only {seen} of {} breakpoints after {} s; is debugpy 1.8 or newer installed on the nodes?",
                job::BREAKPOINTS,
                LISTED_DEADLINE.as_secs()
            )),
            _ => None,
        };
        if let Some(what) = what {
            let output = api.job_output(id).await.unwrap_or_default();
            let lines: Vec<&str> = output.lines().rev().take(15).collect();
            let output = lines.into_iter().rev().collect::<Vec<_>>().join("\n");
            return Err(Error::NoBreakpoints { what, output });
        }
        let seconds = step.elapsed().as_secs();
        step.pulse(|| format!("{seen} of {} after {seconds} s", job::BREAKPOINTS));
        let _ = tokio::time::timeout(Duration::from_millis(500), snapshots.changed()).await;
    }
}

/// Prints the job's output as it comes, until the job ends.
async fn follow(api: &HeadApi, id: &str, progress: &Progress) {
    let mut shown = 0;
    loop {
        // The state first: output that comes before the end is then never missed.
        let state = api.job(id).await;
        if let Ok(output) = api.job_output(id).await {
            let whole = output.rfind('\n').map_or(0, |end| end + 1);
            for line in output.get(shown..whole).unwrap_or_default().lines() {
                progress.say(format_args!("job | {}", without_colours(line)));
            }
            shown = shown.max(whole);
        }
        if let Ok(state) = state
            && state.ended()
        {
            progress.say(format_args!(
                "the job has ended: {}",
                state.status.to_lowercase()
            ));
            return;
        }
        tokio::time::sleep(FOLLOW).await;
    }
}

/// Ray colours its output for a terminal that this may not be.
fn without_colours(line: &str) -> String {
    let mut pieces = line.split("\x1b[");
    let mut plain = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        // The sequence ends with its first letter.
        let end = piece.find(|c: char| c.is_ascii_alphabetic());
        plain += end.map_or("", |end| &piece[end + 1..]);
    }
    plain
}

/// Undoes everything; the second signal shortens each step. Returns what would not die.
async fn clean_up(held: Held, stop: &Stop, progress: &Progress) -> Vec<i32> {
    let step = progress.step("cleaning up");
    if let Some((api, id)) = held.job {
        tokio::select! {
            _ = api.stop_job(&id) => {}
            () = stop.hurried() => {}
        }
    }
    if let Some(relay) = held.relay {
        let drained = tokio::select! {
            drained = tokio::time::timeout(DRAIN, relay.drain()) => drained.is_ok(),
            () = stop.hurried() => false,
        };
        if !drained {
            relay.abort().await;
        }
    }
    let hurry = stop.hurry();
    let ending = tokio::task::spawn_blocking(move || {
        if let Some(cluster) = held.cluster {
            cluster.stop(&hurry);
        }
        // Whatever else descends from this process, such as an installation cut short.
        Family::everything().end(Duration::from_secs(1), &hurry, || {})
    });
    let left = ending.await.unwrap_or_default();
    if let Some(folder) = held.folder {
        let _ = std::fs::remove_dir_all(folder);
    }
    if left.is_empty() {
        step.done("nothing is left running");
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_taken_out() {
        let line = "\x1b[36m(task pid=1)\x1b[0m done \x1b[1m\x1b[32mwell\x1b[22m";
        assert_eq!(without_colours(line), "(task pid=1) done well");
        assert_eq!(without_colours("plain [36m"), "plain [36m");
    }
}
