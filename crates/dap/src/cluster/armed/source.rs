//! Breakpoints that an editor sets in a file, and the paths by which workers may have that file.
//!
//! Pure.

use serde::Deserialize;
use serde_json::Value;

use ray_relay_base::wire::dap::mappings;
use ray_relay_base::wire::json::{typed, typed_at};
use ray_relay_base::wire::tunnel::messages::{ArmedLine, SourcePath, Text};

/// Arguments of a `setBreakpoints` request.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct SetBreakpoints {
    pub(super) source: Source,
    pub(super) breakpoints: Vec<SourceBreakpoint>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Source {
    pub(super) path: Option<String>,
}

/// One breakpoint, as the editor has it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct SourceBreakpoint {
    pub(super) line: u32,
    pub(super) condition: Option<String>,
    pub(super) hit_condition: Option<String>,
    pub(super) log_message: Option<String>,
}

/// What narrows all lines of a session.
#[derive(Debug, Clone, Default)]
pub(super) struct Narrowed {
    /// The ranks that they are for. `None`: all.
    pub(super) ranks: Option<Vec<u32>>,
    /// Whether the first hit in each process disarms a line there.
    pub(super) once: bool,
}

impl SourceBreakpoint {
    /// The line to arm.
    ///
    /// # Errors
    /// A sentence for the user.
    pub(super) fn line(
        &self,
        id: u32,
        paths: &WorkerPaths,
        narrowed: &Narrowed,
    ) -> Result<ArmedLine, &'static str> {
        if self.line == 0 {
            return Err("there is no line 0");
        }
        Ok(ArmedLine {
            id,
            file: paths.file.clone(),
            or_file: paths.or_file.clone(),
            line: self.line,
            condition: limited(self.condition.as_deref())?,
            log: limited(self.log_message.as_deref())?,
            hit: limited(self.hit_condition.as_deref())?,
            once: narrowed.once,
            counter: None,
            ranks: narrowed.ranks.clone(),
        })
    }
}

/// The text of an expression that is given.
///
/// # Errors
/// A sentence for the user.
fn limited<const MAX: usize>(text: Option<&str>) -> Result<Option<Text<MAX>>, &'static str> {
    let given = text.filter(|text| !text.trim().is_empty());
    let long = "a condition or message has at most 4,000 bytes, and a hit count 32";
    given.map(|text| Text::within(text).ok_or(long)).transpose()
}

/// The paths by which workers may have a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WorkerPaths {
    file: SourcePath,
    or_file: Option<SourcePath>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PathMapping {
    local_root: String,
    remote_root: String,
}

/// Which folders of the editor stand for folders of the workers, by the rules of
/// [`for_worker`](crate::attach::for_worker).
#[derive(Debug, Clone)]
pub(super) struct FolderMap {
    mappings: Vec<PathMapping>,
    /// `rayRelay.localRoot`; `""`: no folder.
    local_root: Option<String>,
    workspace: Option<String>,
}

impl FolderMap {
    /// Reads it from the arguments of the session's `attach`.
    pub(super) fn read(arguments: &Value, local_root: Option<String>) -> Self {
        let folder: &str = typed_at(arguments, "workspaceFolder");
        Self {
            mappings: match arguments {
                Value::Object(keys) if mappings::has_mappings(keys) => {
                    let usable = mappings::usable(keys).into_iter();
                    usable.map(|one| typed(&one)).collect()
                }
                _ => Vec::new(),
            },
            local_root,
            workspace: (!folder.is_empty()).then(|| folder.to_owned()),
        }
    }

    /// Has `folder` stand for the folder that the job runs in, and no other.
    pub(super) fn map_to(&mut self, folder: &str) {
        self.mappings.clear();
        self.local_root = Some(folder.to_owned());
    }

    /// The paths of the editor's file `path` in workers; `None`: they cannot have it.
    pub(super) fn paths(&self, path: &str) -> Option<WorkerPaths> {
        let path = path.replace('\\', "/");
        let own = path.starts_with('/').then(|| path.clone());
        let (file, or_file) = match (&self.local_root, &self.workspace) {
            _ if !self.mappings.is_empty() => (self.mapped(&path).or(own)?, None),
            (Some(root), _) => (below(&path, root).or(own)?, None),
            // The job has a copy of the folder, or the workers see the folder itself.
            (None, Some(folder)) => match below(&path, folder) {
                Some(inside) => (inside, own),
                None => (own?, None),
            },
            (None, None) => (own?, None),
        };
        let or_file = match or_file {
            Some(path) => Some(SourcePath::within(&path)?),
            None => None,
        };
        Some(WorkerPaths {
            file: SourcePath::within(&file)?,
            or_file,
        })
    }

