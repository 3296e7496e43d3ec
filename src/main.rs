//! `ray-relay`: its allocator. Everything else is in the library.
#![warn(clippy::disallowed_methods)]

use std::process::ExitCode;

use mimalloc::MiMalloc;

/// glibc's allocator retains its peak: of the 154 MiB (in another run 114) for 2,500 concurrent sessions, 146 (114)
/// remained after they ended. Of mimalloc's 127 (123) MiB, 39 (42) remained, at the cost of 3 MiB more at rest and no
/// more CPU time (release build, VmHWM and VmRSS). `no_thp` disables huge pages, which cost 20 MiB at rest. `v2`,
/// because version 3 retains half of the memory of 9,800 idle sessions (42 MiB), and version 2 releases all but 1 MiB.
/// A session costs 5.9 KiB with version 2, and 8.7 with 3 (`cargo bench --bench yardstick -- --only idle --full`).
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    ray_relay::cli::main()
}
