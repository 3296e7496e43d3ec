//! The JSON of breakpoints, serialized once for all clients, in lists and in events.
//!
//! A [`Breakpoint`] is immutable, so its row is serialized once, and only the waiting time is filled in. The rows of
//! a list are assembled once for all principals who may see exactly these rows, and cached for a second. The caller
//! decides who may see what: a text is found by exactly the breakpoints in it, never by the principal it was made
//! for. All caches are bounded.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::OnceCell;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::json::{self, JsonRow, Rest};
use ray_relay_base::timestamp::Timestamp;
use ray_relay_base::wire::gzip::GzipPrefix;
use ray_relay_ray::ray::registry::{Breakpoint, Change, Event};

/// How long a cached list is served: `waiting_seconds` may be this far behind.
const LIST_TTL: Duration = Duration::from_secs(1);

/// Lists that were not requested for this long are dropped.
const UNUSED_TTL: Duration = Duration::from_secs(10);

/// The pause between two sweeps.
const SWEEP_INTERVAL: Duration = Duration::from_secs(5);

/// Largest number of cached lists: one for each set of breakpoints that a principal may see or has asked for.
const MAX_LISTS: usize = 32;

/// Bytes of all cached lists. The requested list is cached whatever its size.
const MAX_LIST_BYTES: usize = 64 * 1024 * 1024;

/// Cached events, for readers that lag behind: as many as the registry keeps.
const MAX_EVENTS: usize = 1024;

/// Rows that are cached before those of ended breakpoints are searched.
const MIN_ROWS_TO_SWEEP: usize = 1024;

/// The caches.
#[derive(Debug, Default)]
pub struct SharedRows {
    rows: Mutex<SharedList>,
    lists: Mutex<Lists>,
    events: Mutex<Vec<Option<WrittenChange>>>,
    /// Makes the entity tags of this process unique.
    tags: RandomState,
}

/// The rows of one list.
#[derive(Debug, Clone)]
pub struct ListRows {
    /// Unique for each set of rows in this process.
    number: u64,
    /// The beginning of the list, up to the last row.
    pub text: Bytes,
    compressed: Arc<OnceCell<Option<GzipPrefix>>>,
}

#[derive(Debug, Default)]
struct SharedList {
    /// By the address of the breakpoint, which the row keeps alive.
    by_address: HashMap<usize, Row>,
    /// Number of rows after the last sweep.
    swept: usize,
}

#[derive(Debug)]
struct Row {
    breakpoint: Arc<Breakpoint>,
    /// The row without the number of seconds that it has waited.
    text: Box<[u8]>,
    /// The position of that number.
    waited: usize,
}

#[derive(Debug, Default)]
struct Lists {
    /// The most recently requested one is last.
    entries: Vec<CachedList>,
    made: u64,
}

#[derive(Debug)]
struct CachedList {
    of: Vec<Arc<Breakpoint>>,
    rows: ListRows,
    made: Instant,
    used: Instant,
}

#[derive(Debug)]
struct WrittenChange {
    seq: u64,
    change: Change,
    text: Bytes,
}

impl SharedRows {
    /// Drops unused entries periodically, until `shutdown`. Otherwise thousands of rows, with all data of their
    /// breakpoints, would stay until the next request.
    pub async fn run(&self, shutdown: CancellationToken) {
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = sleep(SWEEP_INTERVAL) => self.forget_unused(Instant::now()),
            }
        }
    }

    fn forget_unused(&self, now: Instant) {
        let mut lists = self.lists.lock();
        lists
            .entries
            .retain(|list| now.duration_since(list.used) < UNUSED_TTL);
        let mut rows = self.rows();
        match lists.entries.is_empty() {
            // The events hold their own copy of the text.
            true => *rows = SharedList::default(),
            false => rows.sweep(),
        }
    }

    /// Returns the beginning of the list of `breakpoints`, in their order.
    pub fn list(&self, breakpoints: &[&Arc<Breakpoint>]) -> ListRows {
        let now = Instant::now();
        let mut lists = self.lists.lock();
        let known = lists
            .entries
            .iter()
            .position(|list| list.is_of(breakpoints));
        let known = known.map(|at| lists.entries.remove(at));
        let list = match known {
            Some(list) if now.duration_since(list.made) < LIST_TTL => {
                CachedList { used: now, ..list }
            }
            // The same rows, with later waiting times.
            Some(list) => CachedList {
                rows: ListRows::new(list.rows.number, self.put_together(breakpoints)),
                made: now,
                used: now,
                ..list
            },
            None => {
                lists.made += 1;
                CachedList {
                    of: breakpoints.iter().copied().cloned().collect(),
                    rows: ListRows::new(lists.made, self.put_together(breakpoints)),
                    made: now,
                    used: now,
                }
            }
        };
        let rows = list.rows.clone();
        lists.entries.push(list);
        lists.make_room();
        rows
    }

    /// Returns the entity tag of the list of `rows` and `rest`. A weak one: it ignores ages.
    pub fn tag(&self, rows: &ListRows, rest: &Rest<'_>) -> String {
        let (number, hash) = (rows.number, self.tags.hash_one((rows.number, rest)));
        format!("W/\"{number:x}-{hash:x}\"")
    }

    fn put_together(&self, breakpoints: &[&Arc<Breakpoint>]) -> Bytes {
        let now = Timestamp::now();
        let mut rows = self.rows();
        let mut text = Vec::from(json::LIST_START);
        for (index, breakpoint) in breakpoints.iter().enumerate() {
            if index > 0 {
                text.push(b',');
            }
            rows.write(breakpoint, now, &mut text);
            if index == 0 {
                text.reserve((text.len() + 16) * breakpoints.len());
            }
        }
        rows.sweep_if_many();
        text.shrink_to_fit();
        text.into()
    }

    /// Serializes `event` as a server-sent event named `change`.
    pub fn event(&self, event: &Event, change: Change) -> Bytes {
        let mut events = self.events.lock();
        if events.is_empty() {
            events.resize_with(MAX_EVENTS, || None);
        }
        let slot = usize::try_from(event.seq % MAX_EVENTS as u64).unwrap_or_default();
        if let Some(Some(cached)) = events.get(slot)
            && (cached.seq, cached.change) == (event.seq, change)
        {
            return cached.text.clone();
        }
        let breakpoint = &event.breakpoint;
        let name = json::word(change, breakpoint);
        let mut text = format!("id: {}\nevent: {name}\ndata: ", event.seq).into_bytes();
        // One line, because JSON escapes line breaks.
        let mut rows = self.rows();
        rows.write(breakpoint, Timestamp::now(), &mut text);
        rows.sweep_if_many();
        drop(rows);
        text.extend(b"\n\n");
        let text = Bytes::from(text);
        if let Some(slot) = events.get_mut(slot) {
            let (seq, text) = (event.seq, text.clone());
            *slot = Some(WrittenChange { seq, change, text });
        }
        text
    }

    fn rows(&self) -> MutexGuard<'_, SharedList> {
        self.rows.lock()
    }
}

