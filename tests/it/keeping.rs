//! Relays that end during sessions. The agents park the tasks, and their owners resume them at another relay.

use std::net::SocketAddr;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::subprocesses::Standing;
use crate::support::agent::{Agent, linked};
use crate::support::dap_client::{DapClient, Editor};
use crate::support::issuer::Issuer;
use crate::support::namespaces::{Cluster, ON_TWO_NODES, RELAY_IP};
use crate::support::ray::NEWEST;
use crate::support::relay::{PORT, Relay};
use crate::support::scene::Scene;
use crate::support::{eventually, say};

/// The line of `square` in tasks.py behind the one of the breakpoint.
const NEXT_LINE: u32 = 10;

/// Tokens, and a configuration for all relays.
struct Shared {
    issuer: Issuer,
    config: String,
}

impl Shared {
    fn new(keeps: &str) -> Self {
        let issuer = Issuer::new();
        let key = issuer.path("relay.pub");
        let text = format!(
            "[upstream]\npath = \"agent\"\n[auth]\nkeys = [{key:?}]\n[park]\nfor = \"{keeps}\"\n[listen]\ndrain_timeout = \"1s\"\n"
        );
        let config = issuer.write("relay.toml", &text);
        Self { issuer, config }
    }

    fn mint(&self, subject: &str, scope: &str) -> String {
        self.issuer.mint(subject, &["--scope", scope])
    }

    fn relay<'a>(&self, cluster: &'a Cluster, port: u16, token: &str) -> Scene<'a> {
        Scene {
            relay: Relay::guarded_at(cluster, port, &["--config", &self.config]),
            cluster,
            token: Some(token.to_owned()),
        }
    }

    /// Agents on all nodes that link to the relay of `scene` and to one at the next port.
    fn agents(&self, scene: &Scene<'_>) -> [Agent; 2] {
        let token = self
            .issuer
            .write("agent.token", &self.mint("agents", "node"));
        let token = format!("--token-file={token}");
        let other = format!("--relay=http://{RELAY_IP}:{}", PORT + 1);
        ["head", "w1"].map(|node| Agent::on(scene, node, &["--allow-plaintext", &other, &token]))
    }
}

/// Two relays with agents that are linked to both, and the user `ada`.
struct Pair<'a> {
    shared: Shared,
    ada: String,
    one: Scene<'a>,
    other: Scene<'a>,
    _agents: [Agent; 2],
}

impl<'a> Pair<'a> {
    fn new(cluster: &'a Cluster, keeps: &str) -> Self {
        let shared = Shared::new(keeps);
        let ada = shared.mint("ada", "list,debug,admin");
        let one = shared.relay(cluster, PORT, &ada);
        let other = shared.relay(cluster, PORT + 1, &ada);
        let agents = shared.agents(&one);
        for scene in [&one, &other] {
            linked(scene, 2);
        }
        Self {
            shared,
            ada,
            one,
            other,
            _agents: agents,
        }
    }
}

async fn attached(cluster: &Cluster, port: u16, id: &Value, token: &str) -> DapClient {
    let to = SocketAddr::from((RELAY_IP, port));
    let mut client = DapClient::connect_from(Editor::VsCode, cluster, "client", to).await;
    let mut arguments = Editor::VsCode.attach(&to.ip().to_string(), port, "");
    arguments.insert("rayRelay".into(), json!({"breakpoint": id, "token": token}));
    client.start(arguments, None).await;
    client
}

/// Waits until the relay of `scene` lists `id` as kept for `ada`.
fn parked(scene: &Scene<'_>, id: &Value) -> Value {
    eventually("a worker that is kept", Duration::from_secs(30), || {
        let row = scene.list().into_iter().find(|row| row["id"] == *id)?;
        let is_parked = row["state"] == "parked" && row["holder"]["subject"] == "ada";
        is_parked.then_some(row)
    })
}

/// Attached at `port` as `ada`, a step further, and with a variable that only this session has set.
async fn stepped(
    scene: &Scene<'_>,
    port: u16,
    id: &Value,
    token: &str,
) -> (DapClient, Vec<(u64, u32)>) {
    let mut client = attached(scene.cluster, port, id, token).await;
    let (thread, _) = client.stopped().await;
    let frame = client.frames(thread).await[0].id;
    client.evaluate(frame, "y = 1000 + x").await;
    client.step_over(thread).await;
    let frames = client.frames(thread).await;
    assert_eq!(frames[0].line, NEXT_LINE);
    let frames = frames.iter().map(|frame| (frame.id, frame.line)).collect();
    (client, frames)
}

