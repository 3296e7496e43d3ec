//! Tables of files and functions with known waits, and the kind of each wait.

/// Folders that directly contain packages.
pub(super) const PACKAGE_FOLDERS: [&str; 2] = ["site-packages/", "dist-packages/"];

/// Packages, and Python modules, that are not the program's own code, as py-spy prints them.
pub(super) const LIBRARIES: &[&str] = &[
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

/// Placeholder for the function's name.
pub(super) const FUNCTION_PLACEHOLDER: &str = "{}";

/// Path suffix, functions in it (empty: every public one), and what a thread waits for there.
pub(super) type KnownWait = (&'static str, &'static [&'static str], &'static str);

pub(super) const KNOWN_WAITS: &[KnownWait] = &[
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
    // With uvloop, which Ray uses where it is installed, the loop has no frames.
    ("asyncio/runners.py", &["run"], "the event loop of asyncio"),
    ("asyncio/tasks.py", &[], "asyncio.{}"),
    ("asyncio/locks.py", &["Event.wait"], "asyncio.Event.wait"),
    (
        "asyncio/locks.py",
        &[],
        "an Event, a lock or the like of asyncio",
    ),
    (
        "asyncio/queues.py",
        &["get", "put", "join"],
        "asyncio.Queue.{}",
    ),
    ("asyncio/streams.py", &[], "a stream of asyncio, {}"),
    (
        "asyncio/subprocess.py",
        &["wait", "communicate"],
        "a child process",
    ),
    (
        "asyncio/taskgroups.py",
        &["__aexit__"],
        "the end of an asyncio.TaskGroup",
    ),
    ("selectors.py", &["select"], "select"),
];

/// Substrings of native function names.
pub(super) const NATIVE_WAITS: &[(&str, &str)] = &[
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

/// The kind of event that ends a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WaitKind {
    /// The other members of its group come to the same call.
    Group,
    /// The device finishes its work, which may contain a collective.
    Device,
    /// Another task of Ray ends.
    Object,
    /// Another thread of the process acts.
    Thread,
    /// Another thread or a child process sends something.
    Queue,
    /// A child process ends.
    Child,
    /// A child process of a DataLoader sends something. It is asked again every few seconds.
    Batch,
    /// Time passes.
    Sleep,
    /// A child process, or another process, sends something over a pipe of multiprocessing.
    Connection,
    /// Another process gives the lock of a file back.
    FileLock,
    /// The other end of a connection answers.
    Peer,
    /// The event loop of asyncio gets a result.
    Future,
    /// A user resumes it in the debugger.
    Breakpoint,
    /// Unknown.
    Other,
}

/// How the descriptions of waits begin, and their kinds. The first that fits counts.
const WAIT_KINDS: &[(&str, WaitKind)] = &[
    ("torch.distributed", WaitKind::Group),
    ("the rendezvous of torch", WaitKind::Group),
    ("DistributedDataParallel", WaitKind::Group),
    ("horovod.", WaitKind::Group),
    ("ray.util.collective.", WaitKind::Group),
    ("ray.train.report", WaitKind::Group),
    ("gloo", WaitKind::Group),
    ("NCCL", WaitKind::Group),
    ("torch.cuda", WaitKind::Device),
    ("the backward pass of torch", WaitKind::Device),
    ("a Future of torch", WaitKind::Device),
    ("CUDA", WaitKind::Device),
    ("ray.get", WaitKind::Object),
    ("ray.wait", WaitKind::Object),
    ("ray.util.queue.", WaitKind::Object),
    ("breakpoint()", WaitKind::Breakpoint),
    ("time.sleep", WaitKind::Sleep),
    ("a child process", WaitKind::Child),
    ("the end of a process", WaitKind::Child),
    ("the next batch of a DataLoader", WaitKind::Batch),
    ("queue.Queue.", WaitKind::Queue),
    ("multiprocessing.Queue.", WaitKind::Queue),
    ("a connection of multiprocessing", WaitKind::Connection),
    ("a multiprocessing.Pool", WaitKind::Queue),
    ("a read", WaitKind::Queue),
    ("a write", WaitKind::Queue),
    ("a channel of a compiled graph", WaitKind::Peer),
    ("an answer of ", WaitKind::Peer),
    ("a socket", WaitKind::Peer),
    ("socket.", WaitKind::Peer),
    ("a lock of multiprocessing", WaitKind::Thread),
    ("threading.", WaitKind::Thread),
    ("a Semaphore", WaitKind::Thread),
    ("a Condition", WaitKind::Thread),
    ("the end of a thread", WaitKind::Thread),
    ("the next task of a thread pool", WaitKind::Thread),
    ("a Future of asyncio", WaitKind::Future),
    ("a Future", WaitKind::Thread),
    ("the event loop of asyncio", WaitKind::Future),
    ("asyncio.", WaitKind::Future),
    ("an Event, a lock", WaitKind::Future),
    ("a stream of asyncio", WaitKind::Future),
    ("the end of an asyncio", WaitKind::Future),
    // Python and C use the same system call for a lock.
    ("a lock", WaitKind::Other),
    ("a file lock", WaitKind::FileLock),
    ("poll", WaitKind::Other),
    ("select", WaitKind::Other),
];

impl WaitKind {
    /// Returns the kind of the wait that is described by `waits`.
    pub(super) fn of(waits: &str) -> Self {
        let found = WAIT_KINDS
            .iter()
            .find(|(start, _)| waits.starts_with(start));
        found.map_or(Self::Other, |(_, kind)| *kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_known_wait_has_a_kind() {
        let native = NATIVE_WAITS.iter().map(|(_, words)| words);
        for words in KNOWN_WAITS.iter().map(|(_, _, words)| words).chain(native) {
            let starts = |(start, _): &&(&str, WaitKind)| words.starts_with(start);
            assert!(WAIT_KINDS.iter().any(|one| starts(&one)), "{words}");
        }
        assert_eq!(
            WaitKind::of("torch.distributed.all_reduce"),
            WaitKind::Group
        );
        assert_eq!(WaitKind::of("ray.get"), WaitKind::Object);
        assert_eq!(WaitKind::of("a Future of asyncio"), WaitKind::Future);
        assert_eq!(WaitKind::of("whatever"), WaitKind::Other);
    }
}
