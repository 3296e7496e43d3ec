//! `help` at the prompt.

use super::grammar::{NAMES, full_name};

/// One command: its full name, its forms and what it does.
const TOPICS: &[(&str, &str)] = &[
    (
        "help",
        "h(elp) [command]\nList the commands, or say what one does.",
    ),
    (
        "where",
        "w(here) | bt\nPrint the stack, newest frame last; > marks the frame that commands look at.",
    ),
    ("down", "d(own) [count]\nGo to a newer frame."),
    ("up", "u(p) [count]\nGo to an older frame."),
    (
        "list",
        "l(ist) [first [, last] | .]\nShow 11 lines around the current one, or on from the last listing.\nWith . around the current line again; with one number around that line;\nwith two that range, or a count where the second is smaller.",
    ),
    ("longlist", "ll | longlist\nShow the whole function."),
    (
        "source",
        "source expression\nShow the source of a function, class or module.",
    ),
    ("args", "a(rgs)\nPrint the arguments of the function."),
    (
        "p",
        "p | print expression\nPrint the value of an expression. Long values are cut.",
    ),
    (
        "pp",
        "pp expression\nPretty-print the value of an expression.",
    ),
    (
        "whatis",
        "whatis expression\nPrint the type of an expression.",
    ),
    (
        "display",
        "display [expression]\nPrint the expression whenever it differs when the program stops in this frame.\nWithout one, list them.",
    ),
    (
        "undisplay",
        "undisplay [expression]\nForget it, or all of this frame.",
    ),
    (
        "retval",
        "retval | rv\nPrint what the function that ended last returned.",
    ),
    (
        "exceptions",
        "exceptions\nPrint the exception for which the program stopped.",
    ),
    (
        "threads",
        "threads\nList the threads; * marks the one that commands look at.",
    ),
    (
        "thread",
        "thread number\nLook at another thread, by its number in `threads`.",
    ),
    (
        "break",
        "b(reak) [([file:]line | function) [, condition]]\nSet a breakpoint, or list them.",
    ),
    (
        "tbreak",
        "tbreak [([file:]line | function) [, condition]]\nSet a breakpoint that is deleted when it is hit.",
    ),
    (
        "clear",
        "cl(ear) [file:line | number ...]\nDelete breakpoints; all of them, after a question, without an argument.",
    ),
    (
        "enable",
        "enable number ...\nLet breakpoints stop the program again.",
    ),
    (
        "disable",
        "disable number ...\nLet breakpoints stop the program no more.",
    ),
    (
        "ignore",
        "ignore number [count]\nPass a breakpoint that many times.",
    ),
    (
        "condition",
        "condition number [expression]\nStop there only where the expression is true, or always.",
    ),
    (
        "commands",
        "commands [number]\nRead commands, up to `end`, that run when the breakpoint is hit; `silent` first\nsays nothing about the stop, one that resumes ends the list.",
    ),
    (
        "step",
        "s(tep)\nRun one line, into functions that it calls.",
    ),
    ("next", "n(ext)\nRun one line of this function."),
    (
        "until",
        "unt(il) [line]\nRun until a greater line, or the given one, is reached or the function ends.",
    ),
    (
        "jump",
        "j(ump) line\nSet the line that runs next, without running what lies between.",
    ),
    ("return", "r(eturn)\nRun until the function has returned."),
    (
        "continue",
        "c(ont(inue))\nRun on. Ctrl-C interrupts; once more leaves the task running. When Ray says that\nthe task has ended, so does the prompt, unless a breakpoint is left.",
    ),
    (
        "alias",
        "alias [name [command]]\nName a command; %1, %2, ... and %* stand for words after the name.",
    ),
    ("unalias", "unalias name\nForget an alias."),
    (
        "interact",
        "interact\nNot here: type statements at the prompt.",
    ),
    (
        "debug",
        "debug code\nNot here: set a breakpoint in the code that is called.",
    ),
    (
        "run",
        "run | restart\nNot here: a task is started by Ray alone.",
    ),
    (
        "detach",
        "detach\nLeave; the task runs on. The same as quit.",
    ),
    (
        "quit",
        "q(uit) | exit | Ctrl-D\nLeave; the task runs on. `q!` kills the worker process of the task instead\n(where the relay allows that).",
    ),
    (
        "exec",
        "(!) statement\nRun a Python statement in the frame. The ! is needed where it begins with the\nname of a command. What it assigns stays assigned.",
    ),
];

/// What `help TOPIC` prints; an empty topic lists the commands.
pub(super) fn about(topic: &str) -> Result<String, String> {
    if topic.is_empty() {
        return Ok(list());
    }
    let name = full_name(topic).unwrap_or(topic);
    TOPICS
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, text)| format!("{text}\n"))
        .ok_or_else(|| format!("No help for '{topic}'"))
}

fn list() -> String {
    let mut text = String::from("Commands (`help NAME` says what one does):\n");
    let mut line = String::new();
    for names in NAMES {
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
        for names in NAMES {
            for name in *names {
                assert!(about(name).unwrap().len() > 20, "{name}");
            }
        }
        assert!(about("exec").is_ok());
        assert_eq!(about("nothing").unwrap_err(), "No help for 'nothing'");
        assert!(about("").unwrap().contains(" longlist "));
    }
}
