//! `ray-relay deploy`: agents on every node of a cluster, started by Ray itself through its Jobs API.
//!
//! It uploads the running program and `driver.py` as a package, and submits a job. The driver keeps one actor on each
//! node, and each actor keeps one process. Secrets go to the driver, sealed for a key that it prints, and from there to
//! each process, sealed for that process's own key ([`sealed`], [`deployed`]).
//!
//! Called by the CLI.

mod args;
mod deployed;
mod error;
mod sealed;
mod state;

use std::io::Write as _;
use std::time::{Duration, SystemTime};

use aws_lc_rs::digest::{SHA256, digest};
use serde_json::json;
use tokio::time::{Instant, sleep};

pub use self::args::DeployArgs;
use self::args::DeployTarget;
pub use self::deployed::{DeployedArgs, run as run_deployed};
pub use self::error::DeployError;
use self::state::{DeploymentState, DriverReport};
use ray_relay_access::telemetry::progress::{PreparationClock, ProgressStep};
use ray_relay_base::wire::json::typed_at;
use ray_relay_base::wire::text::{hex, one_line, replaced};
use ray_relay_base::wire::zip::{self, ZipEntry};
use ray_relay_ray::ray::jobs::{JobState, Jobs};

const DRIVER: &str = include_str!("driver.py");
const DRIVER_FILE: &str = "ray_relay_driver.py";
const PROGRAM_FILE: &str = "ray-relay";
/// Key of a job's metadata that names its deployment.
const DEPLOYMENT: &str = "ray_relay_deployment";

/// Poll interval of the cluster's state.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// A process that has run for this long counts as started.
const STARTED_AFTER: Duration = Duration::from_secs(2);
/// A process that has failed for this long will not start soon.
const HOPELESS_AFTER: Duration = Duration::from_secs(8);
/// Time limit for a stopped job to end.
const STOP_DEADLINE: Duration = Duration::from_secs(60);
/// Seconds for the driver to end the agents gracefully, before Ray kills it.
const STOP_WAIT: &str = "25";

/// Creates, shows or removes a deployment.
///
/// # Errors
/// [`DeployError`].
pub async fn run(args: DeployArgs) -> Result<(), DeployError> {
    let deployment = Deployment {
        jobs: Jobs::new(&*args.ray_address, args.ray_token_file.clone(), true)?,
        name: args.name.clone(),
        progress: PreparationClock::watched("deploy"),
    };
    if args.status {
        return deployment.show(args.json).await;
    }
    if args.remove {
        return deployment.remove(args.json).await;
    }
    let target = args.target()?;
    if !args.replace {
        deployment.is_free().await?;
    }
    let id = deployment.submit(&target).await?;
    // For the cluster alone: to pack the program takes this machine minutes when it is busy.
    let deadline = Instant::now() + args.timeout;
    deployment.hand_over(&id, &target, deadline).await?;
    deployment.wait_running(&id, deadline).await?;
    deployment.show(args.json).await
}

struct Deployment {
    jobs: Jobs,
    name: String,
    progress: PreparationClock,
}

impl Deployment {
    /// Fails if a deployment of this name runs: it may be another user's, and its sessions would end.
    async fn is_free(&self) -> Result<(), DeployError> {
        let jobs = self.mine().await?;
        match jobs.iter().find(|job| !job.ended()) {
            None => Ok(()),
            Some(job) => Err(DeployError::Runs {
                name: self.name.clone(),
                id: replaced(&job.submission_id).into_owned(),
                relays: one_line(
                    typed_at::<Option<&str>>(&job.metadata, "ray_relay").unwrap_or("not said"),
                ),
            }),
        }
    }

