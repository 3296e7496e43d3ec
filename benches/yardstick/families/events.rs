//! Everybody who follows the list, when a thousand breakpoints appear in it at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::Result;
use crate::harness::client::MEASURE_TIMEOUT;
use crate::harness::contest::{Contestant, Family};
use crate::harness::scene::{Plan, Scene};
use crate::harness::table::{Goal, Row, Unit};
use crate::harness::yard::Yard;
use crate::stand_in::Size;

/// Between two looks at what has come.
const LOOK: Duration = Duration::from_millis(1);
/// A stream that has said nothing for so long has said all: the names come after the breakpoints.
const QUIET: Duration = Duration::from_millis(500);

pub(super) struct Events;

pub(super) struct Open {
    scene: Scene,
    heard: Vec<Arc<Heard>>,
    /// Those who listen; ended when this is dropped.
    _streams: JoinSet<Result<()>>,
}

/// What one stream has said so far.
#[derive(Debug, Default)]
struct Heard {
    /// Breakpoints that wait.
    known: AtomicUsize,
    bytes: AtomicUsize,
}

impl Events {
    fn streams(yard: &Yard) -> usize {
        yard.size(200, 8)
    }

    fn breakpoints(yard: &Yard) -> usize {
        yard.size(1_000, 20)
    }
}

impl Family for Events {
    type Open = Open;

    const CONTESTANTS: &[Contestant] = &Contestant::RELAYS;

    fn rows(&self, yard: &Yard) -> Vec<Row> {
        let (streams, breakpoints) = (Self::streams(yard), Self::breakpoints(yard));
        vec![
            Row::new(
                format!("{breakpoints} appear to {streams} streams"),
                Unit::SECONDS,
            ),
            Row::new("  CPU until they have their names", Unit::SECONDS).goal(Goal::Within(0.5)),
            Row::new("  bytes to each stream", Unit::KIB),
        ]
    }

    async fn open(&self, yard: &Yard, contestant: Contestant) -> Result<Open> {
        let size = Size {
            rows: Self::breakpoints(yard),
            ..Size::default()
        };
        let mut plan = Plan::new(size);
        plan.connections = Self::streams(yard);
        // The wait for the next poll is not what is measured.
        plan.poll = Duration::from_millis(100);
        let scene = Scene::open(yard, contestant, &plan).await?;
        let (mut heard, mut streams) = (Vec::new(), JoinSet::new());
        for _ in 0..Self::streams(yard) {
            let mut http = scene.http().await?;
            let body = http.begin("/relay/v1/events", None).await?.into_body();
            let own = Arc::new(Heard::default());
            heard.push(Arc::clone(&own));
            streams.spawn(async move {
                let _kept_open = http;
                listen(body, &own).await
            });
        }
        Ok(Open {
            scene,
            heard,
            _streams: streams,
        })
    }

    async fn round(&self, yard: &Yard, open: &mut Open) -> Result<Vec<f64>> {
        let breakpoints = Self::breakpoints(yard);
        let (cpu, bytes) = (open.scene.cpu()?, open.bytes());
        open.scene.stand_in.show(breakpoints)?;
        open.until(|heard| heard.iter().any(|one| one.known() > 0))
            .await?;
        let start = Instant::now();
        open.until(|heard| heard.iter().all(|one| one.known() == breakpoints))
            .await?;
        let took = start.elapsed().as_secs_f64();
        open.until_quiet().await?;
        let cpu = open.scene.cpu()? - cpu;
        let bytes = (open.bytes() - bytes) as f64 / open.heard.len() as f64;
        open.scene.stand_in.show(0)?;
        open.until(|heard| heard.iter().all(|one| one.known() == 0))
            .await?;
        open.until_quiet().await?;
        Ok(vec![took, cpu, bytes])
    }
}

impl Open {
    fn bytes(&self) -> usize {
        let bytes = |one: &Arc<Heard>| one.bytes.load(Ordering::Relaxed);
        self.heard.iter().map(bytes).sum()
    }

    async fn until(&self, done: impl Fn(&[Arc<Heard>]) -> bool) -> Result<()> {
        let begin = Instant::now();
        while !done(&self.heard) {
            if begin.elapsed() > MEASURE_TIMEOUT {
                return Err("not all streams have said what they should".into());
            }
            sleep(LOOK).await;
        }
        Ok(())
    }

    async fn until_quiet(&self) -> Result<()> {
        let begin = Instant::now();
        let mut before = usize::MAX;
        while before != self.bytes() {
            if begin.elapsed() > MEASURE_TIMEOUT {
                return Err("the streams do not become quiet".into());
            }
            before = self.bytes();
            sleep(QUIET).await;
        }
        Ok(())
    }
}

impl Heard {
    fn known(&self) -> usize {
        self.known.load(Ordering::Relaxed)
    }

    /// Takes one whole line.
    fn line(&self, line: &[u8], event: &mut Vec<u8>) {
        if let Some(name) = line.strip_prefix(b"event: ") {
            *event = name.to_vec();
        } else if let Some(data) = line.strip_prefix(b"data: ") {
            let known = match event.as_slice() {
                b"snapshot" => memchr::memmem::find_iter(data, "\"worker_id\"").count(),
                b"appeared" => self.known() + 1,
                b"named" | b"attached" | b"unreachable" | b"releasing" => return,
                _ => self.known().saturating_sub(1),
            };
            self.known.store(known, Ordering::Relaxed);
        }
    }
}

/// Until the stream ends.
async fn listen(mut body: Incoming, heard: &Heard) -> Result<()> {
    let (mut rest, mut event) = (Vec::new(), Vec::new());
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else {
            continue;
        };
        heard.bytes.fetch_add(data.len(), Ordering::Relaxed);
        rest.extend_from_slice(&data);
        let mut begin = 0;
        for end in memchr::memchr_iter(b'\n', &rest) {
            heard.line(&rest[begin..end], &mut event);
            begin = end + 1;
        }
        rest.drain(..begin);
    }
    Err("the stream has ended".into())
}
