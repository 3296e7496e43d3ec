//! The command line: types that clap fills, and one file for each command.
//!
//! [`main`] parses into [`Cli`], runs its command, and turns a failure into text and an exit code.
//! Commands write their result to standard output and everything else to standard error, so that
//! `| jq` and `> file` always work.

mod audit;
mod breakpoint;
mod cert;
mod client_args;
mod completions;
mod config;
mod connect;
mod credential;
mod dap;
mod debug;
mod demo;
mod deploy;
mod diff;
mod doctor;
mod editor_link;
mod exec;
mod failure;
mod help;
mod hook;
mod job;
mod keeper;
mod kube;
mod launch_config;
mod lines;
mod list;
mod man;
mod members;
mod node;
mod park;
mod program;
mod relay_args;
mod relay_client;
mod relay_dial;
mod relay_tls;
mod relay_token;
mod release;
mod reverse;
mod serve;
mod sessions;
mod snapshot;
mod sse;
mod tasks;
mod terminal;
mod token;
mod token_command;
mod trace;
mod why;
mod worker_session;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

pub use audit::AuditArgs;
pub use breakpoint::BreakArgs;
pub use client_args::{
    DapArgs, DebugArgs, DoctorArgs, Editor, ExecArgs, LaunchConfigArgs, ListArgs, ParkArgs,
    ReleaseArgs, SnapshotArgs,
};
pub use completions::CompletionsArgs;
pub use config::ConfigCommand;
pub use connect::ConnectArgs;
pub use diff::DiffArgs;
pub use help::HelpArgs;
pub use kube::KubeArgs;
pub use man::ManArgs;
pub use members::MembersArgs;
pub use ray_relay_base::config::Flags;
pub use ray_relay_view::listing::select::{BadChoice, Filter, Order};
pub use relay_args::RelayArgs;
pub use relay_tls::RelayTlsArgs;
pub use relay_token::RelayTokenArgs;
pub use reverse::ReverseArgs;
pub use sessions::SessionsArgs;
pub use tasks::TasksArgs;
pub use token::TokenArgs;
pub use trace::TraceArgs;
pub use why::WhyArgs;

use failure::Failure;
use relay_args::{RELAY_BY_DEFAULT, RELAY_VARIABLE};

const AFTER_HELP: &str = "\
Start:
  On the head of a Ray cluster, or anywhere that reaches port 8265 and the nodes:
    ray-relay serve --ray-address http://127.0.0.1:8265
  On a laptop, where the relay runs in Kubernetes (in place of `kubectl port-forward`):
    ray-relay connect --kube -n NAMESPACE
  or, where the relay has an address of its own:
    ray-relay connect https://ray-relay.example.com --token-file TOKEN
  Then see what waits at a breakpoint, and debug it at a prompt or in your editor:
    ray-relay debug
    ray-relay launch-config vscode
  And read on (`ray-relay help` lists the pages):
    ray-relay help operate

Environment:
  RAY_RELAY_CONFIG              configuration file of serve and config check
  RAY_RELAY_RAY_ADDRESS         Ray heads, separated by commas, each URL or NAME=URL
  RAY_RELAY_AUTH_REVOCATIONS_FILE
                                where `token revoke` writes and serve reads
  RAY_RELAY_<SECTION>_<KEY>     any other key of the configuration, e.g. RAY_RELAY_LISTEN_ADDRESS
  RAY_RELAY_URL                 the relay that list, debug and the other client commands talk to
  KUBECONFIG                    the kubeconfig by which they find one with --kube
  RAY_RELAY_CA_FILE             authorities to trust for it, instead of the system's
  RAY_RELAY_TOKEN               the token for it, where it wants one; --token-file goes before
  RAY_RELAY_TOKEN_COMMAND       a command that prints it, which goes before RAY_RELAY_TOKEN
  RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH
                                Ray's own token, as Ray itself looks for it
  HTTPS_PROXY, HTTP_PROXY, ALL_PROXY, NO_PROXY
                                the proxy before it, http://HOST:PORT, and what goes without
  NO_COLOR                      no colours

Exit codes:
  0  done        1  failed        2  wrong usage
  66 there is no such task, session or job (any more)
  69 the relay, or the task's debugger, cannot be reached
  70 a part of the relay itself has ended (a defect)
  77 the relay wants a token, or the token does not permit it
  78 the configuration is wrong";

/// Details of this build from build.rs, for `--version`; `-V` prints only the version.
const LONG_VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    " (",
    env!("BUILD_DESCRIPTION"),
    ")"
);

