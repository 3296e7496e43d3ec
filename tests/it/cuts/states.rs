//! The states of a session when it is cut, and the conditions that must hold afterwards.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::time::{Instant, sleep};

use super::moments::Witness;
use super::{Field, Link};
use crate::support::dap_client::{DapClient, Editor};
use crate::support::ray;

/// Lines of cuts.py.
const BREAKPOINT_LINE: u32 = 14;
const NEXT_LINE: u32 = 15;
const LATER_LINE: u32 = 17;

/// How long a cut client waits for an answer after the repair, before it reconnects.
const RECONNECT_AFTER: Duration = Duration::from_secs(8);
/// The same for clients that should not notice the cut.
const LOSS_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a session may take to be taken over.
const TAKE_OVER_TIMEOUT: Duration = Duration::from_secs(90);

/// Bytes of variables in one message.
const LARGE_BYTES: usize = 10_000_000;

/// The state of a session at the cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Stopped,
    /// A cluster session with three children.
    Family,
    /// In the middle of ten megabytes of variables.
    Large,
    Running,
    Attaching,
}

/// The outcome of a session.
pub(super) struct Outcome {
    /// The connection on which it continued.
    how: &'static str,
    /// The pause, from when the network was mended.
    pause: Duration,
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, {:.1} s", self.how, self.pause.as_secs_f64())
    }
}

impl State {
    pub(super) const ALL: [Self; 5] = [
        Self::Stopped,
        Self::Family,
        Self::Large,
        Self::Running,
        Self::Attaching,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::Family => "family",
            Self::Large => "large",
            Self::Running => "running",
            Self::Attaching => "attaching",
        }
    }

    /// Names of the tasks that it takes.
    pub(super) fn tasks(self) -> Vec<String> {
        match self {
            Self::Family => (1..=3).map(|n| format!("family{n}")).collect(),
            _ => vec![self.name().to_owned()],
        }
    }

    /// Lives through one cut.
    pub(super) async fn live(self, field: &Field<'_>, witness: &mut Witness<'_>) -> Outcome {
        match self {
            Self::Stopped => stopped(field, witness).await,
            Self::Family => Box::pin(family(field, witness)).await,
            Self::Large => large(field, witness).await,
            Self::Running => running(field, witness).await,
            Self::Attaching => attaching(field, witness).await,
        }
    }
}

/// The client's request during the cut, as from a click.
async fn click(client: &mut DapClient) -> u64 {
    sleep(Duration::from_millis(200)).await;
    client.send_into_the_dark("threads").await
}

/// Whether the session goes on over the connection that it has: the click is answered, or was and the session still is.
async fn session_continues(field: &Field<'_>, client: &mut DapClient, click: u64) -> bool {
    let max_wait = match field.link {
        Link::Client | Link::Agent => RECONNECT_AFTER,
        Link::Connect | Link::Head => LOSS_TIMEOUT,
    };
    let answer = client.response_within(click, max_wait).await;
    if !answer.is_some_and(|answer| answer["success"] == true) {
        return false;
    }
    let again = client.send_into_the_dark("threads").await;
    let answer = client.response_within(again, max_wait).await;
    answer.is_some_and(|answer| answer["success"] == true)
}

/// Attaches again, and retries while the previous session is still open.
async fn attach_again(field: &Field<'_>, attach: &Map<String, Value>, lines: &[u32]) -> DapClient {
    let end = Instant::now() + TAKE_OVER_TIMEOUT;
    loop {
        let mut client = field.dial().await;
        let answer = client
            .try_start(attach.clone(), Some((&field.file, lines)))
            .await;
        if answer["success"] == true {
            return client;
        }
        let why = answer["message"].as_str().unwrap_or_default().to_owned();
        field.note_refusal(&why);
        assert!(Instant::now() < end, "not taken over in time: {why}");
        sleep(Duration::from_millis(250)).await;
    }
}

/// The client of the session after the cut, which stands at `line` again, on whichever connection.
async fn found(
    field: &Field<'_>,
    witness: &Witness<'_>,
    mut client: DapClient,
    click: u64,
    attach: &Map<String, Value>,
) -> (DapClient, Outcome) {
    let continues = session_continues(field, &mut client, click).await;
    field.check_continues(continues);
    let (client, how) = match continues {
        true => (client, "goes on"),
        false => {
            drop(client);
            (attach_again(field, attach, &[]).await, "taken over")
        }
    };
    let pause = witness.since_over();
    (client, Outcome { how, pause })
}

/// Frames of a stop, for the comparison.
async fn frames(client: &mut DapClient, thread: u64) -> Vec<(u64, String, u32)> {
    let frames = client.frames(thread).await.into_iter();
    frames
        .map(|frame| (frame.id, frame.name, frame.line))
        .collect()
}

