//! `help` at the prompt.

use super::commands::{COMMANDS, named};

/// Help for statements, which are no command.
const EXEC: &str = "(!) statement\nRun a Python statement in the frame. The ! is needed where it begins with the\nname of a command. What it assigns stays assigned.";

/// The output of `help TOPIC`; an empty topic lists the commands.
pub(super) fn about(topic: &str) -> Result<String, String> {
    if topic.is_empty() {
        return Ok(list());
    }
    match named(topic) {
        Some((_, text)) => Ok(format!("{text}\n")),
        None if topic == "exec" => Ok(format!("{EXEC}\n")),
        None => Err(format!("No help for '{topic}'")),
    }
}

fn list() -> String {
    let mut text = String::from("Commands (`help NAME` says what one does):\n");
    let mut line = String::new();
    for (names, _) in COMMANDS {
        if line.len() + names[0].len() > 70 {
            text += &format!(" {line}\n");
            line.clear();
        }
        line += &format!(" {}", names[0]);
    }
    text + &format!(
        " {line}\nAnything else is a Python statement. An empty line repeats; ;; separates commands.\n"
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_help() {
        for (names, _) in COMMANDS {
            for name in *names {
                assert!(about(name).unwrap().len() > 20, "{name}");
            }
        }
        assert!(about("exec").is_ok());
        assert_eq!(about("nothing").unwrap_err(), "No help for 'nothing'");
        assert!(about("").unwrap().contains(" longlist "));
    }
}
