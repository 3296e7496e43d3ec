//! Output of `list --watch`: a table redrawn in place, a line for each change, or JSON.
//!
//! On a terminal the table is redrawn at most once a second (by [`super::watch`]'s clock), and the cursor is restored
//! however it ends. In a pipe each change is a line.

use std::fmt::Display;
use std::io::{self, Write};
use std::time::SystemTime;

use serde_json::{Value, json};

use super::page::{folded, page};
use crate::cli::failure::Failure;
use crate::cli::terminal;
use ray_relay_base::wire::human_time::{span, utc};
use ray_relay_base::wire::text::replaced;
use ray_relay_view::listing::row::{List, Row};
use ray_relay_view::listing::text::{KeptEnd, fit};

/// Output options.
#[derive(Debug, Clone, Copy)]
pub(super) struct How {
    pub(super) json: bool,
    /// Whether to show each row, including equal ones.
    pub(super) flat: bool,
}

/// Form of the output.
pub(super) enum View {
    /// One object per line.
    Json,
    /// One line for each change.
    Lines,
    /// A table that is redrawn.
    Screen(Screen),
}

impl View {
    /// Opens the view that fits standard output.
    pub(super) fn open(how: How) -> io::Result<Self> {
        Ok(match (how.json, terminal::size()) {
            (true, _) => Self::Json,
            (false, None) => Self::Lines,
            (false, Some(_)) => Self::Screen(Screen::open(how.flat)?),
        })
    }

    pub(super) fn snapshot(&mut self, list: &Value, before: Option<&Value>) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        match self {
            Self::Json => {
                let mut object = json!({ "event": "snapshot" });
                let members = list.as_object().into_iter().flatten();
                for (key, value) in members.filter(|(key, _)| *key != "snapshot") {
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
                // After a reconnection only new rows are worth a line.
                let known = before.map(List::read).unwrap_or_default();
                let is_new = |row: &&Row| known.rows.iter().all(|old| old.id != row.id);
                for row in list.rows.iter().filter(is_new) {
                    let word = match row.state.as_str() {
                        "" => "paused",
                        state => state,
                    };
                    write_line(&mut out, word, row)?;
                }
                out.flush()?;
            }
            Self::Screen(screen) => screen.changed = true,
        }
        Ok(())
    }

    pub(super) fn change(&mut self, name: &str, row: &Value) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        match self {
            Self::Json => writeln!(out, "{}", json!({ "event": name, "breakpoint": row }))?,
            Self::Lines => write_line(&mut out, &replaced(name), &Row::read(row))?,
            Self::Screen(screen) => screen.changed = true,
        }
        Ok(out.flush()?)
    }

    /// Whether it shows the state of the heads.
    pub(super) fn shows_clusters(&self) -> bool {
        !matches!(self, Self::Json)
    }

    /// Reports heads that stopped answering, or answer again.
    pub(super) fn clusters(&mut self, before: &Value, now: &Value) -> Result<(), Failure> {
        match self {
            Self::Json => {}
            Self::Screen(screen) => screen.changed = true,
            Self::Lines => {
                let mut out = io::stdout().lock();
                for sentence in List::read(now).changes(&List::read(before)) {
                    writeln!(out, "{} ! {sentence}", clock())?;
                }
                out.flush()?;
            }
        }
        Ok(())
    }

    /// Whether a redraw is due: something changed, or ages grow.
    pub(super) fn is_due(&self, waits: bool) -> bool {
        matches!(self, Self::Screen(screen) if screen.changed || waits)
    }

    /// Draws `list`, if there is one and a screen.
    pub(super) fn draw(&mut self, list: Option<&Value>) -> Result<(), Failure> {
        match (self, list) {
            (Self::Screen(screen), Some(list)) => Ok(screen.draw(list)?),
            _ => Ok(()),
        }
    }

    /// Reports on the connection, without disturbing the output.
    pub(super) fn report(&mut self, sentence: &str) -> Result<(), Failure> {
        match self {
            Self::Screen(screen) => Ok(screen.report(sentence)?),
            Self::Json | Self::Lines => {
                // Standard error may be gone; the output is what counts.
                let _ = writeln!(io::stderr(), "ray-relay: {sentence}");
                Ok(())
            }
        }
    }
}