async fn stopped(field: &Field<'_>, witness: &mut Witness<'_>) -> Outcome {
    let attach = field.attach("stopped");
    let mut client = field.dial().await;
    client.start(attach.clone(), None).await;
    let (thread, _) = client.stopped().await;
    let frame = client.frames(thread).await[0].id;
    client.evaluate(frame, "y = 1000").await;
    client.step_over(thread).await;
    let before = frames(&mut client, thread).await;
    let locals = client.locals(before[0].0).await;
    assert_eq!((before[0].2, &*locals["y"]), (NEXT_LINE, "1000"));

    witness.turn().await;
    witness.cut().await;
    let click = click(&mut client).await;
    witness.over().await;

    let (mut client, outcome) = found(field, witness, client, click, &attach).await;
    let thread = match outcome.how {
        "goes on" => thread,
        _ => client.stopped().await.0,
    };
    assert_eq!(frames(&mut client, thread).await, before);
    assert_eq!(client.locals(before[0].0).await, locals);
    field.assert_paused("stopped");
    client.step_over(thread).await;
    assert_eq!(client.frames(thread).await[0].line, NEXT_LINE + 1);
    client.resume(thread).await;
    client.assert_in_order();
    outcome
}

/// Asks for ten megabytes of variables; returns the `seq` of that.
async fn ask_large(client: &mut DapClient, thread: u64) -> u64 {
    let frame = client.frames(thread).await[0].id;
    let scopes = client.call("scopes", json!({"frameId": frame})).await;
    let reference = &scopes["scopes"][0]["variablesReference"];
    let locals = json!({"variablesReference": reference});
    let locals = client.call("variables", locals).await;
    let locals = locals["variables"].as_array().unwrap();
    let large = locals
        .iter()
        .find(|local| local["name"] == "large")
        .unwrap();
    let reference = &large["variablesReference"];
    client
        .send("variables", json!({"variablesReference": reference}))
        .await
}

/// All that `answer` says of variables but for the numbers by which they are asked for, which are new each time.
fn parts(answer: &Value) -> Vec<String> {
    let variables = answer["body"]["variables"].as_array().unwrap().iter();
    let parts = variables.map(|variable| {
        let mut variable = variable.clone();
        variable["variablesReference"] = Value::Null;
        variable.to_string()
    });
    parts.collect()
}

async fn large(field: &Field<'_>, witness: &mut Witness<'_>) -> Outcome {
    let attach = field.attach("large");
    let mut client = field.dial().await;
    client.start(attach.clone(), None).await;
    let (thread, _) = client.stopped().await;
    let request = ask_large(&mut client, thread).await;
    let whole = parts(&client.response(request).await);
    assert!(whole.iter().map(|part| part.len()).sum::<usize>() > LARGE_BYTES);

    witness.turn().await;
    let request = ask_large(&mut client, thread).await;
    client.received_in_part(100_000).await;
    witness.cut().await;
    let click = click(&mut client).await;
    // An editor whose own way is whole reads on: from one that does not, the relay parts.
    let mut answer = match field.link {
        Link::Head => Some(client.response(request).await),
        Link::Client | Link::Connect | Link::Agent => None,
    };
    witness.over().await;

    let (mut client, outcome) = found(field, witness, client, click, &attach).await;
    let (thread, request) = match outcome.how {
        "goes on" => (thread, request),
        _ => {
            let (thread, _) = client.stopped().await;
            answer = None;
            (thread, ask_large(&mut client, thread).await)
        }
    };
    let answer = match answer {
        Some(answer) => answer,
        None => client.response(request).await,
    };
    assert!(parts(&answer) == whole, "it differs");
    field.assert_paused("large");
    client.resume(thread).await;
    client.assert_in_order();
    outcome
}

async fn running(field: &Field<'_>, witness: &mut Witness<'_>) -> Outcome {
    let attach = field.attach("running");
    let mut client = field.dial().await;
    let lines = &[LATER_LINE][..];
    client
        .start(attach.clone(), Some((&field.file, lines)))
        .await;
    let (thread, _) = client.stopped().await;

    witness.turn().await;
    client.resume(thread).await;
    witness.cut().await;
    let click = click(&mut client).await;
    witness.over().await;

    let continues = session_continues(field, &mut client, click).await;
    field.check_continues(continues);
    let how = match continues {
        true => "goes on",
        false => {
            drop(client);
            client = attach_again(field, &attach, lines).await;
            "taken over"
        }
    };
    let pause = witness.since_over();
    let (thread, _) = client.stopped().await;
    let frame = client.frames(thread).await.swap_remove(0);
    assert_eq!((&*frame.name, frame.line), ("stays", LATER_LINE));
    field.assert_paused("running");
    client.resume(thread).await;
    client.assert_in_order();
    Outcome { how, pause }
}

