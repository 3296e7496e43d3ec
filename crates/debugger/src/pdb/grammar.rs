//! The grammar of the prompt: parses a line. Pure.
//!
//! The grammar is pdb's own: a word of letters, digits and underscores, then its argument; anything but a command is a
//! Python statement. One rule is added: `n = 3` is an assignment, where pdb would run `next`. An alias is expanded
//! once, see [`expand`].

use super::commands::named;

/// Longest result of an alias, in bytes.
pub const MAX_EXPANDED_BYTES: usize = 16 << 10;

/// One command of the prompt, with its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PdbCommand {
    Help(String),
    Where,
    Up(String),
    Down(String),
    List(String),
    Longlist,
    Source(String),
    Args,
    Print(String),
    Pretty(String),
    Whatis(String),
    Statement(String),
    Next,
    Step,
    Return,
    Until(String),
    Continue,
    Jump(String),
    Break {
        at: String,
        temporary: bool,
    },
    Clear(String),
    Enable(String),
    Disable(String),
    Condition(String),
    Ignore(String),
    Commands(String),
    Display(String),
    Undisplay(String),
    Retval,
    Exceptions,
    Threads,
    Thread(String),
    Alias(String),
    Unalias(String),
    Detach,
    Quit,
    Kill,
    /// A command of pdb that makes no sense here, with the reason.
    Unsupported(&'static str),
}

/// Whether the command resumes the program.
pub fn resumes(command: &PdbCommand) -> bool {
    matches!(
        command,
        PdbCommand::Next
            | PdbCommand::Step
            | PdbCommand::Return
            | PdbCommand::Until(_)
            | PdbCommand::Continue
            | PdbCommand::Jump(_)
            | PdbCommand::Detach
            | PdbCommand::Quit
            | PdbCommand::Kill
    )
}

/// Whether the command takes no argument, a number or a name: such a command is never followed by `= value`.
fn takes_no_expression(name: &str) -> bool {
    !matches!(
        name,
        "p" | "pp" | "whatis" | "display" | "undisplay" | "source" | "alias"
    )
}

/// Splits `line`, which is not empty, into its word and its argument.
pub fn split(line: &str) -> (&str, &str) {
    let line = line.trim();
    let end = line
        .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .unwrap_or(line.len());
    (&line[..end], line[end..].trim())
}

/// Parses one command; `line` is not empty.
pub fn parse(line: &str) -> PdbCommand {
    let line = line.trim();
    if let Some(topic) = line.strip_prefix('?') {
        return PdbCommand::Help(topic.trim().to_owned());
    }
    let statement = || PdbCommand::Statement(line.strip_prefix('!').unwrap_or(line).to_owned());
    if line == "EOF" {
        return PdbCommand::Quit;
    }
    let (word, rest) = split(line);
    // A typo must not kill a worker.
    if matches!(word, "q" | "quit") && rest == "!" {
        return PdbCommand::Kill;
    }
    let Some((name, _)) = named(word) else {
        return statement();
    };
    let assigns = rest.starts_with('=') && !rest.starts_with("==");
    if assigns && takes_no_expression(name) {
        return statement();
    }
    // `print(x)` is a call.
    if word == "print" && rest.starts_with('(') {
        return statement();
    }
    let arg = rest.to_owned();
    match name {
        "help" => PdbCommand::Help(arg),
        "where" => PdbCommand::Where,
        "up" => PdbCommand::Up(arg),
        "down" => PdbCommand::Down(arg),
        "list" => PdbCommand::List(arg),
        "longlist" => PdbCommand::Longlist,
        "source" => PdbCommand::Source(arg),
        "args" => PdbCommand::Args,
        "p" => PdbCommand::Print(arg),
        "pp" => PdbCommand::Pretty(arg),
        "whatis" => PdbCommand::Whatis(arg),
        "next" => PdbCommand::Next,
        "step" => PdbCommand::Step,
        "return" => PdbCommand::Return,
        "until" => PdbCommand::Until(arg),
        "continue" => PdbCommand::Continue,
        "jump" => PdbCommand::Jump(arg),
        "break" => PdbCommand::Break {
            at: arg,
            temporary: false,
        },
        "tbreak" => PdbCommand::Break {
            at: arg,
            temporary: true,
        },
        "clear" => PdbCommand::Clear(arg),
        "enable" => PdbCommand::Enable(arg),
        "disable" => PdbCommand::Disable(arg),
        "condition" => PdbCommand::Condition(arg),
        "ignore" => PdbCommand::Ignore(arg),
        "commands" => PdbCommand::Commands(arg),
        "display" => PdbCommand::Display(arg),
        "undisplay" => PdbCommand::Undisplay(arg),
        "retval" => PdbCommand::Retval,
        "exceptions" => PdbCommand::Exceptions,
        "threads" => PdbCommand::Threads,
        "thread" => PdbCommand::Thread(arg),
        "alias" => PdbCommand::Alias(arg),
        "unalias" => PdbCommand::Unalias(arg),
        "detach" => PdbCommand::Detach,
        "quit" => PdbCommand::Quit,
        "interact" => PdbCommand::Unsupported(
            "interact needs a terminal in the worker; type statements at this prompt instead",
        ),
        "debug" => PdbCommand::Unsupported(
            "debug needs a debugger inside the worker; set a breakpoint with `break` instead",
        ),
        "run" => PdbCommand::Unsupported(
            "a Ray task is not started again from here; `q` leaves it running, `q!` kills its worker",
        ),
        _ => statement(),
    }
}