/// One port into every paused Ray task.
///
/// A Ray task that stops at breakpoint() waits for a debugger on an address that only the cluster
/// can reach. ray-relay runs inside the cluster, keeps a live list of every paused task, and lets
/// any debugger attach to them through one stable port.
#[derive(Debug, Parser)]
#[command(name = "ray-relay", version, long_version = LONG_VERSION, after_help = AFTER_HELP)]
#[command(
    arg_required_else_help = true,
    subcommand_required = true,
    infer_subcommands = false,
    disable_help_subcommand = true,
    max_term_width = 100
)]
pub struct Cli {
    /// The subcommand.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the relay
    #[command(after_help = serve::AFTER_HELP)]
    Serve(Flags),
    /// Be a Ray node's agent, through which relays reach its debuggers
    #[command(after_help = node::AFTER_HELP)]
    Node(node::NodeArgs),
    /// Keep the sessions of a killed relay for the next one
    #[command(after_help = keeper::AFTER_HELP)]
    Keeper(keeper::KeeperArgs),
    /// Check or explain a configuration, make a certificate
    #[command(subcommand)]
    Config(ConfigCommand),
    /// List the tasks that wait at a breakpoint
    #[command(after_help = list::AFTER_HELP)]
    List(ListArgs),
    /// Name the task that holds a job up, and say why
    #[command(after_help = why::AFTER_HELP)]
    Why(WhyArgs),
    /// List what runs, and find what hangs
    #[command(after_help = tasks::AFTER_HELP)]
    Tasks(TasksArgs),
    /// Stop on a line in all workers of a running job
    #[command(after_help = breakpoint::AFTER_HELP)]
    Break(BreakArgs),
    /// Print log messages of a line in all workers of a running job
    #[command(after_help = trace::AFTER_HELP)]
    Trace(TraceArgs),
    /// Check each link from here to the tasks, and name what is broken
    #[command(after_help = doctor::AFTER_HELP)]
    Doctor(DoctorArgs),
    /// Print a ready debug configuration for an editor
    #[command(after_help = launch_config::AFTER_HELP)]
    LaunchConfig(LaunchConfigArgs),
    /// Debug paused tasks at a pdb prompt
    #[command(after_help = debug::AFTER_HELP)]
    Debug(DebugArgs),
    /// Run pdb commands in a paused task, for scripts
    #[command(after_help = exec::AFTER_HELP)]
    Exec(ExecArgs),
    /// Print stacks and variables of paused tasks, or of all that run
    #[command(after_help = snapshot::AFTER_HELP)]
    Snapshot(SnapshotArgs),
    /// Print what differs between paused tasks that run the same
    #[command(after_help = diff::AFTER_HELP)]
    Diff(DiffArgs),
    /// Keep a paused task where it is, for you to go on with later
    #[command(after_help = park::AFTER_HELP)]
    Park(ParkArgs),
    /// Let paused tasks run on without attaching to each
    #[command(after_help = release::AFTER_HELP)]
    Release(ReleaseArgs),
    /// Show who debugs what, and end a session
    #[command(after_help = sessions::AFTER_HELP)]
    Sessions(Box<SessionsArgs>),
    /// Lead workers that dial out to a debugger on this machine
    #[command(after_help = reverse::AFTER_HELP)]
    Reverse(ReverseArgs),
    /// Forward a local port to the relay, across lost networks
    #[command(after_help = connect::AFTER_HELP)]
    Connect(Box<ConnectArgs>),
    /// Be a debug adapter on standard input and output
    #[command(after_help = dap::AFTER_HELP)]
    Dap(DapArgs),
    /// Start a small Ray cluster with paused tasks, and the relay
    #[command(after_help = demo::AFTER_HELP)]
    Demo(crate::demo::DemoArgs),
    /// Put an agent on every node of a cluster, by Ray's Jobs API
    #[command(after_help = deploy::AFTER_HELP)]
    Deploy(crate::deploy::DeployArgs),
    /// What `deploy` has the cluster run
    #[command(hide = true)]
    Deployed(crate::deploy::DeployedArgs),
    /// Print Python that keeps workers' debug ports on loopback
    #[command(after_help = hook::AFTER_HELP)]
    Hook,
    /// Make keys and tokens, show and revoke tokens
    #[command(after_help = token::AFTER_HELP)]
    Token(TokenArgs),
    /// Verify and read what a relay has recorded
    #[command(after_help = audit::AFTER_HELP)]
    Audit(AuditArgs),
    /// Print a completion script for a shell
    #[command(after_help = completions::AFTER_HELP)]
    Completions(CompletionsArgs),
    /// Print a page of the documentation, or the help of a command
    #[command(after_help = help::AFTER_HELP)]
    Help(help::HelpArgs),
    /// Write the manual pages, for a package
    #[command(hide = true)]
    Man(ManArgs),
}

