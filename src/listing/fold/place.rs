//! Known places of Python's, Ray's and torch's, in words.
//!
//! By the file and the function of frames, of which only the end of a path counts: py-spy shortens paths, the hook in a
//! worker does not. What waits in C has no frame of its own, unless py-spy was asked for those of C.

use crate::ray::look::Frame;

/// Folders behind which the name of a package begins.
const PACKAGES: [&str; 2] = ["site-packages/", "dist-packages/"];

/// Packages, and modules of Python's own, that are nobody's own code, as py-spy writes them.
const LIBRARIES: &[&str] = &[
    "_pydevd_bundle",
    "_pydevd_frame_eval",
    "asyncio",
    "concurrent",
    "ctypes",
    "cupy",
    "debugpy",
    "deepspeed",
    "email",
    "encodings",
    "filelock",
    "fsspec",
    "grpc",
    "horovod",
    "http",
    "httpx",
    "importlib",
    "jax",
    "json",
    "lightning",
    "logging",
    "megatron",
    "mpi4py",
    "multiprocessing",
    "numpy",
    "pandas",
    "pyarrow",
    "pytorch_lightning",
    "ray",
    "ray_relay",
    "requests",
    "sklearn",
    "tensorflow",
    "torch",
    "transformers",
    "unittest",
    "urllib",
    "urllib3",
    "vllm",
    "xgboost",
    "codecs.py",
    "contextlib.py",
    "functools.py",
    "pydevd.py",
    "queue.py",
    "runpy.py",
    "selectors.py",
    "shutil.py",
    "socket.py",
    "socketserver.py",
    "ssl.py",
    "subprocess.py",
    "tempfile.py",
    "threading.py",
    "weakref.py",
];

/// The relay's own hook, wherever it was put.
const HOOK: [&str; 2] = ["ray_relay/__init__.py", "ray_relay_hook.py"];

/// The name of a function stands for this in words.
const ITSELF: &str = "{}";

