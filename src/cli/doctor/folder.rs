//! Compares the current folder with the files in which tasks stopped.
//!
//! Ray names such a file by a short path (`model/train.py`) or by its path on the node. An editor finds it if the open
//! folder has it at the same path, or if `rayRelay.localRoot` names the folder that does.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

use serde_json::Value;

use ray_relay_base::wire::json::typed_list;
use ray_relay_base::wire::text::shortened;
use ray_relay_view::doctor::{ChainLink, Finding};
use ray_relay_view::listing::received::RowAnswer;

/// Maximum number of folders to search below this one, and their depth.
const MAX_FOLDERS: usize = 2000;
const MAX_DEPTH: usize = 4;

/// Maximum number of files to look for.
const MAX_FILES: usize = 50;

const MAX_PATH_CHARS: usize = 200;

/// Findings on whether the folder `here` has the files in which the tasks of `list` wait.
pub(super) fn findings(list: &Value, here: &Path) -> Vec<Finding> {
    let waits = [Some("paused"), Some("attached"), Some("parked")];
    let waiting =
        typed_list(list, "breakpoints").filter(|row: &RowAnswer<'_>| waits.contains(&row.state));
    // Code that was typed in or generated has no file.
    let files = waiting.filter_map(|row| row.location?.file);
    let files: BTreeSet<&str> = files.filter(|file| !file.starts_with('<')).collect();
    if files.is_empty() {
        return Vec::new();
    }
    let mut folders: BTreeSet<PathBuf> = BTreeSet::new();
    let (mut there, mut missing) = (0, Vec::new());
    let below = below(here);
    for file in files.iter().take(MAX_FILES) {
        match locate(file, here, &below) {
            Some(FileLocation::AsItIs) => there += 1,
            Some(FileLocation::Below(folder)) => _ = folders.insert(folder),
            None => missing.push(*file),
        }
    }
    let mut all = Vec::new();
    let short = |path: &Path| shortened(&path.display().to_string(), MAX_PATH_CHARS);
    if there > 0 {
        let says = format!(
            "{there} of the files in which tasks stand {} at the same place on this machine",
            is(there)
        );
        all.push(Finding::ok(ChainLink::Folder, says));
    }
    for folder in folders {
        all.push(match folder == here {
            true => Finding::ok(
                ChainLink::Folder,
                format!("{} has files in which tasks stand", short(here)),
            ),
            false => Finding::note(
                ChainLink::Folder,
                format!("files in which tasks stand are in {}", short(&folder)),
            )
            .next(format!(
                "open that folder in the editor, or have \"rayRelay\": {{\"localRoot\": \"{}\"}} in its configuration",
                short(&folder)
            )),
        });
    }
    if let Some(first) = missing.first() {
        let more = match missing.len() {
            1 => String::new(),
            n => format!(" and {} more", n - 1),
        };
        let says = format!(
            "{}, where a task stands,{more} is not below {}",
            shortened(first, MAX_PATH_CHARS),
            short(here)
        );
        all.push(Finding::warning(ChainLink::Folder, says).next(
            "go to the folder that the job was submitted from, or name it to the editor as \"rayRelay\": {\"localRoot\": FOLDER}",
        ));
    }
    all
}

fn is(count: usize) -> &'static str {
    match count {
        1 => "is",
        _ => "are",
    }
}

/// The location of a file.
#[derive(Debug, PartialEq, Eq)]
enum FileLocation {
    /// At the same path as on the node.
    AsItIs,
    /// Below this folder, as below the job's `working_dir`.
    Below(PathBuf),
}

/// Finds `file` from `here`, or in one of its subfolders `below`.
fn locate(file: &str, here: &Path, below: &[PathBuf]) -> Option<FileLocation> {
    let path = Path::new(file);
    if path.is_absolute() && path.is_file() {
        return Some(FileLocation::AsItIs);
    }
    let parts: Vec<Component<'_>> = path.components().collect();
    let names = |part: &Component<'_>| matches!(part, Component::Normal(_));
    // The part before `..` tells nothing about the path here.
    let begin = parts
        .iter()
        .rposition(|part| !names(part))
        .map_or(0, |at| at + 1);
    let names = &parts[begin..];
    // Tries the longest suffix of its path first: all of a short path; of an absolute path, the first folders are the
    // node's.
    for skipped in 0..names.len() {
        let end: PathBuf = names[skipped..].iter().collect();
        if here.join(&end).is_file() {
            let before: PathBuf = names[..skipped].iter().collect();
            // Inside the job's folder: use its root.
            let inside = !path.is_absolute() && skipped > 0 && here.ends_with(&before);
            let root = here.ancestors().nth(if inside { skipped } else { 0 });
            return root.map(|root| FileLocation::Below(root.to_owned()));
        }
        // In a subfolder, by its whole short path: by the file's name alone any `__init__.py` would match.
        if skipped == 0 || path.is_absolute() && names.len() - skipped >= 2 {
            let found = below.iter().find(|folder| folder.join(&end).is_file());
            if let Some(folder) = found {
                return Some(FileLocation::Below(folder.clone()));
            }
        }
    }
    None
}

