//! Two relays side by side, behind one address, linked with the same agents.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::nc::Person;
use crate::support::agent::Agent;
use crate::support::dap_client::{DapClient, Editor};
use crate::support::issuer::Issuer;
use crate::support::namespaces::{Cluster, ON_TWO_NODES, RELAY_IP};
use crate::support::ray::{NEWEST, OLDEST};
use crate::support::relay::{PORT, Relay};
use crate::support::scene::Scene;
use crate::support::{eventually, say};

/// The port of the address that leads to either.
const SHARED_PORT: u16 = 5700;

/// The ports of the two, and that of one that comes later.
const PORTS: [u16; 3] = [PORT, PORT + 1, PORT + 2];

/// A program that is killed when dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The shared settings of all relays, and tokens.
struct Shared(Issuer);

impl Shared {
    fn new() -> Self {
        let issuer = Issuer::new();
        issuer.token(&["keygen", "--algorithm", "HS256", &issuer.path("tickets")]);
        Self(issuer)
    }

    fn mint(&self, subject: &str, scope: &str) -> String {
        self.0.mint(subject, &["--scope", scope])
    }

    /// The relay at `port`, with a file of revocations of its own.
    fn relay<'a>(&self, cluster: &'a Cluster, port: u16, token: &str) -> Scene<'a> {
        let text = format!(
            "[upstream]\npath = \"agent\"\n[auth]\nkeys = [{:?}]\nticket_key_file = {:?}\nrevocations_file = {:?}\n",
            self.0.path("relay.pub"),
            self.0.path("tickets/relay.key"),
            self.revoked(port),
        );
        let config = self.0.write(&format!("relay-{port}.toml"), &text);
        Scene {
            relay: Relay::guarded_at(cluster, port, &["--config", &config]),
            cluster,
            token: Some(token.to_owned()),
        }
    }

    fn revoked(&self, port: u16) -> String {
        self.0.path(&format!("revoked-{port}"))
    }
}

/// An agent on `node` that links to the relay of `scene` and all others.
fn agent(scene: &Scene<'_>, node: &str, token_file: Option<&str>) -> Agent {
    let others = PORTS[1..]
        .iter()
        .map(|port| format!("--relay=http://{RELAY_IP}:{port}"));
    let token = token_file.map(|file| format!("--token-file={file}"));
    let args: Vec<_> = others.chain(token).collect();
    let plain = ["--allow-plaintext"];
    let args: Vec<_> = plain
        .into_iter()
        .chain(args.iter().map(String::as_str))
        .collect();
    Agent::on(scene, node, &args)
}

/// One address for both, as a Service has.
fn splitter(cluster: &Cluster) -> Process {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cluster/splitter.py");
    let mut child = cluster
        .exec("relay", cluster.venv().python())
        .arg(script)
        .arg(format!("{RELAY_IP}:{SHARED_PORT}"))
        .args(PORTS[..2].iter().map(|port| format!("{RELAY_IP}:{port}")))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let stdout = child.stdout.take().unwrap();
    BufReader::new(stdout).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    Process(child)
}

/// Waits until `count` nodes have an agent at the relay of `scene`, which has `others` as peers.
fn linked(scene: &Scene<'_>, count: usize, others: usize) {
    eventually("the agents' links", Duration::from_secs(60), || {
        let answer = scene.get("/relay/v1/nodes");
        let nodes = answer["nodes"].as_array().unwrap();
        let linked = nodes.iter().filter(|node| node["link"] == "linked").count();
        let known = answer["other_relays"].as_array().unwrap().len();
        (linked == count && known == others).then_some(())
    });
}

fn row(scene: &Scene<'_>, id: &Value) -> Option<Value> {
    scene.list().into_iter().find(|row| row["id"] == *id)
}

/// Waits until the relay of `scene` shows an owner of `id`, and returns it.
fn holder(scene: &Scene<'_>, id: &Value) -> Value {
    eventually("a holder", Duration::from_secs(10), || {
        let holder = row(scene, id)?["holder"].take();
        holder.is_object().then_some(holder)
    })
}

/// An editor at `port`, attached to `id` with `token`.
async fn attached(cluster: &Cluster, port: u16, id: &Value, token: &str) -> DapClient {
    let to = SocketAddr::from((RELAY_IP, port));
    let mut client = DapClient::connect_from(Editor::VsCode, cluster, "client", to).await;
    let mut arguments = Editor::VsCode.attach(&to.ip().to_string(), port, "");
    arguments.insert("rayRelay".into(), json!({"breakpoint": id, "token": token}));
    client.start(arguments, None).await;
    client
}

