//! A task that one kind of client has parked, and another resumes.

use ray_relay_debugger::pdb::{After, Options, Piece, Prompt};
use tokio::sync::mpsc;

use super::*;

/// A prompt as `ray-relay exec` opens one, and what it writes.
struct Typist {
    prompt: Prompt<TcpStream>,
    pieces: mpsc::Receiver<Piece>,
}

impl Typist {
    async fn open(relay: &Running, id: BreakpointId) -> Self {
        let stream = TcpStream::connect(relay.local_addr()).await.unwrap();
        let options = Options {
            relay: json!({"breakpoint": id}),
            ..Options::default()
        };
        let (sender, pieces) = mpsc::channel(1000);
        let opened = timeout(TEST_TIMEOUT, Prompt::open(stream, &options, sender)).await;
        let (prompt, after) = opened.expect("the prompt opens").unwrap();
        assert_eq!(after, After::Prompt);
        let mut typist = Self { prompt, pieces };
        typist.written();
        typist
    }

    fn written(&mut self) -> String {
        let pieces = std::iter::from_fn(|| self.pieces.try_recv().ok());
        pieces.map(|piece| piece.text().to_owned()).collect()
    }

    async fn types(&mut self, line: &str) -> String {
        let after = timeout(TEST_TIMEOUT, self.prompt.line(line)).await;
        assert_eq!(after.expect(line), After::Prompt, "{line}");
        self.written()
    }

    /// Ends the prompt as `exec` does, and waits until the relay has parked the task.
    async fn parks(mut self, relay: &Running, id: BreakpointId) {
        self.prompt.stay().await.unwrap();
        until_parked(relay, id).await;
    }
}

async fn until_parked(relay: &Running, id: BreakpointId) {
    let mut lists = relay.registry().watch();
    let is_parked = lists.wait_for(|list| {
        let row = list.find(id);
        row.is_some_and(|row| {
            row.holder()
                .is_some_and(|holder| holder.parked_until.is_some())
        })
    });
    timeout(TEST_TIMEOUT, is_parked)
        .await
        .expect("parked")
        .unwrap();
}

/// A task at its first stop, and the relay that lists it.
async fn stopped(version: &str) -> Option<(Task, Running, BreakpointId)> {
    let mut task = Task::start(version, "steps.py", "3")?;
    let relay = relay().await;
    let waiting = waiting(task.port().await, 1);
    let id = waiting.id;
    relay.registry().insert(waiting);
    assert_eq!(task.says().await, "WAITS 1");
    Some((task, relay, id))
}

fn script() -> String {
    debuggee("steps.py").to_str().unwrap().to_owned()
}

/// The line of the script that has `text`.
fn line(text: &str) -> usize {
    let script = std::fs::read_to_string(script()).unwrap();
    1 + script.lines().position(|line| line.contains(text)).unwrap()
}

/// Arguments of an editor on another machine.
fn mapped() -> Value {
    let here = env!("CARGO_MANIFEST_DIR");
    json!({"justMyCode": true, "pathMappings": [{"localRoot": "/home/ada/job", "remoteRoot": here}]})
}

