//! Every command of the prompt against CPython's own pdb, stopped at the same place in the same program.
//!
//! Each case is a list of lines, typed at both. The transcripts, prompts included, have to be the same, but for
//! the cases in `DIFFERENT_FROM_PDB`, where both are written out.
//!
//! | what differs | why |
//! |---|---|
//! | `return`, and `next`, `step` or `until` at the end of a function: `--Return-- f()->value` and the caller, where pdb shows the function itself with `--Return--` | debugpy has no stop at a return; it stops in the caller, and tells the value |
//! | `step` into a function: its first line, where pdb shows `--Call--` and the `def` line | debugpy has no stop at a call |
//! | `display` compares what is shown, where pdb compares values | nothing is kept in the program between commands, so a list that grows is shown too |
//! | `n = 3` assigns, where pdb runs `next` | a task must not run on by a slip |
//! | `quit` lets the task run on, where pdb ends the program; `q!` kills | a Ray task is somebody's work |
//! | `help`, and `exceptions`, `threads`, `thread`, `detach` | own words; pdb 3.11 has no such commands |
//! | `interact`, `debug`, `run` are refused with a sentence | they need a terminal in the worker, a second debugger, or a new program |
//! | `b` counts hits at which the condition held, where pdb counts those too at which it did not | the debugger tells only of stops |
//! | an alias takes its words once, where pdb looks for `%2` also in what it put in for `%1` | words are data |
//! | a raised exception is not announced by `next` | debugpy tells those alone that nobody catches |

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::prompt::{Debugged, Session};
use crate::support::ray::{NEWEST, environment, job};

/// Returns pdb's standard output for `lines`.
fn cpython(python: &Path, program: &Path, lines: &[&str]) -> String {
    let mut child = Command::new(python)
        .arg(program)
        .env_remove("PYTHONBREAKPOINT")
        .env("PYTHONUNBUFFERED", "1")
        .env("HOME", "/nonexistent")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut typed = lines.join("\n");
    typed.push('\n');
    child
        .stdin
        .take()
        .unwrap()
        .write_all(typed.as_bytes())
        .unwrap();
    let mut text = String::new();
    child
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut text)
        .unwrap();
    child.wait().unwrap();
    text
}

async fn relayed(python: &Path, program: &Path, lines: &[&str]) -> String {
    let debugged = Debugged::start(python, program);
    let mut session = Session::open(debugged.port).await;
    for line in lines {
        if session.ended.is_some() {
            break;
        }
        session.line(line).await;
    }
    session.transcript
}