/// Returns the frame of the client's stop, once it can be read.
async fn evaluates(client: &mut DapClient) -> u64 {
    let (thread, _) = client.stopped().await;
    let frame = client.frames(thread).await[0].id;
    let evaluated = client.evaluate(frame, "x * 100").await;
    assert!(evaluated.ends_with("00"), "{evaluated}");
    frame
}

/// Returns the output of `ray-relay release` of `id` at the relay of `scene`.
fn released(scene: &Scene<'_>, id: &Value, args: &[&str]) -> String {
    let released = scene
        .command(&["release", "--yes", "--insecure-send-token"])
        .args(args)
        .arg(id.as_str().unwrap())
        .output()
        .unwrap();
    assert!(!released.status.success(), "{released:?}");
    String::from_utf8_lossy(&released.stdout).into_owned()
        + &String::from_utf8_lossy(&released.stderr)
}

/// The sentence without the times in it, and without the number of the request that it answers.
fn timeless(sentence: &str) -> String {
    let (sentence, _) = sentence.split_once(" (request ").unwrap();
    let (before, after) = sentence.split_once(", for ").unwrap();
    let (_, after) = after.split_once(" now; ").unwrap();
    format!("{before}; {after}")
}

#[tokio::test]
async fn two_relays_behind_one_address_are_like_one() {
    let Some(cluster) = Cluster::shared(NEWEST) else {
        return;
    };
    let shared = Shared::new();
    let ada = shared.mint("ada", "list,debug,admin,terminate");
    let bob = shared.mint("bob", "list,debug");
    let token_file = shared
        .0
        .write("agent.token", &shared.mint("agents", "node"));
    let one = shared.relay(&cluster, PORTS[0], &ada);
    let other = shared.relay(&cluster, PORTS[1], &ada);
    let _agents = ["head", "w1"].map(|node| agent(&one, node, Some(&token_file)));
    let _splitter = splitter(&cluster);
    let both = [&one, &other];
    for scene in both {
        linked(scene, 2, 1);
    }
    let driver = cluster.start_driver("tasks.py", &ON_TWO_NODES);
    let rows = one.wait_listed(3);
    let ids = |rows: Vec<Value>| {
        let mut ids: Vec<_> = rows.iter().map(|row| row["id"].to_string()).collect();
        ids.sort();
        ids
    };
    assert_eq!(ids(rows.clone()), ids(other.wait_listed(3)));

    say("a client of either sees the holders of both");
    let [first, second, third] = [0, 1, 2].map(|n| rows[n]["id"].clone());
    let mut adas = attached(&cluster, SHARED_PORT, &first, &ada).await;
    let mut bobs = attached(&cluster, SHARED_PORT, &second, &bob).await;
    let mut here = Vec::new();
    for scene in both {
        let holders = [holder(scene, &first), holder(scene, &second)];
        assert_eq!(
            [&holders[0]["subject"], &holders[1]["subject"]],
            ["ada", "bob"]
        );
        assert!(
            holders.iter().all(|holder| holder["peer"].is_string()),
            "{holders:?}"
        );
        here.push(holders.map(|holder| holder["replica"].is_null()));
        let sessions = scene.get("/relay/v1/sessions");
        let sessions = sessions["sessions"].as_array().unwrap();
        let attached = sessions.iter().filter(|row| row["state"] == "attached");
        let mut users: Vec<_> = attached
            .map(|row| row["subject"].as_str().unwrap())
            .collect();
        users.sort_unstable();
        assert_eq!(users, ["ada", "bob"]);
    }
    // Each has one of the two.
    assert_eq!(here[0], here[1].map(|is_here| !is_here));
    assert_ne!(here[0][0], here[0][1]);
    let (with_ada, with_bob) = match here[0][0] {
        true => (&one, &other),
        false => (&other, &one),
    };

    say("a second client is refused with the same sentence");
    let selector = json!({"breakpoint": first, "token": bob});
    let mine = timeless(&with_ada.refusal(selector.clone()).await);
    let theirs = timeless(&with_bob.refusal(selector).await);
    assert!(mine.contains("is being debugged by ada with "), "{mine}");
    assert_eq!(theirs.replace(" through another relay", ""), mine);
    for force in [&[][..], &["--force"]] {
        let released = released(with_bob, &first, force);
        assert!(
            released.contains("is being debugged by ada with "),
            "{released}"
        );
    }
    evaluates(&mut adas).await;
    let frame = evaluates(&mut bobs).await;

    say("a ticket of one is good at the other");
    let mut parent = with_ada.connect(Editor::VsCode).await;
    let token = json!({"token": ada, "all": true});
    parent
        .start(with_ada.arguments(Editor::VsCode, "", token), None)
        .await;
    let mut child = parent.child().await;
    let selector = child["rayRelay"].as_object_mut().unwrap();
    assert_eq!(selector["breakpoint"], third);
    assert!(selector.contains_key("ticket"), "{selector:?}");
    let selector = Value::Object(selector.clone());
    let refused = with_bob.refusal(selector).await;
    assert!(refused.contains("is at another relay"), "{refused}");
    // On its own, without the cluster session that had it opened.
    child["rayRelay"].as_object_mut().unwrap().remove("family");
    let mut with_ticket = with_bob.connect(Editor::VsCode).await;
    with_ticket.start(child, None).await;
    with_ticket.stopped().await;
    assert_eq!(holder(with_ada, &third)["subject"], "ada");
    parent.disconnect().await;
    with_ticket.disconnect().await;

    say("one is killed");
    let killed = Instant::now();
    with_ada.relay.signal(Signal::KILL);
    eventually("the right list", Duration::from_secs(10), || {
        row(with_bob, &first).is_none().then_some(())
    });
    say(format_args!(
        "right after {:.2} s",
        killed.elapsed().as_secs_f64()
    ));
    assert!(killed.elapsed() < Duration::from_secs(5));
    let evaluated = bobs.evaluate(frame, "x * 100").await;
    assert!(evaluated.ends_with("00"), "{evaluated}");

    say("one that comes later knows what Ray no longer lists, and what is revoked");
    let late = shared.relay(&cluster, PORTS[2], &ada);
    linked(&late, 2, 1);
    assert_eq!(holder(&late, &second)["subject"], "bob");
    let began = Instant::now();
    let revoked = shared.revoked(PORTS[2]);
    shared
        .0
        .token(&["revoke", "--sub", "bob", "--file", &revoked]);
    let message = bobs.important_output().await;
    assert!(message.contains("revoked"), "{message}");
    say(format_args!(
        "ended after {:.2} s",
        began.elapsed().as_secs_f64()
    ));
    assert!(began.elapsed() < Duration::from_secs(3));
    bobs.event("terminated").await;
    let port = with_bob.relay.address().port();
    let file = std::fs::read_to_string(shared.revoked(port)).unwrap();
    assert!(file.contains("bob"), "{file}");
    eventually("an end", Duration::from_secs(10), || {
        row(&late, &second).is_none().then_some(())
    });
    drop((adas, driver));
}

