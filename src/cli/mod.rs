//! The command line: types that clap fills, and one file for each command.
//!
//! `main` parses into [`Cli`], calls [`run`], and turns an [`Error`] into text and an exit code
//! with [`report`]. Commands write their result to standard output and everything else to
//! standard error, so that `| jq` and `> file` always work.

mod audit;
mod cert;
mod check_config;
mod completions;
mod config;
mod connect;
mod dap;
mod debug;
mod demo;
mod deploy;
mod doctor;
mod error;
mod exec;
mod health;
mod hook;
mod launch_config;
mod list;
mod man;
mod node;
mod proxy;
mod relay_client;
mod relay_dial;
mod relay_tls;
mod relay_token;
mod release;
mod reverse;
mod serve;
mod snapshot;
mod sse;
mod terminal;
mod token;
mod token_command;
mod worker_session;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::ArgValueCompleter;

pub use crate::listing::select::{BadChoice, Filter, Order};
pub use crate::wire::relay_url::RelayUrl;
pub use audit::{AuditArgs, AuditError};
pub use completions::answered as answered_a_shell;
pub use config::ConfigCommand;
pub use connect::{ConnectArgs, ConnectError};
pub use error::{Error, answer, report};
pub use launch_config::Editor;
pub use man::ManArgs;
pub use relay_tls::RelayTlsArgs;
pub use relay_token::RelayTokenArgs;
pub use reverse::{ReverseArgs, ReverseError};
pub use token::{TokenArgs, TokenError};

use crate::config::Flags;

const AFTER_HELP: &str = "\
Start:
  On the head of a Ray cluster, or anywhere that reaches port 8265 and the nodes:
    ray-relay serve --ray-address http://127.0.0.1:8265
  On a laptop, where the relay runs in Kubernetes:
    kubectl port-forward svc/ray-relay 5678
  or, where the relay has an address of its own:
    ray-relay connect https://ray-relay.example.com --token-file TOKEN
  Then see what waits at a breakpoint, and debug it at a prompt or in your editor:
    ray-relay debug
    ray-relay launch-config vscode

Environment:
  RAY_RELAY_CONFIG              configuration file of serve and check-config
  RAY_RELAY_RAY_ADDRESS         Ray heads, separated by commas, each URL or NAME=URL
  RAY_RELAY_AUTH_REVOCATIONS_FILE
                                where `token revoke` writes and serve reads
  RAY_RELAY_<SECTION>_<KEY>     any other key of the configuration, e.g. RAY_RELAY_LISTEN_ADDRESS
  RAY_RELAY_URL                 the relay that list, debug and the other client commands talk to
  RAY_RELAY_CA_FILE             authorities to trust for it, instead of the system's
  RAY_RELAY_TOKEN               the token for it, where it wants one; --token-file goes before
  RAY_RELAY_TOKEN_COMMAND       a command that prints it, which goes before RAY_RELAY_TOKEN
  RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH
                                Ray's own token, as Ray itself looks for it
  NO_COLOR                      no colours

Exit codes:
  0  done        1  failed        2  wrong usage
  69 the relay, or the task's debugger, cannot be reached
  70 a part of the relay itself has ended (a defect)
  78 the configuration is wrong
  77 the relay wants a token, or the token does not permit it";

