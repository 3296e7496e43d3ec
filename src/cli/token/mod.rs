//! `ray-relay token`: keys and tokens of a relay, without any server.
//!
//! `keygen` and `mint` need no relay and no network. `inspect` shows a token's claims without showing the token, and
//! `revoke` appends to the file that relays watch. Tokens come from standard input if possible, because all users can
//! see the arguments of a process.

mod input;
mod inspect;
mod keygen;
mod mint;
mod revoke;

use clap::{Args, Subcommand};

use self::inspect::InspectArgs;
use self::keygen::KeygenArgs;
use self::mint::MintArgs;
use self::revoke::RevokeArgs;
use super::failure::Failure;

pub(super) const AFTER_HELP: &str = "\
A relay that wants tokens, from nothing:
  ray-relay token keygen ~/relay-keys
      relay.key signs tokens: keep it. relay.pub is for the relay.
  ray-relay serve --auth-key ~/relay-keys/relay.pub
      from now on every client needs a token, so any --listen address is allowed; tokens travel in clear there unless the relay has a certificate
  ray-relay token mint --key ~/relay-keys/relay.key --sub ann \\
      --scope list,debug,terminal,dashboard:read --ttl 36h > ann.token
      give ann.token to Ann
  RAY_RELAY_TOKEN=$(cat ann.token) ray-relay list --relay http://relay.example.com:5678
      or as \"rayRelay\": {\"token\": ...} in a debug configuration, RAY_AUTH_TOKEN for Ray's own tools
  ray-relay token revoke --sub ann --file /var/lib/ray-relay/revoked.jsonl
      ends all that Ann has, live sessions too, where that file is auth.revocations_file

Scopes:
  list             see breakpoints in lists and events
  view             attach a debugger and look: threads, stack, variables, source; not list
  debug            attach a debugger and do everything but end the process; includes view, and not
                   list
  attach           with debug: open a debugger in a task that runs and never called breakpoint();
                   in no other scope
  terminal         the prompt of a terminal on a breakpoint
  dashboard:read   read the Ray dashboard and its API
  dashboard:write  submit and stop jobs through it; includes dashboard:read
  admin            all users' sessions; narrowed by nothing also the relay itself: metrics,
                   revocation
  terminate        end a worker process from a debugger; in no other scope
  node             speak for Ray nodes as their agent (`ray-relay node`): those that --node names, or
                   the one from whose address it connects";

/// `token`
#[derive(Debug, Args)]
pub struct TokenArgs {
    /// The subcommand.
    #[command(subcommand)]
    pub command: TokenCommand,
}

/// The commands of `token`.
#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Make a key pair: one half signs tokens, the other is for the relay
    #[command(after_help = keygen::AFTER_HELP)]
    Keygen(KeygenArgs),
    /// Print a new token
    #[command(after_help = mint::AFTER_HELP)]
    Mint(MintArgs),
    /// Show what a token says and whether a relay would take it; never the token itself
    #[command(after_help = inspect::AFTER_HELP)]
    Inspect(InspectArgs),
    /// Revoke a token, or all of a subject's tokens
    #[command(after_help = revoke::AFTER_HELP)]
    Revoke(RevokeArgs),
}

pub(super) fn run(args: TokenArgs) -> Result<(), Failure> {
    match args.command {
        TokenCommand::Keygen(args) => keygen::run(&args),
        TokenCommand::Mint(args) => mint::run(&args),
        TokenCommand::Inspect(args) => inspect::run(args),
        TokenCommand::Revoke(args) => revoke::run(args),
    }
}
