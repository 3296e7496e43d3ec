//! `ray-relay`: its allocator. Everything else is in the library.
#![warn(clippy::disallowed_methods)]

use std::process::ExitCode;

use mimalloc::MiMalloc;

/// glibc's allocator keeps what it was given once: of the 154 MiB (in another run 114) that 2,500 sessions at a time took,
/// 146 (114) stayed when they were gone; of mimalloc's 127 (123) MiB 39 (42) stayed, for 3 MiB more at rest and no more
/// processor time (release build, VmHWM and VmRSS). `no_thp` keeps it from asking for huge pages, which cost 20 MiB at rest.
/// `v2`, because version 3 of it keeps half of what 9,800 idle sessions took (42 MiB) and version 2 gives it back but for
/// 1 MiB; a session costs 5.9 KiB with version 2, and 8.7 with 3 (`cargo bench --bench yardstick -- --only idle --full`).
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    ray_relay::cli::main()
}
