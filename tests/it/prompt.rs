//! The pdb prompt on a real debugpy, where pdb has nothing to compare with: how it ends, commands of its own, snapshots,
//! interrupts, several threads.

use std::time::Duration;

use ray_relay_debugger::debugger::settled;
use ray_relay_debugger::pdb::{PromptEnd, SnapshotLimits, snapshot};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::support::prompt::{Debugged, Session, TEST_TIMEOUT};
use crate::support::ray::{NEWEST, environment, job};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_session_end_detaches_cleanly() {
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
    assert_eq!(session.ended, Some(PromptEnd::Left));
    assert!(debugged.child.wait().unwrap().success());

    // The process dies at the prompt.
    let mut debugged = Debugged::start(&python, &program);
    let mut session = Session::open(debugged.port).await;
    debugged.child.kill().unwrap();
    let end = timeout(TEST_TIMEOUT, session.prompt.idle()).await.unwrap();
    assert!(
        matches!(end, PromptEnd::Terminated | PromptEnd::Lost(_)),
        "{end:?}"
    );

    // Killed on purpose: by itself this one would never end.
    let mut debugged = Debugged::start(&python, &job("pdb/spin.py"));
    let mut session = Session::open(debugged.port).await;
    session.line("q!").await;
    assert_eq!(session.ended, Some(PromptEnd::Killed));
    debugged.child.wait().unwrap();
}

/// Commands that pdb does not have, or that are refused here: each line and what its answer begins with.
const RELAY_COMMANDS: &[(&str, &str)] = &[
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
async fn relay_commands_work_at_the_prompt() {
    let Some(venv) = environment(NEWEST) else {
        return;
    };
    let program = job("pdb/program.py");
    let debugged = Debugged::start(&venv.python(), &program);
    let mut session = Session::open(debugged.port).await;
    for (line, expected) in RELAY_COMMANDS {
        let before = session.transcript.len();
        session.line(line).await;
        let answer = session.transcript[before..].replace(program.to_str().unwrap(), "PROGRAM");
        let answer = answer.strip_prefix("(Pdb) ").unwrap();
        assert!(answer.starts_with(expected), "{line}: {answer}");
    }
    assert_eq!(session.ended, Some(PromptEnd::Left));
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
        let (threads, _) = snapshot(stream, "test", &SnapshotLimits::default())
            .await
            .unwrap();
        let frames = threads[0]["frames"].as_array().unwrap();
        let newest = frames.last().unwrap();
        assert_eq!(newest["function"], "waits", "{threads}");
        assert_eq!(newest["source"], "debugpy.wait_for_client()");
        assert_eq!(newest["locals"]["number"], "7");
        assert_eq!(newest["locals"]["broken"], "‹no repr: ValueError›");
        assert!(newest["locals"]["long"].as_str().unwrap().len() < 1100);
        // The relay admits no client before that either: debugpy does not report the end of a session.
        settled().await;
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
        timeout(TEST_TIMEOUT, &mut running).await.unwrap();
        drop(running);
        let transcript = session
            .transcript
            .matches("Program interrupted. (Use 'cont' to resume).\n> ")
            .count();
        assert_eq!(transcript, round, "{}", session.transcript);
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
    assert_eq!(session.ended, Some(PromptEnd::Terminated));
    assert!(debugged.child.wait().unwrap().success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interrupt_ends_an_expression_in_the_process() {
    let Some(venv) = environment(NEWEST) else {
        return;
    };
    let debugged = Debugged::start(&venv.python(), &job("pdb/spin.py"));
    let mut session = Session::open(debugged.port).await;
    for line in ["while True: pass", "p [0 for _ in iter(int, 1)]"] {
        let interrupt = session.prompt.interrupter();
        let mut running = Box::pin(session.line(line));
        let early = timeout(Duration::from_millis(500), &mut running).await;
        assert!(early.is_err(), "it spins");
        interrupt.now();
        timeout(TEST_TIMEOUT, &mut running).await.unwrap();
        drop(running);
        let transcript = &session.transcript;
        assert!(
            transcript.ends_with("*** KeyboardInterrupt\n"),
            "{transcript}"
        );
        assert_eq!(session.answer("p 1 + 1").await, "2\n");
    }
    // pydevd warns of one that takes more than 3 s, and quotes what the relay has sent.
    let slow = "p __import__('time').sleep(3.5) or 'slept'";
    assert_eq!(session.answer(slow).await, "'slept'\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_thread_can_be_inspected_and_finishes() {
    let Some(venv) = environment(NEWEST) else {
        return;
    };
    let mut debugged = Debugged::start(&venv.python(), &job("pdb/threads.py"));
    let mut session = Session::open(debugged.port).await;
    let threads = session.answer("threads").await;
    let number = |name: &str| {
        let line = threads.lines().find(|line| line.ends_with(name));
        let line = line.unwrap_or_else(|| panic!("{name} in {threads}"));
        let number = line.trim_start_matches('*').split_whitespace().next();
        (line.starts_with('*'), number.unwrap().to_owned())
    };
    // The prompt shows the thread that stopped first; the other is held.
    let of = ["red", "blue"].map(|name| (name, number(name)));
    assert_eq!(
        of.iter().filter(|(_, (shown, _))| *shown).count(),
        1,
        "{threads}"
    );
    for (name, (_, number)) in &of {
        session.answer(&format!("thread {number}")).await;
        let bottom = session.answer("where").await;
        assert!(bottom.contains("paint"), "{bottom}");
        // The other one may be inside the debugger by now.
        while session.answer("p name").await.starts_with("***") {
            let up = session.answer("up").await;
            assert!(!up.contains("Oldest frame"), "{up}");
        }
        assert_eq!(session.answer("p name").await, format!("'{name}'\n"));
        session.answer("!name = name.upper()").await;
    }
    while session.ended.is_none() {
        session.line("c").await;
    }
    assert_eq!(session.ended, Some(PromptEnd::Terminated));
    assert!(debugged.child.wait().unwrap().success());
    assert!(
        session.transcript.contains("BLUE, RED"),
        "{}",
        session.transcript
    );
}
