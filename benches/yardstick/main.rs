//! Measures the relay on every path of bytes and requests, in one table: `cargo bench --bench yardstick`.
//!
//! `benches/README.md` describes the rows and the handling of noise. A family of rows is a file in `families`;
//! `harness` runs them, and `stand_in` is the Ray cluster behind all contestants.

mod families;
mod harness;
mod stand_in;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use harness::contest::Contest;
use harness::table::Table;
use harness::yard::Yard;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// The relay's performance, compared with HAProxy and a direct connection.
#[derive(Debug, Parser)]
struct Options {
    /// The number of rounds; the table has medians.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// These families of rows alone, separated by commas.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Writes every figure of every round to this file too.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Everything once and small: whether the benchmark runs. The figures say nothing.
    #[arg(long)]
    short: bool,
    /// 10,000 idle sessions too.
    #[arg(long)]
    full: bool,
    /// Set by `cargo bench`, but not by `cargo test --benches`.
    #[arg(long, hide = true)]
    bench: bool,
    /// Be the cluster of this size behind the contestants.
    #[arg(long, hide = true)]
    stand_in: Option<String>,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("yardstick: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<()> {
    harness::process::raise_limit_of_open_files();
    if let Some(size) = &options.stand_in {
        return stand_in::serve(size);
    }
    if !options.bench && !options.short {
        println!("run this as: cargo bench --bench yardstick");
        return Ok(());
    }
    let unknown = |name: &&String| !families::NAMES.contains(&name.as_str());
    if let Some(name) = options.only.iter().find(unknown) {
        let known = families::NAMES.join(", ");
        return Err(format!("there are no rows called {name}: there are {known}").into());
    }
    let yard = Yard::new(options)?;
    let mut contest = Contest {
        yard: &yard,
        only: &options.only,
        table: Table::default(),
        failed: 0,
    };
    // Ends before the process does; the runtime of the clients is this thread.
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(families::run(&mut contest));
    let Contest { table, failed, .. } = contest;
    harness::process::stay_off_the_core(false)?;
    harness::report::print(&yard, &table);
    if let Some(file) = &options.json {
        std::fs::write(file, harness::report::json(&yard, &table).to_string())?;
    }
    match failed {
        0 => Ok(()),
        count => Err(format!("{count} could not be measured, as said above").into()),
    }
}
