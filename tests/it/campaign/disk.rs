//! The disk behind a relay's record, which can be full.

use std::path::PathBuf;
use std::process::Command;

/// The size of the disk of a relay's audit log, in MiB.
const DISK: usize = 32;

/// A file system in memory. Unmounted when dropped.
pub(super) struct Disk(tempfile::TempDir);

impl Disk {
    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let size = format!("size={DISK}m,mode=700");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "tmpfs"])
            .arg(folder.path())
            .status();
        assert!(mounted.unwrap().success());
        Self(folder)
    }

    pub(super) fn log(&self) -> PathBuf {
        self.0.path().join("audit.log")
    }

    fn filler(&self) -> PathBuf {
        self.0.path().join("filler")
    }

    pub(super) fn fill(&self) {
        // The write fails when the disk is full.
        let _ = std::fs::write(self.filler(), vec![0; (DISK + 1) << 20]);
    }

    pub(super) fn clear(&self) {
        std::fs::remove_file(self.filler()).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount")
            .arg("--lazy")
            .arg(self.0.path())
            .status();
    }
}
