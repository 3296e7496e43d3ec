//! A Unix socket for processes of this user alone.
//!
//! A process that can connect receives connections to debuggers. So the folder belongs to the user and is writable by
//! no other, the socket has mode 0600, and both sides ask the system for the user of the peer process.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;
use tokio::net::{UnixListener, UnixStream};

/// The socket at its path. The path remains when this is dropped.
#[derive(Debug)]
pub struct OwnSocket {
    pub path: PathBuf,
    pub socket: UnixListener,
}

impl OwnSocket {
    /// Listens at `path`, where no process listens.
    ///
    /// # Errors
    /// The problem with the path, as a clause.
    pub fn bind(path: &Path) -> Result<Self, String> {
        let wrong = |why: io::Error| why.to_string();
        match fs::remove_file(path) {
            Err(why) if why.kind() != io::ErrorKind::NotFound => return Err(wrong(why)),
            _ => {}
        }
        let socket = UnixListener::bind(path).map_err(wrong)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(wrong)?;
        Ok(Self {
            path: path.to_owned(),
            socket,
        })
    }

    /// Accepts the next connection from a process of this user. Cancel safe.
    ///
    /// # Errors
    /// If the system accepts none.
    pub async fn accept(&self) -> io::Result<UnixStream> {
        loop {
            let (stream, _) = self.socket.accept().await?;
            match is_own(&stream) {
                Ok(()) => return Ok(stream),
                Err(why) => tracing::warn!(why, "refused a process that is not this user's"),
            }
        }
    }

    /// Removes the socket's path.
    pub fn remove(self) {
        if let Err(why) = fs::remove_file(&self.path) {
            tracing::debug!(%why, path = %self.path.display(), "the socket was gone already");
        }
    }
}

/// Connects to the process of this user that listens at `path`; `None`: no process listens. A stale socket does not
/// count.
///
/// # Errors
/// The path, or the peer, is not to be trusted: the reason, as a clause.
pub async fn dial(path: &Path) -> Result<Option<UnixStream>, String> {
    check(path)?;
    match UnixStream::connect(path).await {
        Ok(stream) => {
            is_own(&stream)?;
            Ok(Some(stream))
        }
        Err(why)
            if matches!(
                why.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
            ) =>
        {
            Ok(None)
        }
        Err(why) => Err(why.to_string()),
    }
}

/// Checks that only this user can listen at `path`.
fn check(path: &Path) -> Result<(), String> {
    let own = geteuid().as_raw();
    let folder = match path.parent() {
        Some(folder) if path.is_absolute() => folder,
        _ => return Err("it is to be an absolute path".to_owned()),
    };
    let about = fs::metadata(folder)
        .map_err(|why| format!("its folder {} cannot be looked at: {why}", folder.display()))?;
    if about.uid() != own || about.mode() & 0o022 != 0 {
        return Err(format!(
            "others can write its folder {}: make one for it that is this user's own, with mode 0700",
            folder.display()
        ));
    }
    match fs::symlink_metadata(path) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(why) => Err(why.to_string()),
        Ok(there) if !there.file_type().is_socket() => {
            Err("something is there that is no socket: name another path".to_owned())
        }
        Ok(there) if there.uid() != own => {
            Err("the socket there is another user's: name another path".to_owned())
        }
        Ok(_) => Ok(()),
    }
}

/// Checks that the peer process belongs to this user.
fn is_own(stream: &UnixStream) -> Result<(), String> {
    let own = geteuid().as_raw();
    match stream.peer_cred() {
        Ok(peer) if peer.uid() == own => Ok(()),
        Ok(peer) => Err(format!(
            "the process at the other end is of user {}, and this one of user {own}",
            peer.uid()
        )),
        Err(why) => Err(format!(
            "the system does not say whose the other end is: {why}"
        )),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
        folder
    }

    #[tokio::test]
    async fn live_socket_is_found_and_a_stale_one_removed() {
        let folder = folder();
        let path = folder.path().join("keeper");
        assert!(matches!(dial(&path).await, Ok(None)));
        let socket = OwnSocket::bind(&path).unwrap();
        let mode = fs::symlink_metadata(&path).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600);
        let (dialled, accepted) = tokio::join!(dial(&path), socket.accept());
        assert!(matches!(dialled, Ok(Some(_))));
        accepted.unwrap();
        // `kill -9` leaves the socket file behind.
        drop(socket);
        assert!(path.exists());
        assert!(matches!(dial(&path).await, Ok(None)));
        OwnSocket::bind(&path).unwrap().remove();
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn foreign_path_is_refused_with_a_remedy() {
        let folder = folder();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let error_of = |result: Result<_, String>| result.err().unwrap();
        assert!(error_of(dial(&file).await).contains("no socket"));
        assert!(file.exists(), "not removed");
        let open = folder.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(error_of(dial(&open.join("keeper")).await).contains("0700"));
        assert!(error_of(dial(Path::new("keeper")).await).contains("absolute"));
        assert!(error_of(dial(&folder.path().join("none/keeper")).await).contains("folder"));
    }
}
