//! The cut matrix: each link is cut in each way and duration, with sessions in each state. No task resumes by itself, every
//! session continues or is taken over, no message is lost, duplicated or reordered, and other sessions are unaffected.
//!
//! All states share one cut. `RAY_RELAY_CUTS='PART; PART' cargo test --test it -- --ignored every_cut` runs the cuts with one
//! of these parts in their names (`relay–agent`, `reset 10 s`; nothing: all), and prints a table. All of them take an hour.
//! The worst cuts have a test of their own.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use serde_json::{Map, Value, json};
use tokio::time::{Instant, sleep, timeout};

use self::cable::{Cables, Kind, Link};
use self::moments::Moments;
use self::states::{Outcome, State};
use crate::support::agent::{Agent, linked};
use crate::support::connect::Connect;
use crate::support::dap_client::{DapClient, Editor};
use crate::support::driver::Driver;
use crate::support::issuer::Issuer;
use crate::support::namespaces::{Cluster, RELAY_IP};
use crate::support::ray::NEWEST;
use crate::support::relay::{PORT, Relay};
use crate::support::scene::Scene;
use crate::support::{eventually, say, skip};

pub(crate) mod cable;
mod moments;
mod states;

/// How long a resumed task runs, in seconds.
const RUNS: &str = "3";

/// The median round trip of a session that nothing is cut of may be so many times what it was, and so much more.
const STABLE_POLLS: (u32, Duration) = (5, Duration::from_millis(30));

/// One cut.
#[derive(Debug, Clone, Copy)]
struct Cut {
    link: Link,
    kind: Kind,
    seconds: u64,
}

impl std::fmt::Display for Cut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (link, kind) = (self.link.name(), self.kind.name());
        write!(f, "{link}, {kind} {} s", self.seconds)
    }
}

const fn cut(link: Link, kind: Kind, seconds: u64) -> Cut {
    Cut {
        link,
        kind,
        seconds,
    }
}

/// The cuts that endanger the most state.
const WORST_CUTS: [Cut; 4] = [
    cut(Link::Client, Kind::Reset, 1),
    cut(Link::Connect, Kind::Address, 10),
    cut(Link::Agent, Kind::Reset, 1),
    cut(Link::Agent, Kind::Address, 1),
];

/// Lines of a log that are shown where a session was lost.
const MAX_LOG_LINES: usize = 80;

/// A cluster whose nodes have agents, a relay, and its clients.
struct Ground<'a> {
    scene: Scene<'a>,
    cables: Cables<'a>,
    issuer: Issuer,
    _agents: [Agent; 3],
    _connect: Connect,
    /// The output of `connect`.
    output: tempfile::NamedTempFile,
}

impl<'a> Ground<'a> {
    fn new(cluster: &'a Cluster) -> Self {
        let issuer = Issuer::new();
        let key = issuer.path("relay.pub");
        let text = format!(
            "[upstream]\npath = \"agent\"\n[auth]\nkeys = [{key:?}]\n[park]\nfor = \"5m\"\n"
        );
        let config = issuer.write("relay.toml", &text);
        let cables = Cables::lay(cluster);
        let scene = Scene {
            relay: Relay::guarded(cluster, &["--config", &config]),
            cluster,
            token: Some(issuer.mint("ada", &["--scope", "list,debug,admin"])),
        };
        let token = issuer.mint("agents", &["--scope", "node", "--node", "*"]);
        let token = format!("--token-file={}", issuer.write("agent.token", &token));
        let agent = |node| Agent::on(&scene, node, &["--allow-plaintext", &token]);
        let agents = ["head", "w1", "w2"].map(agent);
        linked(&scene, 3);
        let output = tempfile::NamedTempFile::new().unwrap();
        let mut command = scene.command(&["connect", "--insecure-send-token", "--json"]);
        command.stdout(output.reopen().unwrap());
        let local = ([127, 0, 0, 1], PORT).into();
        let connect = Connect::start(cluster, command, local);
        Self {
            scene,
            cables,
            issuer,
            _agents: agents,
            _connect: connect,
            output,
        }
    }

    /// Prints the last messages of the relay and of `connect`.
    fn show(&self) {
        let output = std::fs::read_to_string(self.output.path()).unwrap();
        for (source, text) in [("the relay", self.scene.relay.log()), ("connect", output)] {
            let lines: Vec<_> = text.lines().collect();
            let last = lines[lines.len().saturating_sub(MAX_LOG_LINES)..].join("\n");
            say(format_args!("{source} has told last:\n{last}"));
        }
    }

    /// Tasks on these nodes, at their breakpoints, and the ids of those.
    fn tasks(&self, tasks: &[(String, &str)]) -> Tasks {
        let past = tempfile::tempdir().unwrap();
        let names = tasks.iter().map(|(name, node)| format!("{name}@{node} "));
        let names: String = names.collect();
        let env = [
            ("TASKS", &*names),
            ("RUNS", RUNS),
            ("PAST", past.path().to_str().unwrap()),
        ];
        let driver = self.scene.cluster.start_driver("cuts.py", &env);
        let mut rows = Vec::new();
        eventually("all tasks", Duration::from_secs(120), || {
            rows = self.scene.list();
            let is_paused = |(name, _): &(String, &str)| {
                rows.iter()
                    .any(|row| row["name"] == *name && row["state"] == "paused")
            };
            tasks.iter().all(is_paused).then_some(())
        });
        Tasks { driver, past, rows }
    }
}

