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
    match job.obligations(principal).record {
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
        let recorded = records(&lines).collect();
        audit
            .arms(entry("arm", &job, lines.iter().map(record)))
            .await?;
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
        let kept: Arc<[ArmedLine]> = lines
            .iter()
            .filter(|line| armed.contains(line))
            .cloned()
            .collect();
        let added: Vec<&ArmedLine> = lines.iter().filter(|line| !armed.contains(line)).collect();
        if added.is_empty() || kept.len() < armed.len() {
            self.lease.set_lines(kept);
        }
        if added.is_empty() {
            return Ok(());
        }
        let entry = entry(
            "arm",
            self.lease.job(),
            added.iter().map(|line| record(line)),
        );
        audit.arms(entry).await?;
        self.recorded
            .extend(added.iter().map(|line| (line.id, (record(line), 0))));
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

    /// Disarms the lines, and returns what to put on record.
    pub(super) async fn disarm(self) -> Map<String, Value> {
        let job = self.lease.job().clone();
        self.lease.disarm().await;
        let lines = self.recorded.into_values().map(|(mut line, hits)| {
            put(&mut line, "hits", hits);
            line
        });
        entry("disarm", &job, lines)
    }
}

fn records(lines: &[ArmedLine]) -> impl Iterator<Item = (u32, (Value, u64))> {
    lines.iter().map(|line| (line.id, (record(line), 0)))
}

/// The line for the audit log.
fn record(line: &ArmedLine) -> Value {
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
    recorded
}

fn entry(command: &str, job: &WholeJob, lines: impl Iterator<Item = Value>) -> Map<String, Value> {
    let mut details = Map::new();
    details.insert("command".into(), command.into());
    details.insert("cluster".into(), (*job.cluster).into());
    details.insert("job_id".into(), job.job_id.clone().into());
    details.insert("lines".into(), lines.collect());
    details
}