/// Lines that give the same transcript at both.
const SAME_AS_PDB: &[(&str, &[&str])] = &[
    ("where", &["where", "w", "bt", "where 3"]),
    (
        "up and down",
        &[
            "up", "up 1", "u", "where", "p result", "down", "d 5", "down", "u -1", "u x", "d -1",
            "d x",
        ],
    ),
    (
        "list",
        &[
            "list", "l", "l", "l", "l", "list .", "l 20", "l 3, 9", "l 30, 4", "l x", "l 999", "",
            "u", "l", "b 39", "l 35, 45",
        ],
    ),
    ("longlist", &["ll", "b 41", "longlist", "u", "ll"]),
    (
        "source",
        &[
            "source square",
            "source Box",
            "source nope",
            "source 3",
            "source box.grow",
        ],
    ),
    ("args", &["a", "b square", "c", "args", "s", "a"]),
    (
        "p",
        &[
            "p total",
            "p box.value",
            "p nope",
            "p 1 +",
            "p",
            "p names",
            "p 'ü\\x1b'",
            "p total, n",
            "p [total for _ in range(2)]",
        ],
    ),
    (
        "pp",
        &[
            "pp names",
            "pp nope",
            "pp total",
            "pp [list(range(20)) for _ in range(4)]",
        ],
    ),
    (
        "whatis",
        &[
            "whatis total",
            "whatis square",
            "whatis box.grow",
            "whatis Box",
            "whatis nope",
            "whatis print",
            "whatis os",
        ],
    ),
    (
        "statements",
        &[
            "total = 7",
            "!total += 1",
            "total",
            "p total",
            "n",
            "n",
            "n",
            "p total",
            "nope",
            "1/0",
            "x = ",
            "None",
            "'text'",
            "print('out')",
            "import math; math.pi",
            "fresh = 5",
            "fresh",
            "for k in range(3): print(k)",
            "!n",
            "box.value = 9; box.value",
        ],
    ),
    ("next", &["n", "next", "n", "", "p i"]),
    (
        "next from an older frame",
        &["b square", "c", "u", "n", "n"],
    ),
    ("step over a plain line", &["s", "p i"]),
    ("until", &["n", "n", "n", "until", "p total", "where"]),
    (
        "until a line",
        &["until 43", "p total", "unt 3", "until x", "n"],
    ),
    ("continue", &["b 42", "c", "p total", "cont"]),
    (
        "jump",
        &[
            "j 43", "where", "j 40", "j 41", "j 14", "j x", "j", "u", "j 42",
        ],
    ),
    (
        "break",
        &[
            "b",
            "b 41",
            "break 43",
            "b square",
            "b Box.grow",
            "b box.grow",
            "b 25",
            "b 999",
            "b 24",
            "b nope",
            "b program:41",
            "b nofile:3",
            "b program.py:x",
            "b 41, i == 2",
            "b",
            "c",
            "p i",
        ],
    ),
    (
        "break with a condition",
        &["b 41, i == 2", "b", "c", "p i", "p total"],
    ),
    (
        "break in a function",
        &["b square, x == 1", "b", "c", "p x", "where"],
    ),
    ("tbreak", &["tbreak 41", "b", "c", "b", "p i", "c"]),
    (
        "clear",
        &[
            "b 41",
            "b 42",
            "b 43",
            "cl 1",
            "b",
            "clear 1",
            "cl 9",
            "cl x",
            "cl nofile.py:3",
            "b 41",
            "clear",
            "no",
            "b",
            "clear",
            "y",
            "b",
        ],
    ),
    (
        "enable and disable",
        &[
            "b 41",
            "b 43",
            "disable 1",
            "b",
            "c",
            "p i",
            "enable 1",
            "enable 9",
            "disable x",
            "b",
        ],
    ),
    (
        "condition",
        &[
            "b 41",
            "condition 1 i == 2",
            "b",
            "c",
            "p i",
            "condition 1",
            "condition 7 x",
            "condition",
        ],
    ),
    (
        "ignore",
        &[
            "b 41",
            "ignore 1 2",
            "b",
            "c",
            "p i",
            "b",
            "ignore 1 1",
            "ignore 1",
            "ignore 4 1",
        ],
    ),
    (
        "commands",
        &[
            "b 41",
            "commands 1",
            "p i",
            "p total",
            "end",
            "c",
            "commands",
            "silent",
            "p i + 100",
            "c",
            "b 43",
            "c",
            "commands 9",
            "commands x",
        ],
    ),
    (
        "display",
        &[
            "display total",
            "display",
            "n",
            "n",
            "n",
            "n",
            "undisplay total",
            "undisplay total",
            "n",
            "display nope",
            "undisplay",
            "display",
        ],
    ),
    (
        "separators and aliases",
        &[
            "p 1;; p 2",
            "alias pp2 p %1 + %1",
            "pp2 n",
            "alias",
            "alias pp2",
            "alias zz",
            "unalias pp2",
            "alias",
        ],
    ),
    ("an empty line", &["p n", "", "n", "", "p i"]),
    ("retval", &["retval"]),
];

