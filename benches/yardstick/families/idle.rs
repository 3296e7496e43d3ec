//! The memory of idle sessions, and what is retained after they end.

use std::time::Duration;

use tokio::time::sleep;

use crate::Result;
use crate::harness::client::Session;
use crate::harness::contest::{Contestant, Family};
use crate::harness::process::open_files;
use crate::harness::scene::{Plan, Scene};
use crate::harness::table::{Goal, Row, Unit};
use crate::harness::yard::Yard;
use crate::stand_in::Size;

/// Lets temporary memory be released.
const SETTLE_TIME: Duration = Duration::from_secs(2);
/// Lets the relay detach from all workers and check them.
const RELEASE_WAIT: Duration = Duration::from_secs(12);

pub(super) struct Idle {
    pub(super) sessions: usize,
    pub(super) tls: bool,
}

/// Open files of a process apart from the two of each session.
const SPARE_FILES: u64 = 200;

/// Returns how many sessions the limit of open files allows.
fn max_sessions() -> usize {
    usize::try_from(open_files().saturating_sub(SPARE_FILES) / 2).unwrap_or(usize::MAX)
}

/// Returns the numbers of concurrent sessions to measure.
pub(super) fn sizes(yard: &Yard) -> Vec<usize> {
    let mut sizes = yard.size(vec![1_000, 5_000], vec![50]);
    if yard.full {
        sizes.push(max_sessions().min(10_000));
    }
    sizes
}

impl Family for Idle {
    type Open = Scene;

    const ONCE: bool = true;

    const CONTESTANTS: &[Contestant] = &Contestant::PROXIES;

    fn rows(&self, _yard: &Yard) -> Vec<Row> {
        let how = if self.tls { ", TLS" } else { "" };
        let max_kib = if self.tls { 20.0 } else { 6.0 };
        let each = Row::new(
            format!("memory of each of {} idle{how}", self.sessions),
            Unit::KIB,
        );
        vec![
            each.goal(Goal::Within(max_kib * 1024.0)),
            Row::new("  of all, given back when they are gone", Unit::PERCENT).difference(),
            Row::new("  resident before", Unit::MIB),
        ]
    }

    async fn open(&self, yard: &Yard, contestant: Contestant) -> Result<Scene> {
        let (sessions, limit) = (self.sessions, max_sessions());
        if sessions > limit {
            return Err(format!(
                "{sessions} sessions take more open files than a process may have here, which is enough for {limit}: raise `ulimit -n`"
            )
            .into());
        }
        let size = Size {
            workers: self.sessions,
            ..Size::default()
        };
        let mut plan = Plan::new(size);
        plan.tls = self.tls;
        // The list is there, and is seldom to be asked for meanwhile.
        plan.poll = Duration::from_secs(10);
        Scene::open(yard, contestant, &plan).await
    }

    async fn round(&self, yard: &Yard, scene: &mut Scene) -> Result<Vec<f64>> {
        sleep(yard.size(SETTLE_TIME, SETTLE_TIME / 10)).await;
        let before = scene.memory()?;
        let mut sessions = Vec::with_capacity(self.sessions);
        for index in 0..self.sessions {
            sessions.push(Session::open(&scene.target(index)?).await?);
        }
        sleep(yard.size(SETTLE_TIME, SETTLE_TIME / 10)).await;
        let held = scene.memory()? - before;
        drop(sessions);
        sleep(yard.size(RELEASE_WAIT, SETTLE_TIME / 10)).await;
        let retained = scene.memory()? - before;
        Ok(vec![
            held / self.sessions as f64,
            (held - retained) / held,
            before,
        ])
    }
}
