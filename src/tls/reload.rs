//! Whether the files of `[tls]` have changed, as [`super::Tls::run`] asks every few seconds.
//!
//! Looks at what the paths lead to and not at the paths themselves, so a symbolic link that is pointed elsewhere (which is how
//! Kubernetes renews a mounted Secret) counts as a change. Any change of the contents moves the time of the last change of status
//! (ctime), which nobody can set back.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use crate::config::Tls;

/// Device, inode, length and times of a file; `None` where it is not there.
type Stamp = Option<(u64, u64, u64, (i64, i64), (i64, i64))>;

/// The files, and how they were when they were last taken.
pub(super) struct Files {
    paths: Vec<PathBuf>,
    taken: Vec<Stamp>,
    /// Seen at the last look, where that is something new.
    news: Option<Vec<Stamp>>,
}

impl Files {
    /// As they are now.
    pub(super) fn new(config: &Tls) -> Self {
        let paths = [
            &config.cert_file,
            &config.key_file,
            &config.client_ca_file,
            &config.client_crl_file,
        ];
        let mut files = Self {
            paths: paths.into_iter().flatten().cloned().collect(),
            taken: Vec::new(),
            news: None,
        };
        files.taken = files.look();
        files
    }

    /// Whether they have changed, and not since the look before this one: then they count as taken.
    pub(super) fn settled(&mut self) -> bool {
        let now = self.look();
        if now == self.taken {
            self.news = None;
            return false;
        }
        if self.news.as_ref() == Some(&now) {
            self.taken = now;
            self.news = None;
            return true;
        }
        self.news = Some(now);
        false
    }

    fn look(&self) -> Vec<Stamp> {
        let stamp = |path: &PathBuf| {
            let found = std::fs::metadata(path).ok()?;
            Some((
                found.dev(),
                found.ino(),
                found.len(),
                (found.mtime(), found.mtime_nsec()),
                (found.ctime(), found.ctime_nsec()),
            ))
        };
        self.paths.iter().map(stamp).collect()
    }
}
