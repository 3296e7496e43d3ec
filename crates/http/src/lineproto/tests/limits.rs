//! How long a session may last, how long nothing may be done in it, and how long a person may sit at the list.
//!
//! The clock is paused once a prompt is there: from then on it goes by the relay's own deadlines.

use tokio::time::{Instant, pause, resume};

use crate::lineproto::tests::debugpy::{Debugpy, Worker};
use crate::lineproto::tests::*;

/// A person who has entered what waits, and sees its prompt.
async fn enters(relay: &Relay, name: &str) -> Person {
    let mut person = Person::connect(relay);
    person.say(&format!("{}\n0\n", token_of(name))).await;
    person.until("(Pdb) ").await;
    person.patience = DAY;
    person
}

struct Limited {
    relay: Relay,
    person: Person,
    task: Task,
}

/// The debugged task.
enum Task {
    Pdb(TcpStream),
    Debugpy(Worker),
}

impl Limited {
    /// Of `person`, with a breakpoint of that kind.
    async fn begin(kind: Kind, person: &str) -> Self {
        let relay = relay(true, |_| {});
        let (person, task) = match kind {
            Kind::Pdb => {
                let pdb = Pdb::listed(&relay).await;
                let (person, prompt) = tokio::join!(enters(&relay, person), pdb.entered());
                (person, Task::Pdb(prompt))
            }
            Kind::Debugpy => {
                let worker = Debugpy::listen().await;
                relay.context.registry.insert(worker.breakpoint.clone());
                let (person, worker) = tokio::join!(enters(&relay, person), worker.entered());
                (person, Task::Debugpy(worker))
            }
        };
        Self {
            relay,
            person,
            task,
        }
    }

    /// The session has ended by a limit: the task runs on, and its person is at the list.
    async fn ended(self) {
        let mut person = self.person;
        match self.task {
            Task::Pdb(mut prompt) => {
                assert!(until(&mut prompt, "c\n").await.ends_with("c\n"));
            }
            Task::Debugpy(worker) => worker.let_go().await,
        }
        person.until("No task waits").await;
        person.say("q\n").await;
        person.rest().await;
        self.relay.assert_ended("limit");
    }
}

/// After `seconds`, less what a slow machine took before the clock was paused, and with the last words.
fn assert_after(seconds: u64, began: Instant) {
    let after = began.elapsed().as_secs();
    assert!((seconds - 8..=seconds + 2).contains(&after), "{after} s");
}

#[tokio::test]
async fn session_limit_warns_and_ends_the_session() {
    for kind in [Kind::Pdb, Kind::Debugpy] {
        let mut session = Limited::begin(kind, "sue").await;
        pause();
        let began = Instant::now();
        let person = &mut session.person;
        person
            .until("*** this session ends in 5m 00s: sessions may last 20m 00s here")
            .await;
        assert_after(900, began);
        // Which is no reason to do nothing, or to be spared.
        person.say("p 1\n").await;
        person
            .until("*** this session ends in 1m 00s: sessions may last 20m 00s here")
            .await;
        assert_after(1140, began);
        person
            .until("*** this session ends, because it has lasted 20m 00s, the longest that is allowed here; the task runs on")
            .await;
        assert_after(1200, began);
        resume();
        session.ended().await;
    }
}

#[tokio::test]
async fn idle_limit_warns_and_ends_the_session() {
    let warning = "*** this session ends in 10s unless something is done in it: it may be idle for 1m 40s here";
    for kind in [Kind::Pdb, Kind::Debugpy] {
        let mut session = Limited::begin(kind, "ida").await;
        pause();
        let began = Instant::now();
        let person = &mut session.person;
        person.until(warning).await;
        assert_after(90, began);
        person.say("p 1\n").await;
        let began = Instant::now();
        person.until(warning).await;
        assert_after(90, began);
        person
            .until(
                "*** this session ends, because nothing was done in it for 1m 40s; the task runs on",
            )
            .await;
        assert_after(100, began);
        resume();
        session.ended().await;
    }
}

#[tokio::test]
async fn client_idle_at_the_list_is_closed_after_30_min() {
    let relay = relay(false, |_| {});
    let mut person = Person::connect(&relay);
    person.say("\n").await;
    person.until("q leaves): ").await;
    person.patience = DAY;
    pause();
    let began = Instant::now();
    let rest = person.rest().await;
    assert!(
        rest.contains("*** this connection is closed, because nothing was said for too long"),
        "{rest}"
    );
    assert_after(1800, began);
    assert!(relay.context.sessions.table.is_empty());
}
