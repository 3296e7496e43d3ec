//! Saved snapshots of running and failed tasks in a file.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::cli::cert::write_new;
use crate::cli::failure::{Exit, Fails};

/// First key of such a file, and its version.
const KEY: &str = "ray_relay_snapshot";
const VERSION: u64 = 1;

const MAX_FILE_BYTES: u64 = 64 << 20;

/// Number of bytes read to recognize such a file.
const MAX_KEY_OFFSET: usize = 64;

/// An error with a file. `Display` is a sentence.
#[derive(Debug, thiserror::Error)]
pub(in crate::cli) enum SavedError {
    #[error("{} exists already, and is not overwritten: name another file", .0.display())]
    Exists(PathBuf),
    #[error("cannot write {}: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} is not a whole snapshot: it was cut or changed", .0.display())]
    Broken(PathBuf),
    #[error("{} is of a later version of ray-relay ({found}), and this one reads {VERSION}", path.display())]
    Later { path: PathBuf, found: u64 },
    #[error(
        "{} is a file, and not one of `ray-relay snapshot --save`; nor is a task called so", .0.display()
    )]
    Another(PathBuf),
}

impl Fails for SavedError {
    fn exit(&self) -> Exit {
        Exit::Failed
    }

    fn next_step(&self) -> Option<Cow<'static, str>> {
        None
    }
}

/// Saves `answer` of the relay to a new file at `path`, which only this user can read.
pub(super) fn write(path: &Path, answer: &Value) -> Result<(), SavedError> {
    let mut saved = json!({ KEY: VERSION });
    for key in ["taken", "looks", "left_out", "idle", "clusters"] {
        saved[key] = answer[key].clone();
    }
    write_new(path, &format!("{saved}\n"), 0o600).map_err(|source| match source.kind() {
        io::ErrorKind::AlreadyExists => SavedError::Exists(path.to_owned()),
        _ => SavedError::Write {
            path: path.to_owned(),
            source,
        },
    })
}

/// Whether `name` is a file.
pub(super) fn is_file(name: &str) -> bool {
    Path::new(name).is_file()
}

/// Reads the saved file `name`; `None` if there is none, or it is another kind of file.
pub(in crate::cli) fn find(name: &str) -> Option<Result<Value, SavedError>> {
    let path = Path::new(name);
    let mut file = File::open(path).ok()?;
    // Reading a pipe could block.
    file.metadata().ok().filter(std::fs::Metadata::is_file)?;
    let mut text = Vec::new();
    let read = file
        .by_ref()
        .take(MAX_KEY_OFFSET as u64)
        .read_to_end(&mut text);
    let beginning = format!("{{\"{KEY}\":");
    if read.is_err() || !text.starts_with(beginning.as_bytes()) {
        return None;
    }
    let rest = file.take(MAX_FILE_BYTES).read_to_end(&mut text);
    Some(match rest {
        Ok(_) => parse_saved(path, &text),
        Err(source) => Err(SavedError::Read {
            path: path.to_owned(),
            source,
        }),
    })
}

fn parse_saved(path: &Path, text: &[u8]) -> Result<Value, SavedError> {
    let broken = || SavedError::Broken(path.to_owned());
    let saved: Value = serde_json::from_slice(text).map_err(|_| broken())?;
    match saved[KEY].as_u64() {
        Some(VERSION) if saved["looks"].is_array() => Ok(saved),
        Some(found) if found > VERSION => Err(SavedError::Later {
            path: path.to_owned(),
            found,
        }),
        _ => Err(broken()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn saved_snapshot_is_private_and_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hang");
        let name = path.to_str().unwrap();
        assert!(find(name).is_none());
        let answer = json!({"looks": [{"tasks": [], "error": "x"}], "taken": 1.5, "left_out": 0, "clusters": [], "more": 1});
        write(&path, &answer).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let loaded = find(name).unwrap().unwrap();
        assert_eq!(
            (&loaded["looks"], &loaded["taken"]),
            (&answer["looks"], &answer["taken"])
        );
        assert!(loaded.get("more").is_none());
        let error = write(&path, &answer).unwrap_err().to_string();
        assert!(error.contains("exists already"), "{error}");
    }

    #[test]
    fn other_file_is_a_name_and_a_newer_format_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("train.json");
        let name = path.to_str().unwrap();
        std::fs::write(&path, "{\"other\": 1}").unwrap();
        assert!(find(name).is_none() && find(folder.path().to_str().unwrap()).is_none());
        for (text, expected) in [
            ("{\"ray_relay_snapshot\":2,\"looks\":[]}", "a later version"),
            (
                "{\"ray_relay_snapshot\":1,\"looks\":[",
                "not a whole snapshot",
            ),
            ("{\"ray_relay_snapshot\":1}", "not a whole snapshot"),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = find(name).unwrap().unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