async fn an_editor_after_a_prompt(version: &str) {
    let Some((_task, relay, id)) = stopped(version).await else {
        return;
    };
    let mut typist = Typist::open(&relay, id).await;
    typist.types(&format!("b {}", line("return number"))).await;
    typist.parks(&relay, id).await;

    let mut editor = Editor::attach(&relay, id, mapped()).await;
    let local = "/home/ada/job/tests/debuggee/steps.py";
    let source = editor.source().await;
    assert_eq!(
        (&source["path"], &source["sourceReference"]),
        (&json!(local), &json!(0))
    );
    // The editor does not show the breakpoint of the prompt, and cannot remove it: so it is not there.
    let of_loop = line("    step(number)");
    let expected = json!({"source": {"path": local}, "breakpoints": [{"line": of_loop}]});
    let set = editor.ask("setBreakpoints", expected).await;
    assert_eq!(set["breakpoints"][0]["verified"], true, "{set}");
    let thread = json!({"threadId": editor.thread});
    editor.ask("continue", thread).await;
    let stop = editor.until(|m| m["event"] == "stopped").await;
    assert_eq!(stop["body"]["reason"], "breakpoint", "{stop}");
    let stack = json!({"threadId": editor.thread});
    let stack = editor.ask("stackTrace", stack).await;
    assert_eq!(stack["stackFrames"][0]["line"], of_loop, "{stack}");
    drop(editor);
    until_parked(&relay, id).await;

    // A prompt sees the worker's own paths again, and the breakpoints of both.
    let mut typist = Typist::open(&relay, id).await;
    let listed = typist.types("b").await;
    for expected in [line("return number"), of_loop] {
        assert!(
            listed.contains(&format!("at {}:{expected}\n", script())),
            "{listed}"
        );
    }
    let position = typist.types("w").await;
    assert!(position.contains(&script()), "{position}");
    typist.parks(&relay, id).await;
    let nowhere = json!({"workspaceFolder": "/home/ada/other", "rayRelay": {"localRoot": ""}});
    let mut editor = Editor::attach(&relay, id, nowhere).await;
    let source = editor.source().await;
    assert_ne!(source["sourceReference"], 0, "{source}");
    let expected = json!({"source": source, "sourceReference": source["sourceReference"]});
    let shown = editor.ask("source", expected).await;
    assert_eq!(shown["content"], std::fs::read_to_string(script()).unwrap());
    editor.leave().await;
    relay.abort().await;
}

#[tokio::test]
async fn an_editor_after_a_prompt_has_what_a_fresh_attach_gives_on_the_newest_ray() {
    an_editor_after_a_prompt(NEWEST).await;
}

#[tokio::test]
async fn an_editor_after_a_prompt_has_what_a_fresh_attach_gives_on_the_oldest_ray() {
    an_editor_after_a_prompt(OLDEST).await;
}

async fn breakpoints_of_one_prompt_hold_in_the_next(version: &str) {
    let Some((mut task, relay, id)) = stopped(version).await else {
        return;
    };
    let (first, second) = (line("return number"), line("say(\"DONE\")"));
    let set = [format!("b {second}"), format!("b {first}, number < 5")];
    for (n, set) in set.iter().enumerate() {
        let mut typist = Typist::open(&relay, id).await;
        let reply = typist.types(set).await;
        assert!(
            reply.starts_with(&format!("Breakpoint {} at ", n + 1)),
            "{reply}"
        );
        typist.parks(&relay, id).await;
    }
    let mut typist = Typist::open(&relay, id).await;
    typist.types("disable 1").await;
    typist.parks(&relay, id).await;
    let mut typist = Typist::open(&relay, id).await;
    let listed = typist.types("b").await;
    assert!(
        listed.contains(&format!(
            "1   breakpoint   keep no    at {}:{second}",
            script()
        )),
        "{listed}"
    );
    assert!(
        listed.contains(&format!(
            "2   breakpoint   keep yes   at {}:{first}\n\tstop only if number < 5",
            script()
        )),
        "{listed}"
    );
    let position = typist.types("c").await;
    assert!(
        position.contains(&format!("steps.py({first})")),
        "{position}"
    );
    // A session that disconnects is not parked.
    typist.prompt.line("q").await;
    assert_eq!(task.says().await, "WAITS 2");
    let next = waiting_again(&relay, id).await;
    let mut typist = Typist::open(&relay, next).await;
    assert_eq!(typist.types("b").await, "");
    typist.prompt.line("q").await;
    relay.abort().await;
}

/// Lists the second stop of the task, whose port is the same.
async fn waiting_again(relay: &Running, id: BreakpointId) -> BreakpointId {
    let mut lists = relay.registry().watch();
    let over = lists.wait_for(|list| list.find(id).is_none_or(|row| row.holder().is_none()));
    let before = timeout(TEST_TIMEOUT, over).await.unwrap().unwrap().clone();
    let port = before
        .find(id)
        .or_else(|| before.find_ended(id))
        .unwrap()
        .port;
    drop(before);
    let next = waiting(port, 2);
    let id = next.id;
    relay.registry().insert(next);
    id
}

#[tokio::test]
async fn breakpoints_of_one_prompt_hold_in_the_next_on_the_newest_ray() {
    breakpoints_of_one_prompt_hold_in_the_next(NEWEST).await;
}

#[tokio::test]
async fn breakpoints_of_one_prompt_hold_in_the_next_on_the_oldest_ray() {
    breakpoints_of_one_prompt_hold_in_the_next(OLDEST).await;
}
