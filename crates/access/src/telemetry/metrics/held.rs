//! Resources held up by breakpoints, by job: how many tasks, for how long, and their CPUs and GPUs.
//!
//! The registry reports every change, so that short stops are counted too. Ongoing stops are charged at each scrape.
//! Bounded: as many breakpoints as the registry lists, and [`MAX_JOBS`] jobs have series of their own.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus::{CounterVec, GaugeVec, IntGaugeVec, Opts, Registry};
use tokio::time::Instant;

use super::register::register;
use ray_relay_ray::ray::registry::{Amount, Breakpoint, BreakpointId, Change, Resources, State};

/// Jobs with series of their own, of all clusters together: users must not be able to create series without end.
const MAX_JOBS: usize = 50;

/// How long a job that holds nothing keeps its series if another one needs the slot. Prometheus has scraped its last
/// values by then.
const IDLE_SERIES_PERIOD: Duration = Duration::from_secs(3600);

/// The label of jobs beyond the limit.
const OTHER_JOB: &str = "other";

/// The label if the job is unknown.
const UNKNOWN_JOB: &str = "unknown";

/// Ray's job ids have eight characters.
const MAX_JOB_ID_CHARS: usize = 40;

/// The families, and the accounts they are computed from.
#[derive(Debug)]
pub(super) struct HeldMetrics {
    accounts: Mutex<Accounts>,
    families: HeldFamilies,
}

#[derive(Debug)]
struct HeldFamilies {
    tasks: IntGaugeVec,
    cpus: GaugeVec,
    gpus: GaugeVec,
    collective_left: GaugeVec,
    seconds: CounterVec,
    cpu_seconds: CounterVec,
    gpu_seconds: CounterVec,
}

#[derive(Debug, Default)]
struct Accounts {
    live: HashMap<BreakpointId, HeldStop>,
    /// The jobs with series of their own, and when each last held something.
    jobs: HashMap<HeldJob, Instant>,
    /// All label sets with series.
    groups: HashSet<HeldGroup>,
}

/// Cluster and id.
type HeldJob = (Arc<str>, Arc<str>);

/// A set of labels.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct HeldGroup {
    cluster: Arc<str>,
    kind: &'static str,
    job: Arc<str>,
}

impl HeldGroup {
    fn labels(&self) -> [&str; 3] {
        [&self.cluster, self.kind, &self.job]
    }
}

/// One stopped task.
#[derive(Debug)]
struct HeldStop {
    group: HeldGroup,
    /// Whether its job has been looked up. Until then its time is not charged, because the job will be known in a
    /// moment.
    is_known: bool,
    cpus: Amount,
    gpus: Amount,
    /// When collectives that wait for it time out, if known.
    times_out: Option<Instant>,
    /// The time up to which it has been charged.
    charged: Instant,
}

/// The totals of one group.
#[derive(Debug, Default)]
struct Sum {
    tasks: i64,
    cpus: Amount,
    gpus: Amount,
    times_out: Option<Instant>,
    seconds: f64,
    cpu_seconds: f64,
    gpu_seconds: f64,
}

impl Sum {
    /// Charges `stop` for the time until `now`.
    fn charge(&mut self, stop: &mut HeldStop, now: Instant) {
        let seconds = now.saturating_duration_since(stop.charged).as_secs_f64();
        stop.charged = now;
        self.seconds += seconds;
        self.cpu_seconds += seconds * stop.cpus.as_f64();
        self.gpu_seconds += seconds * stop.gpus.as_f64();
    }
}

