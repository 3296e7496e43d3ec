//! Keys of `[audit]` and `[recording]`.

use std::time::Duration;

use super::{Resolver, plain, quoted};
use crate::config::model::{Audit, AuditSink, AuditSync, OnFailure, Recording, SyslogAddress};
use crate::config::raw::RawValue;
use crate::config::setting::{self, Read};

const SINKS: [(&str, AuditSink); 4] = [
    ("off", AuditSink::Off),
    ("stdout", AuditSink::Stdout),
    ("file", AuditSink::File),
    ("syslog", AuditSink::Syslog),
];

const ON_FAILURE: [(&str, OnFailure); 2] = [("deny", OnFailure::Deny), ("allow", OnFailure::Allow)];

const SYNC: [(&str, AuditSync); 2] = [("always", AuditSync::Always), ("batch", AuditSync::Batch)];

impl Resolver {
    pub(super) fn audit(&mut self) -> Audit {
        let mut audit = Audit::default();
        self.set("audit", "sink", &mut audit.sink, word(&SINKS), |value| {
            setting::choice(value, &SINKS)
        });
        audit.file = self.path("audit", "file", "the path of a file");
        self.set("audit", "syslog", &mut audit.syslog, quoted, syslog);
        // Smaller ones would hold a few lines; larger ones take long to verify.
        self.size("audit", "max_size", &mut audit.max_size, 64 << 10, 16 << 30);
        self.set("audit", "keep", &mut audit.keep, plain, |value| {
            setting::count(value, 0..=10_000)
        });
        self.set("audit", "sync", &mut audit.sync, word(&SYNC), |value| {
            setting::choice(value, &SYNC)
        });
        self.duration_from(
            "audit",
            "timeout",
            &mut audit.timeout,
            Duration::from_millis(100),
            Duration::from_secs(60),
        );
        self.on_failure("audit", &mut audit.on_failure);
        self.set(
            "audit",
            "commands",
            &mut audit.commands,
            plain,
            setting::flag,
        );
        audit.key_file = self.path("audit", "key_file", "the path of a file with a signing key");
        if audit.sink == AuditSink::File
            && audit.file.is_none()
            && !self.entries.contains_key(&("audit", "file"))
        {
            self.problem(
                "audit.file",
                "nothing, although audit.sink is \"file\"",
                "the path of a file that the relay may create",
                "for example \"/var/log/ray-relay/audit.log\", in a folder that only the relay may write",
            );
        }
        audit
    }

    pub(super) fn recording(&mut self) -> Recording {
        let mut recording = Recording {
            dir: self.path("recording", "dir", "the path of a folder"),
            ..Recording::default()
        };
        self.size(
            "recording",
            "max_size",
            &mut recording.max_size,
            64 << 10,
            1 << 40,
        );
        self.size("recording", "keep", &mut recording.keep, 1 << 20, 1 << 50);
        self.on_failure("recording", &mut recording.on_failure);
        recording
    }

    fn on_failure(&mut self, section: &'static str, slot: &mut OnFailure) {
        self.set(section, "on_failure", slot, word(&ON_FAILURE), |value| {
            setting::choice(value, &ON_FAILURE)
        });
    }
}

/// Shows the word that stands for a value.
fn word<T: Copy + PartialEq>(words: &'static [(&'static str, T)]) -> impl Fn(&T) -> String {
    |value| {
        let word = words.iter().find(|(_, of)| of == value);
        quoted(&word.map_or("", |(word, _)| *word))
    }
}

fn syslog(value: &RawValue) -> Read<SyslogAddress> {
    const EXPECTED: &str =
        "the path of a socket, such as \"/dev/log\", or \"udp://HOST:PORT\" or \"tcp://HOST:PORT\"";
    let text = setting::text(value, EXPECTED)?;
    let host_and_port = |address: &str| {
        address.rsplit_once(':').is_some_and(|(host, port)| {
            !host.is_empty() && port.parse::<u16>().is_ok_and(|p| p > 0)
        })
    };
    let address = match text.split_once("://") {
        Some(("udp", address)) if host_and_port(address) => SyslogAddress::Udp(address.to_owned()),
        Some(("tcp", address)) if host_and_port(address) => SyslogAddress::Tcp(address.to_owned()),
        None if text.starts_with('/') => SyslogAddress::Unix(text.into()),
        _ => {
            return Err(crate::config::address::Wrong {
                expected: EXPECTED.to_owned(),
                hint: Some("the usual port of syslog is 514".to_owned()),
            });
        }
    };
    Ok(address)
}