/// The whole program: arguments, the command, the exit code.
///
/// It is here, and not in the binary's own crate, because generic code is compiled where it is used. A `block_on` there
/// would compile the whole program a second time (43 s of the 5m 33s that a cold `cargo build --release` took on two
/// cores).
pub fn main() -> ExitCode {
    if completions::answered(Cli::command) {
        return ExitCode::SUCCESS;
    }
    let parsed = program::command().try_get_matches();
    let parsed = parsed.and_then(|matches| Ok((Cli::from_arg_matches(&matches)?, matches)));
    let (mut cli, matches) = match parsed {
        Ok(parsed) => parsed,
        Err(answer) => return failure::answer(&answer),
    };
    if let Err(failure) = cli.settle(program::is_plugin(), program::names_relay(&matches)) {
        return failure.report();
    }
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("ray-relay: cannot start the runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    let result = runtime.block_on(run(cli));
    // A name lookup that hangs in the system's resolver must not delay the exit.
    runtime.shutdown_background();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) if program::is_plugin() => failure.hinting(program::typed).report(),
        Err(failure) => failure.report(),
    }
}

impl Cli {
    /// Decides whether to look for the relay in Kubernetes, if the command line leaves that open. `named`: it names a
    /// relay.
    fn settle(&mut self, is_plugin: bool, named: bool) -> Result<(), Failure> {
        let Some(kube) = self.command.kube() else {
            return Ok(());
        };
        if kube.is_requested() && named {
            return Err(kube::Contradiction.into());
        }
        kube.kube |= is_plugin && !named;
        Ok(())
    }
}

impl Command {
    /// The Kubernetes options, for commands that contact a relay.
    fn kube(&mut self) -> Option<&mut KubeArgs> {
        Some(match self {
            Self::Connect(args) => &mut args.kube,
            Self::Doctor(args) => &mut args.relay.kube,
            Self::Dap(args) => &mut args.relay.kube,
            command => &mut command.relay()?.kube,
        })
    }

    /// The relay that the command contacts, for commands that do nothing before.
    fn relay(&mut self) -> Option<&mut RelayArgs> {
        Some(match self {
            Self::List(args) => &mut args.relay,
            Self::Tasks(args) => &mut args.relay,
            Self::Debug(args) => &mut args.relay,
            Self::Exec(args) => &mut args.relay,
            Self::Snapshot(args) => &mut args.relay,
            Self::Why(args) if args.file.is_none() => &mut args.relay,
            Self::Break(args) => &mut args.line.relay,
            Self::Trace(args) => &mut args.line.relay,
            Self::Diff(args) => &mut args.relay,
            Self::Park(args) => &mut args.relay,
            Self::Release(args) => &mut args.relay,
            Self::Sessions(args) => args.relay(),
            Self::Reverse(args) => &mut args.relay,
            _ => return None,
        })
    }
}

async fn run(mut cli: Cli) -> Result<(), Failure> {
    if let Some(relay) = cli.command.relay() {
        Box::pin(relay.reach()).await?;
    }
    match cli.command {
        Command::Serve(args) => Box::pin(serve::run(args)).await,
        Command::Node(args) => Box::pin(node::run(args)).await,
        Command::Keeper(args) => keeper::run(args).await,
        Command::Config(command) => config::run(command),
        Command::List(args) => list::run(args).await,
        Command::Tasks(args) => tasks::run(args).await,
        Command::Why(args) => why::run(args).await,
        Command::Break(args) => breakpoint::run(args).await,
        Command::Trace(args) => trace::run(args).await,
        Command::Doctor(args) => Box::pin(doctor::run(args)).await,
        Command::LaunchConfig(args) => Box::pin(launch_config::run(&args)).await,
        Command::Debug(args) if args.is_for_several() => Box::pin(debug::all::run(args)).await,
        Command::Debug(args) => debug::run(args).await,
        Command::Exec(args) if args.is_for_several() => exec::several::run(args).await,
        Command::Exec(args) => exec::run(args).await,
        Command::Snapshot(args) => snapshot::run(args).await,
        Command::Diff(args) => diff::run(args).await,
        Command::Park(args) => park::run(args).await,
        Command::Release(args) => release::run(args).await,
        Command::Sessions(args) => sessions::run(*args).await,
        Command::Reverse(args) => Box::pin(reverse::run(args)).await,
        Command::Connect(args) => Box::pin(connect::run(*args)).await,
        Command::Dap(args) => dap::run(args).await,
        Command::Demo(args) => demo::run(args).await,
        Command::Deploy(args) => deploy::run(args).await,
        Command::Deployed(args) => Ok(crate::deploy::run_deployed(args)?),
        Command::Hook => hook::run(),
        Command::Token(args) => token::run(args),
        Command::Audit(args) => audit::run(args).await,
        Command::Completions(args) => completions::run(&args),
        Command::Help(args) => help::run(&args),
        Command::Man(args) => man::run(&args, Cli::command()),
    }
}
