//! `ray-relay audit show`.

use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use clap::Args;
use serde_json::{Map, Value};

use super::super::terminal;
use super::lines::{AuditError, each_line, in_order, put};
use super::table;
use crate::cli::failure::Failure;
use ray_relay_access::audit::time::rfc3339;
use ray_relay_access::policy::Pattern;
use ray_relay_base::wire::text::replaced;

#[derive(Debug, Args)]
pub(super) struct ShowArgs {
    /// Audit files, in any order; rotated ones come along; - for standard input
    #[arg(required = true, value_name = "FILE", env = "RAY_RELAY_AUDIT_FILE", value_hint = clap::ValueHint::FilePath)]
    files: Vec<PathBuf>,
    /// Of this person; * stands for anything
    #[arg(long, value_name = "NAME")]
    subject: Option<String>,
    /// About this job or submission; * stands for anything
    #[arg(long, value_name = "ID")]
    job: Option<String>,
    /// About this breakpoint
    #[arg(long, value_name = "ID")]
    breakpoint: Option<ray_relay_ray::ray::registry::BreakpointId>,
    /// Of this kind: authentication, decision, session_began, command, session_parked,
    /// session_ended, administration, agent, audit
    #[arg(long, value_name = "ACTION", value_parser = action)]
    action: Vec<&'static str>,
    /// From then on: 1h (ago), 2026-11-21 or 2026-11-21T10:55
    #[arg(long, value_name = "TIME", value_parser = time)]
    since: Option<std::time::SystemTime>,
    /// Before then
    #[arg(long, value_name = "TIME", value_parser = time)]
    until: Option<std::time::SystemTime>,
    /// Print the lines as they are
    #[arg(long)]
    json: bool,
    /// Stay, and show lines as they are written; ends with Ctrl-C
    #[arg(long, short)]
    follow: bool,
}

fn action(word: &str) -> Result<&'static str, String> {
    let mut words = ray_relay_access::audit::EntryKind::ALL
        .iter()
        .map(|action| action.word());
    match words.find(|known| *known == word) {
        Some(word) => Ok(word),
        None => {
            let words: Vec<_> = ray_relay_access::audit::EntryKind::ALL
                .iter()
                .map(|action| action.word())
                .collect();
            Err(format!("it is one of {}", words.join(", ")))
        }
    }
}

fn time(text: &str) -> Result<std::time::SystemTime, String> {
    ray_relay_access::audit::time::parse(text, std::time::SystemTime::now())
        .ok_or_else(|| "write it as 1h (ago), 2026-11-21 or 2026-11-21T10:55, in UTC".to_owned())
}

/// Poll interval of a log with `--follow`.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Maximum size of an incomplete line, with `--follow`.
const MAX_PARTIAL_LINE_BYTES: usize = 1 << 20;

pub(super) async fn run(args: &ShowArgs) -> Result<(), Failure> {
    let files = in_order(&args.files)?;
    let mut page = ShownPage {
        filter: LineFilter::new(args),
        json: args.json,
        columns: terminal::columns(),
        titled: args.json,
        out: BufWriter::new(io::stdout()),
    };
    let live = files.last().filter(|_| args.follow).cloned();
    let whole = &files[..files.len() - usize::from(live.is_some())];
    let mut result = Ok(());
    each_line(whole, |path, line| {
        page.line(
            line.bytes,
            &|| format!("{} line {}", path.display(), line.number),
            &mut result,
        )
    })?;
    result?;
    match live {
        Some(live) => follow(page, &live).await,
        None => Ok(page.out.flush()?),
    }
}

/// Output state: filter and format.
struct ShownPage {
    filter: LineFilter,
    json: bool,
    columns: Option<usize>,
    titled: bool,
    out: BufWriter<io::Stdout>,
}

