//! A lost client: the time until another client can attach to its breakpoint.

use std::time::{Duration, Instant};

use tokio::time::sleep;

use crate::Result;
use crate::harness::client::{Asked, Session};
use crate::harness::contest::{Contestant, Family};
use crate::harness::scene::{Plan, Scene};
use crate::harness::table::{Goal, Row, Unit, percentile};
use crate::harness::yard::Yard;
use crate::stand_in::Size;

pub(super) struct Leave;

impl Family for Leave {
    type Open = Scene;

    const CONTESTANTS: &[Contestant] = &Contestant::RELAYS;

    fn rows(&self, _yard: &Yard) -> Vec<Row> {
        let row = Row::new(
            "bare close until the breakpoint waits again",
            Unit::MILLISECONDS,
        );
        vec![row.goal(Goal::Within(20e-3))]
    }

    async fn open(&self, yard: &Yard, contestant: Contestant) -> Result<Scene> {
        let size = Size {
            workers: 1,
            ..Size::default()
        };
        Scene::open(yard, contestant, &Plan::new(size)).await
    }

    async fn round(&self, yard: &Yard, scene: &mut Scene) -> Result<Vec<f64>> {
        let mut times = Vec::new();
        for _ in 0..yard.size(5, 1) {
            let mut session = Session::open(&scene.target(0)?).await?;
            session.trips(Asked::Stack, Duration::ZERO).await?;
            // The wait would end at once if the relay's list did not show it as attached yet.
            sleep(Duration::from_millis(20)).await;
            let start = Instant::now();
            drop(session);
            scene.until_all_wait().await?;
            times.push(start.elapsed().as_secs_f64());
        }
        Ok(vec![percentile(&mut times, 50)])
    }
}