struct Tasks {
    driver: Driver,
    past: tempfile::TempDir,
    rows: Vec<Value>,
}

impl Tasks {
    fn id(&self, name: &str) -> &Value {
        let row = self.rows.iter().find(|row| row["name"] == name);
        &row.unwrap()["id"]
    }
}

/// The shared state of the sessions of one cut.
struct Field<'a> {
    ground: &'a Ground<'a>,
    link: Link,
    tasks: &'a Tasks,
    token: &'a str,
    file: String,
    /// The refusals of clients that came too early.
    refusals: Mutex<BTreeSet<String>>,
}

impl Field<'_> {
    /// The address that editors connect to.
    fn address(&self) -> SocketAddr {
        match self.link {
            Link::Connect => ([127, 0, 0, 1], PORT).into(),
            Link::Client | Link::Agent | Link::Head => (RELAY_IP, PORT).into(),
        }
    }

    async fn dial(&self) -> DapClient {
        let cluster = self.ground.scene.cluster;
        DapClient::connect_from(Editor::VsCode, cluster, "client", self.address()).await
    }

    fn attach(&self, name: &str) -> Map<String, Value> {
        self.attach_with(json!({"breakpoint": self.tasks.id(name)}))
    }

    fn attach_with(&self, mut selector: Value) -> Map<String, Value> {
        if self.link != Link::Connect {
            selector["token"] = self.token.into();
        }
        let to = self.address();
        states::arguments(&to.ip().to_string(), to.port(), selector)
    }

    /// An editor behind `connect`, or with an uncut connection, must not have to reconnect.
    fn check_continues(&self, continues: bool) {
        let whole = matches!(self.link, Link::Connect | Link::Head);
        assert!(continues || !whole, "the session did not go on");
    }

    /// Records the refusal of a client that came too early, without its variable parts.
    fn note_refusal(&self, why: &str) {
        let name = why.split(" · ").next().unwrap_or_default();
        let what = why.split_once(" is ").map_or(why, |(_, what)| what);
        let what = what.split(" from ").next().unwrap_or_default();
        let mut refusals = self.refusals.lock().unwrap();
        refusals.insert(format!("{name} is {what}"));
    }

    /// Asserts that the task is still paused.
    fn assert_paused(&self, name: &str) {
        let past: PathBuf = self.tasks.past.path().join(name);
        assert!(!past.exists(), "{name} has run on by itself");
        assert!(self.tasks.past.path().exists());
    }
}

/// Round trips of a session that nothing is cut of: of before, and of meanwhile.
#[derive(Default)]
struct RoundTrips([Vec<Duration>; 2]);

impl RoundTrips {
    /// Measures until it is dropped.
    async fn measure(&mut self, client: &mut DapClient, moments: &Moments) {
        loop {
            let began = Instant::now();
            client.call("threads", json!({})).await;
            let is_cut = moments.is_cut();
            self.0[usize::from(is_cut)].push(began.elapsed());
            sleep(Duration::from_millis(20)).await;
        }
    }

    fn medians(mut self) -> [Duration; 2] {
        self.0.each_mut().map(|all| {
            // Shows only the last output before the cut: earlier, no client is attached.
            let from = all.len().saturating_sub(300);
            let all = &mut all[from..];
            all.sort_unstable();
            all.get(all.len() / 2).copied().unwrap_or_default()
        })
    }
}

/// One line of the table.
struct Line {
    cut: Cut,
    cells: Vec<Result<Outcome, String>>,
    others: [Duration; 2],
    refusals: BTreeSet<String>,
}

