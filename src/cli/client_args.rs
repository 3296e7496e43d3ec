//! Arguments of the client commands.

use clap::{Args, ValueEnum};
use clap_complete::ArgValueCompleter;

use super::completions;
use super::job::JobName;
use super::members::MembersArgs;
use super::relay_args::RelayArgs;
use ray_relay_view::listing::select::{Filter, Order};

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
    /// List what runs instead, as `ray-relay tasks` does
    #[arg(long, conflicts_with_all = ["watch", "ended"])]
    pub running: bool,
    /// List failed tasks. Their stacks and variables are kept
    #[arg(long, conflicts_with_all = ["watch", "ended", "running", "verbose"])]
    pub failed: bool,
    /// With --running, also say which workers have the hook, by asking the agents of their nodes
    #[arg(long, requires = "running", hide_short_help = true)]
    pub hooks: bool,
    /// Also show the Ray nodes, each with its agent; with --running whole ids
    #[arg(long, short, conflicts_with = "watch")]
    pub verbose: bool,
    /// List each, also where several stand at the same place
    #[arg(long)]
    pub flat: bool,
    /// Sort by this column, with ,desc the other way round: waiting, name, job, node, ...
    #[arg(long, value_name = "KEY[,desc]")]
    pub sort: Option<Order>,
    /// Show only what fits: a part of a name or id, a pattern such as 'train*', or KEY=PATTERN; may be repeated
    #[arg(long, value_name = "PATTERN")]
    pub filter: Vec<Filter>,
    /// Only tasks of this job: its submission id, job id or Ray Train run name
    #[arg(long, value_name = "JOB")]
    pub job: Option<JobName>,
    /// How the relay is reached.
    #[command(flatten)]
    pub relay: RelayArgs,
}

/// `doctor`
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Only ask whether the relay answers, for a container's health check
    #[arg(long, conflicts_with = "json")]
    pub alive: bool,
    /// Print JSON: {"relay": URL, "findings": [{"link", "severity", "says", "next", "exit_code"}], "exit_code": N}
    #[arg(long)]
    pub json: bool,
    /// How the relay is reached.
    #[command(flatten)]
    pub relay: RelayArgs,
}

/// Editors for which a configuration can be printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Editor {
    /// VS Code, Cursor, Windsurf, code-server: .vscode/launch.json
    Vscode,
    /// Neovim with nvim-dap: Lua
    Nvim,
    /// PyCharm 2025.3 and later: what to enter under "Attach to DAP"
    Pycharm,
    /// Zed: .zed/debug.json
    Zed,
    /// Emacs with dape: Emacs Lisp
    Emacs,
    /// Helix: languages.toml
    Helix,
}

/// `launch-config`
#[derive(Debug, Args)]
pub struct LaunchConfigArgs {
    /// The editor
    #[arg(value_enum, default_value_t = Editor::Vscode)]
    pub editor: Editor,
    /// Attach to this breakpoint alone, by its id in `ray-relay list`
    #[arg(long, add = tasks(), value_name = "ID")]
    pub breakpoint: Option<ray_relay_ray::ray::registry::BreakpointId>,
    /// Make the file that VS Code or Zed reads in this folder, where there is none
    #[arg(long)]
    pub write: bool,
    /// How the relay is reached.
    #[command(flatten)]
    pub relay: RelayArgs,
}

/// `debug`
#[derive(Debug, Args)]
pub struct DebugArgs {
    /// The task: its id or name as in `ray-relay list`, or its index in the list of `ray-relay debug`. With --next, --all,
    /// --job or --ranks a pattern such as 'train*'. With --running a name, task id or worker id as in `ray-relay tasks`
    #[arg(add = tasks(), value_name = "ID|INDEX|NAME")]
    pub target: Option<String>,
    /// Wait for the next task that stops
    #[arg(long, conflicts_with_all = ["all", "job", "ranks"])]
    pub next: bool,
    /// Stop one that runs and never called breakpoint(), by opening a debugger in it; needs `attach` besides `debug`
    #[arg(long, requires = "target", conflicts_with_all = ["next", "take_over", "all", "job", "ranks"])]
    pub running: bool,
    /// Why, for the audit log
    #[arg(long, value_name = "TEXT", requires = "running")]
    pub reason: Option<String>,
    /// One prompt for every paused task that fits
    #[arg(long)]
    pub all: bool,
    /// Which of those.
    #[command(flatten)]
    pub members: MembersArgs,
    /// Resume the session that another user has parked at this id; needs `admin`
    #[arg(long, requires = "target", conflicts_with_all = ["next", "all", "job", "ranks"])]
    pub take_over: bool,
    /// Show more columns in the list: process, job, task and worker ids
    #[arg(long, short)]
    pub verbose: bool,
    /// Sort the list by this column, with ,desc the other way round: waiting, name, job, node, ...
    #[arg(long, value_name = "KEY[,desc]", conflicts_with_all = ["target", "all", "job", "ranks"])]
    pub sort: Option<Order>,
    /// List only what fits: a part of a name or id, a pattern such as 'train*', or KEY=PATTERN; may be repeated
    #[arg(long, value_name = "PATTERN", conflicts_with_all = ["target", "all", "job", "ranks"])]
    pub filter: Vec<Filter>,
    /// Longest value that is printed, in characters
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub limit: u32,
    /// How the relay is reached.
    #[command(flatten)]
    pub relay: RelayArgs,
}

