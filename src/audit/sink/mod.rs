//! Where lines go.
//!
//! Owned by the one writer thread of [`super::writer`], which may block. Each sink takes a batch of sealed lines and
//! returns once they are where they have to be, or says why they are not.

pub(super) mod file;
mod syslog;

use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;

use self::file::LogFile;
use self::syslog::Syslog;
use super::OpenError;
use crate::config::{Audit as AuditConfig, AuditSink};

/// Standard output, without the buffer of the standard library: that would try again on its own what has failed.
pub(super) struct Stdout {
    file: File,
    /// Part of a line may have been written.
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

    fn append(&mut self, lines: &str) -> Result<(), String> {
        let end = if self.torn { "\n" } else { "" };
        let written = self.file.write_all(format!("{end}{lines}").as_bytes());
        self.torn = written.is_err();
        written.map_err(|why| format!("cannot write to standard output: {why}"))
    }
}

/// One of them.
pub(super) enum Sink {
    /// With rotation; lines are on the disk.
    File(LogFile),
    /// Lines are in the pipe.
    Stdout(Stdout),
    /// Lines are in the socket.
    Syslog(Syslog),
}

impl Sink {
    /// As `config` says; `None`: off. Nothing is opened yet.
    pub(super) fn new(config: &AuditConfig) -> Result<Option<Self>, OpenError> {
        Ok(Some(match config.sink {
            AuditSink::Off => return Ok(None),
            AuditSink::Stdout => Self::Stdout(Stdout::open()?),
            AuditSink::Syslog => Self::Syslog(Syslog::new(config.syslog.clone())),
            AuditSink::File => {
                let path = config.file.clone().ok_or_else(|| {
                    OpenError("audit.sink is \"file\", and audit.file names none".to_owned())
                })?;
                Self::File(LogFile::new(path, config.max_size as u64, config.keep))
            }
        }))
    }

    /// For messages.
    pub(super) fn name(&self) -> String {
        match self {
            Self::File(file) => file.path().display().to_string(),
            Self::Stdout(_) => "standard output".to_owned(),
            Self::Syslog(syslog) => syslog.name(),
        }
    }

    /// Whether several lines are written at once, all or none of them.
    pub(super) fn takes_batches(&self) -> bool {
        matches!(self, Self::File(_))
    }

    /// Writes `lines`, each ended by a line feed; a sink that takes no batches gets one.
    pub(super) fn append(&mut self, lines: &str) -> Result<(), String> {
        match self {
            Self::File(file) => file.append(lines.as_bytes()),
            Self::Stdout(stdout) => stdout.append(lines),
            Self::Syslog(syslog) => syslog.append(lines),
        }
    }
}