fn write_line(out: &mut impl Write, word: &str, row: &Row) -> io::Result<()> {
    let unless_unknown = |before: &str, text: &str| match text {
        "-" => String::new(),
        text => format!("{before}{text}"),
    };
    let location = unless_unknown(" at ", &row.location);
    let holder = unless_unknown(", ", &row.holder);
    let (clock, waiting) = (clock(), span(row.waiting));
    let timeout = match row.timeout {
        Some(remaining) => format!(", others time out in {}", span(remaining)),
        None => String::new(),
    };
    let Row { id, task, node, .. } = row;
    writeln!(
        out,
        "{clock} {word:<8} {id}  {task}{location} on {node}, waiting {waiting}{timeout}{holder}"
    )
}

/// Time of day in UTC.
fn clock() -> impl Display {
    utc(SystemTime::now()).format("%H:%M:%SZ")
}

/// Erases from the cursor to the end of its line (ECMA-48 EL).
const CLEAR_LINE: &str = "\u{1b}[K";
/// Erases from the cursor to the end of the terminal (ECMA-48 ED).
const CLEAR_BELOW: &str = "\u{1b}[J";

/// The redrawn part of the terminal. Restores the cursor when dropped.
pub(super) struct Screen {
    /// Number of lines of the last drawing; the cursor is below them.
    drawn: usize,
    changed: bool,
    flat: bool,
}

impl Screen {
    fn open(flat: bool) -> io::Result<Self> {
        // The cursor would flicker over the table.
        write!(io::stdout(), "\u{1b}[?25l")?;
        Ok(Self {
            drawn: 0,
            changed: false,
            flat,
        })
    }

    fn draw(&mut self, list: &Value) -> io::Result<()> {
        let (columns, lines) = terminal::size().unwrap_or((80, 24));
        let text = match self.flat {
            true => page(list, Some(columns)),
            false => folded(list, Some(columns)),
        };
        let mut visible: Vec<&str> = text.lines().collect();
        // Lines that have scrolled out of the terminal cannot be redrawn.
        let room = lines.saturating_sub(1).max(1);
        let more;
        if visible.len() > room {
            let hidden = visible.len() - room + 1;
            visible.truncate(room - 1);
            more = format!("… and {hidden} more: make the terminal higher, or `ray-relay list`");
            visible.push(&more);
        }
        let mut out = io::stdout().lock();
        self.begin(&mut out)?;
        for line in &visible {
            writeln!(out, "{}{CLEAR_LINE}", fit(line, columns, KeptEnd::Start))?;
        }
        write!(out, "{CLEAR_BELOW}")?;
        out.flush()?;
        self.drawn = visible.len();
        self.changed = false;
        Ok(())
    }

    /// Prints `sentence` above the table.
    fn report(&mut self, sentence: &str) -> io::Result<()> {
        let mut out = io::stdout().lock();
        self.begin(&mut out)?;
        writeln!(out, "{} {sentence}{CLEAR_LINE}", clock())?;
        write!(out, "{CLEAR_BELOW}")?;
        out.flush()?;
        self.drawn = 0;
        self.changed = true;
        Ok(())
    }

    /// Moves the cursor to the first line of the last drawing. The old lines are overwritten one by one: erasing first
    /// would flicker, and tmux would keep each drawing in its history.
    fn begin(&self, out: &mut impl Write) -> io::Result<()> {
        match self.drawn {
            0 => Ok(()),
            lines => write!(out, "\u{1b}[{lines}A\r"),
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that is gone needs no cursor.
        let _ = write!(io::stdout(), "\u{1b}[?25h").and_then(|()| io::stdout().flush());
    }
}
