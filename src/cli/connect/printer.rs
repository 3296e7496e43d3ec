//! Output of `ray-relay connect`: on a terminal one status line, otherwise a line for each change.

use std::io::{self, IsTerminal as _, Write};
use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::args::ConnectArgs;
use super::command::url;
use ray_relay_base::wire::human_time::span;
use ray_relay_base::wire::relay_url::RelayUrl;
use ray_relay_base::wire::text::{replaced, shortened};

/// Maximum number of distinct reasons reported while the relay is unreachable.
const MAX_REASONS: usize = 8;

/// Prints status and events.
pub(super) struct ConnectPrinter {
    relay: String,
    address: SocketAddr,
    shared: bool,
    form: Form,
    /// Whether to print to standard error, because standard output is the command's.
    has_command: bool,
    state: Mutex<ConnectDisplay>,
    changed: Notify,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// One line, redrawn on each change.
    Terminal,
    Lines,
    Json,
}

#[derive(Default)]
struct ConnectDisplay {
    /// Since when the relay is unreachable, by the clock that runs while this machine sleeps, and the reasons reported.
    away: Option<(SystemTime, Vec<String>)>,
    /// When it was last reported as reached; that report covers earlier silences.
    back: Option<SystemTime>,
    was_reached: bool,
    connections: usize,
    round_trip: Option<Duration>,
    /// The line printed last, if it is redrawn.
    line: String,
    failed: Option<io::Error>,
}

impl ConnectDisplay {
    /// Records that the relay is reached `now`. Returns how long it was away, if that has to be reported. `since`: when
    /// a connected client last heard it.
    fn back(&mut self, since: Option<SystemTime>, now: SystemTime) -> Option<Duration> {
        let away = self.away.take().map(|(at, _)| at);
        // Several connections may have been silent at the same time.
        let since = since.filter(|since| self.back.is_none_or(|back| back < *since));
        let since = away.into_iter().chain(since).min()?;
        self.back = Some(now);
        now.duration_since(since).ok()
    }
}

/// Counts a connection while it is open.
pub(super) struct CountedConnection<'a>(&'a ConnectPrinter);

impl Drop for CountedConnection<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.connections -= 1;
        self.0.show(&mut state);
    }
}

impl ConnectPrinter {
    pub(super) fn new(args: &ConnectArgs, relay: &RelayUrl, address: SocketAddr) -> Self {
        let has_command = !args.command.is_empty();
        let form = match args.json {
            true => Form::Json,
            false if !has_command && io::stdout().is_terminal() => Form::Terminal,
            false => Form::Lines,
        };
        Self {
            relay: relay.to_string(),
            address,
            shared: !address.ip().is_loopback(),
            form,
            has_command,
            state: Mutex::default(),
            changed: Notify::new(),
        }
    }

    /// Reports that the port is open. Users see where it leads once the relay is reached.
    pub(super) fn listening(&self) -> io::Result<()> {
        if self.form != Form::Json {
            return Ok(());
        }
        let (url, relay) = (url(self.address), &self.relay);
        let value =
            json!({"event": "listening", "address": self.address, "url": url, "relay": relay});
        self.print(&format!("{value}\n"))
    }

    /// Sentence with the port's destination.
    fn destination_notice(&self) -> String {
        let also = match self.shared {
            true => " Other machines can reach it, too.",
            false => "",
        };
        format!(
            "{} now leads to {}; every client of this port acts as you.{also}",
            self.address, self.relay
        )
    }

    /// Reports that the relay was reached, after a connected client had not heard it since `since`. Returns how long it
    /// was away, if it was.
    pub(super) fn reached(&self, since: Option<SystemTime>) -> Option<Duration> {
        let mut state = self.state.lock();
        let away = state.back(since, SystemTime::now());
        let was_reached = std::mem::replace(&mut state.was_reached, true);
        match (away, was_reached) {
            (None, true) => {}
            (Some(after), true) => {
                let text = format!("Connected again after {}.", span(after));
                let value = json!({"event": "connected", "away_s": after.as_secs_f64()});
                self.event(&mut state, &text, &value);
            }
            (_, false) => {
                self.event(
                    &mut state,
                    &self.destination_notice(),
                    &json!({"event": "connected"}),
                );
            }
        }
        away.filter(|_| was_reached)
    }

