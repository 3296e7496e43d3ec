//! `[audit]`: where the audit log goes.

use std::fmt;
use std::path::PathBuf;

use crate::config::kind::{ValueKind, choice, count, flag, path, quoted, size};
use crate::config::problem::Wrong;
use crate::config::raw::RawValue;
use crate::config::read::{self, Read};
use crate::config::resolver::Resolver;
use crate::config::units::{GIB, KIB, MIB};

settings! {
    /// `[audit]`: the record of decisions and actions.
    pub struct Audit = "audit", then needs_file {
        /// The sink of audit lines.
        sink: AuditSink = AuditSink::Off, choice();
        /// The live file, for `sink = "file"`.
        file: Option<PathBuf> = None, path("the path of a file");
        /// The daemon's address, for `sink = "syslog"`.
        syslog: SyslogAddress = SyslogAddress::Unix("/dev/log".into()), ValueKind::new(syslog, quoted);
        /// The file is rotated before it exceeds this size in bytes: a smaller file would hold a few lines, a larger
        /// one takes long to verify.
        max_size: usize = 64 * MIB, size(64 * KIB..=16 * GIB);
        /// Rotated files that are kept; 0 keeps all.
        keep: usize = 0, count(0..=10_000);
        /// Behaviour when a line cannot be written.
        on_failure: OnFailure = OnFailure::Deny, choice();
        /// Whether debugger commands are recorded.
        commands: bool = true, flag();
        /// Key of the chain of hashes. Absent: who can write the file can make a new chain.
        key_file: Option<PathBuf> = None, path("the path of a file with a signing key");
    }
}

words! {
    /// The sink of audit lines.
    pub enum AuditSink {
        /// No audit log is kept.
        Off = "off",
        /// Standard output of the relay.
        Stdout = "stdout",
        /// The file of `audit.file`.
        File = "file",
        /// The daemon at `audit.syslog`.
        Syslog = "syslog",
    }
}

words! {
    /// Behaviour when something cannot be recorded.
    pub enum OnFailure {
        /// The action to record does not happen.
        Deny = "deny",
        /// The action happens anyway, and the log shows an error.
        Allow = "allow",
    }
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

impl fmt::Display for SyslogAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "{}", path.display()),
            Self::Udp(address) => write!(f, "udp://{address}"),
            Self::Tcp(address) => write!(f, "tcp://{address}"),
        }
    }
}

impl Audit {
    fn needs_file(&mut self, resolver: &mut Resolver) {
        if self.sink == AuditSink::File && !resolver.is_given("audit", "file") {
            resolver.problem(
                "audit.file",
                "nothing, although audit.sink is \"file\"",
                "the path of a file that the relay may create",
                "for example \"/var/log/ray-relay/audit.log\", in a folder that only the relay may write",
            );
        }
    }
}

fn syslog(value: &RawValue) -> Read<SyslogAddress> {
    const EXPECTED: &str =
        "the path of a socket, such as \"/dev/log\", or \"udp://HOST:PORT\" or \"tcp://HOST:PORT\"";
    let text = read::text(value, EXPECTED)?;
    let host_and_port = |address: &str| {
        address.rsplit_once(':').is_some_and(|(host, port)| {
            !host.is_empty() && port.parse::<u16>().is_ok_and(|p| p > 0)
        })
    };
    match text.split_once("://") {
        Some(("udp", address)) if host_and_port(address) => Ok(SyslogAddress::Udp(address.into())),
        Some(("tcp", address)) if host_and_port(address) => Ok(SyslogAddress::Tcp(address.into())),
        None if text.starts_with('/') => Ok(SyslogAddress::Unix(text.into())),
        _ => Err(Wrong::expected(EXPECTED).hint("the usual port of syslog is 514")),
    }
}
