//! The agent's own folder among the sockets of a Ray session, for one node.
//!
//! Every user of the node may create files in that session's folder. So the agent uses a folder by its name only if
//! it owns the folder and no other user may write to it.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::OFlags;
use rustix::process::geteuid;
use tracing::debug;

use ray_relay_base::wire::tunnel::messages::Name;

/// The name of the folder, up to the start of the node's id.
const FOLDER: &str = "ray-relay-node-";

/// Characters of the node's id in the folder's name.
const NODE_ID_CHARS: usize = 16;

/// The file that has new workers wait until their hook has armed lines. They ignore one that was written more than 10 s
/// ago: its agent was killed.
const ARMED: &str = "armed";

/// The folder for one node in one session. It is removed with the last thing in it.
#[derive(Debug)]
pub(crate) struct AgentFolder {
    pub(super) session: PathBuf,
    pub(super) node_id: Name,
    /// The folder, even if it is renamed meanwhile.
    folder: File,
}

impl AgentFolder {
    /// Creates it in `session`, or uses the one that is there. Blocks for a moment only: the files are in memory.
    pub(super) fn open(session: &Path, node_id: &Name) -> Result<Self, String> {
        let name = folder_name(node_id);
        let sockets = directory(session).map_err(|why| unusable(&why))?;
        let path = inside(&sockets, &name);
        match DirBuilder::new().mode(0o700).create(&path) {
            Err(why) if why.kind() != io::ErrorKind::AlreadyExists => return Err(unusable(&why)),
            _ => {}
        }
        let folder = directory(&path).map_err(|why| unusable(&why))?;
        let about = folder.metadata().map_err(|why| unusable(&why))?;
        if about.uid() != geteuid().as_raw() || about.mode() & 0o022 != 0 {
            return Err(format!(
                "in Ray's session folder another user has something called {name}: remove it"
            ));
        }
        // From here on no other user can change the folder's content.
        let mode = if geteuid().is_root() { 0o711 } else { 0o700 };
        let own = format!("/proc/self/fd/{}", folder.as_raw_fd());
        fs::set_permissions(&own, Permissions::from_mode(mode)).map_err(|why| unusable(&why))?;
        Ok(Self {
            session: session.to_owned(),
            node_id: node_id.clone(),
            folder,
        })
    }

    /// The path of `name` in it.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        inside(&self.folder, name)
    }

    /// Whether workers still find it by its name.
    pub(super) fn is_found(&self) -> bool {
        let found = directory(&self.session.join(folder_name(&self.node_id)));
        let is_same = |found: File| {
            let (found, own) = (found.metadata().ok()?, self.folder.metadata().ok()?);
            Some((found.dev(), found.ino()) == (own.dev(), own.ino()))
        };
        found.ok().and_then(is_same).unwrap_or(false)
    }
}

impl Drop for AgentFolder {
    fn drop(&mut self) {
        if self.is_found() {
            // It stays while something else is in it.
            _ = fs::remove_dir(self.session.join(folder_name(&self.node_id)));
        }
    }
}

fn folder_name(node_id: &Name) -> String {
    let short = node_id.get(..NODE_ID_CHARS).unwrap_or(node_id);
    format!("{FOLDER}{short}")
}

pub(super) fn unusable(why: &io::Error) -> String {
    format!("the folder for its socket among those of Ray's session cannot be used: {why}")
}

/// The nodes, each in a session, at which lines are armed, and how many leases have them.
#[derive(Debug, Clone, Default)]
pub(crate) struct ArmedMarkers(Arc<Mutex<HashMap<MarkerKey, (usize, AgentFolder)>>>);

type MarkerKey = (PathBuf, Name);

impl ArmedMarkers {
    /// Marks in `session` that lines are armed at the node, so that new workers wait for them. `None`: that is not
    /// possible, and the first task of a new worker may pass a line before it is armed.
    pub(crate) fn mark(&self, session: &Path, node_id: &Name) -> Option<ArmedMarker> {
        let key = (session.to_owned(), node_id.clone());
        let mut all = self.0.lock();
        match all.get_mut(&key) {
            Some((count, _)) => *count += 1,
            None => {
                let folder = AgentFolder::open(session, node_id);
                let folder = folder.inspect_err(|why| debug!(why, "new workers do not wait"));
                let folder = folder.ok()?;
                fs::write(folder.path(ARMED), "1").ok()?;
                all.insert(key.clone(), (1, folder));
            }
        }
        Some(ArmedMarker {
            all: self.clone(),
            key,
        })
    }
}

/// One lease of an [`ArmedMarkers`]. The last one that is dropped removes the file.
#[derive(Debug)]
pub(crate) struct ArmedMarker {
    all: ArmedMarkers,
    key: MarkerKey,
}

impl ArmedMarker {
    /// Renews the file, to be called every other second.
    pub(crate) fn renew(&self) {
        if let Some((_, folder)) = self.all.0.lock().get(&self.key) {
            // If that fails, new workers do not wait.
            _ = fs::write(folder.path(ARMED), "1");
        }
    }
}

impl Drop for ArmedMarker {
    fn drop(&mut self) {
        let mut all = self.all.0.lock();
        let Some((count, folder)) = all.get_mut(&self.key) else {
            return;
        };
        *count -= 1;
        if *count == 0 {
            _ = fs::remove_file(folder.path(ARMED));
            all.remove(&self.key);
        }
    }
}

/// Opens the folder at `path`, unless it is a symbolic link.
pub(crate) fn directory(path: &Path) -> io::Result<File> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW;
    OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits() as i32)
        .open(path)
}

/// Builds the path through the descriptor: short enough for a socket address, and always the same folder.
pub(crate) fn inside(folder: &File, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{name}", folder.as_raw_fd()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn last_lease_removes_the_marker_and_the_folder() {
        let session = tempfile::tempdir().unwrap();
        let node = Name::new("0123456789abcdef0123");
        let markers = ArmedMarkers::default();
        let file = session.path().join("ray-relay-node-0123456789abcdef/armed");
        let first = markers.mark(session.path(), &node).unwrap();
        let second = markers.mark(session.path(), &node).unwrap();
        drop(first);
        fs::File::options()
            .write(true)
            .open(&file)
            .unwrap()
            .set_modified(std::time::UNIX_EPOCH)
            .unwrap();
        second.renew();
        let modified = fs::metadata(&file).unwrap().modified().unwrap();
        assert_ne!(modified, std::time::UNIX_EPOCH);
        drop(second);
        assert!(!file.exists() && fs::read_dir(session.path()).unwrap().next().is_none());
        assert!(markers.mark(session.path(), &node).is_some() && !file.exists());
    }

    #[test]
    fn folder_that_others_can_write_to_is_not_used() {
        let session = tempfile::tempdir().unwrap();
        let node = Name::new("01");
        let folder = session.path().join("ray-relay-node-01");
        DirBuilder::new().create(&folder).unwrap();
        fs::set_permissions(&folder, Permissions::from_mode(0o777)).unwrap();
        assert!(
            ArmedMarkers::default()
                .mark(session.path(), &node)
                .is_none()
        );
        assert!(fs::read_dir(&folder).unwrap().next().is_none());
    }
}