/// The folders below `here`, nearest first, without those of tools.
fn below(here: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    let mut level = vec![here.to_owned()];
    for _ in 0..MAX_DEPTH {
        let mut next = Vec::new();
        for folder in level {
            let Ok(entries) = fs::read_dir(&folder) else {
                continue;
            };
            for entry in entries.flatten().take(MAX_FOLDERS) {
                let name = entry.file_name();
                let name = name.to_string_lossy();
                let of_tools = name.starts_with('.')
                    || [
                        "node_modules",
                        "target",
                        "venv",
                        "__pycache__",
                        "site-packages",
                    ]
                    .contains(&&*name);
                // Not through links, which may lead anywhere.
                let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
                if is_folder && !of_tools && all.len() + next.len() < MAX_FOLDERS {
                    next.push(entry.path());
                }
            }
        }
        next.sort();
        all.extend(next.iter().cloned());
        level = next;
    }
    all
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;
    use ray_relay_view::doctor::Severity;

    fn list(files: &[&str]) -> Value {
        let row = |file: &&str| json!({"state": "paused", "location": {"file": file, "line": 1, "function": "f"}});
        json!({ "breakpoints": files.iter().map(row).collect::<Vec<_>>() })
    }

    fn job() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("job/model/.git")).unwrap();
        fs::write(dir.path().join("job/model/train.py"), "").unwrap();
        fs::write(dir.path().join("job/main.py"), "").unwrap();
        dir
    }

    #[test]
    fn matching_and_mismatching_folders_are_reported() {
        let dir = job();
        let root = dir.path().join("job");
        let tasks = list(&["model/train.py", "main.py", "<stdin>"]);
        let found = findings(&tasks, &root);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].severity, Severity::Ok);
        let other_folder = tempfile::tempdir().unwrap();
        let found = findings(&tasks, other_folder.path());
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(
            (found[0].link, found[0].severity),
            (ChainLink::Folder, Severity::Warning)
        );
        assert!(
            found[0]
                .says
                .starts_with("main.py, where a task stands, and 1 more is not below")
        );
        assert!(found[0].next.as_ref().unwrap().contains("localRoot"));
        assert_eq!(findings(&list(&["<stdin>"]), other_folder.path()), []);
        assert_eq!(findings(&json!({}), other_folder.path()), []);
    }

    #[test]
    fn job_folder_is_suggested_from_above_and_below() {
        let dir = job();
        let root = dir.path().join("job");
        for folder in [dir.path(), &root.join("model")] {
            let found = findings(&list(&["model/train.py"]), folder);
            assert_eq!(found.len(), 1, "{found:?}");
            assert_eq!(found[0].severity, Severity::Note);
            let next = found[0].next.as_ref().unwrap();
            let mapping = format!("{{\"localRoot\": \"{}\"}}", root.display());
            assert!(next.contains(&mapping), "{next}");
        }
    }

    #[test]
    fn node_path_is_matched_by_its_suffix() {
        let dir = job();
        let root = dir.path().join("job");
        let node_path = "/tmp/ray/session_1/working_dir_files/_ray_pkg_1f/model/train.py";
        assert_eq!(
            findings(&list(&[node_path]), &root)[0].severity,
            Severity::Ok
        );
        let found = &findings(&list(&[node_path]), dir.path())[0];
        assert!(
            found
                .next
                .as_ref()
                .unwrap()
                .contains(&*root.to_string_lossy())
        );
        let local_file = root.join("main.py");
        let found = &findings(
            &list(&[local_file.to_str().unwrap()]),
            Path::new("/nonexistent"),
        )[0];
        assert!(found.says.contains("at the same place"), "{found:?}");
        assert_eq!(
            findings(&list(&["../../etc/x.py"]), &root)[0].severity,
            Severity::Warning
        );
    }
}
