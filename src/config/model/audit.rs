//! `[audit]` and `[recording]`.

use std::path::PathBuf;
use std::time::Duration;

/// `[audit]`
#[derive(Debug, Clone, PartialEq)]
pub struct Audit {
    /// `sink`, default `off`.
    pub sink: AuditSink,
    /// `file`: the live file, for `sink = "file"`. No default.
    pub file: Option<PathBuf>,
    /// `syslog`, default `/dev/log`: for `sink = "syslog"`.
    pub syslog: SyslogAddress,
    /// `max_size`, default 64 MiB: a file that would grow over it is rotated.
    pub max_size: usize,
    /// `keep`, default 0: rotated files that are kept; 0 keeps all.
    pub keep: usize,
    /// `sync`, default `batch`.
    pub sync: AuditSync,
    /// `timeout`, default 2 s: longest wait for one line to be where it has to be.
    pub timeout: Duration,
    /// `on_failure`, default `deny`.
    pub on_failure: OnFailure,
    /// `commands`, default true: whether debugger commands are recorded.
    pub commands: bool,
    /// `key_file`: key of the chain of hashes. Absent: anybody who can write the file can make a new chain.
    pub key_file: Option<PathBuf>,
}

/// Where audit lines go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuditSink {
    /// Nowhere.
    Off,
    /// Standard output of the relay.
    Stdout,
    /// `audit.file`.
    File,
    /// `audit.syslog`.
    Syslog,
}

/// When a line counts as written to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuditSync {
    /// Each line has a `fdatasync` of its own.
    Always,
    /// Lines that wait at the same time share one.
    Batch,
}

/// What happens where something cannot be put on record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnFailure {
    /// It does not happen.
    Deny,
    /// It happens all the same, with an error in the log.
    Allow,
}

/// Address of a syslog daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SyslogAddress {
    /// A local datagram socket.
    Unix(PathBuf),
    /// `udp://HOST:PORT`, the part after the slashes.
    Udp(String),
    /// `tcp://HOST:PORT`, the part after the slashes.
    Tcp(String),
}

impl std::fmt::Display for SyslogAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "{}", path.display()),
            Self::Udp(address) => write!(f, "udp://{address}"),
            Self::Tcp(address) => write!(f, "tcp://{address}"),
        }
    }
}

impl Default for Audit {
    fn default() -> Self {
        Self {
            sink: AuditSink::Off,
            file: None,
            syslog: SyslogAddress::Unix("/dev/log".into()),
            max_size: 64 << 20,
            keep: 0,
            sync: AuditSync::Batch,
            timeout: Duration::from_secs(2),
            on_failure: OnFailure::Deny,
            commands: true,
            key_file: None,
        }
    }
}

/// `[recording]`
#[derive(Debug, Clone, PartialEq)]
pub struct Recording {
    /// `dir`: folder of the recordings. No default: without it, a session that has to be recorded is refused.
    pub dir: Option<PathBuf>,
    /// `max_size`, default 256 MiB, of one session's.
    pub max_size: usize,
    /// `keep`, default 4 GiB: the oldest go when all together take more.
    pub keep: usize,
    /// `on_failure`, default `deny`: a session that cannot be recorded further ends.
    pub on_failure: OnFailure,
}

impl Default for Recording {
    fn default() -> Self {
        Self {
            dir: None,
            max_size: 256 << 20,
            keep: 4 << 30,
            on_failure: OnFailure::Deny,
        }
    }
}