/// What build.rs knows of this build, for `--version`; `-V` is the version alone.
const LONG_VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    " (",
    env!("RAY_RELAY_BUILD"),
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
    max_term_width = 100
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the relay
    #[command(after_help = serve::AFTER_HELP)]
    Serve(ConfigArgs),
    /// Be a Ray node's agent, through which relays reach its debuggers
    #[command(after_help = node::AFTER_HELP)]
    Node(node::NodeArgs),
    /// Check a configuration: every problem at once, or what it comes to
    #[command(after_help = check_config::AFTER_HELP)]
    CheckConfig(CheckConfigArgs),
    /// Say what the keys of the configuration mean
    #[command(subcommand)]
    Config(ConfigCommand),
    /// List the tasks that wait at a breakpoint
    #[command(after_help = list::AFTER_HELP)]
    List(ListArgs),
    /// Look at each link from here to the debuggers of paused tasks, and name what is broken
    #[command(after_help = doctor::AFTER_HELP)]
    Doctor(DoctorArgs),
    /// Ask whether a relay answers, for a container's health check
    #[command(after_help = health::AFTER_HELP)]
    Health(RelayArgs),
    /// Print a ready debug configuration for an editor
    #[command(after_help = launch_config::AFTER_HELP)]
    LaunchConfig(LaunchConfigArgs),
    /// Make a certificate for a first try with TLS
    #[command(after_help = cert::AFTER_HELP)]
    Cert(cert::CertArgs),
    /// Debug paused tasks at a pdb prompt
    #[command(after_help = debug::AFTER_HELP)]
    Debug(DebugArgs),
    /// Run pdb commands in a paused task, for scripts
    #[command(after_help = exec::AFTER_HELP)]
    Exec(ExecArgs),
    /// Print stack and variables of paused tasks, which stay paused
    #[command(after_help = snapshot::AFTER_HELP)]
    Snapshot(SnapshotArgs),
    /// Let paused tasks run on without attaching to each
    #[command(after_help = release::AFTER_HELP)]
    Release(ReleaseArgs),
    /// Take workers that dial out to a debugger that listens on this machine
    #[command(after_help = reverse::AFTER_HELP)]
    Reverse(ReverseArgs),
    /// Have the relay on a port of this machine, through whatever the network does
    #[command(after_help = connect::AFTER_HELP)]
    Connect(ConnectArgs),
    /// Be a debug adapter on standard input and output, for editors that start one
    #[command(after_help = dap::AFTER_HELP)]
    Dap(DapArgs),
    /// Start a small real Ray cluster with tasks at breakpoints, and the relay in front of it
    #[command(after_help = demo::AFTER_HELP)]
    Demo(crate::demo::Args),
    /// Put an agent on every node of a cluster, through Ray's own Jobs API
    #[command(after_help = deploy::AFTER_HELP)]
    Deploy(crate::deploy::Args),
    /// What `deploy` has the cluster run
    #[command(hide = true)]
    Deployed(crate::deploy::DeployedArgs),
    /// Print Python that keeps the debug ports of Ray's workers on loopback
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
    /// Write the manual pages, for a package
    #[command(hide = true)]
    Man(ManArgs),
}

/// Where the configuration comes from: file < environment < these flags.
#[derive(Debug, Args, Default)]
pub struct ConfigArgs {
    /// TOML file to read; without it the defaults apply [env: RAY_RELAY_CONFIG]
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub config: Option<PathBuf>,
    /// Dashboard of a Ray head, port 8265 unless given; once for each cluster
    /// [env: RAY_RELAY_RAY_ADDRESS] [default: http://127.0.0.1:8265]
    #[arg(long, value_name = "URL|NAME=URL", value_hint = clap::ValueHint::Url)]
    pub ray_address: Vec<String>,
    /// The one port [env: RAY_RELAY_LISTEN_ADDRESS] [default: 127.0.0.1:5678]
    #[arg(long, value_name = "ADDR:PORT")]
    pub listen: Option<String>,
    /// Unix socket: take the port over from the relay that listens there, which serves its sessions to
    /// their end; then listen there for a successor [env: RAY_RELAY_LISTEN_TAKEOVER]
    #[arg(long, value_name = "PATH", value_hint = clap::ValueHint::FilePath)]
    pub takeover: Option<String>,
    /// Allow an address that other machines can reach, although nobody is authenticated: whoever
    /// reaches the port can run code in every paused task
    #[arg(long)]
    pub insecure_no_auth: bool,
    /// File with a key that tokens are verified with: a PEM public key, or hs256: and a secret; once
    /// for each key. Nobody is served without a token then, and any address may be listened on
    /// [env: RAY_RELAY_AUTH_KEYS]
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub auth_key: Vec<String>,
    /// Certificate of the relay, PEM, with its intermediate ones: TLS on the one port
    /// [env: RAY_RELAY_TLS_CERT_FILE]
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub tls_cert: Option<String>,
    /// Its private key, PEM [env: RAY_RELAY_TLS_KEY_FILE]
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub tls_key: Option<String>,
    /// How breakpoints are told apart in the dashboard's answers
    /// [env: RAY_RELAY_ADVERTISE_MODE] [default: single]
    #[arg(long, value_name = "MODE", value_enum)]
    pub advertise: Option<AdvertiseMode>,
    /// Level or filter, such as debug or ray_relay::dap=debug,info
    /// [env: RAY_RELAY_LOG_LEVEL] [default: info]
    #[arg(long, value_name = "FILTER")]
    pub log_level: Option<String>,
    /// Form of log lines [env: RAY_RELAY_LOG_FORMAT] [default: text]
    #[arg(long, value_name = "FORMAT", value_enum)]
    pub log_format: Option<LogFormat>,
}

impl From<ConfigArgs> for Flags {
    fn from(args: ConfigArgs) -> Self {
        let word = |value: &dyn Fn() -> Option<clap::builder::PossibleValue>| {
            value().map(|value| value.get_name().to_owned())
        };
        Self {
            advertise: word(&|| args.advertise.and_then(|mode| mode.to_possible_value())),
            log_format: word(&|| {
                args.log_format
                    .and_then(|format| format.to_possible_value())
            }),
            config: args.config,
            ray_address: args.ray_address,
            listen: args.listen,
            takeover: args.takeover,
            auth_key: args.auth_key,
            insecure_no_auth: args.insecure_no_auth,
            tls_cert: args.tls_cert,
            tls_key: args.tls_key,
            log_level: args.log_level,
        }
    }
}

