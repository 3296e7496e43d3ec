//! An editor's round trips while other sessions transfer as much as they can.

use std::time::{Duration, Instant};

use tokio::time::sleep;

use crate::Result;
use crate::harness::background::Bulk;
use crate::harness::client::{Asked, Session};
use crate::harness::contest::{Contestant, Family};
use crate::harness::scene::{Plan, Scene};
use crate::harness::table::{Goal, Row, Unit, percentile};
use crate::harness::yard::Yard;
use crate::stand_in::Size;

/// Sessions that transfer.
pub(super) const BULK_STREAMS: usize = 4;
/// The duration of the round trips in a round, and the time for the transfers to reach full speed.
const ROUND_DURATION: Duration = Duration::from_millis(600);
const WARM_UP: Duration = Duration::from_millis(50);

pub(super) struct Beside {
    pub(super) pinned: bool,
    /// Half of the sessions send, and the others are sent to.
    pub(super) both_ways: bool,
}

pub(super) struct Open {
    _scene: Scene,
    editor: Session,
    bulk: Bulk,
}

impl Family for Beside {
    type Open = Open;

    fn pinned(&self) -> bool {
        self.pinned
    }

    fn rows(&self, _yard: &Yard) -> Vec<Row> {
        let how = match (self.both_ways, self.pinned) {
            (true, _) => " both ways, one core",
            (_, true) => ", one core",
            (_, false) => "",
        };
        let trip = Row::new(
            format!("round trip beside {BULK_STREAMS} bulk{how}"),
            Unit::MICROSECONDS,
        );
        vec![
            trip.goal(Goal::AtMost(15.0, Contestant::Direct)),
            Row::new("  its 99th percentile", Unit::MICROSECONDS)
                .goal(Goal::AtMost(25.0, Contestant::Direct)),
            Row::new("  and these meanwhile", Unit::MIB_A_SECOND),
        ]
    }

    async fn open(&self, yard: &Yard, contestant: Contestant) -> Result<Open> {
        let size = Size {
            workers: 1,
            bulk: BULK_STREAMS,
            ..Size::default()
        };
        let mut plan = Plan::new(size);
        plan.pinned = self.pinned;
        let scene = Scene::open(yard, contestant, &plan).await?;
        let editor = Session::open(&scene.target(0)?).await?;
        let targets: Result<_> = (1..=BULK_STREAMS)
            .map(|index| scene.target(index))
            .collect();
        let senders = if self.both_ways { BULK_STREAMS / 2 } else { 0 };
        let bulk = Bulk::open(targets?, senders).await?;
        Ok(Open {
            _scene: scene,
            editor,
            bulk,
        })
    }

    async fn round(&self, yard: &Yard, open: &mut Open) -> Result<Vec<f64>> {
        let figures = beside(yard, &mut open.editor, &open.bulk).await?;
        Ok(figures.to_vec())
    }
}

/// Median and 99th percentile of the round trips of `editor`, and what `bulk` transfers a second meanwhile.
pub(super) async fn beside(yard: &Yard, editor: &mut Session, bulk: &Bulk) -> Result<[f64; 3]> {
    let bulk = bulk.run().await?;
    sleep(WARM_UP).await;
    let (start, before) = (Instant::now(), bulk.bytes());
    let mut trips = editor
        .trips(Asked::Stack, yard.size(ROUND_DURATION, ROUND_DURATION / 20))
        .await?;
    let rate = (bulk.bytes() - before) as f64 / start.elapsed().as_secs_f64();
    bulk.stop().await?;
    Ok([percentile(&mut trips, 50), percentile(&mut trips, 99), rate])
}