/// Ray 2.9.3 reports neither worker nor node of a legacy breakpoint.
#[tokio::test]
async fn a_legacy_prompt_at_one_relay_is_known_at_the_other() {
    let Some(cluster) = Cluster::up(OLDEST, 1, &[]) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("relay.toml");
    std::fs::write(&config, "[upstream]\npath = \"agent\"\n").unwrap();
    let args = ["--insecure-no-auth", "--config", config.to_str().unwrap()];
    let [one, other] = [PORTS[0], PORTS[1]].map(|port| Scene {
        relay: Relay::guarded_at(&cluster, port, &args),
        cluster: &cluster,
        token: None,
    });
    let _agents = ["head", "w1"].map(|node| agent(&one, node, None));
    for scene in [&one, &other] {
        linked(scene, 2, 1);
    }
    let mut driver = cluster.start_legacy_driver("legacy.py", &[]);
    let rows = one.wait_listed(2);
    other.wait_listed(2);
    let id = &rows[0]["id"];
    let mut person = Person::connect(&one);
    person.line("", "q leaves): ").await;
    person.line(id.as_str().unwrap(), "(Pdb) ").await;
    let there = holder(&other, id);
    assert_eq!(
        (&there["client"], there["replica"].is_string()),
        (&json!("terminal"), true)
    );
    let mut second = Person::connect(&other);
    second.line("", "q leaves): ").await;
    let refused = second.line(id.as_str().unwrap(), "it is free again").await;
    assert!(
        refused.contains("is being debugged by terminal from "),
        "{refused}"
    );
    assert!(refused.contains("through another relay"), "{refused}");
    person.line("c", "q leaves): ").await;
    eventually("an end", Duration::from_secs(10), || {
        row(&other, id).is_none().then_some(())
    });
    second.line(rows[1]["id"].as_str().unwrap(), "(Pdb) ").await;
    second.line("c", "q leaves): ").await;
    assert_eq!(driver.result(), json!([[1, 2], [2, 4]]));
}
