//! Breakpoints of an editor's cluster session in a running job.

use super::*;
use ray_relay_access::connection::summary::Summary;
use ray_relay_base::wire::dap::conversation::Conversation;

/// An editor with a cluster session.
struct Editor {
    dap: Conversation<TcpStream>,
    seq: u64,
}

impl Editor {
    /// Attaches as ben, up to the configuration.
    async fn attached(scene: &Scene, relay: Value) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await;
        let (accepted, peer) = listener.accept().await.unwrap();
        let session = scene.context.sessions.table.open(&Summary::new(peer));
        let context = Arc::clone(&scene.context);
        tokio::spawn(async move {
            ray_relay_dap::serve(context, session, accepted, ConnectionInfo::plain(peer)).await;
        });
        let dap = Conversation::new(client.unwrap(), 1 << 20);
        let mut editor = Self { dap, seq: 0 };
        let initialize = json!({"clientID": "vscode", "supportsStartDebuggingRequest": true});
        editor.send("initialize", initialize).await;
        let mut arguments = json!({"workspaceFolder": "/home/ben/job", "rayRelay": relay});
        arguments["rayRelay"]["token"] = token_of("ben").into();
        editor.send("attach", arguments).await;
        editor
            .until(|message| message["event"] == "initialized")
            .await;
        editor
    }

    async fn send(&mut self, command: &str, arguments: Value) {
        self.seq += 1;
        let request =
            json!({"type": "request", "seq": self.seq, "command": command, "arguments": arguments});
        self.dap.send(&request).await.unwrap();
    }

    async fn until(&mut self, is_it: impl Fn(&Value) -> bool) -> Value {
        let messages = async {
            loop {
                let message = self.dap.read().await.unwrap();
                if is_it(&message) {
                    return message;
                }
            }
        };
        timeout(TEST_TIMEOUT, messages).await.unwrap()
    }

    /// Sets these breakpoints in `train.py`, and returns the answers.
    async fn set(&mut self, breakpoints: Value) -> Value {
        let source = json!({"path": "/home/ben/job/train.py"});
        let arguments = json!({"source": source, "breakpoints": breakpoints});
        self.send("setBreakpoints", arguments).await;
        let answer = self.until(|message| message["command"] == "setBreakpoints");
        answer.await["body"]["breakpoints"].take()
    }

    /// The next event about the breakpoint `id`.
    async fn changed(&mut self, id: u64) -> Value {
        let is_it = move |message: &Value| {
            message["event"] == "breakpoint" && message["body"]["breakpoint"]["id"] == id
        };
        self.until(is_it).await["body"]["breakpoint"].take()
    }
}

fn armed(id: u64, at: u32) -> Value {
    json!({"id": id, "state": "armed", "at": [at]})
}

