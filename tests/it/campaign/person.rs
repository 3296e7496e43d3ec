//! A user with a task: attaches, inspects, steps, disconnects, resumes, and tries the tasks of others.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rand::RngExt as _;
use rand::rngs::StdRng;
use serde_json::Value;
use tokio::runtime::Runtime;
use tokio::time::timeout;

use super::field::{ADMIN, Field, WITH_CONNECT};
use super::seat::{Debugger, ResumeCause, Seat};
use super::session::{Attempt, RESPONSE_TIMEOUT, Session, Target, Tool, Way};
use crate::support::ray;

/// How long a user may need to reach their own task after the last fault.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(120);

/// How long a user waits for a command, whose request may be lost with its connection.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);

pub(super) struct Person<'f> {
    field: &'f Field<'f>,
    seat: &'f Seat,
    chance: StdRng,
    runtime: Runtime,
    session: Option<Session>,
    /// The owner of the session.
    user: &'static str,
    id: Value,
    turns: u32,
    /// The debugger of the task.
    debugger: Debugger,
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
            user: seat.owner,
            id: Value::Null,
            turns: 0,
            debugger: Debugger::Debugpy,
            breakpoint: above.count() as u32 + 1,
            stepped: false,
        }
    }

    /// Lives until there are no more faults, and then brings the last task to its end.
    pub(super) fn live(mut self) {
        let _over = self.field.end_when_dropped();
        self.sit_down();
        while !self.field.must_finish() {
            if self.field.over.load(Ordering::Relaxed) {
                return;
            }
            self.act();
        }
        let until = Instant::now() + RECOVERY_TIMEOUT;
        while !self.seat.is_past() {
            if self.field.over.load(Ordering::Relaxed) {
                return;
            }
            assert!(
                Instant::now() < until,
                "nobody gets at the task of {} on {} any more: {}",
                self.seat.owner,
                self.seat.node,
                self.field.refusals()
            );
            if self.is_attached() {
                self.resume_task();
            }
        }
        self.look_for_wrong();
        self.seat.end();
    }

    fn sit_down(&mut self) {
        self.debugger = match self.chance.random_range(0..3) {
            0 => Debugger::Legacy,
            _ => Debugger::Debugpy,
        };
        let cluster = self.field.cluster;
        self.id = self
            .seat
            .begin(cluster, self.field, self.turns, self.debugger);
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
        match self.chance.random_range(0..17) {
            0..5 => self.inspect(),
            5 if !self.stepped => self.step(),
            6..9 => {
                self.note("vanished");
                self.session = None;
            }
            9 => self.intrude(),
            10 => self.resume_task(),
            11 => {
                self.disconnect_and_run("exec", &["--stay", "--timeout", "20s"], &["--", "p 6 * 7"])
            }
            12 => self.disconnect_and_run("park", &["--for", "30m"], &[]),
            13..15 => self.take_over(),
            15 => self.release_as_admin(),
            _ => self.rest(2000),
        }
    }

    fn rest(&mut self, max_ms: u64) {
        let rest = self.chance.random_range(50..max_ms);
        std::thread::sleep(Duration::from_millis(rest));
    }

    /// Whether there is a session now: attaches where there is none.
    fn is_attached(&mut self) -> bool {
        if self.session.is_some() {
            return true;
        }
        let holders = self.seat.holders();
        let user = holders[self.chance.random_range(0..holders.len())];
        let tool = self.tool();
        match self.attach(user, tool, false) {
            Attempt::Attached(session) => {
                self.is_at(user, session);
                self.note(&format!("attached ({tool:?})"));
                self.inspect();
                self.session.is_some()
            }
            Attempt::Refused(why) => {
                self.note_refusal(&why);
                false
            }
            Attempt::Lost => {
                self.note(&format!("lost while attaching ({tool:?})"));
                false
            }
        }
    }

    /// Picks a tool that can attach to the task.
    fn tool(&mut self) -> Tool {
        match (self.debugger, self.chance.random_range(0..10)) {
            (Debugger::Debugpy, 0..5) => Tool::Editor,
            (Debugger::Debugpy, 5..7) => Tool::Family,
            (Debugger::Debugpy, 7..9) | (Debugger::Legacy, 0..5) => Tool::Debug,
            _ => Tool::Lines,
        }
    }

    fn is_at(&mut self, user: &'static str, session: Session) {
        self.seat.hold(user);
        self.user = user;
        self.session = Some(session);
    }

    /// Any way to any relay.
    fn way(&mut self, user: &'static str) -> Way {
        let relay = self.chance.random_range(0..self.field.refuge.relays());
        let connects = self.chance.random_bool(0.5);
        self.field.way(user, relay, connects)
    }

    fn attach(&mut self, user: &'static str, tool: Tool, take_over: bool) -> Attempt {
        let way = self.way(user);
        let name = self.seat.task();
        let target = Target {
            id: self.id.as_str().unwrap(),
            name: &name,
            take_over,
        };
        let attaching = tool.attach(self.field.cluster, &way, &target);
        self.field.report(
            self.seat,
            &format!("{user} attaches ({tool:?}) at {}", way.to),
        );
        self.field
            .attaching(self.seat.node, || self.runtime.block_on(attaching))
    }

    fn note(&self, what: &str) {
        self.field.note(what);
        self.field.report(self.seat, what);
    }

    /// Records a refusal, without its variable parts.
    fn note_refusal(&self, why: &str) {
        self.field.report(self.seat, why);
        let what = why.split_once(" is ").map_or(why, |(_, what)| what);
        let what = what.split([',', ';', '(']).next().unwrap_or_default();
        let words = what.split_whitespace();
        let words = words.filter(|word| !word.chars().any(|c| c.is_ascii_digit()));
        let what: Vec<_> = words.collect();
        self.field.note(&what.join(" "));
    }

    /// Continues the session in some way, and returns it unless it has ended.
    fn continue_session<T>(&mut self, what: Option<T>) -> Option<T> {
        if what.is_none() {
            self.note("the session was lost");
            self.session = None;
        }
        what
    }

    /// Checks that the task is still at its line.
    fn inspect(&mut self) {
        let Some(session) = &mut self.session else {
            return;
        };
        let line = self.runtime.block_on(session.line());
        let Some(line) = self.continue_session(line) else {
            return;
        };
        let first = match self.debugger {
            Debugger::Debugpy => self.breakpoint,
            // The legacy debugger stops on the next line.
            Debugger::Legacy => self.breakpoint + 1,
        };
        let next = first + 1;
        let is_at_location = line == first || self.stepped && line == next;
        assert!(is_at_location, "the task stands elsewhere: line {line}");
        self.stepped = line == next;
    }

    /// Steps over one line. What is lost on the way may have come to pass.
    fn step(&mut self) {
        let Some(session) = &mut self.session else {
            return;
        };
        self.stepped = true;
        let stepped = self.runtime.block_on(session.step());
        if self.continue_session(stepped).is_some() {
            self.note("stepped");
        }
    }

    fn resume_task(&mut self) {
        let Some(mut session) = self.session.take() else {
            return;
        };
        self.seat.may_resume(ResumeCause::Resumed);
        if self.runtime.block_on(session.resume_task()).is_some() {
            self.note("let it run");
            let until = Instant::now() + RESPONSE_TIMEOUT;
            while !self.seat.is_past() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }

    /// Vanishes, and has `ray-relay` do that to the task, which stays where it is.
    fn disconnect_and_run(&mut self, command: &str, options: &[&str], trailing_args: &[&str]) {
        self.session = None;
        let (code, output) = self.run(self.user, command, options, trailing_args);
        match (code, output.lines().last()) {
            (Some(0), _) | (_, None) => self.note(command),
            (_, Some(why)) => self.note_refusal(why),
        }
    }

    /// Runs `ray-relay COMMAND` as that user, and returns its exit code and output.
    fn run(
        &mut self,
        user: &'static str,
        command: &str,
        options: &[&str],
        trailing_args: &[&str],
    ) -> (Option<i32>, String) {
        let way = self.way(user);
        self.field
            .report(self.seat, &format!("{user} runs {command} at {}", way.to));
        let mut run = way.command(self.field.cluster, command);
        run.args(options)
            .arg(self.id.as_str().unwrap())
            .args(trailing_args);
        let mut run = tokio::process::Command::from(run);
        let running = async { timeout(COMMAND_TIMEOUT, run.kill_on_drop(true).output()).await };
        let ran = self
            .field
            .attaching(self.seat.node, || self.runtime.block_on(running));
        let Ok(ran) = ran else {
            return (None, format!("{command} was given up"));
        };
        let ran = ran.unwrap();
        let output = [ran.stdout, ran.stderr].concat();
        let text = String::from_utf8_lossy(&output).into_owned();
        (ran.status.code(), text)
    }

    /// Another user tries to attach to the task or to release it, and must be refused while it has an owner.
    fn intrude(&mut self) {
        let Some(_) = self.seat.held() else { return };
        let holders = self.seat.holders();
        let others = WITH_CONNECT.iter().filter(|user| !holders.contains(user));
        // An administrator may.
        let others: Vec<_> = others.filter(|user| **user != ADMIN).collect();
        let other = *others[self.chance.random_range(0..others.len())];
        let got_at_it = match self.chance.random_range(0..5) {
            0 => self.run(other, "release", &[], &[]).0 == Some(0),
            what => {
                let tool = [Tool::Editor, Tool::Debug, Tool::Lines][what % 3];
                match self.attach(other, tool, what == 4) {
                    Attempt::Attached(_) => true,
                    Attempt::Refused(_) => {
                        self.note("an intruder was refused");
                        false
                    }
                    Attempt::Lost => {
                        self.note("an intruder lost the connection");
                        false
                    }
                }
            }
        };
        if got_at_it {
            assert!(
                self.seat.cause().is_some(),
                "{other} got at what {holders:?} have"
            );
            self.seat.may_be_of(other);
        }
    }

    /// An administrator takes over a parked task. An attached one is refused.
    fn take_over(&mut self) {
        if self.seat.holders().contains(&ADMIN) {
            return;
        }
        if self.chance.random_bool(0.7) {
            self.session = None;
        }
        self.seat.may_be_of(ADMIN);
        let tool = match self.tool() {
            Tool::Family | Tool::Lines => Tool::Debug,
            tool => tool,
        };
        match self.attach(ADMIN, tool, true) {
            Attempt::Attached(session) => {
                self.assert_no_other_owner();
                self.is_at(ADMIN, session);
                self.note("an administrator took over");
                self.inspect();
            }
            Attempt::Refused(_) => {
                self.seat.is_not_owned_by(ADMIN);
                self.note("an administrator was refused");
            }
            Attempt::Lost => self.note("an administrator lost the connection"),
        }
    }

    /// An administrator releases parked tasks, but no attached ones.
    fn release_as_admin(&mut self) {
        if self.chance.random_bool(0.7) {
            self.session = None;
        }
        let (code, output) = self.run(ADMIN, "release", &[], &[]);
        if output.contains("not released") || output.contains("No waiting task") {
            return self.note("an administrator released nothing");
        }
        if code == Some(0) {
            self.assert_no_other_owner();
            self.note("an administrator released it");
        }
        self.seat.may_resume(ResumeCause::Released);
    }

    /// The session that there was is over.
    fn assert_no_other_owner(&mut self) {
        if let Some(mut session) = self.session.take() {
            let line = self.runtime.block_on(session.line());
            assert_eq!(line, None, "what {} is at has gone to another", self.user);
        }
    }
}
