//! Somebody with a task: attaches, looks, steps, vanishes, lets it run; and tries what belongs to others.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rand::RngExt as _;
use rand::rngs::StdRng;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::field::{Field, PEOPLE};
use super::seat::{Excuse, Seat};
use crate::support::dap_client::{DapClient, Editor};
use crate::support::ray;

/// How long anything may take before a person takes the connection for lost.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long it may take to get at one's own task once there are no more faults.
const QUIET: Duration = Duration::from_secs(120);

/// How an attempt to attach ended.
enum Attempt {
    Attached(Box<DapClient>),
    Refused(String),
    Lost,
}

pub(super) struct Person<'f> {
    field: &'f Field<'f>,
    seat: &'f Seat,
    chance: StdRng,
    runtime: Runtime,
    session: Option<(DapClient, u64)>,
    id: Value,
    turns: u32,
    /// The line of the breakpoint in cuts.py.
    breakpoint: u32,
    stepped: bool,
}

impl<'f> Person<'f> {
    pub(super) fn new(field: &'f Field<'f>, seat: &'f Seat, chance: StdRng) -> Self {
        let text = std::fs::read_to_string(ray::job("cuts.py")).unwrap();
        let above = text
            .lines()
            .take_while(|line| line.trim() != "breakpoint()");
        Self {
            field,
            seat,
            chance,
            runtime: tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap(),
            session: None,
            id: Value::Null,
            turns: 0,
            breakpoint: above.count() as u32 + 1,
            stepped: false,
        }
    }

    /// Lives until there are no more faults, and then brings the last task to its end.
    pub(super) fn live(mut self) {
        let _over = self.field.over_at_the_end();
        self.sit_down();
        while !self.field.must_finish() {
            if self.field.over.load(Ordering::Relaxed) {
                return;
            }
            self.act();
        }
        let until = Instant::now() + QUIET;
        while !self.seat.is_past() {
            if self.field.over.load(Ordering::Relaxed) {
                return;
            }
            assert!(
                Instant::now() < until,
                "nobody gets at the task of {} on {} any more: {}",
                self.seat.owner,
                self.seat.node,
                self.field.told()
            );
            if self.is_attached() {
                self.let_run();
            }
        }
        self.look_for_wrong();
        self.seat.end();
    }

    fn sit_down(&mut self) {
        self.id = self.seat.begin(self.field.cluster, self.field, self.turns);
        self.turns += 1;
        self.stepped = false;
    }

    fn look_for_wrong(&self) {
        if let Some(wrong) = self.seat.wrong() {
            panic!("{wrong}");
        }
    }

    /// Does one thing.
    fn act(&mut self) {
        self.look_for_wrong();
        if self.seat.is_past() {
            self.session = None;
            self.seat.end();
            self.sit_down();
            return;
        }
        if !self.is_attached() {
            self.rest(200);
            return;
        }
        match self.chance.random_range(0..14) {
            0..5 => self.look(),
            5 if !self.stepped => self.step(),
            6..9 => {
                self.field.note("vanished");
                self.session = None;
            }
            9 => self.intrude(),
            10 => self.let_run(),
            11 => self.leave_for(&["exec", "--stay", "--timeout", "20s"], &["p 6 * 7"]),
            12 => self.leave_for(&["park", "--for", "30m"], &[]),
            _ => self.rest(2000),
        }
    }

    fn rest(&mut self, most: u64) {
        let rest = self.chance.random_range(50..most);
        std::thread::sleep(Duration::from_millis(rest));
    }

    /// Whether there is a session now: attaches where there is none.
    fn is_attached(&mut self) -> bool {
        if self.session.is_some() {
            return true;
        }
        let relay = self.chance.random_range(0..self.field.refuge.relays());
        let token = self.field.token(self.seat.owner);
        match self.attach(relay, &token) {
            Attempt::Attached(mut client) => {
                let stopped = client.event_within("stopped", PATIENCE);
                let stopped = self.runtime.block_on(stopped);
                let Some(thread) = stopped.and_then(|body| body["threadId"].as_u64()) else {
                    self.field.note("attached, and lost before the stop");
                    return false;
                };
                self.seat.hold();
                self.field.note("attached");
                self.session = Some((*client, thread));
                self.look();
                self.session.is_some()
            }
            Attempt::Refused(why) => {
                self.note_refusal(&why);
                false
            }
            Attempt::Lost => {
                self.field.note("lost while attaching");
                false
            }
        }
    }

