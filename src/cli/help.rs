//! `ray-relay help`: a page of the documentation, or the help of a command.

use clap::{Args, Command};

use super::failure::{Exit, Fails, Failure};
use super::program;
use super::terminal::print;
use ray_relay_view::listing::text;
use ray_relay_view::manual;

pub(super) const AFTER_HELP: &str = "\
Examples:
  ray-relay help                  the pages and the commands
  ray-relay help operate          a page: how a relay is run for others
  ray-relay help operate | less
  ray-relay help list             what a command takes, as `ray-relay list --help`

The same pages are in the folder docs/ of the source, and at /relay/docs/ of a relay.";

/// `help`
#[derive(Debug, Args)]
pub struct HelpArgs {
    /// A page, or a command
    #[arg(value_name = "TOPIC")]
    topic: Vec<String>,
}

/// Unknown topic.
#[derive(Debug, thiserror::Error)]
#[error("there is no page and no command {topic:?}; the pages are {}", pages())]
pub(super) struct UnknownTopic {
    topic: String,
}

fn pages() -> String {
    let topics: Vec<_> = manual::PAGES.iter().map(|page| page.topic).collect();
    topics.join(", ")
}

impl Fails for UnknownTopic {
    fn exit(&self) -> Exit {
        Exit::Usage
    }

    fn next_step(&self) -> Option<std::borrow::Cow<'static, str>> {
        Some("`ray-relay help` lists the pages and the commands".into())
    }
}

pub(super) fn run(args: &HelpArgs) -> Result<(), Failure> {
    let topic = args.topic.join(" ");
    let text = match (&*args.topic, manual::page(&topic)) {
        ([], _) => contents(&program::command()),
        (_, Some(page)) => page.at_terminal(),
        (words, None) => of_command(program::command(), words).ok_or(UnknownTopic { topic })?,
    };
    Ok(print(&text)?)
}

/// The pages and the commands, one line each.
fn contents(command: &Command) -> String {
    let commands = command.get_subcommands().filter(|sub| !sub.is_hide_set());
    let row = |sub: &Command| {
        let about = sub.get_about().map(ToString::to_string);
        [format!("  {}", sub.get_name()), about.unwrap_or_default()]
    };
    let commands = text::table(commands.map(row).collect(), None);
    format!(
        "Pages:\n{}\nCommands:\n{commands}\n`ray-relay help PAGE` prints a page, `ray-relay help COMMAND` what a command takes.\n",
        manual::list("  ")
    )
}

/// Output of `words --help`; `None`: there is no such command.
fn of_command(mut command: Command, words: &[String]) -> Option<String> {
    command.build();
    let mut found = &mut command;
    for word in words {
        found = found.find_subcommand_mut(word)?;
    }
    Some(found.render_long_help().to_string())
}
