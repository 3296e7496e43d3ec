//! The commands of the prompt: by which names, and what `help` says of them.

/// Each command: its full name with its abbreviations, and what `help` says of it, its forms first; in the order of pdb's
/// help.
pub(super) const COMMANDS: &[(&[&str], &str)] = &[
    (
        &["help", "h"],
        "h(elp) [command]\nList the commands, or say what one does.",
    ),
    (
        &["where", "w", "bt"],
        "w(here) | bt\nPrint the stack, newest frame last; > marks the frame that commands look at.",
    ),
    (&["down", "d"], "d(own) [count]\nGo to a newer frame."),
    (&["up", "u"], "u(p) [count]\nGo to an older frame."),
    (
        &["list", "l"],
        "l(ist) [first [, last] | .]\nShow 11 lines around the current one, or on from the last listing.\nWith . around the current line again; with one number around that line;\nwith two that range, or a count where the second is smaller.",
    ),
    (
        &["longlist", "ll"],
        "ll | longlist\nShow the whole function.",
    ),
    (
        &["source"],
        "source expression\nShow the source of a function, class or module.",
    ),
    (
        &["args", "a"],
        "a(rgs)\nPrint the arguments of the function.",
    ),
    (
        &["p", "print"],
        "p | print expression\nPrint the value of an expression. Long values are cut.",
    ),
    (
        &["pp"],
        "pp expression\nPretty-print the value of an expression.",
    ),
    (
        &["whatis"],
        "whatis expression\nPrint the type of an expression.",
    ),
    (
        &["display"],
        "display [expression]\nPrint the expression whenever it differs when the program stops in this frame.\nWithout one, list them.",
    ),
    (
        &["undisplay"],
        "undisplay [expression]\nForget it, or all of this frame.",
    ),
    (
        &["retval", "rv"],
        "retval | rv\nPrint what the function that ended last returned.",
    ),
    (
        &["exceptions"],
        "exceptions\nPrint the exception for which the program stopped.",
    ),
    (
        &["threads"],
        "threads\nList the threads; * marks the one that commands look at.",
    ),
    (
        &["thread"],
        "thread number\nLook at another thread, by its number in `threads`.",
    ),
    (
        &["break", "b"],
        "b(reak) [([file:]line | function) [, condition]]\nSet a breakpoint, or list them.",
    ),
    (
        &["tbreak"],
        "tbreak [([file:]line | function) [, condition]]\nSet a breakpoint that is deleted when it is hit.",
    ),
    (
        &["clear", "cl"],
        "cl(ear) [file:line | number ...]\nDelete breakpoints; all of them, after a question, without an argument.",
    ),
    (
        &["enable"],
        "enable number ...\nLet breakpoints stop the program again.",
    ),
    (
        &["disable"],
        "disable number ...\nLet breakpoints stop the program no more.",
    ),
    (
        &["ignore"],
        "ignore number [count]\nPass a breakpoint that many times.",
    ),
    (
        &["condition"],
        "condition number [expression]\nStop there only where the expression is true, or always.",
    ),
    (
        &["commands"],
        "commands [number]\nRead commands, up to `end`, that run when the breakpoint is hit; `silent` first\nsays nothing about the stop, one that resumes ends the list.",
    ),
    (
        &["step", "s"],
        "s(tep)\nRun one line, into functions that it calls.",
    ),
    (&["next", "n"], "n(ext)\nRun one line of this function."),
    (
        &["until", "unt"],
        "unt(il) [line]\nRun until a greater line, or the given one, is reached or the function ends.",
    ),
    (
        &["jump", "j"],
        "j(ump) line\nSet the line that runs next, without running what lies between.",
    ),
    (
        &["return", "r"],
        "r(eturn)\nRun until the function has returned.",
    ),
    (
        &["continue", "cont", "c"],
        "c(ont(inue))\nRun on. Ctrl-C interrupts; once more leaves the task running. When Ray says that\nthe task has ended, so does the prompt, unless a breakpoint is left.",
    ),
    (
        &["alias"],
        "alias [name [command]]\nName a command; %1, %2, ... and %* stand for words after the name.",
    ),
    (&["unalias"], "unalias name\nForget an alias."),
    (
        &["interact"],
        "interact\nNot here: type statements at the prompt.",
    ),
    (
        &["debug"],
        "debug code\nNot here: set a breakpoint in the code that is called.",
    ),
    (
        &["run", "restart"],
        "run | restart\nNot here: a task is started by Ray alone.",
    ),
    (
        &["detach"],
        "detach\nLeave; the task runs on. The same as quit.",
    ),
    (
        &["quit", "q", "exit"],
        "q(uit) | exit | Ctrl-D\nLeave; the task runs on. `q!` kills the worker process of the task instead\n(where the relay allows that).",
    ),
];

/// The full name of the command that `word` stands for, and what `help` says of it.
pub(super) fn named(word: &str) -> Option<(&'static str, &'static str)> {
    let row = COMMANDS.iter().find(|(names, _)| names.contains(&word));
    row.map(|(names, help)| (names[0], *help))
}