/// The end of a path, functions in it (none: every one that is not private), and what waits there waits for.
type Known = (&'static str, &'static [&'static str], &'static str);

const KNOWN: &[Known] = &[
    (
        "torch/distributed/distributed_c10d.py",
        &[],
        "torch.distributed.{}",
    ),
    (
        "torch/distributed/rendezvous.py",
        &[],
        "the rendezvous of torch.distributed",
    ),
    (
        "torch/distributed/nn/functional.py",
        &[],
        "torch.distributed.nn.{}",
    ),
    (
        "torch/nn/parallel/distributed.py",
        &["forward", "_sync_module_states", "_sync_buffers"],
        "DistributedDataParallel.{}",
    ),
    (
        "torch/cuda/__init__.py",
        &["synchronize"],
        "torch.cuda.synchronize",
    ),
    (
        "torch/cuda/streams.py",
        &["synchronize", "wait_event", "wait_stream"],
        "torch.cuda, {}",
    ),
    (
        "torch/autograd/graph.py",
        &["_engine_run_backward"],
        "the backward pass of torch",
    ),
    (
        "torch/utils/data/dataloader.py",
        &["__next__", "_next_data", "_get_data", "_try_get_data"],
        "the next batch of a DataLoader",
    ),
    (
        "torch/futures/__init__.py",
        &["wait", "wait_all", "value"],
        "a Future of torch",
    ),
    ("horovod/torch/mpi_ops.py", &[], "horovod.{}"),
    (
        "ray/util/collective/collective.py",
        &[],
        "ray.util.collective.{}",
    ),
    (
        "ray/util/queue.py",
        &["get", "put"],
        "ray.util.queue.Queue.{}",
    ),
    (
        "ray/util/debugpy.py",
        &["set_trace", "_post_mortem", "post_mortem"],
        "breakpoint()",
    ),
    (
        "ray/util/rpdb.py",
        &["set_trace", "_post_mortem", "post_mortem"],
        "breakpoint()",
    ),
    (
        "ray/train/_internal/session.py",
        &["report"],
        "ray.train.report",
    ),
    (
        "ray/train/v2/api/train_fn_utils.py",
        &["report"],
        "ray.train.report",
    ),
    (
        "ray/experimental/channel/shared_memory_channel.py",
        &["read", "write"],
        "a channel of a compiled graph, {}",
    ),
    ("ray/_private/worker.py", &["get", "get_objects"], "ray.get"),
    ("ray/_private/worker.py", &["wait"], "ray.wait"),
    ("grpc/_channel.py", &[], "an answer of gRPC"),
    (
        "http/client.py",
        &["getresponse", "begin", "_read_status", "read"],
        "an answer of HTTP",
    ),
    ("queue.py", &["get", "put", "join"], "queue.Queue.{}"),
    (
        "multiprocessing/queues.py",
        &["get", "put"],
        "multiprocessing.Queue.{}",
    ),
    (
        "multiprocessing/connection.py",
        &[
            "recv",
            "recv_bytes",
            "_recv",
            "_recv_bytes",
            "poll",
            "accept",
            "wait",
        ],
        "a connection of multiprocessing, {}",
    ),
    (
        "multiprocessing/synchronize.py",
        &[],
        "a lock of multiprocessing",
    ),
    (
        "multiprocessing/pool.py",
        &["get", "wait", "join", "map", "starmap"],
        "a multiprocessing.Pool, {}",
    ),
    (
        "multiprocessing/popen_fork.py",
        &["wait", "poll"],
        "the end of a process of multiprocessing",
    ),
    (
        "concurrent/futures/_base.py",
        &[
            "result",
            "exception",
            "wait",
            "as_completed",
            "result_iterator",
        ],
        "a Future",
    ),
    (
        "concurrent/futures/thread.py",
        &["_worker"],
        "the next task of a thread pool",
    ),
    (
        "subprocess.py",
        &["wait", "_wait", "communicate", "_communicate", "_try_wait"],
        "a child process",
    ),
    (
        "socket.py",
        &["readinto", "accept", "create_connection"],
        "a socket, {}",
    ),
    (
        "ssl.py",
        &["read", "recv", "recv_into", "do_handshake"],
        "a socket with TLS, {}",
    ),
    (
        "threading.py",
        &["Barrier.wait", "Barrier._wait"],
        "threading.Barrier.wait",
    ),
    ("threading.py", &["Event.wait"], "threading.Event.wait"),
    (
        "threading.py",
        &["Condition.wait", "Condition.wait_for"],
        "threading.Condition.wait",
    ),
    (
        "threading.py",
        &["Semaphore.acquire", "BoundedSemaphore.acquire"],
        "a Semaphore",
    ),
    ("threading.py", &["acquire"], "a Semaphore or a lock"),
    (
        "threading.py",
        &["join", "_wait_for_tstate_lock"],
        "the end of a thread",
    ),
    (
        "threading.py",
        &["wait", "wait_for"],
        "a Condition, an Event or a Barrier",
    ),
    (
        "asyncio/base_events.py",
        &["run_forever", "_run_once", "run_until_complete"],
        "the event loop of asyncio",
    ),
    ("selectors.py", &["select"], "select"),
];

/// Parts of names of functions in C.
const IN_C: &[(&str, &str)] = &[
    ("gloo::", "gloo"),
    ("nccl", "NCCL"),
    ("cudaStreamSynchronize", "CUDA"),
    ("cuStreamSynchronize", "CUDA"),
    ("time_sleep", "time.sleep"),
    ("pysleep", "time.sleep"),
    ("sock_accept", "a socket, accept"),
    ("sock_connect", "a socket, connect"),
    ("sock_recv", "a socket, recv"),
    ("sock_send", "a socket, send"),
    ("PyThread_acquire_lock", "a lock"),
];

/// Where a stack is: in words, and by the innermost call of code that is no library's.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    /// What it waits for, where that is known.
    pub(super) waits: Option<String>,
    /// `train (loop.py:41)`.
    pub(super) at: Option<String>,
    /// It waits in a call outside Python, of which no more is known.
    pub(super) in_c: bool,
}

