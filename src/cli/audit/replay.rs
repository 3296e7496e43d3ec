//! `ray-relay audit replay`.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::{Map, Value, json};

use super::super::terminal::size;
use super::lines::AuditError;
use super::transcript::Transcript;
use crate::cli::failure::Failure;
use ray_relay_access::recording::format::{Header, RecordedLine, read_header, read_line};
use ray_relay_access::recording::{Direction, Protocol};
use ray_relay_base::wire::text::replaced;

#[derive(Debug, Args)]
pub(super) struct ReplayArgs {
    /// A recording, from the folder in recording.dir
    #[arg(value_name = "RECORDING", value_hint = clap::ValueHint::FilePath)]
    file: PathBuf,
    /// So many times faster
    #[arg(long, value_name = "N", default_value_t = 1.0, value_parser = speed)]
    speed: f64,
    /// Do not wait between messages
    #[arg(long)]
    no_wait: bool,
    /// Print one object for each message
    #[arg(long)]
    json: bool,
}

fn speed(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(speed) if (0.01..=1000.0).contains(&speed) => Ok(speed),
        _ => Err("a number from 0.01 to 1000".to_owned()),
    }
}

/// Maximum pause between two messages.
const MAX_MESSAGE_DELAY: Duration = Duration::from_secs(5);

pub(super) async fn run(args: &ReplayArgs) -> Result<(), Failure> {
    let no_recording = |line: u64, why: &dyn std::fmt::Display| AuditError::NoRecording {
        path: args.file.clone(),
        why: format!("line {line}: {why}"),
    };
    let unreadable = |cause| AuditError::Unreadable {
        path: args.file.clone(),
        cause,
    };
    let file = File::open(&args.file).map_err(unreadable)?;
    let mut lines = BufReader::new(file).split(b'\n');
    let first = lines
        .next()
        .transpose()
        .map_err(unreadable)?
        .unwrap_or_default();
    let header = read_header(&first).map_err(|why| no_recording(1, &why))?;
    let waits = !args.no_wait && !args.json && size().is_some();
    let mut out = BufWriter::new(io::stdout());
    let mut renderer = if args.json {
        ShownMessage::Json
    } else {
        writeln!(out, "{}", title(&header))?;
        match header.protocol {
            Protocol::Dap => ShownMessage::Transcript(Transcript::default()),
            Protocol::Terminal => ShownMessage::Terminal,
        }
    };
    let mut now = Duration::ZERO;
    for (number, line) in (2..).zip(lines) {
        let line = line.map_err(unreadable)?;
        // Show everything before the invalid line, then report it.
        let line = match read_line(&line) {
            Ok(line) => line,
            Err(why) => {
                out.flush()?;
                return Err(no_recording(number, &why).into());
            }
        };
        let (RecordedLine::Frame { elapsed, .. } | RecordedLine::End { elapsed, .. }) = line;
        if waits {
            out.flush()?;
            let pause = elapsed.saturating_sub(now).min(MAX_MESSAGE_DELAY);
            tokio::time::sleep(pause.div_f64(args.speed)).await;
        }
        now = elapsed;
        renderer.put(&mut out, line)?;
    }
    Ok(out.flush()?)
}

enum ShownMessage {
    Json,
    Transcript(Transcript),
    Terminal,
}

impl ShownMessage {
    fn put(&mut self, out: &mut impl Write, line: RecordedLine) -> io::Result<()> {
        match (self, line) {
            (Self::Json, line) => writeln!(out, "{}", as_json(line)),
            (
                Self::Transcript(transcript),
                RecordedLine::Frame {
                    elapsed,
                    direction,
                    bytes,
                },
            ) => {
                for line in transcript.lines(direction, &bytes) {
                    writeln!(out, "{:>9.3}  {line}", elapsed.as_secs_f64())?;
                }
                Ok(())
            }
            // As the user at the terminal saw it; it contains the input as its echo.
            (
                Self::Terminal,
                RecordedLine::Frame {
                    direction: Direction::Down,
                    bytes,
                    ..
                },
            ) => out.write_all(&bytes),
            (Self::Terminal, RecordedLine::Frame { .. }) => Ok(()),
            (_, RecordedLine::End { elapsed, how }) => {
                writeln!(
                    out,
                    "{:>9.3}  -- ended: {}",
                    elapsed.as_secs_f64(),
                    replaced(&how)
                )
            }
        }
    }
}

fn as_json(line: RecordedLine) -> Value {
    match line {
        RecordedLine::Frame {
            elapsed,
            direction,
            bytes,
        } => {
            let message = serde_json::from_slice(&bytes)
                .unwrap_or_else(|_| Value::from(String::from_utf8_lossy(&bytes)));
            json!({"seconds": elapsed.as_secs_f64(), "direction": direction.label(), "message": message})
        }
        RecordedLine::End { elapsed, how } => json!({"seconds": elapsed.as_secs_f64(), "end": how}),
    }
}

/// `ana (token:x) with VS Code from 10.0.0.9:5000 on train [3k9x7a2q], 2026-11-21T10:55:01.123Z`
fn title(header: &Header) -> String {
    let members: &Map<String, Value> = &header.members;
    let text =
        |key: &str| replaced(members.get(key).and_then(Value::as_str).unwrap_or("-")).into_owned();
    format!(
        "-- {} ({}) with {} from {} on {} [{}], session {}, {}",
        text("subject"),
        text("credential"),
        text("client"),
        text("peer"),
        text("name"),
        text("breakpoint"),
        members
            .get("session")
            .and_then(Value::as_u64)
            .unwrap_or_default(),
        text("time"),
    )
}
