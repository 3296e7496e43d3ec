//! Resources for a cluster on this machine: loopback addresses, ports, a directory.
//!
//! Called by [`super::LocalCluster::start`] and, for the directory, by the demo.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use rand::RngExt as _;

use crate::error::ClusterError;

/// The head's address and those of up to `workers` workers. Only the head's if the system has no loopback addresses
/// beyond 127.0.0.1 (macOS).
pub(crate) fn node_addresses(workers: usize) -> Vec<Ipv4Addr> {
    let usable = |ip: &Ipv4Addr| TcpListener::bind((*ip, 0)).is_ok();
    // From .2 on: Ray replaces 127.0.0.1 by the machine's outward address.
    let mut addresses: Vec<_> = (2..=250u8)
        .map(|last| Ipv4Addr::new(127, 0, 0, last))
        .take(1 + workers)
        .take_while(usable)
        .collect();
    if addresses.is_empty() {
        addresses.push(Ipv4Addr::LOCALHOST);
    }
    addresses
}

pub(crate) fn random_token() -> String {
    let mut rng = rand::rng();
    format!("{:032x}{:032x}", rng.random::<u128>(), rng.random::<u128>())
}

/// Creates a directory for this user alone, below a path short enough for Ray's sockets.
pub fn make_short_dir() -> Result<PathBuf, ClusterError> {
    let base = std::env::temp_dir();
    let base = if base.as_os_str().len() > 12 && Path::new("/tmp").is_dir() {
        // Resolved, because debuggers compare paths as text (/tmp is a link on macOS).
        fs::canonicalize("/tmp").unwrap_or(base)
    } else {
        base
    };
    let name: String = (0..6)
        .map(|_| char::from(rand::rng().random_range(b'a'..=b'z')))
        .collect();
    let dir = base.join(format!("rr-{name}"));
    fs::DirBuilder::new()
        .mode(0o700)
        .create(&dir)
        .map_err(|source| ClusterError::Io {
            what: "make a directory",
            dir: dir.display().to_string(),
            source,
        })?;
    Ok(dir)
}