/// Values of `--advertise`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AdvertiseMode {
    /// One host and port; the host is spelled differently for each breakpoint
    Single,
    /// A port of advertise.ports for each breakpoint
    Ports,
    /// A host name from advertise.host for each breakpoint (needs wildcard DNS)
    Host,
}

/// Values of `--log-format`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people
    Text,
    /// One JSON object a line
    Json,
}

/// `check-config`
#[derive(Debug, Args)]
pub struct CheckConfigArgs {
    /// The same flags as `serve`.
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Policy file to check, instead of the one that the configuration names
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub policy: Option<PathBuf>,
    /// Print JSON: {"settings": [...], "policy": {...} or null} or {"problems": [...]}
    #[arg(long)]
    pub json: bool,
}

/// Where the environment may name the relay.
const RELAY_VARIABLE: &str = "RAY_RELAY_URL";

/// The relay where nobody names one.
const RELAY_BY_DEFAULT: &str = "http://127.0.0.1:5678";

/// Which relay a client command talks to.
#[derive(Debug, Clone, Args)]
pub struct RelayArgs {
    /// The relay to ask
    #[arg(
        long,
        value_name = "URL",
        env = RELAY_VARIABLE,
        hide_env_values = true
    )]
    #[arg(default_value = RELAY_BY_DEFAULT, value_hint = clap::ValueHint::Url)]
    pub relay: RelayUrl,
    /// How to speak TLS with it.
    #[command(flatten)]
    pub tls: RelayTlsArgs,
    /// What to show it.
    #[command(flatten)]
    pub token: RelayTokenArgs,
}

/// `list`
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Stay, and show changes as they happen; ends with Ctrl-C
    #[arg(long, short)]
    pub watch: bool,
    /// Print JSON: the relay's answer, with --watch one object a line
    #[arg(long)]
    pub json: bool,
    /// Also show breakpoints that ended a short while ago
    #[arg(long)]
    pub ended: bool,
    /// Also show the Ray nodes, each with its agent
    #[arg(long, short, conflicts_with = "watch")]
    pub verbose: bool,
    /// Sort by this column, with ,desc the other way round: waiting, name, job, node, ...
    #[arg(long, value_name = "KEY[,desc]")]
    pub sort: Option<Order>,
    /// Show only what fits: a part of a name or id, a pattern such as 'train*', or KEY=PATTERN; may be repeated
    #[arg(long, value_name = "PATTERN")]
    pub filter: Vec<Filter>,
    /// How the relay is reached.
    #[command(flatten)]
    pub relay: RelayArgs,
}

/// `doctor`
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Print JSON: {"relay": URL, "findings": [{"link", "severity", "says", "next", "exit_code"}], "exit_code": N}
    #[arg(long)]
    pub json: bool,
    /// How the relay is reached.
    #[command(flatten)]
    pub relay: RelayArgs,
}

/// `launch-config`
#[derive(Debug, Args)]
pub struct LaunchConfigArgs {
    /// The editor
    #[arg(value_enum, default_value_t = Editor::Vscode)]
    pub editor: Editor,
    /// Attach to this breakpoint alone, by its id in `ray-relay list`
    #[arg(long, add = tasks(), value_name = "ID")]
    pub breakpoint: Option<crate::ray::registry::BreakpointId>,
    /// How the relay is reached.
    #[command(flatten)]
    pub relay: RelayArgs,
}

/// `debug`
#[derive(Debug, Args)]
pub struct DebugArgs {
    /// Debug this one: its id or name, as in `ray-relay list`, or its index in the list of `ray-relay debug`; with
    /// --next a pattern such as 'train*'
    #[arg(add = tasks(), value_name = "ID|INDEX|NAME")]
    pub target: Option<String>,
    /// Wait for the next task that stops
    #[arg(long)]
    pub next: bool,
    /// Go on with the session that somebody else has parked at this id; needs `admin`
    #[arg(long, requires = "target", conflicts_with = "next")]
    pub take_over: bool,
    /// Show more columns in the list: process, job, task and worker ids
    #[arg(long, short)]
    pub verbose: bool,
    /// Sort the list by this column, with ,desc the other way round: waiting, name, job, node, ...
    #[arg(long, value_name = "KEY[,desc]", conflicts_with = "target")]
    pub sort: Option<Order>,
    /// List only what fits: a part of a name or id, a pattern such as 'train*', or KEY=PATTERN; may be repeated
    #[arg(long, value_name = "PATTERN", conflicts_with = "target")]
    pub filter: Vec<Filter>,
    /// Longest value that is printed, in characters
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub limit: u32,
    /// How the relay is reached.
    #[command(flatten)]
    pub relay: RelayArgs,
}

