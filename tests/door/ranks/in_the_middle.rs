//! Ranks that fail during a group command, and the duration for many ranks.

use std::process::Stdio;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::sync::Notify;

use super::*;

/// Returns the number of the session that holds `id`, from `ray-relay sessions`.
async fn session_of(relay: SocketAddr, id: &str) -> String {
    let (_, text) = ray_relay(relay, None, &["sessions", "--json"]).await;
    let report: Value = serde_json::from_str(&text).unwrap();
    let rows = report["sessions"].as_array().unwrap();
    let row = rows.iter().find(|row| row.to_string().contains(id));
    row.unwrap_or_else(|| panic!("{id} is not in {report}"))["id"].to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ranks_lost_during_a_command_are_named_and_others_answer() {
    let _turn = TURN.lock().await;
    let relay = keeping().await;
    let address = relay.local_addr();
    let (was_requested, may_continue) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let mut all = Vec::new();
    for number in 0..4 {
        let reaction = match number {
            1 => Reaction::Signals(Arc::clone(&was_requested), Arc::clone(&may_continue)),
            2 => Reaction::RunsOn,
            _ => Reaction::Says("0.6931"),
        };
        all.push(rank(&relay, number, reaction).await);
    }
    let mut second = all.swap_remove(1);
    let id = second.id.to_string();
    let words = ["exec", "--all", "--stay", "--", "p loss"];
    let command = tokio::spawn(async move { ray_relay(address, None, &words).await });
    timeout(TEST_TIMEOUT, was_requested.notified())
        .await
        .expect("it is asked");
    // An administrator ends the session of the second.
    let session = session_of(address, &id).await;
    let (ended, text) = ray_relay(address, None, &["sessions", "end", &session]).await;
    assert_eq!(ended.status.code(), Some(0), "{text}");
    let (output, text) = command.await.unwrap();
    // A debugger is not detached during an evaluation. The task then resumes, and stops again for another user.
    let mut lists = relay.registry().watch();
    may_continue.notify_one();
    let free = lists.wait_for(|list| list.held().all(|one| one.id != second.id));
    let free = timeout(TEST_TIMEOUT, free).await.map(drop);
    free.expect("it is given back");
    second.stop += 1;
    relay.registry().insert(second);
    let (_taken, answer) = attach(dial(address).await, &json!({ "breakpoint": id })).await;
    assert_eq!(answer["event"], "capabilities", "{answer}");
    assert_eq!(output.status.code(), Some(1), "{text}");
    for expected_text in [
        "\n2:   *** Unable to find thread for evaluation.",
        "\n0,3: 0.6931\n",
        "\n! 1: ",
    ] {
        assert!(
            text.contains(expected_text),
            "{expected_text} is not in {text}"
        );
    }
    // The next command names the owner.
    let words = ["exec", "--all", "--ranks", "0,1,3", "--", "p loss"];
    let (output, text) = ray_relay(address, None, &words).await;
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("(Pdb) p loss\n0,3: 0.6931\n"), "{text}");
    let is_taken_over = text.contains("\n! 1: ") && text.contains(" has it");
    assert!(is_taken_over, "{text}");
    relay.abort().await;
}

/// Time limit for an answer: the largest are minutes of work for a debug build on a machine that is busy otherwise.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(400);

/// `ray-relay debug --all`, and what it has written.
pub(super) struct Prompt {
    _child: Child,
    pid: u32,
    stdin: ChildStdin,
    stdout: ChildStdout,
}

impl Prompt {
    fn open(relay: SocketAddr) -> Self {
        Self::open_by(relay, None)
    }

    /// Starts a prompt with this token.
    pub(super) fn open_by(relay: SocketAddr, token: Option<&str>) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ray-relay"));
        let url = format!("http://{relay}");
        command.env_clear().env("RAY_RELAY_URL", url);
        command.envs(token.map(|token| ("RAY_RELAY_TOKEN", token)));
        command.args(["debug", "--all"]).kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        Self {
            pid: child.id().unwrap(),
            stdin: child.stdin.take().unwrap(),
            stdout: child.stdout.take().unwrap(),
            _child: child,
        }
    }

    /// Returns the output up to the next prompt.
    pub(super) async fn answer(&mut self) -> String {
        let mut received = Vec::new();
        while !received.ends_with(b") ") {
            let read = timeout(ANSWER_TIMEOUT, self.stdout.read_buf(&mut received)).await;
            assert_ne!(
                read.expect("in time").unwrap(),
                0,
                "{}",
                String::from_utf8_lossy(&received)
            );
        }
        String::from_utf8(received).unwrap()
    }

    pub(super) async fn ask(&mut self, line: &str) -> String {
        self.stdin.write_all(line.as_bytes()).await.unwrap();
        self.answer().await
    }

    /// The most memory that it has held, in MiB.
    fn peak(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap();
        let line = status
            .lines()
            .find(|line| line.starts_with("VmHWM:"))
            .unwrap();
        line.split_whitespace()
            .nth(1)
            .unwrap()
            .parse::<u64>()
            .unwrap()
            >> 10
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn group_answers_in_less_than_twice_the_slowest_rank() {
    /// The duration of the slowest rank.
    const SLOWEST_RANK: Duration = Duration::from_secs(2);
    let _turn = TURN.lock().await;
    let relay = keeping().await;
    for number in 0..256 {
        let reaction = match number {
            7 => Reaction::After(SLOWEST_RANK),
            _ => Reaction::Says("0.5"),
        };
        rank(&relay, number, reaction).await;
    }
    let began = Instant::now();
    let mut prompt = Prompt::open(relay.local_addr());
    let opened = prompt.answer().await;
    assert!(opened.ends_with("(Pdb ×256) "), "{opened}");
    let opening = began.elapsed();
    let began = Instant::now();
    let reply = prompt.ask("p loss\n").await;
    let elapsed = began.elapsed();
    eprintln!(
        "256 ranks: {elapsed:?} after {opening:?} to open the prompt, the slowest {SLOWEST_RANK:?}; {} MiB at most",
        prompt.peak()
    );
    assert_eq!(reply, "0-255: 0.5\n(Pdb ×256) ");
    // A machine with other work takes longer for all of it.
    assert!(
        elapsed < SLOWEST_RANK + opening.max(SLOWEST_RANK),
        "{elapsed:?}, {opening:?}"
    );
    relay.abort().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn huge_answers_are_cut_and_marked() {
    /// MiB of all output together that are kept, and of what debuggers send at a time.
    const BOUND: u64 = 64 + 256;
    let _turn = TURN.lock().await;
    let relay = keeping().await;
    for number in 0..4 {
        rank(&relay, number, Reaction::Floods(64 << 20)).await;
    }
    // As large as is read of one.
    for number in 4..12 {
        rank(&relay, number, Reaction::Floods(7 << 20)).await;
    }
    let mut prompt = Prompt::open(relay.local_addr());
    prompt.answer().await;
    let before = prompt.peak();
    let reply = prompt.ask("p loss\n").await;
    eprintln!("before {before} MiB, at most {} MiB", prompt.peak());
    assert!(
        reply.contains("0-3: "),
        "{}",
        &reply[..reply.len().min(500)]
    );
    assert!(reply.contains("bytes is too long to be shown"));
    assert!(reply.contains("bytes more were not kept"));
    assert!(prompt.peak() < before + BOUND, "{} MiB", prompt.peak());
    relay.abort().await;
}
