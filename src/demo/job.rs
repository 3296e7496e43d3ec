//! The sample job: its folder, which the user opens in an editor, and its package for clusters
//! whose nodes do not see that folder.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use serde_json::json;

use super::head_api::{HeadApi, HeadApiError};

const SOURCE: &str = include_str!("demo_job.py");
const FILE: &str = "demo_job.py";

/// Breakpoints that the job stops at: three tasks and an actor.
pub const BREAKPOINTS: usize = 4;

/// A folder with the job's source and a debug configuration for VS Code.
#[derive(Debug, Clone)]
pub struct Job {
    folder: PathBuf,
}

impl Job {
    /// Writes the folder. `relay` is where the editor is to connect.
    ///
    /// # Errors
    /// What the file system says.
    pub fn write(folder: &Path, relay: SocketAddr) -> io::Result<Self> {
        fs::create_dir_all(folder.join(".vscode"))?;
        fs::write(folder.join(FILE), SOURCE)?;
        let launch = json!({"version": "0.2.0", "configurations": [{
            "name": "Ray: every paused task",
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

    /// Submits the job to a cluster on this machine, which reads the file where it is.
    ///
    /// # Errors
    /// [`HeadApiError`].
    pub async fn submit_here(&self, api: &HeadApi) -> Result<String, HeadApiError> {
        let file = self.folder.join(FILE);
        // The folder's name is this program's own choice: nothing in it needs quoting.
        api.submit(&format!("python -u {}", file.display()), json!({}))
            .await
    }

    /// Submits the job to any cluster, with its source as the `working_dir`.
    ///
    /// # Errors
    /// [`HeadApiError`].
    pub async fn submit_packaged(&self, api: &HeadApi) -> Result<String, HeadApiError> {
        let zip = stored_zip(FILE, SOURCE.as_bytes());
        // Ray takes the name for a hash of the content, and an old package for a new one's equal.
        let name = format!("_ray_pkg_{:08x}{:08x}.zip", crc32(&zip), zip.len());
        api.upload_package(&name, zip).await?;
        let environment = json!({"working_dir": format!("gcs://{name}")});
        api.submit(&format!("python -u {FILE}"), environment).await
    }
}

/// A ZIP archive of one file, uncompressed (APPNOTE.TXT 6.3, sections 4.3.7, 4.3.12 and 4.3.16).
fn stored_zip(name: &str, content: &[u8]) -> Bytes {
    let size = (content.len() as u32).to_le_bytes();
    // Version 2.0, no flags, stored, 1980-01-01 00:00: the fields that both headers share.
    let mut shared = vec![20, 0, 0, 0, 0, 0, 0, 0, 0x21, 0];
    shared.extend(crc32(content).to_le_bytes());
    shared.extend([size, size].concat());
    shared.extend((name.len() as u16).to_le_bytes());
    shared.extend([0, 0]);
    let mut zip = b"PK\x03\x04".to_vec();
    zip.extend(&shared);
    zip.extend(name.as_bytes());
    zip.extend(content);
    let directory = zip.len();
    zip.extend(b"PK\x01\x02\x14\x03");
    zip.extend(&shared);
    // No comment, disk 0, no internal attributes; a regular file that everybody may read.
    zip.extend([0; 6]);
    zip.extend((0o100_644_u32 << 16).to_le_bytes());
    zip.extend(0_u32.to_le_bytes());
    zip.extend(name.as_bytes());
    let length = zip.len() - directory;
    zip.extend(b"PK\x05\x06\0\0\0\0\x01\0\x01\0");
    zip.extend((length as u32).to_le_bytes());
    zip.extend((directory as u32).to_le_bytes());
    zip.extend([0, 0]);
    zip.into()
}

/// CRC-32 as in ZIP and Ethernet. Bit by bit: it sees two kilobytes.
fn crc32(data: &[u8]) -> u32 {
    !data.iter().fold(!0_u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ (0xedb8_8320 * (crc & 1))
        })
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn crc_of_the_standard_check_string() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn python_reads_the_archive() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("job.zip");
        fs::write(&path, stored_zip(FILE, SOURCE.as_bytes())).unwrap();
        let script = "import sys, zipfile; z = zipfile.ZipFile(sys.argv[1]); assert z.testzip() is None; sys.stdout.write(z.read('demo_job.py').decode())";
        let output = std::process::Command::new("python3")
            .args(["-c", script])
            .arg(&path)
            .output();
        let Ok(output) = output else {
            return; // No Python here; the end-to-end tests need one anyway.
        };
        assert_eq!(String::from_utf8(output.stdout).unwrap(), SOURCE);
    }

    #[test]
    fn the_folder_opens_in_vs_code() {
        let dir = tempfile::tempdir().unwrap();
        let job = Job::write(dir.path(), "127.0.0.1:4711".parse().unwrap()).unwrap();
        let launch = fs::read(job.folder().join(".vscode/launch.json")).unwrap();
        let launch: serde_json::Value = serde_json::from_slice(&launch).unwrap();
        assert_eq!(launch["configurations"][0]["connect"]["port"], 4711);
        assert_eq!(SOURCE.matches("    breakpoint()").count(), 2);
    }
}