impl DebugArgs {
    /// Whether the command is for several tasks.
    pub(super) fn is_for_several(&self) -> bool {
        self.all || self.members.are_several()
    }
}

/// `exec`
#[derive(Debug, Args)]
pub struct ExecArgs {
    /// Id or name of the task, as in `ray-relay list`; with --next, --all, --job or --ranks a pattern such as 'train*',
    /// with --running a name, task id or worker id as in `ray-relay tasks`
    #[arg(add = tasks(), value_name = "ID|NAME", required_unless_present_any = ["next", "all", "job", "ranks"])]
    pub target: Option<String>,
    /// Wait for the next task that stops
    #[arg(long, conflicts_with_all = ["all", "job", "ranks"])]
    pub next: bool,
    /// Stop one that runs and never called breakpoint(), by opening a debugger in it; needs `attach` besides `debug`
    #[arg(long, requires = "target", conflicts_with_all = ["next", "all", "job", "ranks"])]
    pub running: bool,
    /// Why, for the audit log
    #[arg(long, value_name = "TEXT", requires = "running")]
    pub reason: Option<String>,
    /// In every paused task that fits, at once
    #[arg(long)]
    pub all: bool,
    /// Which of those.
    #[command(flatten)]
    pub members: MembersArgs,
    /// Print what several answer as JSON
    #[arg(long)]
    pub json: bool,
    /// Resume the task when the commands are done
    #[arg(long = "continue")]
    pub resume: bool,
    /// What `exec` does anyway; older scripts have it
    #[arg(long, hide = true, conflicts_with = "resume")]
    pub stay: bool,
    /// Run all commands, whatever becomes of them
    #[arg(long)]
    pub keep_going: bool,
    /// Longest time for everything together, in each task; the wait of --next counts
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = ray_relay_base::config::units::parse_duration)]
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

impl ExecArgs {
    /// Whether the command is for several tasks.
    pub(super) fn is_for_several(&self) -> bool {
        self.all || self.members.are_several()
    }
}

/// `snapshot`
#[derive(Debug, Args)]
pub struct SnapshotArgs {
    /// Id or name of a paused or failed task, as in `ray-relay list`; or a file of --save
    #[arg(add = tasks(), value_name = "ID|NAME|FILE", required_unless_present_any = ["all", "running", "job"])]
    pub target: Option<String>,
    /// Every paused task
    #[arg(long, conflicts_with = "target")]
    pub all: bool,
    /// What runs, by a pattern for its name, function or class: 'train_*'
    #[arg(long, value_name = "PATTERN", conflicts_with_all = ["target", "all"])]
    pub running: Option<String>,
    /// Running tasks of this job: its submission id, job id or Ray Train run
    #[arg(long, value_name = "JOB", conflicts_with_all = ["target", "all"])]
    pub job: Option<JobName>,
    /// Look again and again at what runs, so far apart, and show what moves; ends with Ctrl-C
    #[arg(long, value_name = "DURATION", conflicts_with_all = ["target", "all", "save"], value_parser = ray_relay_base::config::units::parse_duration)]
    pub watch: Option<std::time::Duration>,
    /// Also ask Ray for the objects that ray.get waits for
    ///
    /// What makes them, who owns them, and their state.
    #[arg(long, conflicts_with_all = ["target", "all", "watch", "no_locals"])]
    pub objects: bool,
    /// Also show frames of C, C++ and Cython, and child processes
    ///
    /// By py-spy, for which an agent has to run on the node. The processes are paused for a moment.
    #[arg(long, conflicts_with_all = ["target", "all"])]
    pub native: bool,
    /// Keep what is seen in a new file, readable for you alone
    #[arg(long, value_name = "FILE", conflicts_with = "all", value_hint = clap::ValueHint::FilePath)]
    pub save: Option<std::path::PathBuf>,
    /// Show every thread, not only those with a user's own code
    #[arg(long)]
    pub all_threads: bool,
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

/// `park`
#[derive(Debug, Args)]
pub struct ParkArgs {
    /// Id or name of the task, as in `ray-relay list`
    #[arg(add = tasks(), value_name = "ID|NAME")]
    pub target: String,
    /// For how long, such as 12h
    #[arg(long = "for", value_name = "DURATION", value_parser = ray_relay_base::config::units::parse_duration)]
    pub time: Option<std::time::Duration>,
    /// Only tasks of this job: its submission id, job id or Ray Train run name
    #[arg(long, value_name = "JOB")]
    pub job: Option<JobName>,
    /// Only those of this cluster: job ids count anew in each
    #[arg(long, value_name = "NAME")]
    pub cluster: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
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
    #[arg(long, value_name = "DURATION", value_parser = ray_relay_base::config::units::parse_duration)]
    pub older_than: Option<std::time::Duration>,
    /// With --all or --older-than, also those that others have parked
    #[arg(long, conflicts_with_all = ["target", "force"])]
    pub parked: bool,
    /// Only tasks of this job: its submission id, job id or Ray Train run name
    #[arg(long, value_name = "JOB")]
    pub job: Option<JobName>,
    /// Only those of this cluster: job ids count anew in each
    #[arg(long, value_name = "NAME")]
    pub cluster: Option<String>,
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
    pub breakpoint: Option<ray_relay_ray::ray::registry::BreakpointIdPrefix>,
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

/// Completes the ids and names of waiting tasks.
fn tasks() -> ArgValueCompleter {
    ArgValueCompleter::new(completions::tasks)
}