impl Place {
    /// The place of `frames`, innermost first, of a thread that waits in the system where `idle` holds.
    pub(super) fn of(frames: &[Frame], idle: Option<bool>) -> Self {
        let own = frames.iter().position(|frame| !is_library(&frame.file));
        // What a library does below the code that called it is told by where that code went in.
        let below = &frames[..own.unwrap_or(frames.len())];
        let waits = below.iter().rev().find_map(known);
        let waits = waits.or_else(|| below.iter().find_map(in_c).map(str::to_owned));
        let at = own.or(frames.len().checked_sub(1).map(|_| 0));
        Self {
            in_c: waits.is_none() && idle == Some(true),
            waits,
            at: at.and_then(|at| frames.get(at)).map(call),
        }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (&self.waits, &self.at) {
            (Some(waits), Some(at)) => write!(f, "waits in {waits}, from {at}"),
            (Some(waits), None) => write!(f, "waits in {waits}"),
            (None, Some(at)) if self.in_c => write!(f, "waits outside Python, called by {at}"),
            (None, Some(at)) => write!(f, "is in {at}"),
            (None, None) => f.write_str("has no Python stack"),
        }
    }
}

/// `train (loop.py:41)`.
pub(super) fn call(frame: &Frame) -> String {
    let file = short(&frame.file);
    match frame.line {
        0 => format!("{} ({file})", frame.function),
        line => format!("{} ({file}:{line})", frame.function),
    }
}

/// `path` from the package on, where it is in a library's folder.
pub(super) fn short(path: &str) -> &str {
    for folder in PACKAGES {
        if let Some((_, rest)) = path.rsplit_once(folder) {
            return rest;
        }
    }
    // `/usr/lib/python3.11/threading.py`
    match path.rsplit_once("/lib/python3") {
        Some((_, rest)) => rest.split_once('/').map_or(path, |(_, rest)| rest),
        None => path,
    }
}

/// Whether the code in `path` is a library's, of Python's own or of others.
pub(super) fn is_library(path: &str) -> bool {
    let is_hooks = HOOK.iter().any(|hook| path.ends_with(hook));
    if path.starts_with('<') || short(path).len() < path.len() || is_c(path) || is_hooks {
        return true;
    }
    // What py-spy has shortened. A folder of somebody's own may have such a name further down.
    let first = path.split('/').next().unwrap_or_default();
    LIBRARIES.contains(&first)
}

/// Whether `path` is of a library in C, as py-spy writes it.
fn is_c(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.ends_with(".so") || name.contains(".so.") || name.ends_with(".pyx")
}

fn known(frame: &Frame) -> Option<String> {
    let file = short(&frame.file);
    let function = frame.function.rsplit('.').next().unwrap_or_default();
    let found = KNOWN.iter().find(|(path, functions, _)| {
        let is_file = file == *path
            || file
                .strip_suffix(path)
                .is_some_and(|rest| rest.ends_with('/'));
        let is_public = || !function.starts_with(['_', '<']) && function != "wrapper";
        is_file
            && match functions {
                [] => is_public(),
                functions => functions
                    .iter()
                    .any(|one| *one == function || *one == frame.function),
            }
    });
    found.map(|(_, _, words)| words.replace(ITSELF, function))
}

