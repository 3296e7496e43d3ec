//! Ten thousand paused workers: the dashboard's list, the relay's own, what knowing of them costs, and an attach then.

use std::time::{Duration, Instant};

use hyper::StatusCode;
use hyper::header::ETAG;
use tokio::time::sleep;

use crate::Result;
use crate::families::attach::one_after_another;
use crate::harness::client::Target;
use crate::harness::contest::{Contestant, Family};
use crate::harness::http::Http;
use crate::harness::scene::{Plan, Scene};
use crate::harness::table::{Goal, Row, Unit, percentile};
use crate::harness::yard::Yard;
use crate::stand_in::Size;

/// The requests of the dashboard itself.
const WORKERS: &str = "/api/v0/workers?detail=1&limit=10000";
const BREAKPOINTS: &str = "/relay/v1/breakpoints";
/// Workers among them that can be attached to.
const SESSIONS: usize = 16;
/// Between two of their attaches, so that together they meet every moment between two polls.
const REQUEST_INTERVAL: Duration = Duration::from_millis(1_000 / SESSIONS as u64);
/// How long no client sends a request.
const IDLE_DURATION: Duration = Duration::from_secs(3);

pub(super) struct Many;

pub(super) struct Open {
    scene: Scene,
    /// With one worker and nothing else; for relays.
    small: Option<Scene>,
}

impl Many {
    fn paused(yard: &Yard) -> usize {
        yard.size(10_000, 200)
    }
}

impl Family for Many {
    type Open = Open;

    fn rows(&self, yard: &Yard) -> Vec<Row> {
        let paused = Self::paused(yard);
        vec![
            Row::new(
                format!("/api/v0/workers?detail, {paused}"),
                Unit::MILLISECONDS,
            )
            .difference()
            .goal(Goal::Above(8e-3, Contestant::Direct)),
            Row::new(
                format!("/relay/v1/breakpoints, {paused}"),
                Unit::MILLISECONDS,
            ),
            Row::new("  CPU of each", Unit::MILLISECONDS).goal(Goal::Within(5e-3)),
            Row::new("  the same with If-None-Match", Unit::MILLISECONDS),
            Row::new("  CPU of each", Unit::MILLISECONDS),
            Row::new("  answers 304 to it", Unit::PERCENT),
            Row::new(
                format!("idle CPU, {paused} paused, polls of 1 s"),
                Unit::PERCENT,
            )
            .goal(Goal::Within(0.01)),
            Row::new("  connect to attach answered", Unit::MILLISECONDS),
            Row::new("  the same where 1 is paused", Unit::MILLISECONDS),
        ]
    }

    async fn open(&self, yard: &Yard, contestant: Contestant) -> Result<Open> {
        let rows = Self::paused(yard) - SESSIONS;
        let size = Size {
            workers: SESSIONS,
            rows,
            shown: rows,
            ..Size::default()
        };
        let scene = Scene::open(yard, contestant, &Plan::new(size)).await?;
        let small = match contestant.is_relay() {
            true => {
                let size = Size {
                    workers: 1,
                    ..Size::default()
                };
                Some(Scene::open(yard, contestant, &Plan::new(size)).await?)
            }
            false => None,
        };
        Ok(Open { scene, small })
    }

    async fn round(&self, yard: &Yard, open: &mut Open) -> Result<Vec<f64>> {
        let scene = &open.scene;
        let mut http = scene.http().await?;
        let times = yard.size(10, 2);
        let (workers, ..) = ask(scene, &mut http, WORKERS, false, times).await?;
        let mut figures = vec![workers];
        let Some(small) = &open.small else {
            return Ok(figures);
        };
        let (list, cpu, _) = ask(scene, &mut http, BREAKPOINTS, false, times).await?;
        let (known, its_cpu, unchanged) = ask(scene, &mut http, BREAKPOINTS, true, times).await?;
        figures.extend([list, cpu, known, its_cpu, unchanged]);

        let idle = yard.size(IDLE_DURATION, IDLE_DURATION / 10);
        let (start, before) = (Instant::now(), scene.cpu()?);
        sleep(idle).await;
        figures.push((scene.cpu()? - before) / start.elapsed().as_secs_f64());

        let targets: Result<Vec<Target>> = (0..SESSIONS).map(|index| scene.target(index)).collect();
        let mut times = attach(scene, &targets?).await?;
        figures.push(percentile(&mut times, 50));
        let target = small.target(0)?;
        let mut times = Vec::new();
        for _ in 0..yard.size(5, 1) {
            times.extend(attach(small, std::slice::from_ref(&target)).await?);
        }
        figures.push(percentile(&mut times, 50));
        Ok(figures)
    }
}

/// The median of the seconds until `path` is answered, the processor seconds of each, and how many of the answers said
/// that nothing has changed. `known`: with the entity tag of the answer before, or one that is nobody's.
async fn ask(
    scene: &Scene,
    http: &mut Http,
    path: &str,
    known: bool,
    times: usize,
) -> Result<(f64, f64, f64)> {
    let (mut durations, mut unchanged) = (Vec::new(), 0);
    let mut tag = "\"none\"".to_owned();
    let before = scene.cpu()?;
    for _ in 0..times {
        let start = Instant::now();
        let answer = http.get(path, known.then_some(&tag)).await?;
        durations.push(start.elapsed().as_secs_f64());
        unchanged += usize::from(answer.status() == StatusCode::NOT_MODIFIED);
        if let Some(new) = answer.headers().get(ETAG) {
            tag = new.to_str()?.to_owned();
        }
    }
    let cpu = scene.cpu()? - before;
    let times = times as f64;
    Ok((
        percentile(&mut durations, 50),
        cpu / times,
        unchanged as f64 / times,
    ))
}

/// The seconds of each attach; the clients disconnect afterwards.
async fn attach(scene: &Scene, targets: &[Target]) -> Result<Vec<f64>> {
    let (sessions, times) = one_after_another(targets, REQUEST_INTERVAL).await?;
    for session in sessions {
        session.leave().await?;
    }
    scene.until_can_be_dialled(0).await?;
    Ok(times)
}
