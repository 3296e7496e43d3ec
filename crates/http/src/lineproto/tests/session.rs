//! Properties of sessions with either debugger.

use crate::lineproto::tests::*;

#[tokio::test]
async fn revoked_token_ends_the_session_and_resumes_the_task() {
    let relay = relay(true, |_| {});
    let input = format!("{}\n0\n", token_of("ann"));
    let (_pdb, ann, mut prompt) = at_prompt_of(&relay, &input).await;
    revoke(&relay.context.auth, "ann").await;
    let started = std::time::Instant::now();
    assert!(read_until(&mut prompt, "c\n").await.ends_with("c\n"));
    drop(prompt);
    let output = ann.read_all().await;
    assert!(output.contains("your token was revoked"), "{output}");
    assert!(started.elapsed() < Duration::from_secs(2));
    relay.assert_ended("revoked");
}

#[tokio::test]
async fn requested_end_ends_the_session_and_resumes_the_task() {
    let relay = relay(true, |_| {});
    let input = format!("{}\n0\n", token_of("ann"));
    let (_pdb, ann, mut prompt) = at_prompt_of(&relay, &input).await;
    let sessions = relay.context.sessions.table.rows();
    let [session] = sessions.as_slice() else {
        panic!("{sessions:?}")
    };
    relay.context.sessions.table.end(session.id);
    assert!(read_until(&mut prompt, "c\n").await.ends_with("c\n"));
    drop(prompt);
    let output = ann.read_all().await;
    assert!(output.contains("asked for its end"), "{output}");
    relay.assert_ended("asked");
}

#[tokio::test]
async fn unrecorded_session_does_not_begin() {
    let relay = relay(false, |_| {});
    let pdb = Pdb::listed(&relay).await;
    relay.spy.refuse(EntryKind::SessionBegan);
    let mut client = Client::connect(&relay);
    client.send("0\nq\n").await;
    let output = client.read_all().await;
    assert!(output.contains("audit log"), "{output}");
    pdb.expect_not_dialled();
}

#[tokio::test]
async fn required_recording_is_made_or_the_session_refused() {
    let dir = tempfile::tempdir().unwrap();
    for recorded in [false, true] {
        let relay = relay(true, |config| {
            config.recording.dir = recorded.then(|| dir.path().to_owned());
        });
        let pdb = Pdb::listed(&relay).await;
        let mut mia = Client::connect(&relay);
        mia.send(&format!("{}\n0\n", token_of("mia"))).await;
        if !recorded {
            mia.until("cannot record it").await;
            pdb.expect_not_dialled();
            continue;
        }
        let mut prompt = pdb.accept().await;
        mia.until("(Pdb) ").await;
        mia.send("p password\n").await;
        read_until(&mut prompt, "p password\n").await;
        let output = b"'x'\r\n(Pdb) ";
        prompt.write_all(output).await.unwrap();
        mia.until("(Pdb) ").await;
        drop(prompt);
        mia.until("q leaves").await;
        mia.send("q\n").await;
        mia.read_all().await;
    }
    let file = std::fs::read_dir(dir.path()).unwrap().next().unwrap();
    let recording = std::fs::read_to_string(file.unwrap().path()).unwrap();
    assert!(
        recording.contains("p password") && recording.contains("(Pdb) "),
        "{recording}"
    );
    assert!(!recording.contains("eyJ"), "{recording}");
}

#[tokio::test]
async fn long_command_is_recorded_in_full() {
    let relay = relay(true, |_| {});
    let input = format!("{}\n0\n", token_of("ann"));
    let (_pdb, mut ann, mut prompt) = at_prompt_of(&relay, &input).await;
    let long_command = format!("x = 1;{}__import__('os').system('id')", " ".repeat(600));
    ann.send(&format!("{long_command}\n")).await;
    read_until(&mut prompt, "system('id')\n").await;
    let commands = relay.spy.take();
    let command = commands.iter().find(|e| e.action == EntryKind::Command);
    assert_eq!(command.unwrap().details["command"], *long_command);
}

#[tokio::test]
async fn broken_connection_is_recorded_and_resumes_the_task() {
    let relay = relay(false, |config| config.park.r#for = Duration::ZERO);
    let (_pdb, client, mut prompt) = at_prompt_of(&relay, "0\n").await;
    let Client { stream, ended, .. } = client;
    drop(stream);
    // No client receives this output.
    prompt.write_all(b"x = 1\r\n(Pdb) ").await.unwrap();
    assert!(read_until(&mut prompt, "c\n").await.ends_with("c\n"));
    expect_session_end(ended).await;
    relay.assert_ended("client");
}