/// Lines that give different transcripts: what pdb prints from the last prompt on, and what the prompt prints.
const DIFFERENT_FROM_PDB: &[(&str, &[&str], &str, &str)] = &[
    (
        "alias",
        &["alias t p '%1 %2'", "t %2 x"],
        "(Pdb) 'x x'\n",
        "(Pdb) '%2 x'\n",
    ),
    (
        "return",
        &["b 27", "c", "r"],
        "(Pdb) --Return--\n> PROGRAM(28)square()->0\n-> return y\n",
        "(Pdb) --Return-- square()->0\n> PROGRAM(41)work()\n-> total += square(i, scale=2)\n",
    ),
    (
        "next at the end of a function",
        &["b 28", "c", "n"],
        "(Pdb) --Return--\n> PROGRAM(28)square()->0\n-> return y\n",
        "(Pdb) --Return-- square()->0\n> PROGRAM(40)work()\n-> for i in range(n):\n",
    ),
    (
        "the value after return",
        &["b 28, x == 1", "c", "r", "retval"],
        "(Pdb) 2\n",
        "(Pdb) 2\n",
    ),
    (
        "step into a function",
        &["n", "s"],
        "(Pdb) --Call--\n> PROGRAM(24)square()\n-> def square(x, *rest, scale=1, **more):\n",
        "(Pdb) > PROGRAM(26)square()\n-> y = x * x\n",
    ),
    (
        "an assignment to the name of a command",
        &["n = 3"],
        "(Pdb) > PROGRAM(41)work()\n-> total += square(i, scale=2)\n",
        "(Pdb) ",
    ),
    (
        "hits of a condition",
        &["b 41, i == 2", "c", "b"],
        "(Pdb) Num Type         Disp Enb   Where\n1   breakpoint   keep yes   at PROGRAM:41\n\tstop only if i == 2\n\tbreakpoint already hit 3 times\n",
        "(Pdb) Num Type         Disp Enb   Where\n1   breakpoint   keep yes   at PROGRAM:41\n\tstop only if i == 2\n\tbreakpoint already hit 1 time\n",
    ),
    (
        "display of a list that grows",
        &[
            "names['beta'].clear()",
            "display names['beta']",
            "names['beta'].append(1)",
            "n",
        ],
        "(Pdb) > PROGRAM(41)work()\n-> total += square(i, scale=2)\n",
        "(Pdb) > PROGRAM(41)work()\n-> total += square(i, scale=2)\ndisplay names['beta']: [1]  [old: []]\n",
    ),
    ("quit", &["q"], "(Pdb) ", "(Pdb) "),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_documented_differences_from_pdb_exist() {
    let Some(venv) = environment(NEWEST) else {
        return;
    };
    let (python, program) = (venv.python(), job("pdb/program.py"));
    let path = program.to_str().unwrap();
    for (name, lines, pdb, prompt) in DIFFERENT_FROM_PDB {
        let pdb_output = cpython(&python, &program, lines);
        let pdb_output = pdb_output.strip_suffix("(Pdb) \n").unwrap_or(&pdb_output);
        let relay_output = relayed(&python, &program, lines).await;
        let last = |text: &str| text[text.rfind("(Pdb) ").unwrap()..].replace(path, "PROGRAM");
        assert_eq!(
            (last(pdb_output).as_str(), last(&relay_output).as_str()),
            (*pdb, *prompt),
            "{name}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prompt_output_equals_pdb() {
    let Some(venv) = environment(NEWEST) else {
        return;
    };
    let (python, program) = (venv.python(), job("pdb/program.py"));
    let mut wrong = Vec::new();
    for (name, lines) in SAME_AS_PDB {
        let pdb_output = cpython(&python, &program, lines);
        let relay_output = relayed(&python, &program, lines).await;
        // pdb prints one more prompt for the end of its input, and then quits.
        let pdb_output = pdb_output.strip_suffix("(Pdb) \n").unwrap_or(&pdb_output);
        if relay_output != pdb_output {
            wrong.push(format!(
                "=== {name}\n--- pdb\n{pdb_output}\n--- prompt\n{relay_output}\n"
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {} differ\n{}",
        wrong.len(),
        SAME_AS_PDB.len(),
        wrong.concat()
    );
}
