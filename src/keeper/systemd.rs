//! The service manager's descriptor store: systemd's `FDSTORE=1`, which gives everything back when the service is started
//! again (`sd_notify(3)`, `sd_listen_fds(3)`, `FileDescriptorStoreMax=` of `systemd.service(5)`).

use std::collections::HashMap;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::fs::{FileType, fstat};
use tracing::{debug, warn};

use super::Kept;
use super::messages::Key;
use crate::wire::descriptors::send;

/// Before the key, in the name of a descriptor: others may be passed to the service, too.
const NAME: &str = "ray-relay-kept-";

/// Descriptors of one connection: its own, and that of its record.
const EACH: usize = 2;

/// See the module.
#[derive(Debug)]
pub(super) struct ServiceManager {
    notify: UnixDatagram,
    /// Descriptors that it keeps at most, and how many it has.
    most: usize,
    kept: AtomicUsize,
}

/// How many descriptors the service manager keeps for this service: it says so since systemd 254.
pub(super) fn places() -> Option<usize> {
    std::env::var("FDSTORE").ok()?.parse().ok()
}

impl ServiceManager {
    /// The one that has started this process, where it keeps descriptors, and what it has kept.
    pub(super) fn of_this_process() -> Option<(Self, Vec<Kept>)> {
        let most = places()?;
        let address = std::env::var("NOTIFY_SOCKET").ok()?;
        let notify = match dial(&address) {
            Ok(notify) => notify,
            Err(why) => {
                warn!(%why, "the service manager's descriptor store cannot be used: nothing is kept if this process is killed");
                return None;
            }
        };
        let given = sd_listen_fds::get().unwrap_or_else(|why| {
            warn!(%why, "what the service manager has kept is not understood");
            Vec::new()
        });
        let named = given
            .into_iter()
            .filter_map(|(name, descriptor)| Some((name?, descriptor.into_std())));
        let kept = paired(named);
        let manager = Self {
            notify,
            most,
            kept: AtomicUsize::new(EACH * kept.len()),
        };
        Some((manager, kept))
    }

    pub(super) fn keep(
        &self,
        key: &Key,
        connection: BorrowedFd<'_>,
        record: BorrowedFd<'_>,
    ) -> io::Result<()> {
        if self.kept.fetch_add(EACH, Ordering::Relaxed) + EACH > self.most {
            self.kept.fetch_sub(EACH, Ordering::Relaxed);
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        // What the other end closes is ours to remove, with its record.
        let text = format!("FDSTORE=1\nFDPOLL=0\nFDNAME={NAME}{}", key.digits());
        let said = send(&self.notify, text.as_bytes(), &[connection, record]);
        if said.is_err() {
            self.kept.fetch_sub(EACH, Ordering::Relaxed);
        }
        said.map(|_| ())
    }

    pub(super) fn remove(&self, key: &Key) {
        let text = format!("FDSTOREREMOVE=1\nFDNAME={NAME}{}", key.digits());
        if let Err(why) = send(&self.notify, text.as_bytes(), &[]) {
            debug!(%why, "the service manager was not told that a connection is over");
        }
        self.kept.fetch_sub(EACH, Ordering::Relaxed);
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

/// Connections and their records, by name; the manager gives them in no order.
fn paired(given: impl Iterator<Item = (String, OwnedFd)>) -> Vec<Kept> {
    let mut connections = HashMap::new();
    let mut records = HashMap::new();
    for (name, descriptor) in given {
        let Some(key) = name.strip_prefix(NAME) else {
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
    let pairs = connections.into_iter().filter_map(|(key, connection)| {
        let record = records.remove(&key)?;
        Some((Key::parse(&key)?, connection, record))
    });
    pairs.collect()
}