#[tokio::test]
async fn breakpoint_of_an_editor_is_armed_in_the_job_that_its_session_names() {
    let (scene, _) = scene().await;
    let mut agent = scene.linked("agent", "a1", 1).await;
    let relay = json!({"all": true, "job": "s1", "ranks": [3]});
    let mut editor = Editor::attached(&scene, relay).await;
    let answers = editor
        .set(json!([{"line": 26, "condition": "x > 1"}]))
        .await;
    assert_eq!(
        (&answers[0]["id"], &answers[0]["verified"]),
        (&json!(1), &json!(false))
    );
    let message = answers[0]["message"].as_str().unwrap();
    assert!(message.contains("the job s1"), "{message}");
    assert!(
        commands(&scene).is_empty(),
        "armed before the editor has configured"
    );
    editor.send("configurationDone", json!({})).await;
    let request = next_arm(&mut agent).await;
    let line = &request.lines[0];
    let paths = (&*line.file, line.or_file.as_deref());
    assert_eq!(paths, ("./train.py", Some("/home/ben/job/train.py")));
    let narrowed = (line.condition.as_deref(), line.ranks.as_deref());
    assert_eq!((line.id, narrowed), (1, (Some("x > 1"), Some(&[3][..]))));
    let mut first = lease(&scene, &request).await;
    report(
        &mut first,
        json!({"type": "status", "lines": [armed(1, 27)]}),
    )
    .await;
    let changed = editor.changed(1).await;
    assert_eq!(
        (&changed["verified"], &changed["line"]),
        (&json!(true), &json!(27))
    );
    let message =
        "armed in 1 worker; not in others: no agent (`ray-relay node`) is linked for its node";
    assert_eq!(changed["message"], message);

    // The first line stays armed until the new ones are.
    let log = json!({"line": 30, "logMessage": "x={x}"});
    let answers = editor
        .set(json!([{"line": 26, "condition": "x > 1"}, log]))
        .await;
    assert_eq!(answers[0]["verified"], true, "{answers}");
    let request = next_arm(&mut agent).await;
    let ids: Vec<u32> = request.lines.iter().map(|line| line.id).collect();
    assert_eq!(ids, [1, 2]);
    let mut second = lease(&scene, &request).await;
    report(
        &mut second,
        json!({"type": "status", "lines": [armed(1, 27), armed(2, 30)]}),
    )
    .await;
    assert_eq!(bytes(&mut first).await, None, "both leases are open");
    assert_eq!(editor.changed(2).await["verified"], true);
    report(
        &mut second,
        json!({"type": "hit", "id": 2, "time_ms": 7, "rank": 3, "text": "x=5"}),
    )
    .await;
    let output = editor.until(|message| message["event"] == "output").await;
    assert_eq!(output["body"]["output"], "rank 3  x=5\n");
    let place = json!([output["body"]["source"]["path"], output["body"]["line"]]);
    assert_eq!(place, json!(["/home/ben/job/train.py", 30]));

    editor.send("disconnect", json!({})).await;
    assert_eq!(bytes(&mut second).await, None, "the lease is open");
    let recorded = async {
        while commands(&scene).len() < 3 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    _ = timeout(TEST_TIMEOUT, recorded).await;
    let expected = [
        ("arm", json!([])),
        ("arm", json!([])),
        ("disarm", json!([0, 1])),
    ];
    assert_eq!(
        commands(&scene),
        expected.map(|(command, hits)| (command.to_owned(), hits))
    );
}

/// Each agent refuses a request with more, and then none would be armed.
#[tokio::test]
async fn breakpoints_beyond_the_limit_are_not_armed_and_say_so() {
    let (scene, _) = scene().await;
    let mut agent = scene.linked("agent", "a1", 1).await;
    let mut editor = Editor::attached(&scene, json!({"all": true, "job": "s1"})).await;
    editor.send("configurationDone", json!({})).await;
    let lines = |count: u32| (1..=count).map(|line| json!({ "line": line })).collect();
    editor.set(lines(64)).await;
    let answers = editor.set(lines(70)).await;
    let refused: Vec<bool> = answers
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["message"].as_str().unwrap().contains("at most 64"))
        .collect();
    assert_eq!(refused, [[false; 64].as_slice(), &[true; 6]].concat());
    assert_eq!(next_arm(&mut agent).await.lines.len(), 64);
    // There is room again.
    let answers = editor.set(lines(1)).await;
    assert!(!answers[0]["message"].as_str().unwrap().contains("at most"));
}

#[tokio::test]
async fn breakpoint_is_armed_nowhere_if_the_session_names_no_job() {
    let (scene, _) = scene().await;
    let mut agent = scene.linked("agent", "a1", 1).await;
    let mut editor = Editor::attached(&scene, json!({"all": true})).await;
    let answers = editor.set(json!([{"line": 26}])).await;
    assert_eq!(answers[0]["verified"], false);
    let message = answers[0]["message"].as_str().unwrap();
    assert!(message.contains("rayRelay.job"), "{message}");
    editor.send("configurationDone", json!({})).await;
    editor.until(|message| message["command"] == "attach").await;
    // The first request that the agent hears is of one who names it.
    let mut other = Editor::attached(&scene, json!({"all": true, "job": "s1"})).await;
    other.set(json!([{"line": 99}])).await;
    other.send("configurationDone", json!({})).await;
    assert_eq!(next_arm(&mut agent).await.lines[0].line, 99);
    assert_eq!(commands(&scene).len(), 1);
}