impl HeldMetrics {
    pub(super) fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let tasks = family!(
            IntGaugeVec["cluster", "kind", "ray_job"] = "ray_relay_held_tasks",
            "Tasks that breakpoints hold up now, waiting or in sessions. 50 jobs have series of their own, the rest is `other`."
        )?;
        let cpus = family!(
            GaugeVec["cluster", "kind", "ray_job"] = "ray_relay_held_cpus",
            "CPUs that these tasks hold now, as Ray accounts for them."
        )?;
        let gpus = family!(
            GaugeVec["cluster", "kind", "ray_job"] = "ray_relay_held_gpus",
            "GPUs that these tasks hold now, as Ray accounts for them."
        )?;
        let collective_left = family!(
            GaugeVec["cluster", "kind", "ray_job"] = "ray_relay_collective_seconds_left",
            "Time until the first collectives time out that wait for these tasks, where a limit is known and no client debugs them; 0: it is over."
        )?;
        let seconds = family!(
            CounterVec["cluster", "kind", "ray_job"] = "ray_relay_held_seconds_total",
            "Time for which breakpoints have held up tasks."
        )?;
        let cpu_seconds = family!(
            CounterVec["cluster", "kind", "ray_job"] = "ray_relay_held_cpu_seconds_total",
            "The same times the CPUs that the tasks held."
        )?;
        let gpu_seconds = family!(
            CounterVec["cluster", "kind", "ray_job"] = "ray_relay_held_gpu_seconds_total",
            "The same times the GPUs that the tasks held."
        )?;
        Ok(Self {
            accounts: Mutex::default(),
            families: HeldFamilies {
                tasks: register(registry, tasks)?,
                cpus: register(registry, cpus)?,
                gpus: register(registry, gpus)?,
                collective_left: register(registry, collective_left)?,
                seconds: register(registry, seconds)?,
                cpu_seconds: register(registry, cpu_seconds)?,
                gpu_seconds: register(registry, gpu_seconds)?,
            },
        })
    }

    /// Records a change of the registry.
    pub(super) fn changed(&self, change: Change, breakpoint: &Breakpoint) {
        let now = Instant::now();
        let accounts = &mut *self.accounts.lock();
        match change {
            Change::Released | Change::Died => {
                if let Some(mut stop) = accounts.live.remove(&breakpoint.id) {
                    self.families.charge(&mut stop, now);
                }
            }
            // An announcement only: nothing has changed.
            Change::Releasing => {}
            // It is running, as far as Ray knows.
            _ if breakpoint.state == State::Unlisted => {}
            Change::Appeared
            | Change::Named
            | Change::Attached
            | Change::Parked
            | Change::Unreachable => accounts.live(&self.families, breakpoint, now),
        }
    }

    /// Removes the series of `cluster`, which is gone.
    pub(super) fn gone(&self, cluster: &str) {
        let accounts = &mut *self.accounts.lock();
        accounts
            .live
            .retain(|_, stop| &*stop.group.cluster != cluster);
        accounts.jobs.retain(|(of, _), _| &**of != cluster);
        accounts.groups.retain(|group| {
            let stays = &*group.cluster != cluster;
            if !stays {
                self.families.forget(group);
            }
            stays
        });
    }

    /// Updates the families for a scrape.
    pub(super) fn refresh(&self) {
        let now = Instant::now();
        let accounts = &mut *self.accounts.lock();
        let mut sums: HashMap<&HeldGroup, Sum> = HashMap::new();
        for stop in accounts.live.values_mut() {
            let HeldStop {
                group,
                cpus,
                gpus,
                times_out,
                ..
            } = &*stop;
            let sum = match sums.get_mut(group) {
                Some(sum) => sum,
                None => {
                    // Borrowed from the set, which outlives the sums.
                    let Some(group) = accounts.groups.get(group) else {
                        continue;
                    };
                    sums.entry(group).or_default()
                }
            };
            sum.tasks += 1;
            sum.cpus += *cpus;
            sum.gpus += *gpus;
            sum.times_out = [sum.times_out, *times_out].into_iter().flatten().min();
            if stop.is_known {
                sum.charge(stop, now);
            }
        }
        let none = Sum::default();
        for group in &accounts.groups {
            let sum = sums.get(group).unwrap_or(&none);
            self.families.add(group, sum);
            let labels = &group.labels();
            let HeldFamilies {
                tasks, cpus, gpus, ..
            } = &self.families;
            tasks.with_label_values(labels).set(sum.tasks);
            cpus.with_label_values(labels).set(sum.cpus.as_f64());
            gpus.with_label_values(labels).set(sum.gpus.as_f64());
            self.families.time_collectives(labels, sum.times_out, now);
            let job = (Arc::clone(&group.cluster), Arc::clone(&group.job));
            if sum.tasks > 0
                && let Some(used) = accounts.jobs.get_mut(&job)
            {
                *used = now;
            }
        }
    }
}

impl HeldFamilies {
    fn charge(&self, stop: &mut HeldStop, now: Instant) {
        let mut sum = Sum::default();
        sum.charge(stop, now);
        self.add(&stop.group, &sum);
    }