/// `exec`
#[derive(Debug, Args)]
pub struct ExecArgs {
    /// Id or name of the task, as in `ray-relay list`; with --next a pattern such as 'train*'
    #[arg(add = tasks(), value_name = "ID|NAME", required_unless_present = "next")]
    pub target: Option<String>,
    /// Wait for the next task that stops
    #[arg(long)]
    pub next: bool,
    /// Run all commands, whatever becomes of them
    #[arg(long)]
    pub keep_going: bool,
    /// Longest time for everything together
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = crate::config::units::parse_duration)]
    pub timeout: std::time::Duration,
    /// Longest value that is printed, in characters
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub limit: u32,
    /// The commands, one line each
    #[arg(last = true, value_name = "COMMAND")]
    pub commands: Vec<String>,
    /// How the relay is reached.
    #[command(flatten)]
    pub relay: RelayArgs,
}

/// `snapshot`
#[derive(Debug, Args)]
pub struct SnapshotArgs {
    /// Id or name of the task, as in `ray-relay list`
    #[arg(add = tasks(), value_name = "ID|NAME", required_unless_present = "all")]
    pub target: Option<String>,
    /// Every paused task
    #[arg(long, conflicts_with = "target")]
    pub all: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Only the stack: no code of the program runs
    #[arg(long)]
    pub no_locals: bool,
    /// Longest value, in characters
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub limit: u32,
    /// How the relay is reached.
    #[command(flatten)]
    pub relay: RelayArgs,
}

/// `release`
#[derive(Debug, Args)]
pub struct ReleaseArgs {
    /// Id or name of the task, as in `ray-relay list`
    #[arg(add = tasks(), value_name = "ID|NAME", required_unless_present_any = ["all", "older_than"])]
    #[arg(conflicts_with_all = ["all", "older_than"])]
    pub target: Option<String>,
    /// Every paused task
    #[arg(long, conflicts_with = "older_than")]
    pub all: bool,
    /// Those that have waited for so long, such as 30m
    #[arg(long, value_name = "DURATION", value_parser = crate::config::units::parse_duration)]
    pub older_than: Option<std::time::Duration>,
    /// Only those of this job, such as 01000000
    #[arg(long, value_name = "JOB")]
    pub job: Option<String>,
    /// End the worker process through Ray: for a task whose debugger is gone
    #[arg(long)]
    pub force: bool,
    /// Do not ask
    #[arg(long, short)]
    pub yes: bool,
    /// How the relay is reached.
    #[command(flatten)]
    pub relay: RelayArgs,
}

/// `dap`
#[derive(Debug, Args)]
pub struct DapArgs {
    /// Attach to this breakpoint, where the editor names none
    #[arg(long, add = tasks(), value_name = "ID")]
    pub breakpoint: Option<crate::ray::registry::BreakpointId>,
    /// Attach to the task of this name, where the editor names none
    #[arg(long, value_name = "NAME")]
    pub task: Option<String>,
    /// Wait for the next task that stops
    #[arg(long)]
    pub next: bool,
    /// How the relay is reached.
    #[command(flatten)]
    pub relay: RelayArgs,
}

/// `completions`
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

/// Tab offers what waits.
fn tasks() -> ArgValueCompleter {
    ArgValueCompleter::new(completions::tasks)
}

/// Runs one command to its end.
///
/// # Errors
/// [`Error`], for [`report`].
pub async fn run(cli: Cli) -> Result<(), Error> {
    match cli.command {
        Command::Serve(args) => serve::run(args).await,
        Command::Node(args) => Box::pin(node::run(args)).await,
        Command::CheckConfig(args) => check_config::run(args),
        Command::Config(command) => config::run(&command),
        Command::List(args) => list::run(args).await,
        Command::Doctor(args) => Box::pin(doctor::run(args)).await,
        Command::Health(args) => health::run(args).await,
        Command::LaunchConfig(args) => launch_config::run(&args),
        Command::Cert(args) => cert::run(args),
        Command::Debug(args) => debug::run(args).await,
        Command::Exec(args) => exec::run(args).await,
        Command::Snapshot(args) => snapshot::run(args).await,
        Command::Release(args) => release::run(args).await,
        Command::Reverse(args) => Box::pin(reverse::run(args)).await,
        Command::Connect(args) => Box::pin(connect::run(args)).await,
        Command::Dap(args) => dap::run(args).await,
        Command::Demo(args) => demo::run(args).await,
        Command::Deploy(args) => deploy::run(args).await,
        Command::Deployed(args) => Ok(crate::deploy::run_deployed(args)?),
        Command::Hook => hook::run(),
        Command::Token(args) => token::run(args),
        Command::Audit(args) => audit::run(args).await,
        Command::Completions(args) => completions::run(&args),
        Command::Man(args) => man::run(&args),
    }
}