    /// Uploads the package and submits the job, replacing a running one. Returns its submission id.
    ///
    /// Each job has a fresh id: Ray appends to the log of a job whose id was used before, and on 2.60 the old job's
    /// monitor marks the new one as failed.
    async fn submit(&self, target: &DeployTarget) -> Result<String, DeployError> {
        let id = format!("ray-relay-{}-{:016x}", self.name, rand::random::<u64>());
        // Fails early without permission to make changes, before megabytes are sent: there is no such job.
        self.jobs.forget(&id).await?;
        let step = self.progress.step("packing this program");
        let package = match tokio::task::spawn_blocking(package).await {
            Ok(package) => package?,
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        };
        step.done(format_args!("{:.1} MB", package.len() as f64 / 1e6));
        let step = self.progress.step("uploading it");
        let uri = self.jobs.upload_package(package).await?;
        step.done(&uri);
        self.end_all().await?;
        // Ray starts the job through a shell, where a quote would end the argument.
        let plan = target.plan().to_string().replace('\'', "\\u0027");
        let request = json!({
            "submission_id": id,
            "entrypoint": format!("python -u {DRIVER_FILE} '{plan}'"),
            "runtime_env": {
                "working_dir": uri,
                "env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": STOP_WAIT},
            },
            "metadata": {
                DEPLOYMENT: self.name,
                "ray_relay_version": env!("CARGO_PKG_VERSION"),
                "ray_relay": target.relays(),
            },
        });
        Ok(self.jobs.submit(&request).await?)
    }

    /// Waits for the driver's key, and sends it the sealed secrets.
    async fn hand_over(
        &self,
        id: &str,
        target: &DeployTarget,
        deadline: Instant,
    ) -> Result<(), DeployError> {
        let mut step = self.progress.step(format_args!("the job {id} begins"));
        let key = loop {
            let report = self.driver_report(id).await;
            if let Some(fatal) = report.fatal {
                return Err(DeployError::Incomplete(fatal));
            }
            if let Some(key) = report.key {
                break key;
            }
            self.check_job(id, deadline).await?;
            let seconds = step.elapsed().as_secs();
            step.pulse(|| format!("Ray prepares it, {seconds} s"));
            sleep(POLL_INTERVAL).await;
        };
        let sealed = sealed::seal(&key, &target.files.text()?)?;
        // The driver derives the name from its key.
        let of_key = hex(digest(&SHA256, key.as_bytes()).as_ref());
        let name = format!("ray_relay_sealed_{}", &of_key[..32]);
        self.jobs.put_package(&name, sealed.into()).await?;
        step.done("it has been given the credential, sealed");
        Ok(())
    }

    /// Waits until the agents of all nodes run, or no more are expected.
    async fn wait_running(&self, id: &str, deadline: Instant) -> Result<(), DeployError> {
        let mut step = self.progress.step("agents begin");
        let (mut reported, mut last, mut since) = (0, Vec::new(), Instant::now());
        loop {
            let state = self.state().await?;
            let (running, nodes) = state.running();
            if running > reported {
                reported = running;
                step.note(format_args!("{running} of {nodes} nodes have an agent"));
            }
            let now = state.processes();
            if now != last {
                (last, since) = (now, Instant::now());
            }
            let still = since.elapsed();
            if state.is_complete() && still >= STARTED_AFTER {
                step.done("all of them run");
                return Ok(());
            }
            if (state.is_settled() && still >= HOPELESS_AFTER) || Instant::now() >= deadline {
                step.done(format_args!("{running} of {nodes} nodes have an agent"));
                return Ok(());
            }
            self.check_job(id, deadline + POLL_INTERVAL).await?;
            let seconds = step.elapsed().as_secs();
            step.pulse(|| format!("{running} of {nodes} nodes have an agent, {seconds} s"));
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Fails if the job has ended, or `deadline` has passed.
    async fn check_job(&self, id: &str, deadline: Instant) -> Result<(), DeployError> {
        let what = match self.jobs.job(id).await? {
            Some(job) if job.ended() => {
                format!("has ended ({}): {}", job.status, one_line(&job.message))
            }
            Some(job) if Instant::now() >= deadline => {
                let message = one_line(&job.message);
                format!("is not ready in time ({}): {message}", job.status)
            }
            Some(_) => return Ok(()),
            None => "is gone".to_owned(),
        };
        let output = self.jobs.output(id).await.unwrap_or_default();
        let skipped = output.lines().count().saturating_sub(15);
        let last: Vec<_> = output.lines().skip(skipped).map(replaced).collect();
        Err(DeployError::Job {
            id: id.to_owned(),
            what,
            output: last.join("\n"),
        })
    }

    /// The jobs of this deployment: running ones first, then the latest.
    async fn mine(&self) -> Result<Vec<JobState>, DeployError> {
        let mut jobs = self.jobs.list().await?;
        jobs.retain(|job| typed_at::<&str>(&job.metadata, DEPLOYMENT) == self.name);
        jobs.sort_by_key(|job| std::cmp::Reverse((!job.ended(), job.start_time)));
        Ok(jobs)
    }

    /// The driver's report so far. Ray fails this request for a starting job, which has no output yet.
    async fn driver_report(&self, id: &str) -> DriverReport {
        DriverReport::read(&self.jobs.output(id).await.unwrap_or_default())
    }

    async fn state(&self) -> Result<DeploymentState, DeployError> {
        let job = self.mine().await?.into_iter().next();
        let report = match &job {
            Some(job) => self.driver_report(&job.submission_id).await,
            None => DriverReport::default(),
        };
        let nodes = self.jobs.nodes_alive().await?;
        Ok(DeploymentState::new(&self.name, job, &nodes, &report))
    }

    /// Prints the state; an error if an agent is missing.
    async fn show(&self, json: bool) -> Result<(), DeployError> {
        let state = self.state().await?;
        let mut out = std::io::stdout().lock();
        if json {
            writeln!(out, "{:#}", state.json())?;
        } else {
            write!(out, "{}", state.table(SystemTime::now()))?;
        }
        let (running, nodes) = state.running();
        let what = match &state.job {
            _ if state.is_complete() => return Ok(()),
            None => "nothing is deployed".to_owned(),
            Some(job) if job.ended() => format!(
                "nothing is deployed: the job {} has ended ({}) {}",
                job.submission_id,
                one_line(&job.status),
                one_line(&job.message)
            ),
            Some(_) => format!(
                "{running} of {nodes} nodes have an agent that runs; what an agent says is in the log of its actor \
                 (class RayRelay in the dashboard)"
            ),
        };
        Err(DeployError::Incomplete(what))
    }

    /// Ends the deployment, and reports it.
    async fn remove(&self, json: bool) -> Result<(), DeployError> {
        let removed = self.end_all().await?;
        let name = &self.name;
        let mut out = std::io::stdout().lock();
        if json {
            writeln!(out, "{}", json!({"deployment": name, "removed": removed}))?;
        } else if removed {
            writeln!(out, "Removed {name}: no process of it is left.")?;
        } else {
            writeln!(out, "Nothing to remove: no job of {name} runs.")?;
        }
        Ok(())
    }

    /// Ends all jobs of this deployment. Returns whether there were any.
    async fn end_all(&self) -> Result<bool, DeployError> {
        let mut any = false;
        for job in self.mine().await?.iter().filter(|job| !job.ended()) {
            any = true;
            let id = &job.submission_id;
            let mut step = self.progress.step(format_args!("ending {id}"));
            self.end(id, &mut step).await?;
            step.done("it has ended");
        }
        Ok(any)
    }

    /// Ends a job, which ends its agents, and waits until no process of it remains.
    async fn end(&self, id: &str, step: &mut ProgressStep<'_>) -> Result<(), DeployError> {
        let deadline = Instant::now() + STOP_DEADLINE;
        let late = |what: &str| {
            let seconds = STOP_DEADLINE.as_secs();
            DeployError::Incomplete(format!(
                "{what} ended after {seconds} s: try again with --remove"
            ))
        };
        self.jobs.stop(id).await?;
        let job_id = loop {
            match self.jobs.job(id).await? {
                None => return Ok(()),
                Some(job) if job.ended() => break job.job_id,
                Some(_) if Instant::now() >= deadline => return Err(late("the job has not")),
                Some(_) => {}
            }
            step.pulse(|| "agents take leave of their workers".to_owned());
            sleep(POLL_INTERVAL).await;
        };
        // A job that ended before its driver started has no actors.
        if let Some(job_id) = job_id {
            let query = format!(
                "actors?detail=1&limit=10000&filter_keys=job_id&filter_predicates=%3D&filter_values={job_id}"
            );
            loop {
                let actors = self.jobs.rows(&query).await?;
                let alive = actors
                    .iter()
                    .filter(|actor| typed_at::<&str>(actor, "state") != "DEAD");
                match alive.count() {
                    0 => break,
                    alive if Instant::now() >= deadline => {
                        return Err(late(&format!("{alive} of its actors have not")));
                    }
                    _ => sleep(POLL_INTERVAL).await,
                }
            }
        }
        match self.driver_report(id).await.left {
            Some(nodes) if !nodes.is_empty() => Err(DeployError::Incomplete(format!(
                "it has ended, but on these nodes the end of the agent is not confirmed: {}",
                replaced(&nodes.join(", "))
            ))),
            _ => Ok(()),
        }
    }
}

/// Packs the running program and its driver.
fn package() -> Result<bytes::Bytes, DeployError> {
    if std::env::consts::OS != "linux" {
        return Err(DeployError::NotLinux);
    }
    // The program itself, even if its file has been replaced since.
    let path = std::path::Path::new("/proc/self/exe");
    let unreadable = |cause| DeployError::File {
        file: path.to_owned(),
        cause,
    };
    let program = std::fs::read(path).map_err(unreadable)?;
    let entries = [
        ZipEntry {
            name: DRIVER_FILE,
            content: DRIVER.as_bytes(),
            executable: false,
        },
        ZipEntry {
            name: PROGRAM_FILE,
            content: &program,
            executable: true,
        },
    ];
    zip::archive(&entries).map_err(unreadable)
}
