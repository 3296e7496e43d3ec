//! Small pages of the Ray dashboard, on connections that are kept open.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::Result;
use crate::harness::contest::{Contestant, Family};
use crate::harness::http::Http;
use crate::harness::scene::{Plan, Scene};
use crate::harness::table::{Goal, Row, Unit};
use crate::harness::yard::Yard;
use crate::stand_in::Size;

const PAGE: &str = "/api/cluster_status";
/// How long pages are requested in a round.
const ROUND_DURATION: Duration = Duration::from_millis(500);

pub(super) struct Dashboard;

pub(super) struct Open {
    scene: Scene,
    connections: Vec<Http>,
}

impl Dashboard {
    fn connections(yard: &Yard) -> usize {
        yard.size(32, 4)
    }
}

impl Family for Dashboard {
    type Open = Open;

    fn rows(&self, yard: &Yard) -> Vec<Row> {
        let connections = Self::connections(yard);
        vec![
            Row::new(
                format!("dashboard pages of 1 KiB over {connections}"),
                Unit::THOUSANDS_A_SECOND,
            )
            .goal(Goal::AtLeast(0.8, Contestant::HaProxy)),
            Row::new("  CPU of each", Unit::MICROSECONDS),
        ]
    }

    async fn open(&self, yard: &Yard, contestant: Contestant) -> Result<Open> {
        let size = Size {
            workers: 1,
            ..Size::default()
        };
        let scene = Scene::open(yard, contestant, &Plan::new(size)).await?;
        let mut connections = Vec::new();
        for _ in 0..Self::connections(yard) {
            connections.push(scene.http().await?);
        }
        Ok(Open { scene, connections })
    }

    async fn round(&self, yard: &Yard, open: &mut Open) -> Result<Vec<f64>> {
        let time = yard.size(ROUND_DURATION, ROUND_DURATION / 20);
        let (start, before) = (Instant::now(), open.scene.cpu()?);
        let mut tasks = JoinSet::new();
        for mut connection in open.connections.drain(..) {
            tasks.spawn(async move {
                let mut pages = 0;
                while start.elapsed() < time {
                    connection.get(PAGE, None).await?;
                    pages += 1;
                }
                Result::Ok((connection, pages))
            });
        }
        let mut pages = 0;
        while let Some(done) = tasks.join_next().await {
            let (connection, answered) = done??;
            pages += answered;
            open.connections.push(connection);
        }
        let pages = f64::from(pages);
        let elapsed = start.elapsed().as_secs_f64();
        Ok(vec![pages / elapsed, (open.scene.cpu()? - before) / pages])
    }
}
