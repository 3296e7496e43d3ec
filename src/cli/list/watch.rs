//! `list --watch`: follows the relay's event stream.
//!
//! On a terminal the table is drawn again in place, at most once a second, and the cursor comes
//! back however it ends. In a pipe each change is a line. When the relay goes away the stream is
//! opened again with growing pauses, and standard error says so.

use std::io::{self, Write};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::page;
use super::row::{List, Row, waited};
use crate::cli::Error;
use crate::cli::relay_client::{RelayClient, RelayError};
use crate::cli::sse::{self, Parser};
use crate::cli::terminal::{self, Keep, fit};

/// A stream that is silent for longer is opened again: the connection may be half open. A relay
/// sends a comment line well within it.
const LONGEST_SILENCE: Duration = Duration::from_secs(90);
/// First and longest pause before the stream is opened again.
const PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(8));

/// Follows the stream until Ctrl-C or SIGTERM. The first connection has to succeed.
pub(super) async fn run(client: &RelayClient, as_json: bool, ended: bool) -> Result<(), Error> {
    let mut interrupted = signal(SignalKind::interrupt())?;
    let mut terminated = signal(SignalKind::terminate())?;
    let mut view = match (as_json, terminal::size()) {
        (true, _) => View::Json,
        (false, None) => View::Lines,
        (false, Some(_)) => View::Screen(Screen::open()?),
    };
    // Dropping the future at a signal is safe: it holds a connection and the screen, whose drop
    // restores the cursor.
    tokio::select! {
        result = follow(client, &mut view, ended) => result,
        _ = interrupted.recv() => Ok(()),
        _ = terminated.recv() => Ok(()),
    }
}

async fn follow(client: &RelayClient, view: &mut View, ended: bool) -> Result<(), Error> {
    let mut stream = Some(Stream::open(client).await?);
    let mut state = State {
        list: json!({ "breakpoints": [] }),
        at: Instant::now(),
        ended,
    };
    let mut tick = interval(Duration::from_secs(1));
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let Some(open) = &mut stream else {
            stream = Some(reopen(client, view).await?);
            continue;
        };
        tokio::select! {
            // `next` keeps what it has read in the stream, so losing the race to the tick loses nothing.
            events = open.next() => match events {
                Ok(events) => {
                    for event in events {
                        state.apply(&event, view)?;
                    }
                }
                Err(cause) => {
                    view.say(&format!("{} Trying again until it is back.", sentence(&client.unreachable(cause))))?;
                    stream = None;
                }
            },
            _ = tick.tick() => view.draw(&state)?,
        }
    }
}

