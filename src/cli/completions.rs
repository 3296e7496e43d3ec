//! `ray-relay completions`: scripts for the shells that clap knows.

use std::io::{self, Write};

use clap::CommandFactory;

use super::{Cli, CompletionsArgs, Error};

pub(super) const AFTER_HELP: &str = "\
Examples:
  ray-relay completions bash > ~/.local/share/bash-completion/completions/ray-relay
  ray-relay completions zsh > \"${fpath[1]}/_ray-relay\"
  ray-relay completions fish > ~/.config/fish/completions/ray-relay.fish

Open a new shell afterwards.";

pub(super) fn run(args: &CompletionsArgs) -> Result<(), Error> {
    // Made in memory: clap_complete panics where the stream that it writes to is gone.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "ray-relay", &mut script);
    io::stdout().write_all(&script)?;
    Ok(())
}