impl Line {
    fn failures(&self, states: &[State]) -> Vec<String> {
        let cells = self.cells.iter().zip(states);
        let cells = cells.filter_map(|(cell, state)| {
            let why = cell.as_ref().err()?;
            Some(format!("{}, {}: {why}", self.cut, state.name()))
        });
        let [before, meanwhile] = self.others;
        let changed = meanwhile > before * STABLE_POLLS.0 + STABLE_POLLS.1;
        let others = changed.then(|| format!("{}: others took {meanwhile:?}", self.cut));
        cells.chain(others).collect()
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    let text = text.unwrap_or("it panicked");
    text.chars()
        .take(400)
        .collect::<String>()
        .replace('\n', " ")
}

/// Lets sessions in all `states` live through `cut`.
async fn live_through(ground: &Ground<'_>, cut: Cut, states: &[State]) -> Line {
    say(format_args!("== {cut}"));
    let mut expected: Vec<_> = states
        .iter()
        .flat_map(|state| state.tasks())
        .map(|name| (name, "w1"))
        .collect();
    expected.push(("other".to_owned(), "w2"));
    let mut tasks = ground.tasks(&expected);
    let token = ground.scene.token.clone().unwrap();
    let bob = ground.issuer.mint("bob", &["--scope", "list,debug"]);
    let to = SocketAddr::from((RELAY_IP, PORT));
    let mut other =
        DapClient::connect_from(Editor::VsCode, ground.scene.cluster, "relay", to).await;
    let selector = json!({"breakpoint": tasks.id("other"), "token": bob});
    other
        .start(
            states::arguments(&to.ip().to_string(), PORT, selector),
            None,
        )
        .await;
    let (others_thread, _) = other.stopped().await;

    let field = Field {
        ground,
        link: cut.link,
        tasks: &tasks,
        token: &token,
        file: states::file(),
        refusals: Mutex::default(),
    };
    let moments = Moments::new(states.len());
    let cells = states.iter().enumerate().map(|(turn, state)| {
        let (moments, field) = (&moments, &field);
        let cell = async move {
            let mut witness = moments.witness(turn);
            state.live(field, &mut witness).await
        };
        AssertUnwindSafe(cell).catch_unwind().map(move |cell| {
            let cell = cell.map_err(|panic| panic_text(&*panic));
            match &cell {
                Ok(outcome) => say(format_args!("{}: {outcome}", state.name())),
                Err(why) => say(format_args!("{}: FAILED: {why}", state.name())),
            }
            cell
        })
    });
    let mut round_trips = RoundTrips::default();
    let lasts = Duration::from_secs(cut.seconds);
    let everything = async {
        let cutting = moments.cut(
            lasts,
            || ground.cables.cut(cut.link, cut.kind),
            || ground.cables.mend(cut.link, cut.kind),
        );
        tokio::join!(join_all(cells), cutting).0
    };
    let cells = tokio::select! {
        cells = everything => cells,
        () = round_trips.measure(&mut other, &moments) => unreachable!(),
    };
    let refusals = field.refusals.into_inner().unwrap();
    other.resume(others_thread).await;
    other.disconnect().await;
    if cells.iter().all(Result::is_ok) {
        tasks.driver.result();
    }
    // Failed tasks end with their job.
    drop(tasks);
    let disappearance = async {
        while !ground.scene.list().is_empty() {
            sleep(Duration::from_millis(200)).await;
        }
    };
    let is_gone = timeout(Duration::from_secs(60), disappearance).await;
    if is_gone.is_err() {
        say(format_args!("still there: {:?}", ground.scene.list()));
    }
    Line {
        cut,
        cells,
        others: round_trips.medians(),
        refusals,
    }
}

/// Runs `cuts`, prints and writes the table as it grows, and gives what failed.
async fn run(cuts: &[Cut], states: &[State]) -> Vec<String> {
    let Some(cluster) = Cluster::up(NEWEST, 2, &[]) else {
        return Vec::new();
    };
    let tool = cluster
        .on_network_of("client", "nft")
        .arg("--version")
        .output();
    if !tool.is_ok_and(|shown| shown.status.success()) {
        skip("nft is missing, which cuts; apt install nftables");
        return Vec::new();
    }
    let ground = Ground::new(&cluster);
    let mut failures = Vec::new();
    let mut table = String::from("| link | cut |");
    for state in states {
        let _ = write!(table, " {} |", state.name());
    }
    let _ = write!(
        table,
        " others: before, meanwhile |\n|{}",
        "---|".repeat(states.len() + 3)
    );
    for cut in cuts {
        let line = live_through(&ground, *cut, states).await;
        let failed = line.failures(states);
        if !failed.is_empty() {
            ground.show();
        }
        failures.extend(failed);
        let (link, kind) = (cut.link.name(), cut.kind.name());
        let _ = write!(table, "\n| {link} | {kind} {} s |", cut.seconds);
        for cell in &line.cells {
            let _ = match cell {
                Ok(outcome) => write!(table, " {outcome} |"),
                Err(why) => write!(table, " FAILED: {why} |"),
            };
        }
        let [before, meanwhile] = line.others.map(|median| median.as_secs_f64() * 1e3);
        let _ = write!(table, " {before:.1}, {meanwhile:.1} ms |");
        for refusal in &line.refusals {
            say(format_args!("told in between: {refusal}"));
        }
        say(format_args!("so far:\n{table}"));
    }
    failures
}

#[tokio::test]
async fn no_cut_resumes_a_task_or_loses_a_message() {
    let failures = run(&WORST_CUTS, &State::ALL).await;
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[tokio::test]
#[ignore = "takes an hour"]
async fn every_cut() {
    let expected = std::env::var("RAY_RELAY_CUTS").unwrap_or_default();
    let expected: Vec<_> = expected.split(';').map(str::trim).collect();
    let mut cuts = Vec::new();
    for seconds in [1, 10, 60] {
        for link in Link::ALL {
            for kind in Kind::ALL {
                let cut = cut(link, kind, seconds);
                let name = cut.to_string();
                if expected.iter().any(|part| name.contains(part)) {
                    cuts.push(cut);
                }
            }
        }
    }
    let failures = run(&cuts, &State::ALL).await;
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
