//! The name by which this program was started: its own, or that of the kubectl plugin behind `kubectl ray-relay`.

use std::env;
use std::path::Path;

use clap::builder::Resettable;
use clap::parser::ValueSource;
use clap::{ArgMatches, Command, CommandFactory};

use super::Cli;

/// The file that kubectl looks for: it replaces `-` in a command by `_`.
const PLUGIN: &str = "kubectl-ray_relay";

/// The command as users type it.
const TYPED: &str = "kubectl ray-relay";

const AFTER_HELP: &str = "\
Start, where a relay runs in the namespace of your context:
  kubectl ray-relay list
  kubectl ray-relay debug
  kubectl ray-relay connect
      has the relay on 127.0.0.1:5678 of this machine, for editors and the browser
  kubectl ray-relay doctor -n ml
      in another namespace: what is wrong between here and the tasks

The relay is found by the label of its Service, and reached by a port-forward that finds a new pod when one is replaced. The relay is shown the bearer token of your kubeconfig; with --as-service-account NAME, or where the kubeconfig has none, a token of a ServiceAccount. `ray-relay --help` has all commands, and the environment that they read.

Exit codes: 0 done, 1 failed, 2 wrong usage, 66 no such task or session, 69 the relay, the API server or the task's debugger cannot be reached, 77 not permitted, by the API server or the relay, 78 the kubeconfig cannot be used";

/// Whether kubectl has started this process.
pub(super) fn is_plugin() -> bool {
    let name = env::args_os().next();
    let name = name.as_deref().map(Path::new).and_then(Path::file_name);
    name.is_some_and(|name| name == PLUGIN)
}

/// The command line, with the names that users type.
pub(super) fn command() -> Command {
    with_short_help(match is_plugin() {
        true => as_plugin(Cli::command()),
        false => Cli::command(),
    })
}

/// Makes `-h` fit one screen: below the options it shows only the examples, which come first.
fn with_short_help(command: Command) -> Command {
    let below = command.get_after_help().map(ToString::to_string);
    let command = command.mut_subcommands(with_short_help);
    let Some(below) = below else {
        return command;
    };
    let first = below.split("\n\n").next();
    let examples = first.filter(|text| text.starts_with("Example") || text.starts_with("Start"));
    let examples = match examples {
        Some(text) => Resettable::Value(text.to_owned().into()),
        None => Resettable::Reset,
    };
    command.after_help(examples).after_long_help(below)
}

/// Rewrites commands in `text` to what users type.
pub(super) fn typed(text: &str) -> String {
    text.replace("`ray-relay ", &format!("`{TYPED} "))
        .replace("  ray-relay ", &format!("  {TYPED} "))
}

/// Whether the command line itself names a relay, regardless of the environment.
pub(super) fn names_relay(matches: &ArgMatches) -> bool {
    let mut matches = matches;
    while let Some((_, deeper)) = matches.subcommand() {
        matches = deeper;
    }
    ["relay", "url"].iter().any(|id| {
        // An argument that the command does not have is an error in clap.
        matches.try_contains_id(id).unwrap_or_default()
            && matches.value_source(id) == Some(ValueSource::CommandLine)
    })
}

fn as_plugin(command: Command) -> Command {
    command
        .bin_name(TYPED)
        .after_help(AFTER_HELP)
        .mut_subcommands(|sub| {
            let is_client = sub.get_arguments().any(|arg| arg.get_id() == "kube");
            plugins(sub).hide(!is_client)
        })
}

fn plugins(command: Command) -> Command {
    let after = command
        .get_after_help()
        .map(|text| typed(&text.to_string()));
    let command = command
        .mut_args(|arg| {
            let help = arg.get_help().map(|text| typed(&text.to_string()));
            match help {
                Some(help) => arg.help(help),
                None => arg,
            }
        })
        .mut_subcommands(plugins);
    match after {
        Some(after) => command.after_help(after),
        None => command,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Number of lines of a common terminal.
    const SCREEN_LINES: usize = 48;

    /// Minimum length of a wrapped line within a paragraph.
    const MIN_WRAPPED_CHARS: usize = 25;

    /// Calls `check` for `command` and all its subcommands.
    fn for_each_command(command: &mut Command, check: &mut impl FnMut(&mut Command)) {
        check(command);
        for subcommand in command.get_subcommands_mut() {
            for_each_command(subcommand, check);
        }
    }

    #[test]
    fn short_command_help_fits_a_screen() {
        let mut command = with_short_help(Cli::command());
        command.build();
        for subcommand in command.get_subcommands_mut() {
            let text = subcommand.render_help().to_string();
            assert!(text.lines().count() <= SCREEN_LINES, "{text}");
        }
    }

    /// A paragraph wrapped by hand would wrap again in a narrow terminal and leave orphaned words.
    #[test]
    fn help_lines_wrap_without_orphans_at_any_width() {
        let indent = |line: &str| line.len() - line.trim_start().len();
        for columns in [80, 100, 120] {
            let mut command = with_short_help(Cli::command()).term_width(columns);
            command.build();
            for_each_command(&mut command, &mut |command| {
                let text = command.render_long_help().to_string();
                let lines: Vec<_> = text.lines().collect();
                for pair in lines.windows(2) {
                    let (line, next) = (pair[0].trim(), pair[1].trim());
                    let continues = indent(pair[0]) == indent(pair[1])
                        && line.ends_with(|c: char| c.is_alphanumeric() || c == ',')
                        && next.starts_with(|c: char| c.is_lowercase());
                    let is_row = |line: &str| line.contains("  ") || line.starts_with("ray-relay");
                    let is_prose = line.contains(' ') && !is_row(line) && !is_row(next);
                    let is_orphan = continues && is_prose && line.len() < MIN_WRAPPED_CHARS;
                    assert!(!is_orphan, "{columns}: {line:?} in {text}");
                }
            });
        }
    }

    #[test]
    fn plugin_help_shows_kubectl_commands() {
        let mut command = as_plugin(Cli::command());
        let all = command.render_help().to_string();
        assert!(all.contains("Usage: kubectl ray-relay <COMMAND>"), "{all}");
        assert!(
            all.contains("  list ") && !all.contains("  serve "),
            "{all}"
        );
        command.build();
        let list = command.find_subcommand_mut("list").unwrap();
        let list = list.render_help().to_string();
        assert!(list.contains("Usage: kubectl ray-relay list"), "{list}");
        assert!(
            list.contains("\n  kubectl ray-relay list --watch"),
            "{list}"
        );
        assert!(!list.contains("\n  ray-relay"), "{list}");
    }

    #[test]
    fn only_an_explicit_argument_names_a_relay() {
        let names_a_relay =
            |arguments: &[&str]| names_relay(&Cli::command().get_matches_from(arguments));
        assert!(names_a_relay(&["ray-relay", "list", "--relay", "http://x"]));
        assert!(names_a_relay(&["ray-relay", "connect", "http://x"]));
        assert!(names_a_relay(&[
            "ray-relay",
            "sessions",
            "end",
            "1",
            "--relay",
            "x"
        ]));
        assert!(!names_a_relay(&["ray-relay", "list"]));
        assert!(!names_a_relay(&["ray-relay", "connect", "--kube"]));
        assert!(!names_a_relay(&["ray-relay", "hook"]));
    }
}
