//! Session limits, idle limits, and the limit for a client at the list.
//!
//! The clock is paused once the prompt is shown, and then advances by the relay's deadlines.

use tokio::time::{Instant, pause, resume};

use crate::lineproto::tests::debugpy::{Debugpy, Worker};
use crate::lineproto::tests::*;

/// Connects a client that enters the paused task and sees its prompt.
async fn enter(relay: &Relay, name: &str) -> Client {
    let mut client = Client::connect(relay);
    client.send(&format!("{}\n0\n", token_of(name))).await;
    client.until("(Pdb) ").await;
    client.timeout = DAY;
    client
}

struct LimitedSession {
    relay: Relay,
    client: Client,
    task: Task,
}

/// The debugged task.
enum Task {
    Pdb(TcpStream),
    Debugpy(Worker),
}

impl LimitedSession {
    /// Starts a session of `user` with a breakpoint of this kind.
    async fn new(kind: Kind, user: &str) -> Self {
        let relay = relay(true, |_| {});
        let (client, task) = match kind {
            Kind::Pdb => {
                let pdb = Pdb::listed(&relay).await;
                let (client, prompt) = tokio::join!(enter(&relay, user), pdb.accept());
                (client, Task::Pdb(prompt))
            }
            Kind::Debugpy => {
                let worker = Debugpy::listen().await;
                relay.context.registry.insert(worker.breakpoint.clone());
                let (client, worker) = tokio::join!(enter(&relay, user), worker.accept());
                (client, Task::Debugpy(worker))
            }
        };
        Self {
            relay,
            client,
            task,
        }
    }

    /// Expects that a limit ended the session: the task resumes, and the client is back at the list.
    async fn expect_end(self) {
        let mut client = self.client;
        match self.task {
            Task::Pdb(mut prompt) => {
                assert!(read_until(&mut prompt, "c\n").await.ends_with("c\n"));
            }
            Task::Debugpy(worker) => worker.expect_detach().await,
        }
        client.until("No task waits").await;
        client.send("q\n").await;
        client.read_all().await;
        self.relay.assert_ended("limit");
    }
}

/// Expects that `seconds` have passed, with a tolerance for the time before the clock was paused.
fn assert_after(seconds: u64, began: Instant) {
    let elapsed = began.elapsed().as_secs();
    assert!(
        (seconds - 8..=seconds + 2).contains(&elapsed),
        "{elapsed} s"
    );
}

#[tokio::test]
async fn session_limit_warns_and_ends_the_session() {
    for kind in [Kind::Pdb, Kind::Debugpy] {
        let mut session = LimitedSession::new(kind, "sue").await;
        pause();
        let started = Instant::now();
        let client = &mut session.client;
        client
            .until("*** this session ends in 5m 00s: sessions may last 20m 00s here")
            .await;
        assert_after(900, started);
        // Activity does not extend the session limit.
        client.send("p 1\n").await;
        client
            .until("*** this session ends in 1m 00s: sessions may last 20m 00s here")
            .await;
        assert_after(1140, started);
        client
            .until("*** this session ends, because it has lasted 20m 00s, the longest that is allowed here; the task runs on")
            .await;
        assert_after(1200, started);
        resume();
        session.expect_end().await;
    }
}

#[tokio::test]
async fn idle_limit_warns_and_ends_the_session() {
    let warning = "*** this session ends in 10s unless something is done in it: it may be idle for 1m 40s here";
    for kind in [Kind::Pdb, Kind::Debugpy] {
        let mut session = LimitedSession::new(kind, "ida").await;
        pause();
        let started = Instant::now();
        let client = &mut session.client;
        client.until(warning).await;
        assert_after(90, started);
        client.send("p 1\n").await;
        let started = Instant::now();
        client.until(warning).await;
        assert_after(90, started);
        client
            .until(
                "*** this session ends, because nothing was done in it for 1m 40s; the task runs on",
            )
            .await;
        assert_after(100, started);
        resume();
        session.expect_end().await;
    }
}

#[tokio::test]
async fn client_idle_at_the_list_is_closed_after_30_min() {
    let relay = relay(false, |_| {});
    let mut client = Client::connect(&relay);
    client.send("\n").await;
    client.until("q leaves): ").await;
    client.timeout = DAY;
    pause();
    let started = Instant::now();
    let output = client.read_all().await;
    assert!(
        output.contains("*** this connection is closed, because nothing was said for too long"),
        "{output}"
    );
    assert_after(1800, started);
    assert!(relay.context.sessions.table.is_empty());
}
