//! Ray itself: one virtual environment for each version, under `target/ray-venvs`, made by the
//! same code as the demo's. `RAY_RELAY_TEST_VENVS=DIR` uses ready ones (`DIR/2.60.0`, ...).

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use ray_relay_access::telemetry::progress::PreparationClock;
use ray_relay_cluster::venv::{self, Venv, VenvError};

use super::{say, skip};

/// Oldest version that the relay covers.
pub(crate) const OLDEST: &str = "2.9.3";
/// Newest version that the relay covers.
pub(crate) const NEWEST: &str = "2.60.0";
/// The same in a Python that has `sys.monitoring`.
pub(crate) const NEWEST_MONITORED: &str = "2.60.0-python3.12";

static VENVS: Mutex<Option<HashMap<String, Venv>>> = Mutex::new(None);

/// The environment of Ray `version`, and maybe the least Python behind `-python`, made now if need be; `None` (said aloud) where no Python
/// here runs it.
pub(crate) fn environment(version: &str) -> Option<Venv> {
    // A test that failed while holding this leaves nothing half-made in the map.
    let mut ready = VENVS
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    let ready = ready.get_or_insert_with(HashMap::new);
    if let Some(venv) = ready.get(version) {
        return Some(venv.clone());
    }
    let venv = match std::env::var_os("RAY_RELAY_TEST_VENVS") {
        Some(given) => {
            let dir = Path::new(&given).join(version);
            Venv::existing(&dir).unwrap_or_else(|| panic!("no environment in {}", dir.display()))
        }
        None => make(version)?,
    };
    ready.insert(version.to_owned(), venv.clone());
    Some(venv)
}

fn make(version: &str) -> Option<Venv> {
    let (ray, least) = match version.split_once("-python3.") {
        Some((ray, minor)) => (ray, (3, minor.parse().unwrap())),
        None => (version, (3, 0)),
    };
    let requirements = [
        format!("ray[default,serve]=={ray}"),
        "debugpy==1.8.22".to_owned(),
        // Older versions of Ray import what newer ones of these two removed.
        "click<8.2".to_owned(),
        "setuptools<70".to_owned(),
    ];
    let root = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("../ray-venvs");
    std::fs::create_dir_all(&root).unwrap();
    let dir = root.canonicalize().unwrap().join(version);
    let made = std::thread::scope(|scope| {
        // Callers may be inside a runtime already, which can neither block on another nor drop it.
        scope
            .spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()
                    .unwrap();
                let progress = PreparationClock::new("it: ray");
                runtime.block_on(venv::prepare(&dir, ray, least, &requirements, &progress))
            })
            .join()
            .unwrap()
    });
    match made {
        Ok(venv) => Some(venv),
        Err(error @ (VenvError::NoPython { .. } | VenvError::UnsupportedPython { .. })) => {
            match least {
                (3, 0) => skip(error),
                // Not every system that CI runs on packages it.
                _ => say(format_args!("NOT TRIED: {error}")),
            }
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Writes the hook into `folder`, as the module `ray_relay_hook`.
pub(crate) fn write_hook(folder: &Path) {
    let program = env!("CARGO_BIN_EXE_ray-relay");
    let hook = Command::new(program).arg("hook").output().unwrap();
    std::fs::write(folder.join("ray_relay_hook.py"), hook.stdout).unwrap();
}

/// A sample driver of `tests/jobs`.
pub(crate) fn job(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/jobs")
        .join(name);
    assert!(path.exists(), "no {}", path.display());
    path
}