/// The first command of `line`, and the rest behind `;;`.
pub fn first(line: &str) -> (&str, Option<&str>) {
    // An alias keeps its `;;` until it is used.
    if split(line).0 == "alias" {
        return (line, None);
    }
    match line.split_once(";;") {
        Some((first, rest)) => (first.trim_end(), Some(rest.trim_start())),
        None => (line, None),
    }
}

/// Replaces `%1` to `%9` and `%*` in `alias` by the words of `line` after its name; `None` if the result is too long.
/// Replacements are not expanded again, unlike in pdb: a few aliases could make a text of any length.
pub fn expand(alias: &str, line: &str) -> Option<String> {
    let words: Vec<&str> = line.split_whitespace().skip(1).collect();
    let all = words.join(" ");
    let mut text = String::new();
    let mut rest = alias;
    while let Some((before, marked)) = rest.split_once('%') {
        let mark = marked.chars().next();
        let number = mark.and_then(|c| c.to_digit(10)).map(|n| n as usize);
        let word = match (mark, number) {
            (Some('*'), _) => Some(&*all),
            (_, Some(number)) => number.checked_sub(1).and_then(|at| words.get(at)).copied(),
            _ => None,
        };
        text += before;
        match word {
            Some(word) => {
                text += word;
                rest = &marked[1..];
            }
            None => {
                text.push('%');
                rest = marked;
            }
        }
        if text.len() > MAX_EXPANDED_BYTES {
            return None;
        }
    }
    text += rest;
    (text.len() <= MAX_EXPANDED_BYTES).then_some(text)
}

/// An argument of `list`: first and last line, or around the current line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Span {
    /// No argument: continue after the last listing.
    On,
    /// `.`: around the current line.
    Around,
    /// Lines, both included, the last one `None` for ten more.
    Lines(i64, Option<i64>),
}