    /// Reports, once for each reason, that the relay is unreachable. It was last heard at `since`. Returns whether it
    /// was reachable until now.
    pub(super) fn away(&self, why: &str, since: SystemTime) -> bool {
        let mut state = self.state.lock();
        let is_new = state.was_reached && state.away.is_none();
        let (at, reasons) = state.away.get_or_insert_with(|| (since, Vec::new()));
        *at = since.min(*at);
        if reasons.len() == MAX_REASONS || reasons.iter().any(|known| known == why) {
            return is_new;
        }
        reasons.push(why.to_owned());
        let why = replaced(why);
        let text = format!("{why}; trying again.");
        self.event(&mut state, &text, &json!({"event": "away", "why": why}));
        is_new
    }

    /// Reports that a connection ended although neither side closed it.
    pub(super) fn gone(&self, why: &str) {
        let mut state = self.state.lock();
        let why = replaced(why);
        let text =
            format!("A connection has ended: {why}. New ones work once the relay is reachable.");
        self.event(&mut state, &text, &json!({"event": "gone", "why": why}));
    }

    /// Reports that the machine has slept.
    pub(super) fn slept(&self, slept: Duration) {
        let mut state = self.state.lock();
        let text = format!(
            "This machine has slept for {}; connecting again.",
            span(slept)
        );
        let value = json!({"event": "slept", "seconds": slept.as_secs()});
        self.event(&mut state, &text, &value);
    }

    /// Counts a new connection.
    pub(super) fn connection(&self) -> CountedConnection<'_> {
        let mut state = self.state.lock();
        state.connections += 1;
        self.show(&mut state);
        CountedConnection(self)
    }

    pub(super) fn round_trip(&self, round_trip: Option<Duration>) {
        let mut state = self.state.lock();
        state.round_trip = round_trip;
        self.show(&mut state);
    }

    /// Resolves when printing fails because the reader is gone.
    pub(super) async fn run(&self) -> io::Error {
        loop {
            self.changed.notified().await;
            if let Some(error) = self.state.lock().failed.take() {
                return error;
            }
        }
    }

    /// Ends the output; the last line stays.
    pub(super) fn end(&self) -> io::Result<()> {
        match self.form == Form::Terminal && !self.state.lock().line.is_empty() {
            true => self.print("\n"),
            false => Ok(()),
        }
    }

    fn event(&self, state: &mut ConnectDisplay, text: &str, value: &Value) {
        let printed = match self.form {
            Form::Json => self.print(&format!("{value}\n")),
            Form::Lines => self.print(&format!("{text}\n")),
            Form::Terminal => {
                // Above the status line.
                state.line.clear();
                self.print(&format!("\r\x1b[K{text}\n"))
            }
        };
        self.note(state, printed);
        self.show(state);
    }

    /// Redraws the status line of a terminal, if it has changed.
    fn show(&self, state: &mut ConnectDisplay) {
        if self.form != Form::Terminal {
            return;
        }
        let is = match &state.away {
            None => "connected".to_owned(),
            Some((since, _)) => format!("away for {}", span(since.elapsed().unwrap_or_default())),
        };
        let connections = match state.connections {
            1 => "1 connection".to_owned(),
            count => format!("{count} connections"),
        };
        let round_trip = state.round_trip.filter(|_| state.away.is_none());
        let round_trip =
            round_trip.map_or(String::new(), |took| format!(" | {} ms", took.as_millis()));
        let line = format!("{} | {is} | {connections}{round_trip}", self.address);
        if line != state.line {
            let columns = crate::cli::terminal::columns().unwrap_or(80);
            let printed = self.print(&format!("\r\x1b[K{}", shortened(&line, columns - 1)));
            self.note(state, printed);
            state.line = line;
        }
    }

    fn note(&self, state: &mut ConnectDisplay, printed: io::Result<()>) {
        if let Err(error) = printed {
            state.failed = Some(error);
            self.changed.notify_one();
        }
    }

    fn print(&self, text: &str) -> io::Result<()> {
        if !self.has_command {
            return crate::cli::terminal::print(text);
        }
        let mut out = io::stderr().lock();
        out.write_all(text.as_bytes())?;
        out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_away_counts_from_the_last_message() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let mut state = ConnectDisplay::default();
        assert_eq!(state.back(None, at(1)), None, "it was never away");
        // The loss was noticed at 120 s; the last message came at 100 s.
        state.away = Some((at(100), Vec::new()));
        assert_eq!(state.back(None, at(160)), Some(Duration::from_secs(60)));
        // Another connection was silent at the same time; a third returns after eight hours.
        assert_eq!(state.back(Some(at(99)), at(161)), None);
        let night = Duration::from_secs(8 * 3600);
        assert_eq!(state.back(Some(at(200)), at(200) + night), Some(night));
    }
}