impl ListRows {
    fn new(number: u64, text: Bytes) -> Self {
        Self {
            number,
            text,
            compressed: Arc::default(),
        }
    }

    /// Returns the whole list, which ends with `end`.
    pub fn ended_with(&self, end: Vec<u8>) -> [Bytes; 2] {
        [self.text.clone(), end.into()]
    }

    /// Returns the list compressed with gzip. The larger part is compressed once, on a blocking thread. `None` if
    /// that fails.
    pub async fn compressed(&self, end: &[u8]) -> Option<[Bytes; 2]> {
        let compress = || async {
            let text = self.text.clone();
            let done = tokio::task::spawn_blocking(move || GzipPrefix::of(&text)).await;
            done.ok().and_then(Result::ok)
        };
        let beginning = self.compressed.get_or_init(compress).await.as_ref()?;
        beginning.ended_with(end).ok()
    }

    /// Returns the size of the cached texts.
    fn len(&self) -> usize {
        let compressed = self.compressed.get().and_then(Option::as_ref);
        self.text.len() + compressed.map_or(0, GzipPrefix::size)
    }
}

impl SharedList {
    fn write(&mut self, breakpoint: &Arc<Breakpoint>, now: Timestamp, out: &mut Vec<u8>) {
        let key = Arc::as_ptr(breakpoint).addr();
        let row = self.by_address.entry(key);
        let row = row.or_insert_with(|| Row::new(Arc::clone(breakpoint)));
        let (before, after) = row.text.split_at(row.waited);
        out.extend_from_slice(before);
        let waited = json::seconds(breakpoint.waiting(now));
        // Serializing a number into memory cannot fail.
        _ = serde_json::to_writer(&mut *out, &waited);
        out.extend_from_slice(after);
    }

    /// Drops unused rows.
    fn sweep(&mut self) {
        self.by_address
            .retain(|_, row| Arc::strong_count(&row.breakpoint) > 1);
        self.swept = self.by_address.len();
    }

    /// Sweeps once there are many new rows.
    fn sweep_if_many(&mut self) {
        if self.by_address.len() > MIN_ROWS_TO_SWEEP + 2 * self.swept {
            self.sweep();
        }
    }
}

impl Row {
    fn new(breakpoint: Arc<Breakpoint>) -> Self {
        let (text, waited) = JsonRow::without_waiting(&breakpoint);
        Self {
            breakpoint,
            text: text.into(),
            waited,
        }
    }
}

impl Lists {
    /// Drops the least recently requested lists.
    fn make_room(&mut self) {
        let mut bytes: usize = self.entries.iter().map(|list| list.rows.len()).sum();
        let mut over = 0;
        for list in self
            .entries
            .iter()
            .take(self.entries.len().saturating_sub(1))
        {
            if self.entries.len() - over <= MAX_LISTS && bytes <= MAX_LIST_BYTES {
                break;
            }
            bytes -= list.rows.len();
            over += 1;
        }
        self.entries.drain(..over);
    }
}

impl CachedList {
    fn is_of(&self, breakpoints: &[&Arc<Breakpoint>]) -> bool {
        let same = |(a, b): (&Arc<Breakpoint>, &&Arc<Breakpoint>)| Arc::ptr_eq(a, b);
        self.of.len() == breakpoints.len() && self.of.iter().zip(breakpoints).all(same)
    }
}

#[cfg(test)]
#[path = "shared/tests.rs"]
mod tests;
