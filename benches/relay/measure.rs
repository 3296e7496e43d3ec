//! One path (direct, HAProxy, the relay) with its open sessions, and one round of measurements.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::bulk::Bulk;
use crate::client::{Session, Target};
use crate::{BULK_SESSIONS, Result, SESSIONS};

/// How long all connections send messages in a round.
const LOAD: Duration = Duration::from_millis(500);
/// How long round trips of one connection are made in a round, alone and beside bulk transfers, and how long these
/// have to get going.
const TRIPS: Duration = Duration::from_millis(400);
const GET_GOING: Duration = Duration::from_millis(50);
/// Bytes of one bulk transfer.
pub(crate) const BULK: usize = 192 << 20;

/// What one round of one path gave.
pub(crate) struct Sample {
    /// Median round trip of one connection, in seconds.
    pub(crate) round_trip: f64,
    /// The same, while bulk transfers on other connections take all they can get.
    pub(crate) beside_bulk: f64,
    /// Of these round trips, the one that is longer than 99 in 100.
    pub(crate) beside_tail: f64,
    /// Bytes per second of these transfers meanwhile, all together.
    pub(crate) bulk_beside: f64,
    /// Answered requests per second over all connections.
    pub(crate) messages: f64,
    /// Bytes per second from the worker.
    pub(crate) download: f64,
    /// Bytes per second to the worker.
    pub(crate) upload: f64,
    /// Processor seconds of the proxy per byte, both bulk transfers together; 0 without a proxy.
    pub(crate) cpu: f64,
}

pub(crate) struct Path {
    pub(crate) name: &'static str,
    pub(crate) samples: Vec<Sample>,
    proxy: Option<u32>,
    sessions: Vec<Session>,
    bulk: Bulk,
}

impl Path {
    /// Opens all sessions; `target` says where the one for worker `index` goes.
    pub(crate) async fn open(
        name: &'static str,
        proxy: Option<u32>,
        target: impl Fn(usize) -> Target,
    ) -> Result<Self> {
        let mut sessions = Vec::new();
        for index in 0..SESSIONS {
            let session = Session::open(target(index)).await;
            sessions.push(session.map_err(|error| format!("{name}, session {index}: {error}"))?);
        }
        let targets = (SESSIONS..SESSIONS + BULK_SESSIONS).map(target);
        let bulk = Bulk::open(targets.collect())
            .await
            .map_err(|error| format!("{name}, bulk: {error}"))?;
        Ok(Self {
            name,
            samples: Vec::new(),
            proxy,
            sessions,
            bulk,
        })
    }

    pub(crate) async fn round(&mut self) -> Result<Sample> {
        let sample = self.measure().await;
        sample.map_err(|error| format!("{}: {error}", self.name).into())
    }

    async fn measure(&mut self) -> Result<Sample> {
        let first = &mut self.sessions[0];
        let round_trip = median(trips(first, TRIPS).await?);
        let bulk = self.bulk.run().await?;
        tokio::time::sleep(GET_GOING).await;
        let (start, before) = (Instant::now(), bulk.bytes());
        let mut beside = trips(first, TRIPS).await?;
        let bulk_beside = (bulk.bytes() - before) as f64 / start.elapsed().as_secs_f64();
        bulk.stop().await?;
        beside.sort_by(f64::total_cmp);
        let messages = self.load().await?;

        let before = cpu_seconds(self.proxy)?;
        let first = &mut self.sessions[0];
        let start = Instant::now();
        first.download(BULK).await?;
        let download = BULK as f64 / start.elapsed().as_secs_f64();
        let start = Instant::now();
        first.upload(BULK).await?;
        let upload = BULK as f64 / start.elapsed().as_secs_f64();
        let cpu = (cpu_seconds(self.proxy)? - before) / (2 * BULK) as f64;
        Ok(Sample {
            round_trip,
            beside_tail: beside[beside.len() * 99 / 100],
            beside_bulk: median(beside),
            bulk_beside,
            messages,
            download,
            upload,
            cpu,
        })
    }

    async fn load(&mut self) -> Result<f64> {
        let start = Instant::now();
        let mut tasks = JoinSet::new();
        for (index, mut session) in self.sessions.drain(..).enumerate() {
            tasks.spawn(async move {
                let mut answered = 0usize;
                while start.elapsed() < LOAD {
                    session.round_trip().await?;
                    answered += 1;
                }
                Result::Ok((index, session, answered))
            });
        }
        let mut back = Vec::with_capacity(SESSIONS);
        let mut answered = 0;
        while let Some(done) = tasks.join_next().await {
            let (index, session, count) = done??;
            answered += count;
            back.push((index, session));
        }
        let rate = answered as f64 / start.elapsed().as_secs_f64();
        back.sort_by_key(|(index, _)| *index);
        self.sessions = back.into_iter().map(|(_, session)| session).collect();
        Ok(rate)
    }
}

/// The seconds that each round trip takes of those that are begun in `time`, which is at least one.
async fn trips(session: &mut Session, time: Duration) -> Result<Vec<f64>> {
    let begin = Instant::now();
    let mut trips = Vec::new();
    while trips.is_empty() || begin.elapsed() < time {
        let start = Instant::now();
        session.round_trip().await?;
        trips.push(start.elapsed().as_secs_f64());
    }
    Ok(trips)
}

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => values[n / 2],
        n => (values[n / 2 - 1] + values[n / 2]) / 2.0,
    }
}

/// User and system time of `process` and its threads so far, in seconds (steps of 10 ms).
fn cpu_seconds(process: Option<u32>) -> Result<f64> {
    let Some(process) = process else {
        return Ok(0.0);
    };
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    // The name in parentheses may hold spaces; utime and stime are the 14th and 15th field.
    let (_, rest) = stat
        .rsplit_once(')')
        .ok_or("an unexpected /proc/PID/stat")?;
    let ticks: Option<u64> = rest
        .split_whitespace()
        .skip(11)
        .take(2)
        .map(|field| field.parse::<u64>().ok())
        .sum();
    // USER_HZ is 100 on every Linux that Rust runs on.
    Ok(ticks.ok_or("an unexpected /proc/PID/stat")? as f64 / 100.0)
}
