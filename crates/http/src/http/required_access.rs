//! The access that a request to the Ray dashboard requires, by its method and path. Pure.
//!
//! The table is based on the routes of Ray 2.9.3 and 2.60.0. Ray changes things on GET too: it kills actors, and stops
//! or instruments processes to inspect them. A path that is in no table requires what its method implies. Paths are
//! compared as the head's web server decodes them, so that no spelling of one requires less.

use std::borrow::Cow;

use hyper::Method;

use super::route::segments;

/// The access that a request requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequiredAccess {
    /// Nothing: the dashboard's page itself, which contains no data and asks for a token.
    Page,
    /// Nothing: whether this server requires a token. The relay answers this itself.
    Mode,
    /// A token, which becomes a cookie.
    SignIn,
    /// Any permission at all in the cluster.
    Version,
    /// `dashboard:read` on the cluster, or `list` for the rows of those breakpoints.
    Rows(RowAccess),
    /// `dashboard:read` on the cluster.
    Read,
    /// `dashboard:write` on the cluster.
    Write,
}

/// Lists whose rows can be filtered by breakpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RowAccess {
    /// `/api/v0/workers`: the only answer in Ray 2.9 to 2.60 with addresses of debuggers in it.
    Workers,
    /// `/api/v0/tasks`: rows of tasks.
    Tasks,
    /// `/api/v0/jobs`: rows of jobs.
    Jobs,
}

/// GETs with an effect, by the first segments of their paths.
const ACTIONS: [&[&str]; 12] = [
    // Ray 2.9: kills an actor.
    &["api", "actors", "kill"],
    // Creates an actor in the cluster if there is none yet.
    &["api", "data", "datasets"],
    // py-spy, memray, torch and jax profilers: stop a process, or load code into it.
    &["task", "traceback"],
    &["task", "cpu_profile"],
    &["worker", "traceback"],
    &["worker", "cpu_profile"],
    &["worker", "gpu_profile"],
    &["worker", "jax_profile"],
    &["worker", "memory_profile"],
    &["memory_profile"],
    // Occupies one of the API server's few slots for any length of time.
    &["api", "v0", "delay"],
    // Modules of Ray's own tests, which fetch any URL.
    &["test"],
];

/// POSTs that only read.
const QUESTIONS: [&[&str]; 1] = [&["api", "task_events", "query"]];

/// GETs that become a read-only WebSocket. `*` matches one segment.
const WEBSOCKETS: [&[&str]; 1] = [&["api", "jobs", "*", "logs", "tail"]];

/// The access that `method` on `path` (of a head, without the query) requires.
pub(super) fn of(method: &Method, path: &str, websocket: bool) -> RequiredAccess {
    let segments = segments(path);
    let is = |words: &[&str]| segments.len() == words.len() && begins(&segments, words);
    let reads = matches!(*method, Method::GET | Method::HEAD);
    if reads && !websocket && is_page(path) {
        return RequiredAccess::Page;
    }
    if reads && path == "/api/authentication_mode" {
        return RequiredAccess::Mode;
    }
    if *method == Method::POST && path == "/api/authenticate" {
        return RequiredAccess::SignIn;
    }
    if *method == Method::POST && QUESTIONS.iter().any(|words| is(words)) {
        return RequiredAccess::Read;
    }
    if !reads || ACTIONS.iter().any(|words| begins(&segments, words)) {
        return RequiredAccess::Write;
    }
    if websocket {
        return match WEBSOCKETS.iter().any(|words| is(words)) {
            true => RequiredAccess::Read,
            false => RequiredAccess::Write,
        };
    }
    if is(&["api", "version"]) {
        RequiredAccess::Version
    } else if lists_workers(path) {
        RequiredAccess::Rows(RowAccess::Workers)
    } else if is(&["api", "v0", "tasks"]) {
        RequiredAccess::Rows(RowAccess::Tasks)
    } else if is(&["api", "v0", "jobs"]) {
        RequiredAccess::Rows(RowAccess::Jobs)
    } else {
        RequiredAccess::Read
    }
}

/// The kind of code that the body of a change makes the head run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Described {
    /// A job to submit.
    Job,
    /// All applications that Ray Serve is to run.
    Applications,
}

/// The kind of code that the body of `method` on `path` makes the head run, if any.
pub(super) fn described(method: &Method, path: &str) -> Option<Described> {
    if !matches!(*method, Method::POST | Method::PUT) {
        return None;
    }
    let segments = segments(path);
    let is = |words: &[&str]| segments.len() == words.len() && begins(&segments, words);
    match *method {
        Method::POST if is(&["api", "jobs"]) => Some(Described::Job),
        Method::PUT if is(&["api", "serve", "applications"]) => Some(Described::Applications),
        _ => None,
    }
}

/// Whether the answer to `path` lists workers with their debuggers' addresses.
pub(super) fn lists_workers(path: &str) -> bool {
    let segments = segments(path);
    segments.len() == 3 && begins(&segments, &["api", "v0", "workers"])
}

