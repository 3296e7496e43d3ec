//! Detects changes of the files of `[tls]`, which [`super::Tls::run`] checks every few seconds.

use std::path::PathBuf;

use ray_relay_base::config::Tls;
use ray_relay_base::wire::watched_file::FileVersion;

/// The files, and their versions when they were last loaded.
pub(super) struct WatchedFiles {
    paths: Vec<PathBuf>,
    loaded: Vec<Option<FileVersion>>,
    /// Versions at the last check, if they were new.
    pending: Option<Vec<Option<FileVersion>>>,
}

impl WatchedFiles {
    /// Watches the files that `config` names, starting from their current versions.
    pub(super) fn new(config: &Tls) -> Self {
        let paths = [
            &config.cert_file,
            &config.key_file,
            &config.client_ca_file,
            &config.client_crl_file,
        ];
        let mut files = Self {
            paths: paths.into_iter().flatten().cloned().collect(),
            loaded: Vec::new(),
            pending: None,
        };
        files.loaded = files.current_versions();
        files
    }

    /// Whether they have changed, and not since the previous check. If so, records the versions as loaded.
    pub(super) fn settled(&mut self) -> bool {
        let now = self.current_versions();
        if now == self.loaded {
            self.pending = None;
            return false;
        }
        if self.pending.as_ref() == Some(&now) {
            self.loaded = now;
            self.pending = None;
            return true;
        }
        self.pending = Some(now);
        false
    }

    fn current_versions(&self) -> Vec<Option<FileVersion>> {
        self.paths
            .iter()
            .map(|path| FileVersion::at(path))
            .collect()
    }
}
