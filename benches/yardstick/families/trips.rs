//! Requests and answers: one connection alone, and many at a time.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::Result;
use crate::harness::client::{Asked, REQUEST_BYTES, Session};
use crate::harness::contest::{Contestant, Family};
use crate::harness::scene::{Access, Plan, Scene};
use crate::harness::table::{Goal, Row, Unit, percentile};
use crate::harness::yard::Yard;
use crate::stand_in::{ANSWER_BYTES, Size};

/// How long round trips are measured in a round.
pub(super) const ROUND_DURATION: Duration = Duration::from_millis(500);

pub(super) struct Trips {
    pinned: bool,
    access: Access,
}

pub(super) struct Open {
    scene: Scene,
    sessions: Vec<Session>,
}

impl Trips {
    pub(super) fn new(pinned: bool, access: Access) -> Self {
        Self { pinned, access }
    }

    fn sessions(yard: &Yard) -> usize {
        yard.size(64, 8)
    }

    /// Other answers that are measured, their names, and the goals for them.
    fn others(&self) -> &'static [(Asked, &'static str, f64)] {
        match self.access {
            Access::ViewMasked => &[],
            _ => &[
                (Asked::OddStack, "with an unknown field", 0.5),
                (Asked::Stop, "as at a stop", 1.0),
            ],
        }
    }
}

impl Family for Trips {
    type Open = Open;

    fn pinned(&self) -> bool {
        self.pinned
    }

    fn rows(&self, yard: &Yard) -> Vec<Row> {
        let sessions = Self::sessions(yard);
        let how = match (self.access, self.pinned) {
            (Access::ViewMasked, _) => ", view",
            (_, true) => ", one core",
            (_, false) => "",
        };
        let trip = Row::new(
            format!("round trip {REQUEST_BYTES} B -> {ANSWER_BYTES} B{how}"),
            Unit::MICROSECONDS,
        );
        let messages = Row::new(
            format!("messages over {sessions}{how}"),
            Unit::THOUSANDS_A_SECOND,
        );
        let min_ratio = match self.access {
            Access::ViewMasked => 0.6,
            _ => 1.0,
        };
        let messages = messages.goal(Goal::AtLeast(min_ratio, Contestant::HaProxy));
        let trip = match self.access {
            Access::ViewMasked => trip,
            _ => trip.goal(Goal::AtMost(1.0, Contestant::HaProxy)),
        };
        let mut rows = vec![
            trip,
            Row::new("  CPU of each", Unit::MICROSECONDS),
            messages,
            Row::new("  CPU of each", Unit::MICROSECONDS),
        ];
        for (_, what, min_ratio) in self.others() {
            let name = format!("messages over {sessions} {what}{how}");
            let row = Row::new(name, Unit::THOUSANDS_A_SECOND);
            rows.push(row.goal(Goal::AtLeast(*min_ratio, Contestant::HaProxy)));
            rows.push(Row::new("  CPU of each", Unit::MICROSECONDS));
        }
        rows
    }

    async fn open(&self, yard: &Yard, contestant: Contestant) -> Result<Open> {
        let workers = Self::sessions(yard);
        let mut plan = Plan::new(Size {
            workers,
            ..Size::default()
        });
        (plan.pinned, plan.access) = (self.pinned, self.access);
        let scene = Scene::open(yard, contestant, &plan).await?;
        let mut sessions = Vec::new();
        for index in 0..workers {
            sessions.push(Session::open(&scene.target(index)?).await?);
        }
        Ok(Open { scene, sessions })
    }

    async fn round(&self, yard: &Yard, open: &mut Open) -> Result<Vec<f64>> {
        let time = yard.size(ROUND_DURATION, ROUND_DURATION / 20);
        let before = open.scene.cpu()?;
        let mut trips = open.sessions[0].trips(Asked::Stack, time).await?;
        let between = open.scene.cpu()?;
        let mut figures = vec![
            percentile(&mut trips, 50),
            (between - before) / trips.len() as f64,
        ];
        let others = self.others().iter().map(|(asked, ..)| *asked);
        for asked in [Asked::Stack].into_iter().chain(others) {
            let before = open.scene.cpu()?;
            let (messages, rate) = all(&mut open.sessions, asked, time).await?;
            let cpu = open.scene.cpu()? - before;
            figures.extend([rate, cpu / messages as f64]);
        }
        Ok(figures)
    }
}

/// Round trips of all sessions at once: how many, and how many a second.
pub(super) async fn all(
    sessions: &mut Vec<Session>,
    asked: Asked,
    time: Duration,
) -> Result<(usize, f64)> {
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for mut session in sessions.drain(1..) {
        tasks.spawn(async move {
            let answered = session.trips(asked, time).await?.len();
            Result::Ok((session, answered))
        });
    }
    let mut messages = sessions[0].trips(asked, time).await?.len();
    while let Some(done) = tasks.join_next().await {
        let (session, answered) = done??;
        messages += answered;
        sessions.push(session);
    }
    Ok((messages, messages as f64 / start.elapsed().as_secs_f64()))
}
