//! `ray-relay man`: writes the manual pages that packages install.

use std::path::PathBuf;

use clap::{Args, Command};

use super::Failure;

/// `man`
#[derive(Debug, Args)]
pub struct ManArgs {
    /// Folder that gets the pages, one for each command
    #[arg(value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub dir: PathBuf,
}

pub(super) fn run(args: &ManArgs, of: Command) -> Result<(), Failure> {
    std::fs::create_dir_all(&args.dir)?;
    Ok(clap_mangen::generate_to(of, &args.dir)?)
}