    fn mapped(&self, path: &str) -> Option<String> {
        let inside = |one: &PathMapping| {
            let inside = below(path, &one.local_root)?;
            let rest = inside.strip_prefix("./")?;
            Some(match one.remote_root.as_str() {
                "." => inside,
                root => format!("{}/{rest}", root.trim_end_matches('/')),
            })
        };
        let longest = |one: &&PathMapping| one.local_root.len();
        let fits = |one: &&PathMapping| inside(one).is_some();
        inside(self.mappings.iter().filter(fits).max_by_key(longest)?)
    }
}

/// `path`, if it is below the editor's `folder`, from the folder that the job runs in.
fn below(path: &str, folder: &str) -> Option<String> {
    let folder = folder.replace('\\', "/");
    let folder = Some(folder.trim_end_matches('/')).filter(|folder| !folder.is_empty())?;
    // VS Code writes a drive's letter in either case.
    let is_drive = folder.as_bytes().get(1) == Some(&b':');
    let (start, rest) = path.split_at_checked(folder.len())?;
    let is_same = match is_drive {
        true => start.eq_ignore_ascii_case(folder),
        false => start == folder,
    };
    let rest = rest.strip_prefix('/').filter(|_| is_same)?;
    Some(format!("./{rest}"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use serde_json::json;

    fn paths(
        arguments: &Value,
        local_root: Option<&str>,
        path: &str,
    ) -> Option<(String, Option<String>)> {
        let map = FolderMap::read(arguments, local_root.map(str::to_owned));
        let found = map.paths(path)?;
        let text = |path: SourcePath| path.to_string();
        Some((text(found.file), found.or_file.map(text)))
    }

    #[test]
    fn file_is_named_as_a_session_of_a_task_maps_it() {
        let open = json!({"workspaceFolder": "/home/ann/job"});
        let inside = paths(&open, None, "/home/ann/job/src/train.py");
        let own = "/home/ann/job/src/train.py".to_owned();
        assert_eq!(inside, Some(("./src/train.py".to_owned(), Some(own))));
        let of = |path: &str| Some((path.to_owned(), None));
        // A folder is no prefix of a name.
        let beside = "/home/ann/jobs/train.py";
        assert_eq!(paths(&open, None, beside), of(beside));
        let root = Some("/home/ann/job/src/");
        let path = "/home/ann/job/src/train.py";
        assert_eq!(paths(&open, root, path), of("./train.py"));
        // No folder stands for the job's.
        assert_eq!(paths(&open, Some(""), path), of(path));
        let mapped = json!({"pathMappings": [
            {"localRoot": "/home/ann", "remoteRoot": "/srv/"},
            {"localRoot": "/home/ann/job", "remoteRoot": "."},
        ]});
        assert_eq!(paths(&mapped, None, path), of("./src/train.py"));
        let other = paths(&mapped, None, "/home/ann/lib/x.py");
        assert_eq!(other, of("/srv/lib/x.py"));
    }

    #[test]
    fn file_on_windows_is_named_below_its_folder_only() {
        let open = json!({"workspaceFolder": "C:\\ann\\job"});
        let inside = paths(&open, None, "c:\\ann\\job\\src\\train.py");
        assert_eq!(inside, Some(("./src/train.py".to_owned(), None)));
        assert_eq!(paths(&open, None, "c:\\lib\\x.py"), None);
    }

    #[test]
    fn long_expression_is_no_line() {
        let paths = FolderMap::read(&Value::Null, None).paths("/job/train.py");
        let mut breakpoint = SourceBreakpoint {
            line: 3,
            condition: Some("x".repeat(4000)),
            ..SourceBreakpoint::default()
        };
        let paths = paths.unwrap();
        let narrowed = Narrowed::default();
        let line = breakpoint.line(1, &paths, &narrowed).unwrap();
        assert_eq!(line.condition.unwrap().len(), 4000);
        breakpoint.condition = Some("x".repeat(4001));
        assert!(breakpoint.line(1, &paths, &narrowed).is_err());
    }
}
