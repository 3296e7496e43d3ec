//! The sample job: its folder, which the user opens in an editor, and its package for clusters
//! whose nodes do not see that folder.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::DemoError;
use ray_relay_base::wire::zip::{self, ZipEntry};
use ray_relay_ray::ray::head::HeadError;
use ray_relay_ray::ray::jobs::Jobs;

const SOURCE: &str = include_str!("demo_job.py");
const FILE: &str = "demo_job.py";

/// Breakpoints that the job stops at: three tasks and an actor.
pub const BREAKPOINTS: usize = 4;

/// A folder with the job's source and a debug configuration for VS Code.
#[derive(Debug, Clone)]
pub struct DemoJob {
    folder: PathBuf,
}

impl DemoJob {
    /// Writes the folder. `relay` is the address for the editor.
    ///
    /// # Errors
    /// The file system's error.
    pub fn write(folder: &Path, relay: SocketAddr) -> io::Result<Self> {
        fs::create_dir_all(folder.join(".vscode"))?;
        fs::write(folder.join(FILE), SOURCE)?;
        let launch = json!({"version": "0.2.0", "configurations": [{
            "name": "Ray",
            "type": "debugpy",
            "request": "attach",
            "connect": {"host": relay.ip().to_string(), "port": relay.port()},
        }]});
        fs::write(folder.join(".vscode/launch.json"), format!("{launch:#}\n"))?;
        Ok(Self {
            folder: folder.to_path_buf(),
        })
    }

    /// The folder to open in an editor.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Submits the job to a cluster on this machine, which reads the file in place.
    ///
    /// # Errors
    /// [`HeadError`].
    pub async fn submit_here(&self, jobs: &Jobs) -> Result<String, HeadError> {
        let file = self.folder.join(FILE);
        // This program chose the folder's name, so nothing in it needs quoting.
        let entrypoint = format!("python -u {}", file.display());
        jobs.submit(&json!({ "entrypoint": entrypoint })).await
    }

    /// Submits the job to any cluster, with its source as the `working_dir`.
    ///
    /// # Errors
    /// [`DemoError`].
    pub async fn submit_packaged(&self, jobs: &Jobs) -> Result<String, DemoError> {
        let source = ZipEntry {
            name: FILE,
            content: SOURCE.as_bytes(),
            executable: false,
        };
        let zip = zip::archive(&[source]).map_err(|source| DemoError::System {
            what: "pack the sample job",
            source,
        })?;
        let uri = jobs.upload_package(zip).await.map_err(DemoError::Submit)?;
        let environment = json!({ "working_dir": uri });
        let entrypoint = format!("python -u {FILE}");
        let request = json!({"entrypoint": entrypoint, "runtime_env": environment});
        jobs.submit(&request).await.map_err(DemoError::Submit)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn demo_folder_opens_in_vscode() {
        let dir = tempfile::tempdir().unwrap();
        let job = DemoJob::write(dir.path(), "127.0.0.1:4711".parse().unwrap()).unwrap();
        let launch = fs::read(job.folder().join(".vscode/launch.json")).unwrap();
        let launch: serde_json::Value = serde_json::from_slice(&launch).unwrap();
        assert_eq!(launch["configurations"][0]["connect"]["port"], 4711);
        assert_eq!(SOURCE.matches("    breakpoint()").count(), 2);
    }
}