fn begins(segments: &[Cow<'_, [u8]>], words: &[&str]) -> bool {
    segments.len() >= words.len()
        && segments
            .iter()
            .zip(words)
            .all(|(segment, word)| *word == "*" || **segment == *word.as_bytes())
}

/// Whether `path` is the first page, its icon, or one of its files, as browsers spell them. No other spelling matches.
fn is_page(path: &str) -> bool {
    let is_plain = |segment: &str| {
        !segment.is_empty()
            && !segment.starts_with('.')
            && segment
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_'))
    };
    matches!(path, "/" | "/favicon.ico")
        || path
            .strip_prefix("/static/")
            .is_some_and(|rest| rest.split('/').all(is_plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(path: &str) -> RequiredAccess {
        of(&Method::GET, path, false)
    }

    #[test]
    fn writing_gets_need_write_access_in_every_spelling() {
        for path in [
            "/api/actors/kill",
            "/api/actors/kill/",
            "//api/./actors//kill",
            "/api/actors/%6bill",
            "/api/x/%2e%2e/actors/kill",
            "/static/../api/actors/kill",
            "/api%2Factors%2Fkill",
            "/worker/traceback",
            "/worker/cpu_profile",
            "/worker/gpu_profile",
            "/worker/jax_profile",
            "/task/traceback",
            "/task/cpu_profile",
            "/memory_profile",
            "/api/data/datasets/01000000",
            "/api/data//datasets/%2e/x",
            "/api/v0/delay/60",
            "/test/http_get",
        ] {
            assert_eq!(get(path), RequiredAccess::Write, "{path}");
            assert_eq!(
                of(&Method::HEAD, path, false),
                RequiredAccess::Write,
                "{path}"
            );
        }
    }

    #[test]
    fn other_routes_need_access_by_method() {
        for path in [
            "/nodes",
            "/logical/actors",
            "/api/v0/logs/file",
            "/api/jobs/",
            "/api/v0/tasks/summarize",
            "/api/serve/applications/",
            "/what/ever",
        ] {
            assert_eq!(get(path), RequiredAccess::Read, "{path}");
            for method in [Method::POST, Method::PUT, Method::DELETE, Method::OPTIONS] {
                assert_eq!(
                    of(&method, path, false),
                    RequiredAccess::Write,
                    "{method} {path}"
                );
            }
        }
        let query = "/api/task_events/query";
        assert_eq!(of(&Method::POST, query, false), RequiredAccess::Read);
        assert_eq!(of(&Method::PUT, query, false), RequiredAccess::Write);
        assert_eq!(
            of(&Method::POST, "/api/task_events", false),
            RequiredAccess::Write
        );
        assert_eq!(
            get("/api/v0/%77orkers/"),
            RequiredAccess::Rows(RowAccess::Workers)
        );
        assert_eq!(get("/api/v0/tasks"), RequiredAccess::Rows(RowAccess::Tasks));
        assert_eq!(get("//api/version"), RequiredAccess::Version);
    }

    #[test]
    fn submissions_are_recognised_in_every_spelling() {
        for path in ["/api/jobs/", "/api/jobs", "//api/./jobs", "/api/%6aobs/"] {
            let described = |method| described(&method, path);
            assert_eq!(described(Method::POST), Some(Described::Job), "{path}");
            assert_eq!(described(Method::GET), None, "{path}");
        }
        assert_eq!(described(&Method::POST, "/api/jobs/x/stop"), None);
        for path in ["/api/serve/applications/", "//api/serve/./applications"] {
            let described = |method| described(&method, path);
            assert_eq!(described(Method::PUT), Some(Described::Applications));
            assert_eq!(described(Method::DELETE), None, "{path}");
        }
    }

    #[test]
    fn websocket_needs_write_access_unless_known_read_only() {
        let tail = "/api/jobs/raysubmit_1/logs/tail";
        assert_eq!(of(&Method::GET, tail, true), RequiredAccess::Read);
        assert_eq!(of(&Method::GET, "/api/jobs/x", true), RequiredAccess::Write);
        assert_eq!(of(&Method::GET, "/", true), RequiredAccess::Write);
        assert_eq!(
            of(&Method::GET, "/static/js/main.js", true),
            RequiredAccess::Write
        );
    }

    #[test]
    fn page_files_are_open_only_at_their_exact_paths() {
        for path in ["/", "/favicon.ico", "/static/js/main.84605326.js"] {
            assert_eq!(get(path), RequiredAccess::Page, "{path}");
            assert_eq!(
                of(&Method::POST, path, false),
                RequiredAccess::Write,
                "{path}"
            );
        }
        for path in [
            "//",
            "/static",
            "/static/",
            "/static/../nodes",
            "/static/%2e%2e/nodes",
            "/static//nodes",
            "/static/./a",
            "/static/.git",
            "/static/a%2fb",
            "/x/../favicon.ico",
        ] {
            assert_eq!(get(path), RequiredAccess::Read, "{path}");
        }
        assert_eq!(get("/api/authentication_mode"), RequiredAccess::Mode);
        let sign_in = of(&Method::POST, "/api/authenticate", false);
        assert_eq!(sign_in, RequiredAccess::SignIn);
    }
}
