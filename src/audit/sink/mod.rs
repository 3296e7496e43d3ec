//! Where lines go.
//!
//! Owned by the one writer thread of [`super::writer`], which may block. Each sink takes a batch of sealed lines and
//! returns once they are where they have to be, or says why they are not.

pub(super) mod file;
mod syslog;

use std::io::Write;

use self::file::LogFile;
use self::syslog::Syslog;
use super::OpenError;
use crate::config::{Audit as AuditConfig, AuditSink};

/// One of them.
pub(super) enum Sink {
    /// With rotation; lines are on the disk.
    File(LogFile),
    /// Lines are in the pipe.
    Stdout(std::io::Stdout),
    /// Lines are in the socket.
    Syslog(Syslog),
}

impl Sink {
    /// As `config` says; `None`: off. Nothing is opened yet.
    pub(super) fn new(config: &AuditConfig) -> Result<Option<Self>, OpenError> {
        Ok(Some(match config.sink {
            AuditSink::Off => return Ok(None),
            AuditSink::Stdout => Self::Stdout(std::io::stdout()),
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
            Self::Stdout(stdout) => {
                let mut stdout = stdout.lock();
                stdout
                    .write_all(lines.as_bytes())
                    .and_then(|()| stdout.flush())
                    .map_err(|why| format!("standard output is gone: {why}"))
            }
            Self::Syslog(syslog) => syslog.append(lines),
        }
    }
}
