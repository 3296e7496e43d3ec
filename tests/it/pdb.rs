//! Every command of the prompt against CPython's own pdb, stopped at the same place in the same program.
//!
//! Each case is a list of lines, typed at both. The transcripts, prompts included, have to be the same, but for
//! the cases in `DIFFERENT`, where both are written out.
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
//! | a raised exception is not announced by `next` | debugpy tells those alone that nobody catches |

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ray_relay::pdb::{After, End, Limits, Options, Piece, Prompt, snapshot};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::support::ray::{NEWEST, environment, job};

const PATIENCE: Duration = Duration::from_secs(60);

/// What pdb prints on standard output when `lines` are typed.
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

/// A program that waits for a debugger; killed when dropped.
struct Debugged {
    child: Child,
    port: u16,
}

impl Debugged {
    fn start(python: &Path, program: &Path) -> Self {
        let mut child = Command::new(python)
            .arg(program)
            .env("RAY_RELAY_TEST_DEBUGPY", "1")
            .env("PYDEVD_DISABLE_FILE_VALIDATION", "1")
            .env("PYTHONUNBUFFERED", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let port = lines
            .find_map(|line| line.ok()?.trim().parse().ok())
            .unwrap();
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, port }
    }
}

impl Drop for Debugged {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A prompt, and everything that it has written.
struct Session {
    prompt: Prompt<TcpStream>,
    pieces: mpsc::Receiver<Piece>,
    transcript: String,
    ended: Option<End>,
}

impl Session {
    async fn open(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let (sender, mut pieces) = mpsc::channel(8);
        let mut transcript = String::new();
        let options = Options::default();
        let opening = Prompt::open(stream, &options, sender);
        let (prompt, after) = collect(opening, &mut pieces, &mut transcript)
            .await
            .unwrap();
        assert_eq!(after, After::Prompt);
        Self {
            prompt,
            pieces,
            transcript,
            ended: None,
        }
    }

