//! Sinks: the destinations of sealed lines.
//!
//! Owned by the only writer thread ([`super::writer`]), which may block. A sink writes a batch of sealed lines, and
//! returns once they are stored or sent, or with the reason why not.

pub(super) mod file;
pub(super) mod line_sink;
mod syslog;

use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;

use self::file::LogFile;
pub(super) use self::line_sink::LineSink;
use self::syslog::Syslog;
use super::OpenError;
use ray_relay_base::config::{Audit as AuditConfig, AuditSink};

/// Standard output, without the buffer of the standard library, which would retry failed output on its own.
pub(super) struct Stdout {
    file: File,
    /// Whether part of a line may have been written.
    torn: bool,
}

impl Stdout {
    fn open() -> Result<Self, OpenError> {
        let file = std::io::stdout().as_fd().try_clone_to_owned();
        let file = file.map_err(|why| OpenError(format!("standard output: {why}")))?;
        Ok(Self {
            file: file.into(),
            torn: false,
        })
    }
}

impl LineSink for Stdout {
    fn name(&self) -> String {
        "standard output".to_owned()
    }

    fn append(&mut self, line: &str) -> Result<(), String> {
        let end = if self.torn { "\n" } else { "" };
        let written = self.file.write_all(format!("{end}{line}").as_bytes());
        self.torn = written.is_err();
        written.map_err(|why| format!("cannot write to standard output: {why}"))
    }
}

/// The configured sink.
pub(super) enum Sink {
    /// A file with rotation. Its lines are on the disk, and read again at the next start.
    File(LogFile),
    /// A sink that is never read back: standard output or syslog.
    Lines(Box<dyn LineSink>),
}

impl Sink {
    /// Builds the sink of `config`. `None`: off. Opens nothing yet.
    pub(super) fn new(config: &AuditConfig) -> Result<Option<Self>, OpenError> {
        Ok(Some(match config.sink {
            AuditSink::Off => return Ok(None),
            AuditSink::Stdout => Self::Lines(Box::new(Stdout::open()?)),
            AuditSink::Syslog => Self::Lines(Box::new(Syslog::new(config.syslog.clone()))),
            AuditSink::File => {
                let path = config.file.clone().ok_or_else(|| {
                    OpenError("audit.sink is \"file\", and audit.file names none".to_owned())
                })?;
                Self::File(LogFile::new(path, config.max_size as u64, config.keep))
            }
        }))
    }

    /// Returns the sink's name in messages.
    pub(super) fn name(&self) -> String {
        match self {
            Self::File(file) => file.path().display().to_string(),
            Self::Lines(sink) => sink.name(),
        }
    }

    /// Whether several lines are written at once, all or none of them.
    pub(super) fn takes_batches(&self) -> bool {
        matches!(self, Self::File(_))
    }

    /// Writes `lines`, each ended by a line feed. A sink without batches gets one line.
    pub(super) fn append(&mut self, lines: &str) -> Result<(), String> {
        match self {
            Self::File(file) => file.append(lines.as_bytes()),
            Self::Lines(sink) => sink.append(lines),
        }
    }
}