/// Goes on with a session at `port` where it was, to the end of its task.
async fn resume_and_finish(
    scene: &Scene<'_>,
    port: u16,
    id: &Value,
    token: &str,
    before: &[(u64, u32)],
) {
    let mut client = attached(scene.cluster, port, id, token).await;
    let (thread, _) = client.stopped().await;
    let frames = client.frames(thread).await;
    let now: Vec<_> = frames.iter().map(|frame| (frame.id, frame.line)).collect();
    assert_eq!(now, before, "the same frames of the same stop");
    let locals = client.locals(frames[0].id).await;
    let (x, y): (u32, u32) = (locals["x"].parse().unwrap(), locals["y"].parse().unwrap());
    assert_eq!(y, 1000 + x);
    let (thread, _) = client.step_over(thread).await;
    assert_eq!(client.frames(thread).await[0].line, NEXT_LINE + 1);
    client.resume(thread).await;
}

#[tokio::test]
async fn sessions_survive_the_death_of_their_relay_at_another_one() {
    let Some(cluster) = Cluster::shared(NEWEST) else {
        return;
    };
    let pair = Pair::new(&cluster, "25s");
    let Pair {
        shared,
        ada,
        one,
        other,
        ..
    } = &pair;
    let bob = shared.mint("bob", "list,debug");
    let mut driver = cluster.start_driver("tasks.py", &ON_TWO_NODES);
    let rows = one.wait_listed(3);
    other.wait_listed(3);
    let mut sessions = Vec::new();
    for row in &rows {
        sessions.push(stepped(one, PORT, &row["id"], ada).await);
    }
    say("the relay is killed under three sessions");
    one.relay.signal(Signal::KILL);
    for row in &rows {
        parked(other, &row["id"]);
    }
    let listed = other
        .command(&["list", "--insecure-send-token"])
        .output()
        .unwrap();
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(listed.contains("parked by ada for "), "{listed}");
    let refused = json!({"breakpoint": rows[0]["id"], "token": bob});
    let refused = other.refusal(refused).await;
    // Not with what client, nor from where.
    assert!(
        refused.contains("is parked by ada through another relay for "),
        "{refused}"
    );
    say("a look at one, by the permission to look, leaves it parked");
    let view = shared.mint("ada", "list,view");
    let id = rows[0]["id"].as_str().unwrap();
    let mut snapshot = other.command(&["snapshot", id, "--insecure-send-token"]);
    let output = snapshot.env("RAY_RELAY_TOKEN", view).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("tasks.py(10)square()"), "{text} {output:?}");
    assert!(text.contains("       y = 100"), "{text}");
    parked(other, &rows[0]["id"]);
    std::thread::sleep(Duration::from_secs(2));
    assert!(driver.is_waiting());
    say("two are gone on with, and the time of the third is over");
    for (row, (_, before)) in rows.iter().zip(&sessions).take(2) {
        resume_and_finish(other, PORT + 1, &row["id"], ada, before).await;
    }
    let result = driver.result();
    let values = result.as_array().unwrap().iter();
    let values = values.map(|row| row[1].as_u64().unwrap());
    assert!(values.eq([1002, 1003, 1004]), "{result}");
}

#[tokio::test]
async fn sessions_survive_an_upgrade_of_the_only_relay() {
    let Some(cluster) = Cluster::shared(NEWEST) else {
        return;
    };
    let shared = Shared::new("5m");
    let ada = shared.mint("ada", "list,debug,admin");
    let mut one = shared.relay(&cluster, PORT, &ada);
    let _agents = shared.agents(&one);
    linked(&one, 2);
    let mut driver = cluster.start_driver("tasks.py", &ON_TWO_NODES);
    let rows = one.wait_listed(3);
    let (lost, of_lost) = stepped(&one, PORT, &rows[0]["id"], &ada).await;
    let (mut message, of_told) = stepped(&one, PORT, &rows[1]["id"], &ada).await;
    // A park of the relay's own, a session, and a task that waits.
    drop(lost);
    parked(&one, &rows[0]["id"]);
    one.relay.signal(Signal::TERM);
    let words = message.important_output().await;
    say(words);
    message.event("terminated").await;
    one.relay.wait_exit(Duration::from_secs(30));
    drop(one);
    let next = shared.relay(&cluster, PORT, &ada);
    linked(&next, 2);
    for row in &rows[..2] {
        parked(&next, &row["id"]);
    }
    assert!(driver.is_waiting());
    resume_and_finish(&next, PORT, &rows[0]["id"], &ada, &of_lost).await;
    let id = rows[1]["id"].as_str().unwrap();
    say("one is released");
    let released = next
        .command(&["release", "--yes", "--insecure-send-token", id])
        .output()
        .unwrap();
    assert!(released.status.success(), "{released:?}");
    drop(of_told);
    let mut last = attached(&cluster, PORT, &rows[2]["id"], &ada).await;
    let (thread, _) = last.stopped().await;
    last.resume(thread).await;
    driver.result();
}

#[tokio::test]
async fn task_and_subprocess_move_to_another_relay() {
    let Some(cluster) = Cluster::shared(NEWEST) else {
        return;
    };
    let pair = Pair::new(&cluster, "5m");
    let Pair {
        ada, one, other, ..
    } = &pair;
    let parked = Standing::new(one, Some(ada)).await;
    one.relay.signal(Signal::KILL);
    let mut lost = parked.lost();
    lost.parked(other);
    lost.resume_and_finish(other).await;
}
