//! The lines of a cluster session in one job, with what the audit log has of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use ray_relay_access::audit::Unavailable;
use ray_relay_access::identity::Principal;
use ray_relay_base::wire::json::put;
use ray_relay_base::wire::tunnel::messages::ArmedLine;
use ray_relay_session::armed::{JobLease, WholeJob};
use ray_relay_session::context::Context;
use ray_relay_session::session::audit::SessionAudit;

/// The lines in one job. Dropping it disarms them.
pub(super) struct ArmedJob {
    pub(super) lease: JobLease,
    /// All lines that were armed, by their numbers, with their hits.
    recorded: BTreeMap<u32, (Value, u64)>,
}

/// What may be armed in `job` of `all`: no log messages where a rule has sessions recorded, because nothing records
/// these.
pub(super) fn permitted(
    job: &WholeJob,
    principal: &Principal,
    all: &Arc<[ArmedLine]>,
) -> Arc<[ArmedLine]> {
    match job.is_recorded(principal) {
        false => Arc::clone(all),
        true => {
            let stops = all.iter().filter(|line| line.log.is_none());
            stops.cloned().collect()
        }
    }
}

impl ArmedJob {
    /// Arms `lines` in `job`, once they are on record.
    ///
    /// # Errors
    /// They cannot be put on record.
    pub(super) async fn new(
        context: &Context,
        principal: &Principal,
        audit: &SessionAudit<'_>,
        job: WholeJob,
        lines: Arc<[ArmedLine]>,
    ) -> Result<Self, Unavailable> {
        let recorded = BTreeMap::from_iter(lines.iter().map(record));
        audit.arms(entry("arm", &job, &recorded)).await?;
        let lease = JobLease::new(context, job, principal, lines).await;
        Ok(Self { lease, recorded })
    }

    /// Replaces the lines. Removed ones are disarmed at once, and new ones armed once they are on record.
    ///
    /// # Errors
    /// New lines cannot be put on record: they are not armed.
    pub(super) async fn set(
        &mut self,
        audit: &SessionAudit<'_>,
        lines: Arc<[ArmedLine]>,
    ) -> Result<(), Unavailable> {
        let armed = self.lease.lines();
        let is_kept = |line: &&ArmedLine| armed.contains(line);
        let (kept, added): (Vec<&ArmedLine>, Vec<_>) = lines.iter().partition(is_kept);
        if added.is_empty() || kept.len() < armed.len() {
            let kept = kept.into_iter().cloned().collect();
            self.lease.set_lines(kept);
        }
        if added.is_empty() {
            return Ok(());
        }
        let added = BTreeMap::from_iter(added.into_iter().map(record));
        audit.arms(entry("arm", self.lease.job(), &added)).await?;
        self.recorded.extend(added);
        self.lease.set_lines(lines);
        Ok(())
    }

    /// Counts a hit of the line `id`, if it has that.
    pub(super) fn count(&mut self, id: u32) {
        if let Some((_, hits)) = self.recorded.get_mut(&id) {
            *hits += 1;
        }
    }

    pub(super) fn hits(&self) -> u64 {
        self.recorded.values().map(|(_, hits)| hits).sum()
    }

    /// Disarms the lines, and returns the details for the audit log.
    pub(super) async fn disarm(mut self) -> Map<String, Value> {
        let job = self.lease.job().clone();
        self.lease.disarm().await;
        for (line, hits) in self.recorded.values_mut() {
            put(line, "hits", *hits);
        }
        entry("disarm", &job, &self.recorded)
    }
}

/// The line for the audit log, by its number, without a hit.
fn record(line: &ArmedLine) -> (u32, (Value, u64)) {
    let mut recorded = json!({ "file": &*line.file, "line": line.line });
    let texts = [
        ("or_file", line.or_file.as_deref()),
        ("condition", line.condition.as_deref()),
        ("log", line.log.as_deref()),
        ("hit", line.hit.as_deref()),
    ];
    for (key, text) in texts {
        if let Some(text) = text {
            put(&mut recorded, key, text);
        }
    }
    if let Some(ranks) = &line.ranks {
        put(&mut recorded, "ranks", ranks.clone());
    }
    (line.id, (recorded, 0))
}

fn entry(command: &str, job: &WholeJob, lines: &BTreeMap<u32, (Value, u64)>) -> Map<String, Value> {
    let lines = lines.values().map(|(line, _)| line.clone());
    let mut details = Map::new();
    details.insert("command".into(), command.into());
    details.insert("cluster".into(), (*job.cluster).into());
    details.insert("job_id".into(), job.job_id.clone().into());
    details.insert("lines".into(), lines.collect());
    details
}