async fn reopen(client: &RelayClient, view: &mut View) -> Result<Stream, Error> {
    let (mut pause, longest) = PAUSES;
    loop {
        // Many watchers of one relay are not to come back in the same instant.
        sleep(pause.mul_f64(rand::random_range(0.75..1.25))).await;
        pause = longest.min(pause * 2);
        match Stream::open(client).await {
            Ok(stream) => {
                view.say("The relay is back.")?;
                return Ok(stream);
            }
            Err(error) if error.is_unreachable() => {}
            // A relay that is starting behind a proxy gives 502 or 503 for a while.
            Err(RelayError::Refused { .. } | RelayError::NotARelay { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn sentence(error: &RelayError) -> String {
    let mut text = error.to_string();
    if let Some(first) = text.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    text + "."
}

/// An open event stream.
struct Stream {
    body: Incoming,
    parser: Parser,
}

impl Stream {
    async fn open(client: &RelayClient) -> Result<Self, RelayError> {
        Ok(Self {
            body: client.events().await?.into_body(),
            parser: Parser::default(),
        })
    }

    /// The next events, perhaps none. Cancel safe: a frame is parsed as soon as it is there.
    async fn next(&mut self) -> Result<Vec<sse::Event>, String> {
        let frame = match timeout(LONGEST_SILENCE, self.body.frame()).await {
            Ok(Some(Ok(frame))) => frame,
            Ok(Some(Err(_))) => return Err("the connection broke".to_owned()),
            Ok(None) => return Err("it ended the event stream".to_owned()),
            Err(_) => return Err("the event stream is silent".to_owned()),
        };
        match frame.into_data() {
            Ok(data) => self.parser.feed(&data).map_err(|error| error.to_string()),
            Err(_trailers) => Ok(Vec::new()),
        }
    }
}

/// The list as of the last event.
struct State {
    list: Value,
    /// When `list` was right: ages in it have grown by what has passed since.
    at: Instant,
    /// Ended ones stay.
    ended: bool,
}

impl State {
    fn apply(&mut self, event: &sse::Event, view: &mut View) -> Result<(), Error> {
        // A relay of a later version may send what this one does not know.
        let Ok(data) = serde_json::from_str::<Value>(&event.data) else {
            return Ok(());
        };
        if event.name == "snapshot" {
            let first = self.list.get("snapshot").is_none();
            self.age();
            let before = std::mem::replace(&mut self.list, data);
            self.list["snapshot"] = json!(true);
            if !self.ended {
                self.retain_live();
            }
            return view.snapshot(&self.list, if first { None } else { Some(&before) });
        }
        let row = if data["breakpoint"].is_object() {
            &data["breakpoint"]
        } else {
            &data
        };
        if !row["id"].is_string() {
            return Ok(());
        }
        self.age();
        self.replace(row);
        view.change(&event.name, row)
    }

    fn replace(&mut self, row: &Value) {
        let ended = self.ended;
        let Some(rows) = self.list["breakpoints"].as_array_mut() else {
            return;
        };
        let gone = is_ended(row) && !ended;
        match rows.iter().position(|known| known["id"] == row["id"]) {
            Some(at) if gone => _ = rows.remove(at),
            Some(at) => rows[at] = row.clone(),
            None if gone => {}
            None => rows.push(row.clone()),
        }
    }

    fn retain_live(&mut self) {
        if let Some(rows) = self.list["breakpoints"].as_array_mut() {
            rows.retain(|row| !is_ended(row));
        }
    }

    /// Lets the ages in the list grow by what has passed since they were right.
    fn age(&mut self) {
        let passed = self.at.elapsed().as_secs_f64();
        self.at = Instant::now();
        for row in self.list["breakpoints"]
            .as_array_mut()
            .into_iter()
            .flatten()
        {
            if let Some(waiting) = row["waiting_seconds"].as_f64().filter(|_| !is_ended(row)) {
                row["waiting_seconds"] = json!(waiting + passed);
            }
        }
    }
}

fn is_ended(row: &Value) -> bool {
    matches!(row["state"].as_str(), Some("released" | "died"))
}

/// How changes are shown.
enum View {
    /// One object a line.
    Json,
    /// One line for each change.
    Lines,
    /// A table that is drawn again.
    Screen(Screen),
}

impl View {
    fn snapshot(&mut self, list: &Value, before: Option<&Value>) -> Result<(), Error> {
        let mut out = io::stdout().lock();
        match self {
            Self::Json => {
                let mut object = json!({ "event": "snapshot" });
                for (key, value) in list
                    .as_object()
                    .into_iter()
                    .flatten()
                    .filter(|(key, _)| *key != "snapshot")
                {
                    object[key] = value.clone();
                }
                writeln!(out, "{object}")?;
                out.flush()?;
            }
            Self::Lines => {
                let list = List::read(list);
                for trouble in list.troubles() {
                    writeln!(out, "{} ! {trouble}", clock())?;
                }
                // After a reconnection only what is new since then is worth a line.
                let known = before.map(List::read).unwrap_or_default();
                for row in list
                    .rows
                    .iter()
                    .filter(|row| known.rows.iter().all(|old| old.id != row.id))
                {
                    let word = if row.state.is_empty() {
                        "paused"
                    } else {
                        &row.state
                    };
                    write_line(&mut out, word, row)?;
                }
                out.flush()?;
            }
            Self::Screen(screen) => screen.changed = true,
        }
        Ok(())
    }

    fn change(&mut self, name: &str, row: &Value) -> Result<(), Error> {
        let mut out = io::stdout().lock();
        match self {
            Self::Json => writeln!(out, "{}", json!({ "event": name, "breakpoint": row }))?,
            Self::Lines => write_line(&mut out, &terminal::clean(name), &Row::read(row))?,
            Self::Screen(screen) => screen.changed = true,
        }
        Ok(out.flush()?)
    }

    fn draw(&mut self, state: &State) -> Result<(), Error> {
        let Self::Screen(screen) = self else {
            return Ok(());
        };
        let waits = state.list["breakpoints"]
            .as_array()
            .is_some_and(|rows| !rows.is_empty());
        // Without rows no clock runs, and without the first snapshot there is nothing to show.
        if state.list.get("snapshot").is_some() && (screen.changed || waits) {
            let mut aged = State {
                list: state.list.clone(),
                at: state.at,
                ended: state.ended,
            };
            aged.age();
            screen.draw(&aged.list)?;
        }
        Ok(())
    }

    /// Tells about the connection, where it does not disturb the output.
    fn say(&mut self, sentence: &str) -> Result<(), Error> {
        match self {
            Self::Screen(screen) => Ok(screen.say(sentence)?),
            Self::Json | Self::Lines => {
                // Standard error may be gone; the output is what counts.
                let _ = writeln!(io::stderr(), "ray-relay: {sentence}");
                Ok(())
            }
        }
    }
}

fn write_line(out: &mut impl Write, word: &str, row: &Row) -> io::Result<()> {
    let location = if row.location == "-" {
        String::new()
    } else {
        format!(" at {}", row.location)
    };
    let holder = if row.holder == "-" {
        String::new()
    } else {
        format!(", {}", row.holder)
    };
    writeln!(
        out,
        "{} {word:<8} {}  {}{location} on {}, waiting {}{holder}",
        clock(),
        row.id,
        row.task,
        row.node,
        waited(row.waiting)
    )
}

/// Time of day in UTC.
fn clock() -> String {
    let seconds = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs();
    format!(
        "{:02}:{:02}:{:02}Z",
        seconds / 3600 % 24,
        seconds / 60 % 60,
        seconds % 60
    )
}

/// The part of the terminal that is drawn again. Restores the cursor when dropped.
struct Screen {
    /// Lines of the last drawing, the cursor is below them.
    drawn: usize,
    changed: bool,
}

impl Screen {
    fn open() -> io::Result<Self> {
        // The cursor would flicker over the table.
        write!(io::stdout(), "\u{1b}[?25l")?;
        Ok(Self {
            drawn: 0,
            changed: false,
        })
    }

    fn draw(&mut self, list: &Value) -> io::Result<()> {
        let (columns, lines) = terminal::size().unwrap_or((80, 24));
        let text = page(list, Some(columns));
        let mut shown: Vec<&str> = text.lines().collect();
        // What has scrolled out of the terminal cannot be drawn over.
        let room = lines.saturating_sub(1).max(1);
        let more;
        if shown.len() > room {
            let hidden = shown.len() - room + 1;
            shown.truncate(room - 1);
            more = format!("… and {hidden} more: make the terminal higher, or `ray-relay list`");
            shown.push(&more);
        }
        let mut out = io::stdout().lock();
        self.erase(&mut out)?;
        for line in &shown {
            writeln!(out, "{}", fit(line, columns, Keep::Start))?;
        }
        out.flush()?;
        self.drawn = shown.len();
        self.changed = false;
        Ok(())
    }

    /// Leaves `sentence` above the table.
    fn say(&mut self, sentence: &str) -> io::Result<()> {
        let mut out = io::stdout().lock();
        self.erase(&mut out)?;
        writeln!(out, "{} {sentence}", clock())?;
        out.flush()?;
        self.drawn = 0;
        self.changed = true;
        Ok(())
    }

    fn erase(&self, out: &mut impl Write) -> io::Result<()> {
        match self.drawn {
            0 => Ok(()),
            lines => write!(out, "\u{1b}[{lines}A\r\u{1b}[J"),
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that is gone needs no cursor.
        let _ = write!(io::stdout(), "\u{1b}[?25h").and_then(|()| io::stdout().flush());
    }
}