    async fn line(&mut self, line: &str) {
        self.transcript += self.prompt.text();
        match collect(
            self.prompt.line(line),
            &mut self.pieces,
            &mut self.transcript,
        )
        .await
        {
            After::Prompt => {}
            After::Ended(end) => self.ended = Some(end),
        }
    }
}

async fn collect<T>(
    doing: impl Future<Output = T>,
    pieces: &mut mpsc::Receiver<Piece>,
    transcript: &mut String,
) -> T {
    let mut doing = Box::pin(doing);
    let done = timeout(PATIENCE, async {
        loop {
            tokio::select! {
                biased;
                Some(piece) = pieces.recv() => *transcript += piece.text(),
                done = &mut doing => break done,
            }
        }
    })
    .await
    .unwrap_or_else(|_| panic!("not within {} s:\n{transcript}", PATIENCE.as_secs()));
    while let Ok(piece) = pieces.try_recv() {
        *transcript += piece.text();
    }
    done
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
const SAME: &[(&str, &[&str])] = &[
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
const DIFFERENT: &[(&str, &[&str], &str, &str)] = &[
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
async fn what_differs_from_pdb_is_what_is_written_down() {
    let Some(venv) = environment(NEWEST) else {
        return;
    };
    let (python, program) = (venv.python(), job("pdb/program.py"));
    let path = program.to_str().unwrap();
    for (name, lines, pdb, prompt) in DIFFERENT {
        let theirs = cpython(&python, &program, lines);
        let theirs = theirs.strip_suffix("(Pdb) \n").unwrap_or(&theirs);
        let ours = relayed(&python, &program, lines).await;
        let last = |text: &str| text[text.rfind("(Pdb) ").unwrap()..].replace(path, "PROGRAM");
        assert_eq!(
            (last(theirs).as_str(), last(&ours).as_str()),
            (*pdb, *prompt),
            "{name}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_ends_well_whatever_ends_it() {
    let Some(venv) = environment(NEWEST) else {
        return;
    };
    let (python, program) = (venv.python(), job("pdb/program.py"));
    // Quit: the program runs to its end.
    let mut debugged = Debugged::start(&python, &program);
    let mut session = Session::open(debugged.port).await;
    session.line("p 'x' * 52428800").await;
    assert!(
        session.transcript.len() < 30_000 && session.transcript.contains("of 52428802 characters")
    );
    session.line("print('y' * 52428800)").await;
    assert!(
        session.transcript.len() < 60_000 && session.transcript.contains("of 52428801 characters")
    );
    session
        .line("print('\\x1b[31m', b'\\xff'.decode('latin1'), '\\udcff')")
        .await;
    assert!(
        session.transcript.contains("\\x1b[31m ÿ ?"),
        "{}",
        session.transcript
    );
    session.line("q").await;
    assert_eq!(session.ended, Some(End::Left));
    assert!(debugged.child.wait().unwrap().success());

    // The process dies at the prompt.
    let mut debugged = Debugged::start(&python, &program);
    let mut session = Session::open(debugged.port).await;
    debugged.child.kill().unwrap();
    let end = timeout(PATIENCE, session.prompt.idle()).await.unwrap();
    assert!(matches!(end, End::Terminated | End::Lost(_)), "{end:?}");

    // Killed on purpose: by itself this one would never end.
    let mut debugged = Debugged::start(&python, &job("pdb/spin.py"));
    let mut session = Session::open(debugged.port).await;
    session.line("q!").await;
    assert_eq!(session.ended, Some(End::Killed));
    debugged.child.wait().unwrap();
}

/// Commands that pdb does not have, or that are refused here: each line and what its answer begins with.
const OWN: &[(&str, &str)] = &[
    ("threads", "*   1 MainThread\n"),
    ("thread 1", "> PROGRAM(40)work()\n-> for i in range(n):\n"),
    ("thread 9", "*** a number of `threads` expected\n"),
    ("exceptions", "*** no exception here\n"),
    (
        "h",
        "Commands (`help NAME` says what one does):\n  help where",
    ),
    ("h n", "n(ext)\n"),
    ("help nothing", "*** No help for 'nothing'\n"),
    ("interact", "*** interact needs a terminal in the worker"),
    ("debug f()", "*** debug needs a debugger inside the worker"),
    ("run", "*** a Ray task is not started again from here"),
    (
        "p 'ü', '\\udcff', 'it\\'s \"x\"'",
        "('ü', '\\udcff', 'it\\'s \"x\"')\n",
    ),
    ("detach", ""),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_of_its_own_answer_too() {
    let Some(venv) = environment(NEWEST) else {
        return;
    };
    let program = job("pdb/program.py");
    let debugged = Debugged::start(&venv.python(), &program);
    let mut session = Session::open(debugged.port).await;
    for (line, wanted) in OWN {
        let before = session.transcript.len();
        session.line(line).await;
        let answer = session.transcript[before..].replace(program.to_str().unwrap(), "PROGRAM");
        let answer = answer.strip_prefix("(Pdb) ").unwrap();
        assert!(answer.starts_with(wanted), "{line}: {answer}");
    }
    assert_eq!(session.ended, Some(End::Left));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_leaves_the_program_as_it_was() {
    let Some(venv) = environment(NEWEST) else {
        return;
    };
    let debugged = Debugged::start(&venv.python(), &job("pdb/waits.py"));
    for _ in 0..2 {
        let stream = TcpStream::connect(("127.0.0.1", debugged.port))
            .await
            .unwrap();
        let threads = snapshot(stream, "test", &Value::Null, &Limits::default())
            .await
            .unwrap();
        let frames = threads[0]["frames"].as_array().unwrap();
        let newest = frames.last().unwrap();
        assert_eq!(newest["function"], "waits", "{threads}");
        assert_eq!(newest["source"], "debugpy.wait_for_client()");
        assert_eq!(newest["locals"]["number"], "7");
        assert_eq!(
            newest["locals"]["broken"],
            "*** repr(broken) failed: ValueError: no ***"
        );
        assert!(newest["locals"]["long"].as_str().unwrap().len() < 1100);
    }
    let mut session = Session::open(debugged.port).await;
    session.line("p number").await;
    assert!(
        session.transcript.ends_with("(Pdb) 7\n"),
        "{}",
        session.transcript
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interrupt_stops_the_program_and_not_the_client() {
    let Some(venv) = environment(NEWEST) else {
        return;
    };
    let mut debugged = Debugged::start(&venv.python(), &job("pdb/spin.py"));
    let mut session = Session::open(debugged.port).await;
    for round in 1..=2 {
        let interrupt = session.prompt.interrupter();
        let mut running = Box::pin(session.line("c"));
        let early = timeout(Duration::from_millis(500), &mut running).await;
        assert!(early.is_err(), "it spins");
        interrupt.now();
        timeout(PATIENCE, &mut running).await.unwrap();
        drop(running);
        let told = session
            .transcript
            .matches("Program interrupted. (Use 'cont' to resume).\n> ")
            .count();
        assert_eq!(told, round, "{}", session.transcript);
    }
    session.line("tbreak 16").await;
    session.line("u 99").await;
    session.line("d 99").await;
    session.line("!hold = False").await;
    session.line("c").await;
    session.line("p hold").await;
    assert!(
        session.transcript.ends_with("(Pdb) False\n"),
        "{}",
        session.transcript
    );
    session.line("c").await;
    assert_eq!(session.ended, Some(End::Terminated));
    assert!(debugged.child.wait().unwrap().success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_prompt_prints_what_pdb_prints() {
    let Some(venv) = environment(NEWEST) else {
        return;
    };
    let (python, program) = (venv.python(), job("pdb/program.py"));
    let mut wrong = Vec::new();
    for (name, lines) in SAME {
        let theirs = cpython(&python, &program, lines);
        let ours = relayed(&python, &program, lines).await;
        // pdb prints one more prompt for the end of its input, and then quits.
        let theirs = theirs.strip_suffix("(Pdb) \n").unwrap_or(&theirs);
        if ours != theirs {
            wrong.push(format!(
                "=== {name}\n--- pdb\n{theirs}\n--- prompt\n{ours}\n"
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {} differ\n{}",
        wrong.len(),
        SAME.len(),
        wrong.concat()
    );
}