async fn attaching(field: &Field<'_>, witness: &mut Witness<'_>) -> Outcome {
    let attach = field.attach("attaching");
    let mut client = field.dial().await;
    witness.turn().await;
    client.initialize().await;
    let request = client.send("attach", Value::Object(attach.clone())).await;
    witness.cut().await;
    witness.over().await;

    let max_wait = match field.link {
        Link::Client | Link::Agent => RECONNECT_AFTER,
        Link::Connect | Link::Head => LOSS_TIMEOUT,
    };
    let continues = client.event_within("initialized", max_wait).await.is_some();
    field.check_continues(continues);
    let mut how = "goes on";
    if continues {
        let configured = client.send_into_the_dark("configurationDone").await;
        let configured = client.response_within(configured, max_wait).await;
        let attached = client.response_within(request, max_wait).await;
        let is_good =
            |answer: Option<Value>| answer.is_some_and(|answer| answer["success"] == true);
        if !(is_good(configured) && is_good(attached)) {
            field.check_continues(false);
            how = "taken over";
        }
    } else {
        how = "attached anew";
    }
    if how != "goes on" {
        drop(client);
        client = attach_again(field, &attach, &[]).await;
    }
    let pause = witness.since_over();
    let (thread, _) = client.stopped().await;
    assert_eq!(client.frames(thread).await[0].line, BREAKPOINT_LINE);
    field.assert_paused("attaching");
    client.resume(thread).await;
    client.assert_in_order();
    Outcome { how, pause }
}

/// A child of the cluster session, and what is remembered of it.
struct Child {
    client: DapClient,
    thread: u64,
    frames: Vec<(u64, String, u32)>,
}

async fn child(field: &Field<'_>, configuration: Map<String, Value>) -> (String, Child) {
    let name = configuration["name"].as_str().unwrap().to_owned();
    let mut client = field.dial().await;
    client.start(configuration, None).await;
    let (thread, _) = client.stopped().await;
    let frames = frames(&mut client, thread).await;
    let child = Child {
        client,
        thread,
        frames,
    };
    (name, child)
}

async fn parent(field: &Field<'_>) -> DapClient {
    let attach = field.attach_with(json!({"task": "family*", "all": true}));
    attach_again(field, &attach, &[]).await
}

async fn family(field: &Field<'_>, witness: &mut Witness<'_>) -> Outcome {
    let mut head = parent(field).await;
    let mut children = BTreeMap::new();
    for _ in 0..3 {
        let configuration = head.child().await;
        let (name, child) = child(field, configuration).await;
        children.insert(name, child);
    }
    assert_eq!(children.len(), 3);

    witness.turn().await;
    witness.cut().await;
    let mut clicks = vec![click(&mut head).await];
    for child in children.values_mut() {
        clicks.push(child.client.send_into_the_dark("threads").await);
    }
    witness.over().await;

    let mut clicks = clicks.into_iter();
    let head_goes_on = session_continues(field, &mut head, clicks.next().unwrap()).await;
    let mut retained = BTreeMap::new();
    let mut lost = BTreeMap::new();
    for ((name, mut child), click) in children.into_iter().zip(clicks) {
        match head_goes_on && session_continues(field, &mut child.client, click).await {
            true => drop(retained.insert(name, child)),
            false => drop(lost.insert(name, child.frames)),
        }
    }
    field.check_continues(head_goes_on && lost.is_empty());
    let mut how = "goes on";
    if !head_goes_on {
        drop(head);
        how = "taken over";
        head = parent(field).await;
    } else if !lost.is_empty() {
        how = "children taken over";
    }
    for _ in 0..lost.len() {
        let Some(configuration) = head.child_within(TAKE_OVER_TIMEOUT).await else {
            panic!("the parent opens no lost child again");
        };
        let configuration = serde_json::from_value(configuration).unwrap();
        let (name, child) = child(field, configuration).await;
        assert_eq!(lost.get(&name), Some(&child.frames), "{name}");
        retained.insert(name, child);
    }
    let pause = witness.since_over();
    for n in 1..=3 {
        field.assert_paused(&format!("family{n}"));
    }
    assert_eq!(retained.len(), 3);
    for mut child in retained.into_values() {
        assert_eq!(frames(&mut child.client, child.thread).await, child.frames);
        child.client.resume(child.thread).await;
        child.client.assert_in_order();
    }
    Outcome { how, pause }
}

/// The file of the tasks.
pub(super) fn file() -> String {
    ray::job("cuts.py").to_str().unwrap().to_owned()
}

/// The attach arguments of an editor.
pub(super) fn arguments(host: &str, port: u16, selector: Value) -> Map<String, Value> {
    let mut arguments = Editor::VsCode.attach(host, port, "");
    arguments.insert("rayRelay".into(), selector);
    arguments
}
