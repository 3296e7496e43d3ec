//! What befalls a rank while all are asked, and how long many take.

use std::process::Stdio;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::sync::Notify;

use super::*;

/// The number of the session that holds `id`, as `ray-relay sessions` tells it.
async fn session_of(relay: SocketAddr, id: &str) -> String {
    let (_, text) = ray_relay(relay, None, &["sessions", "--json"]).await;
    let told: Value = serde_json::from_str(&text).unwrap();
    let rows = told["sessions"].as_array().unwrap();
    let row = rows.iter().find(|row| row.to_string().contains(id));
    row.unwrap_or_else(|| panic!("{id} is not in {told}"))["id"].to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_taken_or_runs_on_in_the_middle_of_a_command_is_named_and_the_others_answer() {
    let _turn = TURN.lock().await;
    let relay = keeping().await;
    let address = relay.local_addr();
    let (asked, goes_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let mut all = Vec::new();
    for number in 0..4 {
        let does = match number {
            1 => Does::Tells(Arc::clone(&asked), Arc::clone(&goes_on)),
            2 => Does::RunsOn,
            _ => Does::Says("0.6931"),
        };
        all.push(rank(&relay, number, does).await);
    }
    let mut second = all.swap_remove(1);
    let id = second.id.to_string();
    let words = ["exec", "--all", "--stay", "--", "p loss"];
    let command = tokio::spawn(async move { ray_relay(address, None, &words).await });
    timeout(TEST_TIMEOUT, asked.notified())
        .await
        .expect("it is asked");
    // An administrator ends the session of the second.
    let session = session_of(address, &id).await;
    let (ended, text) = ray_relay(address, None, &["sessions", "end", &session]).await;
    assert_eq!(ended.status.code(), Some(0), "{text}");
    let (output, text) = command.await.unwrap();
    // No debugger is left in the middle of an evaluation. Behind it the task runs on, and stops again for another person.
    let mut lists = relay.registry().watch();
    goes_on.notify_one();
    let free = lists.wait_for(|list| list.held().all(|one| one.id != second.id));
    let free = timeout(TEST_TIMEOUT, free).await.map(drop);
    free.expect("it is given back");
    second.stop += 1;
    relay.registry().insert(second);
    let (_taken, answer) = attach(dial(address).await, &json!({ "breakpoint": id })).await;
    assert_eq!(answer["event"], "capabilities", "{answer}");
    assert_eq!(output.status.code(), Some(1), "{text}");
    for says in [
        "\n2:   *** Unable to find thread for evaluation.",
        "\n0,3: 0.6931\n",
        "\n! 1: ",
    ] {
        assert!(text.contains(says), "{says} is not in {text}");
    }
    // The next command is told who has it.
    let words = ["exec", "--all", "--ranks", "0,1,3", "--", "p loss"];
    let (output, text) = ray_relay(address, None, &words).await;
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("(Pdb) p loss\n0,3: 0.6931\n"), "{text}");
    let taken = text.contains("\n! 1: ") && text.contains(" has it");
    assert!(taken, "{text}");
    relay.abort().await;
}

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

    /// That of a person with this token.
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

    /// What it writes up to the next prompt.
    pub(super) async fn answer(&mut self) -> String {
        let mut told = Vec::new();
        while !told.ends_with(b") ") {
            let read = timeout(TEST_TIMEOUT * 9, self.stdout.read_buf(&mut told)).await;
            assert_ne!(
                read.expect("in time").unwrap(),
                0,
                "{}",
                String::from_utf8_lossy(&told)
            );
        }
        String::from_utf8(told).unwrap()
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
async fn many_answer_in_less_than_twice_the_time_of_the_slowest() {
    /// How long the slowest takes.
    const SLOWEST: Duration = Duration::from_secs(2);
    let _turn = TURN.lock().await;
    let relay = keeping().await;
    for number in 0..256 {
        let does = match number {
            7 => Does::After(SLOWEST),
            _ => Does::Says("0.5"),
        };
        rank(&relay, number, does).await;
    }
    let mut prompt = Prompt::open(relay.local_addr());
    let opened = prompt.answer().await;
    assert!(opened.ends_with("(Pdb ×256) "), "{opened}");
    let began = Instant::now();
    let told = prompt.ask("p loss\n").await;
    let took = began.elapsed();
    eprintln!(
        "256 ranks: {took:?}, the slowest {SLOWEST:?}; {} MiB at most",
        prompt.peak()
    );
    assert_eq!(told, "0-255: 0.5\n(Pdb ×256) ");
    assert!(took < 2 * SLOWEST, "{took:?}");
    relay.abort().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_of_64_mebibytes_each_are_not_held_and_what_was_cut_is_said() {
    /// MiB of all output together that are kept, and of what debuggers send at a time.
    const BOUND: u64 = 64 + 512;
    let _turn = TURN.lock().await;
    let relay = keeping().await;
    for number in 0..8 {
        rank(&relay, number, Does::Floods(64 << 20)).await;
    }
    // As large as is read of one.
    for number in 8..16 {
        rank(&relay, number, Does::Floods(7 << 20)).await;
    }
    let mut prompt = Prompt::open(relay.local_addr());
    prompt.answer().await;
    let before = prompt.peak();
    let told = prompt.ask("p loss\n").await;
    eprintln!("before {before} MiB, at most {} MiB", prompt.peak());
    assert!(told.contains("0-7:\n"), "{}", &told[..told.len().min(500)]);
    assert!(told.contains("bytes is too long to be shown"));
    assert!(told.contains("bytes more were not kept"));
    assert!(prompt.peak() < before + BOUND, "{} MiB", prompt.peak());
    relay.abort().await;
}