    fn attach(&self, relay: usize, token: &str) -> Attempt {
        let to = Field::address(relay);
        let mut arguments = Editor::VsCode.attach(&to.ip().to_string(), to.port(), "");
        let selector = json!({"breakpoint": self.id, "token": token});
        arguments.insert("rayRelay".into(), selector);
        self.field.attaching(self.seat.node, || {
            self.runtime.block_on(async {
                let cluster = self.field.cluster;
                let client = DapClient::connect_from(Editor::VsCode, cluster, "client", to);
                let mut client = client.await;
                match client.start_within(arguments, PATIENCE).await {
                    None => Attempt::Lost,
                    Some(answer) if answer["success"] == true => {
                        Attempt::Attached(Box::new(client))
                    }
                    Some(answer) => {
                        Attempt::Refused(answer["message"].as_str().unwrap_or_default().to_owned())
                    }
                }
            })
        })
    }

    /// Notes what one was told, but for what differs each time.
    fn note_refusal(&self, why: &str) {
        let what = why.split_once(" is ").map_or(why, |(_, what)| what);
        let what = what.split([',', ';', '(']).next().unwrap_or_default();
        let words = what.split_whitespace();
        let words = words.filter(|word| !word.chars().any(|c| c.is_ascii_digit()));
        let what: Vec<_> = words.collect();
        self.field.note(&what.join(" "));
    }

    /// The answer to a request in the session, which is over where there is none.
    fn ask(&mut self, command: &str, arguments: &Value) -> Option<Value> {
        let (client, _) = self.session.as_mut()?;
        let asked = client.ask_within(command, arguments, PATIENCE);
        let answer = self.runtime.block_on(asked);
        if answer
            .as_ref()
            .is_none_or(|answer| answer["success"] != true)
        {
            self.field.note("the session was lost");
            self.session = None;
            return None;
        }
        answer
    }

    /// Looks where the task stands: where it was left.
    fn look(&mut self) {
        let Some((_, thread)) = self.session else {
            return;
        };
        let arguments = json!({"threadId": thread, "startFrame": 0, "levels": 20});
        let Some(answer) = self.ask("stackTrace", &arguments) else {
            return;
        };
        let frame = &answer["body"]["stackFrames"][0];
        let line = frame["line"].as_u64().unwrap_or_default() as u32;
        let next = self.breakpoint + 1;
        let stands = line == self.breakpoint || self.stepped && line == next;
        assert!(
            frame["name"] == "stays" && stands,
            "the task stands elsewhere: {frame}"
        );
        self.stepped = line == next;
    }

    /// Steps over one line. What is lost on the way may have come to pass.
    fn step(&mut self) {
        let Some((_, thread)) = self.session else {
            return;
        };
        self.stepped = true;
        let asked = self.ask("next", &json!({"threadId": thread}));
        if asked.is_some()
            && let Some((client, _)) = &mut self.session
        {
            let stopped = client.event_within("stopped", PATIENCE);
            if self.runtime.block_on(stopped).is_none() {
                self.session = None;
                return;
            }
            self.field.note("stepped");
        }
    }

    fn let_run(&mut self) {
        let Some((_, thread)) = self.session else {
            return;
        };
        self.seat.may_run(Excuse::LetRun);
        if self.ask("continue", &json!({"threadId": thread})).is_some() {
            self.field.note("let it run");
            let until = Instant::now() + PATIENCE;
            while !self.seat.is_past() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        self.session = None;
    }

    /// Vanishes, and has `ray-relay` do that to the task, which stays where it is.
    fn leave_for(&mut self, command: &[&str], behind: &[&str]) {
        self.session = None;
        let relay = self.chance.random_range(0..self.field.refuge.relays());
        let url = format!("http://{}", Field::address(relay));
        let ran = self.field.attaching(self.seat.node, || {
            let mut run = self
                .field
                .cluster
                .exec("client", env!("CARGO_BIN_EXE_ray-relay"));
            run.args(command)
                .args(["--relay", &url, self.id.as_str().unwrap()]);
            if !behind.is_empty() {
                run.arg("--").args(behind);
            }
            run.env("RAY_RELAY_TOKEN", self.field.token(self.seat.owner));
            run.output().unwrap()
        });
        let said = String::from_utf8_lossy(&ran.stderr);
        match (ran.status.success(), said.lines().last()) {
            (false, Some(why)) => self.note_refusal(why),
            _ => self.field.note(command[0]),
        }
    }

    /// Somebody else tries to get at the task: in vain, as long as it belongs to its owner.
    fn intrude(&mut self) {
        let Some(_) = self.seat.held() else { return };
        let other = PEOPLE.iter().find(|person| **person != self.seat.owner);
        let token = self.field.token(other.unwrap());
        let relay = self.chance.random_range(0..self.field.refuge.relays());
        match self.attach(relay, &token) {
            Attempt::Attached(_) => assert!(
                self.seat.excuse().is_some(),
                "{} got at what {} holds",
                other.unwrap(),
                self.seat.owner
            ),
            Attempt::Refused(_) => self.field.note("an intruder was refused"),
            Attempt::Lost => self.field.note("an intruder lost the connection"),
        }
    }
}
