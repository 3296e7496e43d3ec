//! Large transfers through one session, in either direction.

use std::time::Instant;

use crate::Result;
use crate::harness::client::{ASK, EDIT, SET, Session, Upload};
use crate::harness::contest::{Contestant, Family};
use crate::harness::scene::{Access, Plan, Scene};
use crate::harness::table::{Goal, Row, Unit};
use crate::harness::yard::Yard;
use crate::stand_in::Size;

/// Bytes of a transfer.
pub(super) const BULK_BYTES: usize = 256 << 20;
/// Bytes of the body of a frame.
pub(super) const FRAME_BYTES: usize = 64 << 10;
const LARGE_FRAME_BYTES: usize = 1 << 20;

pub(super) struct Bulk {
    pinned: bool,
    access: Access,
}

pub(super) struct Open {
    scene: Scene,
    session: Session,
}

#[derive(Clone, Copy)]
enum Way {
    ToClient(usize),
    /// Body bytes, and their content.
    ToWorker(usize, Upload, &'static str),
}

impl Bulk {
    pub(super) fn new(pinned: bool, access: Access) -> Self {
        Self { pinned, access }
    }

    fn ways(&self) -> &'static [Way] {
        match self.access {
            // A viewer sends nothing large.
            Access::ViewMasked => &[Way::ToClient(FRAME_BYTES)],
            _ => &[
                Way::ToClient(FRAME_BYTES),
                Way::ToClient(LARGE_FRAME_BYTES),
                Way::ToWorker(FRAME_BYTES, SET, ""),
                Way::ToWorker(FRAME_BYTES, EDIT, " of lists"),
                Way::ToWorker(FRAME_BYTES, ASK, " captured"),
            ],
        }
    }
}

impl Family for Bulk {
    type Open = Open;

    fn pinned(&self) -> bool {
        self.pinned
    }

    fn rows(&self, _yard: &Yard) -> Vec<Row> {
        let view = self.access == Access::ViewMasked;
        let of_a_way = |way: &Way| {
            let (name, size, what) = match *way {
                Way::ToClient(size) => ("to client", size, ""),
                Way::ToWorker(size, _, what) => ("to worker", size, what),
            };
            let (min_rate, max_cpu) = match view {
                true => (0.7, None),
                false => (1.1, Some(1.0)),
            };
            let how = match (view, self.pinned) {
                (true, _) => ", view",
                (_, true) => ", one core",
                (_, false) => "",
            };
            let name = format!("bulk {name}, {} KiB frames{what}{how}", size >> 10);
            let goal = Goal::AtLeast(min_rate, Contestant::HaProxy);
            let rate = Row::new(name, Unit::MIB_A_SECOND).goal(goal);
            let row = Row::new("  CPU", Unit::SECONDS_A_GIB);
            match max_cpu {
                Some(max_ratio) => [rate, row.goal(Goal::AtMost(max_ratio, Contestant::HaProxy))],
                None => [rate, row],
            }
        };
        self.ways().iter().flat_map(of_a_way).collect()
    }

    async fn open(&self, yard: &Yard, contestant: Contestant) -> Result<Open> {
        let mut plan = Plan::new(Size {
            workers: 1,
            ..Size::default()
        });
        (plan.pinned, plan.access) = (self.pinned, self.access);
        let scene = Scene::open(yard, contestant, &plan).await?;
        let session = Session::open(&scene.target(0)?).await?;
        Ok(Open { scene, session })
    }

    async fn round(&self, yard: &Yard, open: &mut Open) -> Result<Vec<f64>> {
        // Parsed and rewritten messages are slow, so fewer of them are sent.
        let bytes_per_round = if self.access == Access::ViewMasked {
            BULK_BYTES / 8
        } else {
            BULK_BYTES
        };
        let bytes = yard.size(bytes_per_round, 4 << 20);
        let mut figures = Vec::new();
        for way in self.ways() {
            let (start, before) = (Instant::now(), open.scene.cpu()?);
            match *way {
                Way::ToClient(size) => open.session.download(bytes, size).await?,
                Way::ToWorker(size, upload, _) => open.session.upload(bytes, size, upload).await?,
            }
            figures.push(bytes as f64 / start.elapsed().as_secs_f64());
            figures.push((open.scene.cpu()? - before) / bytes as f64);
        }
        Ok(figures)
    }
}
