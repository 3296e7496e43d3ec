//! Many event streams, while a thousand breakpoints appear at once.

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

/// The pause between two checks of the streams.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// A stream that is silent for this long is complete: names follow their breakpoints.
const QUIET_DURATION: Duration = Duration::from_millis(500);

pub(super) struct Events;

pub(super) struct Open {
    scene: Scene,
    readers: Vec<Arc<EventReader>>,
    /// Dropping it ends the streams.
    _streams: JoinSet<Result<()>>,
}

/// The state of one event stream.
#[derive(Debug, Default)]
struct EventReader {
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
        let (mut readers, mut streams) = (Vec::new(), JoinSet::new());
        for _ in 0..Self::streams(yard) {
            let mut http = scene.http().await?;
            let body = http.begin("/relay/v1/events", None).await?.into_body();
            let own = Arc::new(EventReader::default());
            readers.push(Arc::clone(&own));
            streams.spawn(async move {
                let _kept_open = http;
                listen(body, &own).await
            });
        }
        Ok(Open {
            scene,
            readers,
            _streams: streams,
        })
    }

    async fn round(&self, yard: &Yard, open: &mut Open) -> Result<Vec<f64>> {
        let breakpoints = Self::breakpoints(yard);
        let (cpu, bytes) = (open.scene.cpu()?, open.bytes());
        open.scene.stand_in.show(breakpoints)?;
        open.until(|readers| readers.iter().any(|one| one.known() > 0))
            .await?;
        let start = Instant::now();
        open.until(|readers| readers.iter().all(|one| one.known() == breakpoints))
            .await?;
        let elapsed = start.elapsed().as_secs_f64();
        open.until_quiet().await?;
        let cpu = open.scene.cpu()? - cpu;
        let bytes = (open.bytes() - bytes) as f64 / open.readers.len() as f64;
        open.scene.stand_in.show(0)?;
        open.until(|readers| readers.iter().all(|one| one.known() == 0))
            .await?;
        open.until_quiet().await?;
        Ok(vec![elapsed, cpu, bytes])
    }
}

impl Open {
    fn bytes(&self) -> usize {
        let bytes = |one: &Arc<EventReader>| one.bytes.load(Ordering::Relaxed);
        self.readers.iter().map(bytes).sum()
    }

    async fn until(&self, done: impl Fn(&[Arc<EventReader>]) -> bool) -> Result<()> {
        let begin = Instant::now();
        while !done(&self.readers) {
            if begin.elapsed() > MEASURE_TIMEOUT {
                return Err("not all streams have said what they should".into());
            }
            sleep(POLL_INTERVAL).await;
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
            sleep(QUIET_DURATION).await;
        }
        Ok(())
    }
}

impl EventReader {
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

/// Reads events until the stream ends.
async fn listen(mut body: Incoming, reader: &EventReader) -> Result<()> {
    let (mut rest, mut event) = (Vec::new(), Vec::new());
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else {
            continue;
        };
        reader.bytes.fetch_add(data.len(), Ordering::Relaxed);
        rest.extend_from_slice(&data);
        let mut begin = 0;
        for end in memchr::memchr_iter(b'\n', &rest) {
            reader.line(&rest[begin..end], &mut event);
            begin = end + 1;
        }
        rest.drain(..begin);
    }
    Err("the stream has ended".into())
}
