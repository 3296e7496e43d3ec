//! From dialling to an attach that is answered: one at a time, and as many as sixteen clients make.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::Result;
use crate::harness::client::{Session, Target};
use crate::harness::contest::{Contestant, Family};
use crate::harness::scene::{Access, Plan, Scene};
use crate::harness::table::{Goal, Row, Unit, percentile};
use crate::harness::yard::Yard;
use crate::stand_in::Size;

/// Clients at a time.
const CLIENTS: usize = 16;

pub(super) struct Attach {
    pub(super) access: Access,
    /// Among so many that are paused, with the contestant on one core.
    pub(super) among: Option<usize>,
}

/// Each of the workers is attached to once a round: its debugger needs a moment between two clients.
pub(super) struct Open {
    scene: Scene,
    sequential: Vec<Target>,
    parallel: Arc<Vec<Target>>,
}

impl Family for Attach {
    type Open = Open;

    fn pinned(&self) -> bool {
        self.among.is_some()
    }

    fn rows(&self, _yard: &Yard) -> Vec<Row> {
        let (how, max_ratio) = match self.access {
            Access::Everybody => ("", 1.5),
            _ => (", token and audit", 2.5),
        };
        let among = self
            .among
            .map(|paused| format!(", one core, {paused} paused"));
        let how = among.unwrap_or_default() + how;
        let parallel = Row::new(
            format!("attaches by {CLIENTS} at once{how}"),
            Unit::A_SECOND,
        );
        vec![
            Row::new(
                format!("connect to attach answered{how}"),
                Unit::MILLISECONDS,
            )
            .goal(Goal::AtMost(max_ratio, Contestant::HaProxy)),
            match self.access {
                Access::Everybody if self.among.is_none() => {
                    parallel.goal(Goal::AtLeast(0.85, Contestant::HaProxy))
                }
                _ => parallel,
            },
            Row::new("  CPU of each", Unit::MICROSECONDS),
        ]
    }

    async fn open(&self, yard: &Yard, contestant: Contestant) -> Result<Open> {
        let (sequential, parallel) = yard.size((64, 448), (4, 32));
        let workers = sequential + parallel;
        let rows = self.among.map_or(0, |paused| paused - workers);
        let mut plan = Plan::new(Size {
            workers,
            rows,
            shown: rows,
            ..Size::default()
        });
        (plan.pinned, plan.access) = (self.among.is_some(), self.access);
        let scene = Scene::open(yard, contestant, &plan).await?;
        let targets: Result<Vec<Target>> = (0..workers).map(|index| scene.target(index)).collect();
        let mut sequential = targets?;
        let parallel = Arc::new(sequential.split_off(sequential.len() - parallel));
        Ok(Open {
            scene,
            sequential,
            parallel,
        })
    }

    async fn round(&self, _yard: &Yard, open: &mut Open) -> Result<Vec<f64>> {
        let (mut sessions, mut times) = one_after_another(&open.sequential, Duration::ZERO).await?;
        let (start, before) = (Instant::now(), open.scene.cpu()?);
        sessions.extend(attach_in_parallel(&open.parallel).await?);
        let elapsed = start.elapsed().as_secs_f64();
        let cpu = open.scene.cpu()? - before;
        for session in sessions {
            session.leave().await?;
        }
        open.scene.until_can_be_dialled(0).await?;
        let attaches = open.parallel.len() as f64;
        Ok(vec![
            percentile(&mut times, 50),
            attaches / elapsed,
            cpu / attaches,
        ])
    }
}

/// The sessions, and the seconds that each took. There is a `pause` before each.
pub(super) async fn one_after_another(
    targets: &[Target],
    pause: Duration,
) -> Result<(Vec<Session>, Vec<f64>)> {
    let (mut sessions, mut times) = (Vec::new(), Vec::new());
    for target in targets {
        sleep(pause).await;
        let start = Instant::now();
        sessions.push(Session::open(target).await?);
        times.push(start.elapsed().as_secs_f64());
    }
    Ok((sessions, times))
}

async fn attach_in_parallel(targets: &Arc<Vec<Target>>) -> Result<Vec<Session>> {
    let next = Arc::new(AtomicUsize::new(0));
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        let (targets, next) = (Arc::clone(targets), Arc::clone(&next));
        clients.spawn(async move {
            let mut sessions = Vec::new();
            while let Some(target) = targets.get(next.fetch_add(1, Ordering::Relaxed)) {
                sessions.push(Session::open(target).await?);
            }
            Result::Ok(sessions)
        });
    }
    let mut sessions = Vec::new();
    while let Some(done) = clients.join_next().await {
        sessions.extend(done??);
    }
    Ok(sessions)
}