/// Parses the argument of `list`; `None` if it is neither numbers nor `.`.
pub fn span(text: &str) -> Option<Span> {
    match (text, text.split_once(',')) {
        ("", _) => Some(Span::On),
        (".", _) => Some(Span::Around),
        (_, Some((first, last))) => {
            let (first, last): (i64, i64) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
            let last = if last < first {
                first.saturating_add(last)
            } else {
                last
            };
            Some(Span::Lines(first, Some(last)))
        }
        (one, None) => Some(Span::Lines(
            one.trim().parse::<i64>().ok()?.saturating_sub(5).max(1),
            None,
        )),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::pdb::commands::COMMANDS;

    #[test]
    fn pdb_words_are_commands_and_the_rest_is_python() {
        for (line, command) in [
            ("n", PdbCommand::Next),
            ("  next  ", PdbCommand::Next),
            ("p x", PdbCommand::Print("x".into())),
            ("print x", PdbCommand::Print("x".into())),
            ("print(x)", PdbCommand::Statement("print(x)".into())),
            ("p(x)", PdbCommand::Print("(x)".into())),
            ("n = 3", PdbCommand::Statement("n = 3".into())),
            ("n=3", PdbCommand::Statement("n=3".into())),
            ("p == 3", PdbCommand::Print("== 3".into())),
            ("!n", PdbCommand::Statement("n".into())),
            ("nn", PdbCommand::Statement("nn".into())),
            ("?list", PdbCommand::Help("list".into())),
            ("q!", PdbCommand::Kill),
            ("quit", PdbCommand::Quit),
            ("u 2", PdbCommand::Up("2".into())),
            (
                "tbreak 3, x > 2",
                PdbCommand::Break {
                    at: "3, x > 2".into(),
                    temporary: true,
                },
            ),
            ("cont", PdbCommand::Continue),
            ("EOF", PdbCommand::Quit),
        ] {
            assert_eq!(parse(line), command, "{line}");
        }
    }

    #[test]
    fn double_semicolons_separate_commands() {
        assert_eq!(first("p 1;; p 2 ;;p 3"), ("p 1", Some("p 2 ;;p 3")));
        assert_eq!(first("alias x p 1;; p 2"), ("alias x p 1;; p 2", None));
        assert_eq!(
            expand("p %1;; p %2 ;; p (%*)", "x a b").unwrap(),
            "p a;; p b ;; p (a b)"
        );
        assert_eq!(
            expand("p %1, %2 % %0 %", "x %2").unwrap(),
            "p %2, %2 % %0 %"
        );
    }

    #[test]
    fn list_range_is_parsed_as_in_pdb() {
        assert_eq!(span("20"), Some(Span::Lines(15, None)));
        assert_eq!(span("3"), Some(Span::Lines(1, None)));
        assert_eq!(span("3, 9"), Some(Span::Lines(3, Some(9))));
        assert_eq!(span("30,5"), Some(Span::Lines(30, Some(35))));
        assert_eq!(span("x"), None);
        assert_eq!(span("1,2,3"), None);
    }

    proptest::proptest! {
        #[test]
        fn any_line_is_parsed_without_panic(line in ".{1,60}") {
            let _ = parse(&line);
            let _ = first(&line);
            let _ = span(&line);
        }

        #[test]
        fn surrounding_blanks_are_ignored(line in "[a-z!?=(). ]{1,12}", before in "[ \t]{0,3}", after in "[ \t\r]{0,3}") {
            proptest::prop_assert_eq!(parse(&format!("{before}{line}{after}")), parse(&line));
        }

        #[test]
        fn exclamation_mark_forces_python(line in "[^\\s;]([a-z!?=;() ]{0,9}[^\\s;])?") {
            proptest::prop_assert_eq!(parse(&format!("!{line}")), PdbCommand::Statement(line));
        }

        #[test]
        fn command_has_the_rest_as_its_argument(at in 0..COMMANDS.len(), rest in "([a-z0-9.,:>]{1,9} ?){0,3}") {
            let names = COMMANDS[at].0;
            for name in names {
                let line = format!("{name} {rest}");
                let command = parse(&line);
                proptest::prop_assert!(!matches!(command, PdbCommand::Statement(_)), "{line}");
                proptest::prop_assert_eq!(&command, &parse(&format!("{} {rest}", names[0])), "{}", line);
                let python = PdbCommand::Statement(format!("{name} = {rest}").trim().to_owned());
                let assignment = parse(&format!("{name} = {rest}"));
                proptest::prop_assert!(assignment == python || !resumes(&assignment), "{name} = {rest}");
            }
        }

        #[test]
        fn unknown_word_is_python(word in "[A-Za-z_0-9]{1,8}", rest in "( ?[a-z=(!]{1,3}){0,3}") {
            proptest::prop_assume!(named(&word).is_none() && word != "EOF");
            let line = format!("{word} {rest}").trim().to_owned();
            proptest::prop_assert_eq!(parse(&line), PdbCommand::Statement(line));
        }

        #[test]
        fn alias_expansion_is_bounded(alias in "([a-z ;]|%[0-9*]){0,40}", line in "[a-z]{1,3}( [a-z0-9]{1,9}){0,12}", times in 1usize..3000) {
            let long = alias.repeat(times);
            proptest::prop_assert!(expand(&long, &line).is_none_or(|text| text.len() <= MAX_EXPANDED_BYTES));
            // The expansion of pdb.
            let words: Vec<&str> = line.split_whitespace().skip(1).collect();
            let numbered = words.iter().zip(1..);
            let text = numbered.fold(alias, |text, (word, number)| text.replace(&format!("%{number}"), word));
            let alias = &long[..long.len() / times];
            proptest::prop_assert_eq!(expand(alias, &line), Some(text.replace("%*", &words.join(" "))));
        }
    }
}