    fn add(&self, group: &HeldGroup, sum: &Sum) {
        let labels = &group.labels();
        for (family, seconds) in [
            (&self.seconds, sum.seconds),
            (&self.cpu_seconds, sum.cpu_seconds),
            (&self.gpu_seconds, sum.gpu_seconds),
        ] {
            family.with_label_values(labels).inc_by(seconds);
        }
    }

    fn time_collectives(&self, labels: &[&str; 3], times_out: Option<Instant>, now: Instant) {
        let Some(at) = times_out else {
            // Fails if there is no such series.
            let _ = self.collective_left.remove_label_values(labels);
            return;
        };
        let remaining = at.saturating_duration_since(now).as_secs_f64();
        self.collective_left
            .with_label_values(labels)
            .set(remaining);
    }

    fn forget(&self, group: &HeldGroup) {
        let labels = &group.labels();
        // Fails if there is no such series.
        let _ = self.tasks.remove_label_values(labels);
        for family in [&self.cpus, &self.gpus, &self.collective_left] {
            let _ = family.remove_label_values(labels);
        }
        for family in [&self.seconds, &self.cpu_seconds, &self.gpu_seconds] {
            let _ = family.remove_label_values(labels);
        }
    }
}

impl Accounts {
    /// Records that `breakpoint` holds up a task, as far as known.
    fn live(&mut self, families: &HeldFamilies, breakpoint: &Breakpoint, now: Instant) {
        let resources = breakpoint.names.resources.as_ref();
        let (cpus, gpus) = (
            resources.map(Resources::cpus).unwrap_or_default(),
            resources.map(Resources::gpus).unwrap_or_default(),
        );
        let is_known = breakpoint.names.name.is_some();
        let group = self.group(families, breakpoint, now);
        let stop = self.live.entry(breakpoint.id).or_insert_with(|| HeldStop {
            group: group.clone(),
            is_known,
            cpus,
            gpus,
            times_out: None,
            charged: now,
        });
        stop.times_out = breakpoint.collective_ends().map(|ends| ends.instant);
        let as_known = (stop.cpus, stop.gpus) == (cpus, gpus) && stop.group == group;
        if stop.is_known && !as_known {
            families.charge(stop, now);
        }
        (stop.cpus, stop.gpus, stop.group) = (cpus, gpus, group);
        stop.is_known = is_known;
    }

    fn group(
        &mut self,
        families: &HeldFamilies,
        breakpoint: &Breakpoint,
        now: Instant,
    ) -> HeldGroup {
        let job: Arc<str> = match breakpoint.names.job_id.as_deref() {
            None => UNKNOWN_JOB.into(),
            Some(id) => {
                let id: Arc<str> = id.chars().take(MAX_JOB_ID_CHARS).collect::<String>().into();
                match self.has_series(families, (Arc::clone(&breakpoint.cluster), id.clone()), now)
                {
                    true => id,
                    false => OTHER_JOB.into(),
                }
            }
        };
        let group = HeldGroup {
            cluster: Arc::clone(&breakpoint.cluster),
            kind: breakpoint.kind.word(),
            job,
        };
        if !self.groups.contains(&group) {
            self.groups.insert(group.clone());
        }
        group
    }

    /// Whether `job` has series of its own. If necessary it takes over the slot of a job that has held nothing for
    /// long.
    fn has_series(&mut self, families: &HeldFamilies, job: HeldJob, now: Instant) -> bool {
        while !self.jobs.contains_key(&job) && self.jobs.len() >= MAX_JOBS {
            let oldest = self.jobs.iter().min_by_key(|(_, used)| **used);
            let Some((oldest, used)) = oldest.map(|(job, used)| (job.clone(), *used)) else {
                break;
            };
            if now.saturating_duration_since(used) < IDLE_SERIES_PERIOD {
                return false;
            }
            // The last scrape may be long ago: each job is checked against all live stops, at most once in that time.
            let is_of = |group: &HeldGroup| group.cluster == oldest.0 && group.job == oldest.1;
            if self.live.values().any(|stop| is_of(&stop.group)) {
                self.jobs.insert(oldest, now);
                continue;
            }
            self.groups.retain(|group| {
                let is_dropped = is_of(group);
                if is_dropped {
                    families.forget(group);
                }
                !is_dropped
            });
            self.jobs.remove(&oldest);
        }
        self.jobs.insert(job, now);
        true
    }
}

#[cfg(test)]
mod tests;
