//! The shared settings of all families: contestants, sizes, and directories.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::harness::contest::Contestant;
use crate::harness::credentials::Credentials;
use crate::harness::ssh::Ssh;
use crate::{Options, Result};

/// Names the build that the relay is compared with.
const BASE: &str = "YARDSTICK_BASE";

pub(crate) struct Yard {
    /// The number of rounds.
    pub(crate) rounds: usize,
    /// Each row once, and small.
    pub(crate) short: bool,
    /// The rows that take long too.
    pub(crate) full: bool,
    pub(crate) credentials: Credentials,
    pub(crate) base: Option<PathBuf>,
    pub(crate) haproxy: Option<HaProxy>,
    pub(crate) ssh: Option<Ssh>,
    directory: tempfile::TempDir,
    scenes: AtomicUsize,
}

/// An installed HAProxy.
pub(crate) struct HaProxy {
    pub(crate) program: &'static str,
    /// As it prints it.
    pub(crate) version: String,
}

impl Yard {
    pub(crate) fn new(options: &Options) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let base = std::env::var_os(BASE).map(PathBuf::from);
        if let Some(path) = base.as_ref().filter(|path| !path.is_file()) {
            return Err(format!("{BASE}={} is not a file", path.display()).into());
        }
        Ok(Self {
            rounds: if options.short {
                1
            } else {
                options.rounds as usize
            },
            short: options.short,
            full: options.full,
            credentials: Credentials::new(Path::new(RELAY), directory.path())?,
            base: base.map(std::path::absolute).transpose()?,
            haproxy: HaProxy::find(),
            ssh: Ssh::find(),
            directory,
            scenes: AtomicUsize::new(0),
        })
    }

    /// Whether `contestant` is there at all.
    pub(crate) fn has(&self, contestant: Contestant) -> bool {
        match contestant {
            Contestant::Relay | Contestant::Direct => true,
            Contestant::Base => self.base.is_some(),
            Contestant::HaProxy => self.haproxy.is_some(),
            Contestant::Ssh => self.ssh.is_some(),
        }
    }

    /// The relay that `contestant` is.
    pub(crate) fn program(&self, contestant: Contestant) -> &Path {
        match &self.base {
            Some(base) if contestant == Contestant::Base => base,
            _ => Path::new(RELAY),
        }
    }

    /// `full_size`, or `small` where everything is only to be seen to run.
    pub(crate) fn size<T>(&self, full_size: T, small: T) -> T {
        if self.short { small } else { full_size }
    }

    /// A new folder for the files of a scene.
    pub(crate) fn folder(&self) -> Result<PathBuf> {
        let number = self.scenes.fetch_add(1, Ordering::Relaxed);
        let folder = self.directory.path().join(number.to_string());
        std::fs::create_dir(&folder)?;
        Ok(folder)
    }
}

/// The relay of this build.
const RELAY: &str = env!("CARGO_BIN_EXE_ray-relay");

impl HaProxy {
    fn find() -> Option<Self> {
        // Debian keeps it out of the PATH of ordinary users.
        let programs = ["haproxy", "/usr/sbin/haproxy"];
        programs.into_iter().find_map(|program| {
            let output = Command::new(program).arg("-v").output().ok()?;
            let text = String::from_utf8_lossy(&output.stdout);
            let version = text.split_whitespace().nth(2).unwrap_or("?").to_owned();
            Some(Self { program, version })
        })
    }
}