fn in_c(frame: &Frame) -> Option<&'static str> {
    let found = IN_C.iter().find(|(part, _)| frame.function.contains(part));
    found.filter(|_| is_c(&frame.file)).map(|(_, words)| *words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(lines: &[(&str, &str)]) -> Vec<Frame> {
        let frame = |(function, file): &(&str, &str)| Frame {
            file: (*file).to_owned(),
            line: 7,
            function: (*function).to_owned(),
            locals: None,
            locals_cut: 0,
        };
        lines.iter().map(frame).collect()
    }

    fn told(lines: &[(&str, &str)]) -> String {
        Place::of(&frames(lines), Some(true)).to_string()
    }

    #[test]
    fn known_places_are_named_by_what_was_called() {
        for (stack, words) in [
            (
                &[
                    ("barrier", "torch/distributed/distributed_c10d.py"),
                    ("wrapper", "torch/distributed/c10d_logger.py"),
                    ("train", "loop.py"),
                    ("main_loop", "ray/_private/worker.py"),
                ][..],
                "waits in torch.distributed.barrier, from train (loop.py:7)",
            ),
            (
                &[
                    (
                        "get_objects",
                        "/v/lib/python3.11/site-packages/ray/_private/worker.py",
                    ),
                    (
                        "get",
                        "/v/lib/python3.11/site-packages/ray/_private/worker.py",
                    ),
                    (
                        "wrapper",
                        "/v/lib/python3.11/site-packages/ray/_private/client_mode_hook.py",
                    ),
                    ("main", "/home/ann/train.py"),
                ],
                "waits in ray.get, from main (/home/ann/train.py:7)",
            ),
            (
                &[
                    ("Condition.wait", "threading.py"),
                    ("Queue.get", "queue.py"),
                    ("load", "data.py"),
                ],
                "waits in queue.Queue.get, from load (data.py:7)",
            ),
            (
                &[("wait", "/usr/lib/python3.12/threading.py"), ("f", "/a.py")],
                "waits in a Condition, an Event or a Barrier, from f (/a.py:7)",
            ),
            (
                &[
                    ("Barrier._wait", "threading.py"),
                    ("Barrier.wait", "threading.py"),
                    ("f", "a.py"),
                ],
                "waits in threading.Barrier.wait, from f (a.py:7)",
            ),
            (
                &[
                    ("sock_recv_into", "libpython3.11.so.1.0"),
                    ("SocketIO.readinto", "socket.py"),
                    ("read_exact", "net.py"),
                ],
                "waits in a socket, readinto, from read_exact (net.py:7)",
            ),
            (
                &[
                    ("time_sleep", "python3.11/lib-dynload/libpython3.11.so"),
                    ("nap", "a.py"),
                ],
                "waits in time.sleep, from nap (a.py:7)",
            ),
            // Of a call in C there is no frame.
            (
                &[("nap", "a.py")],
                "waits outside Python, called by nap (a.py:7)",
            ),
            (&[], "has no Python stack"),
        ] {
            assert_eq!(told(stack), words);
        }
    }

    #[test]
    fn what_runs_waits_for_nothing() {
        let running = Place::of(&frames(&[("step", "train.py")]), Some(false));
        assert_eq!(running.to_string(), "is in step (train.py:7)");
    }

    #[test]
    fn code_of_ones_own_is_told_from_that_of_libraries() {
        for own in [
            "train.py",
            "/srv/ray/train.py",
            "pkg/queue.py",
            "/home/ann/torch/x.py",
        ] {
            assert!(!is_library(own), "{own}");
        }
        for library in [
            "threading.py",
            "ray/_private/worker.py",
            "<frozen importlib._bootstrap>",
            "/v/lib/python3.11/site-packages/mine/x.py",
            "/usr/lib/python3.11/queue.py",
            "libc.so.6",
        ] {
            assert!(is_library(library), "{library}");
        }
        assert_eq!(short("/usr/lib/python3.11/queue.py"), "queue.py");
        assert_eq!(short("/v/lib/python3.11/site-packages/a/b.py"), "a/b.py");
        assert_eq!(short("/home/ann/b.py"), "/home/ann/b.py");
    }
}
