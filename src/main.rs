//! `ray-relay`: arguments, the command, the exit code. Everything else is in the library.
#![warn(clippy::disallowed_methods)]

use std::process::ExitCode;

use clap::Parser;
use ray_relay::cli::{self, Cli};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(answer) => return cli::answer(&answer),
    };
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("ray-relay: cannot start the runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    let result = runtime.block_on(cli::run(cli));
    // A look-up of a host name that hangs in the system's resolver must not hold up the exit.
    runtime.shutdown_background();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => cli::report(&error),
    }
}