impl ShownPage {
    /// Shows a line if it matches. Returns false once the reader is gone.
    fn line(
        &mut self,
        line: &[u8],
        source: &dyn Fn() -> String,
        result: &mut io::Result<()>,
    ) -> bool {
        let Ok(Value::Object(members)) = serde_json::from_slice(line) else {
            // On standard error, so that --json stays JSON.
            let source = replaced(&source()).into_owned();
            _ = writeln!(io::stderr(), "! {source}: this is no audit line");
            return true;
        };
        if !self.filter.fits(&members) {
            return true;
        }
        if self.json {
            return put(&mut self.out, &String::from_utf8_lossy(line), result);
        }
        if !std::mem::replace(&mut self.titled, true)
            && !put(&mut self.out, &table::title(self.columns), result)
        {
            return false;
        }
        let row = table::render(&members, self.columns);
        put(&mut self.out, &row, result)
    }
}

/// Shows `live` to its end and whatever is appended, including files that replace it.
async fn follow(mut page: ShownPage, live: &Path) -> Result<(), Failure> {
    let unreadable = |cause| AuditError::Unreadable {
        path: live.to_owned(),
        cause,
    };
    let mut file = File::open(live).map_err(unreadable)?;
    let mut rest = Vec::new();
    loop {
        let mut result = Ok(());
        let source = || live.display().to_string();
        loop {
            let read = (&mut file)
                .take(64 << 10)
                .read_to_end(&mut rest)
                .map_err(unreadable)?;
            while let Some(end) = memchr::memchr(b'\n', &rest) {
                page.line(&rest[..end], &source, &mut result);
                rest.drain(..=end);
            }
            if rest.len() > MAX_PARTIAL_LINE_BYTES {
                rest.clear();
            }
            if read == 0 {
                break;
            }
        }
        result?;
        page.out.flush()?;
        page.columns = terminal::columns();
        tokio::time::sleep(POLL_INTERVAL).await;
        // Finish the old file before opening the new one.
        let old = file.metadata().map_err(unreadable)?;
        let behind = old.len() > file.stream_position().map_err(unreadable)?;
        let exchanged = std::fs::metadata(live)
            .is_ok_and(|now| (now.dev(), now.ino()) != (old.dev(), old.ino()));
        if exchanged && !behind {
            file = File::open(live).map_err(unreadable)?;
            rest.clear();
        } else if old.len() < file.stream_position().map_err(unreadable)? {
            file.seek(SeekFrom::Start(0)).map_err(unreadable)?;
            rest.clear();
        }
    }
}

/// Selects lines.
struct LineFilter {
    subject: Option<Pattern>,
    job: Option<Pattern>,
    breakpoint: Option<String>,
    actions: Vec<&'static str>,
    since: Option<String>,
    until: Option<String>,
}

impl LineFilter {
    fn new(args: &ShowArgs) -> Self {
        // Timestamps in this form sort as text.
        let time = |time: Option<SystemTime>| time.map(rfc3339);
        Self {
            subject: args.subject.as_deref().map(Pattern::new),
            job: args.job.as_deref().map(Pattern::new),
            breakpoint: args.breakpoint.map(|id| id.to_string()),
            actions: args.action.clone(),
            since: time(args.since),
            until: time(args.until),
        }
    }

    fn fits(&self, line: &Map<String, Value>) -> bool {
        let text = |key: &str| line.get(key).and_then(Value::as_str);
        let fits = |pattern: &Option<Pattern>, keys: &[&str]| {
            let mut texts = keys.iter().filter_map(|key| text(key));
            pattern
                .as_ref()
                .is_none_or(|pattern| texts.any(|text| pattern.matches(text)))
        };
        let time = text("time").unwrap_or_default();
        // The line of a job submitted through the relay has no breakpoint.
        let submitted = || line.get("details")?.get("submission_id")?.as_str();
        let is_submission = |job: &Pattern| submitted().is_some_and(|id| job.matches(id));
        fits(&self.subject, &["subject"])
            && (fits(&self.job, &["job", "submission"])
                || self.job.as_ref().is_some_and(is_submission))
            && (self.breakpoint.is_none() || self.breakpoint.as_deref() == text("breakpoint"))
            && (self.actions.is_empty()
                || text("action").is_some_and(|action| self.actions.contains(&action)))
            && self.since.as_deref().is_none_or(|since| time >= since)
            && self.until.as_deref().is_none_or(|until| time < until)
    }
}
