//! The service manager's descriptor store: systemd's `FDSTORE=1`, which returns everything when the service is started
//! again (`sd_notify(3)`, `sd_listen_fds(3)`, `FileDescriptorStoreMax=` of `systemd.service(5)`).

use std::collections::HashMap;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::fs::{FileType, fstat};
use tracing::{debug, warn};

use super::messages::{KeepKey, KeptPair};
use ray_relay_base::wire::descriptors::send;
use ray_relay_base::wire::passed_descriptors::PassedDescriptors;

/// Prefix of a descriptor's name, in front of the key: other descriptors may be passed to the service, too.
const NAME_PREFIX: &str = "ray-relay-kept-";

/// Descriptors of one connection: its own, and that of its record.
const DESCRIPTORS_PER_CONNECTION: usize = 2;

/// The service manager's descriptor store.
#[derive(Debug)]
pub(super) struct ServiceManager {
    notify: UnixDatagram,
    /// Largest number of descriptors, and the current number.
    most: usize,
    stored: AtomicUsize,
}

/// The number of descriptors that the service manager keeps for this service: set by systemd since 254, and by our
/// units for older ones.
pub(super) fn places() -> Option<usize> {
    std::env::var("FDSTORE").ok()?.parse().ok()
}

impl ServiceManager {
    /// The service manager of this process, if it keeps descriptors, and the connections that it has kept.
    pub(super) fn of_this_process(passed: &mut PassedDescriptors) -> Option<(Self, Vec<KeptPair>)> {
        let most = places()?;
        let address = std::env::var("NOTIFY_SOCKET").ok()?;
        let notify = match dial(&address) {
            Ok(notify) => notify,
            Err(why) => {
                warn!(%why, "the service manager's descriptor store cannot be used: nothing is kept if this process is killed");
                return None;
            }
        };
        let (pairs, halves) = paired(passed.named(NAME_PREFIX));
        let manager = Self {
            notify,
            most,
            stored: AtomicUsize::new(DESCRIPTORS_PER_CONNECTION * pairs.len()),
        };
        for half in halves {
            manager.forget(&half);
        }
        Some((manager, pairs))
    }

    /// A manager at `notify` that keeps up to 1024 connections.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn at(notify: UnixDatagram) -> Self {
        Self {
            notify,
            most: DESCRIPTORS_PER_CONNECTION * 1024,
            stored: AtomicUsize::new(0),
        }
    }

    pub(super) fn keep(
        &self,
        key: &KeepKey,
        connection: BorrowedFd<'_>,
        record: BorrowedFd<'_>,
    ) -> io::Result<()> {
        if self
            .stored
            .fetch_add(DESCRIPTORS_PER_CONNECTION, Ordering::Relaxed)
            + DESCRIPTORS_PER_CONNECTION
            > self.most
        {
            self.stored
                .fetch_sub(DESCRIPTORS_PER_CONNECTION, Ordering::Relaxed);
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        // If the peer closes, removing the entry and its record is up to us.
        let text = format!("FDSTORE=1\nFDPOLL=0\nFDNAME={NAME_PREFIX}{}", key.digits());
        let sent = send(&self.notify, text.as_bytes(), &[connection, record]);
        if sent.is_err() {
            self.stored
                .fetch_sub(DESCRIPTORS_PER_CONNECTION, Ordering::Relaxed);
        }
        sent.map(|_| ())
    }

    pub(super) fn remove(&self, key: &KeepKey) {
        self.forget(&key.digits());
        self.stored
            .fetch_sub(DESCRIPTORS_PER_CONNECTION, Ordering::Relaxed);
    }

    fn forget(&self, key: &str) {
        let text = format!("FDSTOREREMOVE=1\nFDNAME={NAME_PREFIX}{key}");
        if let Err(why) = send(&self.notify, text.as_bytes(), &[]) {
            debug!(%why, "the service manager was not told that a connection is over");
        }
    }
}

fn dial(address: &str) -> io::Result<UnixDatagram> {
    let notify = UnixDatagram::unbound()?;
    match address.strip_prefix('@') {
        Some(name) => notify.connect_addr(&SocketAddr::from_abstract_name(name)?)?,
        None => notify.connect(address)?,
    }
    notify.set_nonblocking(true)?;
    Ok(notify)
}

/// Pairs connections and their records by name, since the manager passes them in no order. Returns the keys without a
/// counterpart too: a process can be killed at any moment.
fn paired(passed: Vec<(String, OwnedFd)>) -> (Vec<KeptPair>, Vec<String>) {
    let mut connections = HashMap::new();
    let mut records = HashMap::new();
    for (name, descriptor) in passed {
        let Some(key) = name.strip_prefix(NAME_PREFIX) else {
            continue;
        };
        let kind = fstat(&descriptor).map(|about| FileType::from_raw_mode(about.st_mode));
        let of_kind = match kind {
            Ok(FileType::Socket) => &mut connections,
            Ok(FileType::RegularFile) => &mut records,
            _ => continue,
        };
        of_kind.insert(key.to_owned(), descriptor);
    }
    let (mut pairs, mut halves) = (Vec::new(), Vec::new());
    for (key, connection) in connections {
        match (KeepKey::parse(&key), records.remove(&key)) {
            (Some(parsed), Some(record)) => pairs.push((parsed, connection, record)),
            _ => halves.push(key),
        }
    }
    halves.extend(records.into_keys());
    (pairs, halves)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::fd::AsFd as _;
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::keeper::record::Record;
    use ray_relay_base::wire::tunnel::text::Hex;

    #[test]
    fn passed_descriptors_are_paired_and_halves_reported() {
        let socket = || OwnedFd::from(UnixStream::pair().unwrap().0);
        let record = || {
            let record = Record::new().unwrap();
            record.as_fd().try_clone_to_owned().unwrap()
        };
        let key = |n| Hex::<16>([n; 16]).digits();
        let name = |n| format!("{NAME_PREFIX}{}", key(n));
        let passed = vec![
            (name(1), record()),
            (name(2), socket()),
            ("somebody-elses".to_owned(), socket()),
            (name(1), socket()),
            (name(3), record()),
        ];
        let (pairs, mut halves) = paired(passed);
        assert_eq!(pairs.len(), 1);
        assert_eq!(pairs[0].0, Hex([1; 16]));
        halves.sort();
        assert_eq!(halves, [key(2), key(3)]);
    }

    #[test]
    fn units_agree_on_the_descriptor_store_limit() {
        {
            let unit = "ray-relay.service";
            let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docker/systemd");
            let text = std::fs::read_to_string(format!("{folder}/{unit}")).unwrap();
            let value_of = |name| text.lines().find_map(|line| line.strip_prefix(name));
            let max_stored = value_of("FileDescriptorStoreMax=").unwrap();
            assert_eq!(value_of("Environment=FDSTORE="), Some(max_stored), "{unit}");
        }
    }
}
