//! The same measurements with an encrypted tunnel as the last hop, to a process next to the workers: a relay's agent, a second
//! HAProxy, or an OpenSSH server.

use std::time::{Duration, Instant};

use crate::Result;
use crate::families::attach::one_after_another;
use crate::families::{beside, bulk, trips};
use crate::harness::background::Bulk;
use crate::harness::client::{Asked, REQUEST_BYTES, SET, Session, Target};
use crate::harness::contest::{Contestant, Family};
use crate::harness::scene::{Plan, Scene};
use crate::harness::table::{Goal, Row, Unit, percentile};
use crate::harness::yard::Yard;
use crate::stand_in::{ANSWER_BYTES, Size};

pub(super) struct Tunnel {
    /// TLS from the client on, and HAProxy twice; otherwise HAProxy is a single hop in plain TCP.
    pub(super) tls: bool,
}

pub(super) struct Open {
    scene: Scene,
    sessions: Vec<Session>,
    bulk: Bulk,
    attached: Vec<Target>,
}

impl Tunnel {
    fn sessions(yard: &Yard) -> usize {
        yard.size(64, 4)
    }
}

impl Family for Tunnel {
    type Open = Open;

    const CONTESTANTS: &[Contestant] = &Contestant::TUNNELS;

    fn rows(&self, yard: &Yard) -> Vec<Row> {
        let how = match self.tls {
            true => "tunnel, TLS to the client",
            false => "tunnel",
        };
        let row = |name: String, unit| Row::new(format!("{name}, {how}"), unit);
        let (slower, faster) = (
            Goal::AtMost(1.0, Contestant::Ssh),
            Goal::AtLeast(1.0, Contestant::Ssh),
        );
        let trip = row(
            format!("round trip {REQUEST_BYTES} B -> {ANSWER_BYTES} B"),
            Unit::MICROSECONDS,
        );
        let trip = match self.tls {
            true => trip,
            false => trip.goal(Goal::AtMost(1.3, Contestant::HaProxy)),
        };
        let sessions = Self::sessions(yard);
        let (clients, frame) = (beside::BULK_STREAMS, bulk::FRAME_BYTES >> 10);
        let cpu = || Row::new("  CPU of each", Unit::MICROSECONDS);
        vec![
            trip.goal(slower),
            cpu(),
            row(
                format!("messages over {sessions}"),
                Unit::THOUSANDS_A_SECOND,
            )
            .goal(faster),
            cpu(),
            row(
                format!("bulk to client, {frame} KiB frames"),
                Unit::MIB_A_SECOND,
            )
            .goal(faster),
            Row::new("  CPU", Unit::SECONDS_A_GIB),
            row(
                format!("bulk to worker, {frame} KiB frames"),
                Unit::MIB_A_SECOND,
            )
            .goal(faster),
            Row::new("  CPU", Unit::SECONDS_A_GIB),
            row(
                format!("round trip beside {clients} bulk"),
                Unit::MICROSECONDS,
            )
            .goal(slower),
            Row::new("  its 99th percentile", Unit::MICROSECONDS).goal(slower),
            Row::new("  and these meanwhile", Unit::MIB_A_SECOND).goal(faster),
            row("connect to attach answered".to_owned(), Unit::MILLISECONDS),
        ]
    }

    async fn open(&self, yard: &Yard, contestant: Contestant) -> Result<Open> {
        let (parallel, sequential) = (Self::sessions(yard), yard.size(16, 2));
        let mut plan = Plan::new(Size {
            workers: parallel + sequential,
            bulk: beside::BULK_STREAMS,
            ..Size::default()
        });
        (plan.tunnel, plan.tls) = (true, self.tls);
        let scene = Scene::open(yard, contestant, &plan).await?;
        let mut sessions = Vec::new();
        for index in 0..parallel {
            sessions.push(Session::open(&scene.target(index)?).await?);
        }
        let targets = |from, count| (from..from + count).map(|index| scene.target(index));
        let attached: Result<_> = targets(parallel, sequential).collect();
        let bulk: Result<_> = targets(parallel + sequential, beside::BULK_STREAMS).collect();
        Ok(Open {
            attached: attached?,
            bulk: Bulk::open(bulk?, 0).await?,
            sessions,
            scene,
        })
    }

    async fn round(&self, yard: &Yard, open: &mut Open) -> Result<Vec<f64>> {
        let time = yard.size(trips::ROUND_DURATION, trips::ROUND_DURATION / 20);
        let mut cpu = vec![open.scene.cpu()?];
        let mut alone = open.sessions[0].trips(Asked::Stack, time).await?;
        cpu.push(open.scene.cpu()?);
        let (messages, rate) = trips::all(&mut open.sessions, Asked::Stack, time).await?;
        cpu.push(open.scene.cpu()?);
        let bytes = yard.size(bulk::BULK_BYTES / 2, 4 << 20);
        let start = Instant::now();
        open.sessions[0].download(bytes, bulk::FRAME_BYTES).await?;
        let down = start.elapsed().as_secs_f64();
        cpu.push(open.scene.cpu()?);
        let start = Instant::now();
        open.sessions[0]
            .upload(bytes, bulk::FRAME_BYTES, SET)
            .await?;
        let up = start.elapsed().as_secs_f64();
        cpu.push(open.scene.cpu()?);
        let [median, worst, meanwhile] =
            beside::beside(yard, &mut open.sessions[0], &open.bulk).await?;
        let (sessions, mut attaches) = one_after_another(&open.attached, Duration::ZERO).await?;
        for session in sessions {
            session.leave().await?;
        }
        let attached = open.sessions.len() + beside::BULK_STREAMS;
        open.scene.until_can_be_dialled(attached).await?;
        let spent = |index: usize, count: f64| (cpu[index + 1] - cpu[index]) / count;
        let bytes = bytes as f64;
        Ok(vec![
            percentile(&mut alone, 50),
            spent(0, alone.len() as f64),
            rate,
            spent(1, messages as f64),
            bytes / down,
            spent(2, bytes),
            bytes / up,
            spent(3, bytes),
            median,
            worst,
            meanwhile,
            percentile(&mut attaches, 50),
        ])
    }
}
