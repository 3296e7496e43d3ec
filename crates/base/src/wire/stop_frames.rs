//! The files of the frames that lie between a program and the debugger in which it has stopped.

/// Ray's, in every version from 2.9.
const RAY_FILES: [&str; 2] = ["ray/util/debugpy.py", "ray/util/rpdb.py"];

/// The relay's hook: the installed package, and the file that `ray-relay hook` prints.
const HOOK_FILES: [&str; 2] = ["ray_relay/__init__.py", "ray_relay_hook.py"];

/// Whether the file at `path`, which py-spy shortens, is the relay's hook.
pub fn is_hook(path: &str) -> bool {
    HOOK_FILES.iter().any(|file| path.ends_with(file))
}

/// Whether the file at `path` is Ray's debugger or the relay's hook.
pub fn is_between(path: &str) -> bool {
    is_hook(path) || RAY_FILES.iter().any(|file| path.ends_with(file))
}
