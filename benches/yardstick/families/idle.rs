//! Memory of sessions in which nothing happens, and what is left of it when they are gone.

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

/// Until what was needed for a moment only has been given back.
const SETTLED: Duration = Duration::from_secs(2);
/// Until the relay has said goodbye to all workers, and has looked after them.
const GONE: Duration = Duration::from_secs(12);

pub(super) struct Idle {
    pub(super) sessions: usize,
    pub(super) tls: bool,
}

/// Open files of a process beside the two that it has for each session.
const FILES: u64 = 200;

/// How many sessions this process and those that it starts have open files for.
fn most() -> usize {
    usize::try_from(open_files().saturating_sub(FILES) / 2).unwrap_or(usize::MAX)
}

/// How many sessions at a time are measured.
pub(super) fn sizes(yard: &Yard) -> Vec<usize> {
    let mut sizes = yard.size(vec![1_000, 5_000], vec![50]);
    if yard.full {
        sizes.push(most().min(10_000));
    }
    sizes
}

impl Family for Idle {
    type Open = Scene;

    const ONCE: bool = true;

    const CONTESTANTS: &[Contestant] = &Contestant::PROXIES;

    fn rows(&self, _yard: &Yard) -> Vec<Row> {
        let how = if self.tls { ", TLS" } else { "" };
        let most = if self.tls { 20.0 } else { 6.0 };
        let each = Row::new(
            format!("memory of each of {} idle{how}", self.sessions),
            Unit::KIB,
        );
        vec![
            each.goal(Goal::Within(most * 1024.0)),
            Row::new("  of all, given back when they are gone", Unit::PERCENT).difference(),
            Row::new("  resident before", Unit::MIB),
        ]
    }

    async fn open(&self, yard: &Yard, contestant: Contestant) -> Result<Scene> {
        let (sessions, most) = (self.sessions, most());
        if sessions > most {
            return Err(format!(
                "{sessions} sessions take more open files than a process may have here, which is enough for {most}: raise `ulimit -n`"
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
        sleep(yard.size(SETTLED, SETTLED / 10)).await;
        let before = scene.memory()?;
        let mut sessions = Vec::with_capacity(self.sessions);
        for index in 0..self.sessions {
            sessions.push(Session::open(&scene.target(index)?).await?);
        }
        sleep(yard.size(SETTLED, SETTLED / 10)).await;
        let held = scene.memory()? - before;
        drop(sessions);
        sleep(yard.size(GONE, SETTLED / 10)).await;
        let left = scene.memory()? - before;
        Ok(vec![
            held / self.sessions as f64,
            (held - left) / held,
            before,
        ])
    }
}
