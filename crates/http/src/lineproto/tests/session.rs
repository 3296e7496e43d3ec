//! Properties of sessions of both kinds.

use crate::lineproto::tests::*;

#[tokio::test]
async fn revoked_token_ends_the_session_and_resumes_the_task() {
    let relay = relay(true, |_| {});
    let said = format!("{}\n0\n", token_of("ann"));
    let (_pdb, ann, mut prompt) = picked(&relay, &said).await;
    revoke(&relay.context.auth, "ann").await;
    let began = std::time::Instant::now();
    assert!(until(&mut prompt, "c\n").await.ends_with("c\n"));
    drop(prompt);
    let rest = ann.rest().await;
    assert!(rest.contains("your token was revoked"), "{rest}");
    assert!(began.elapsed() < Duration::from_secs(2));
    relay.assert_ended("revoked");
}

#[tokio::test]
async fn requested_end_ends_the_session_and_resumes_the_task() {
    let relay = relay(true, |_| {});
    let said = format!("{}\n0\n", token_of("ann"));
    let (_pdb, ann, mut prompt) = picked(&relay, &said).await;
    let sessions = relay.context.sessions.table.rows();
    let [session] = sessions.as_slice() else {
        panic!("{sessions:?}")
    };
    relay.context.sessions.table.end(session.id);
    assert!(until(&mut prompt, "c\n").await.ends_with("c\n"));
    drop(prompt);
    let rest = ann.rest().await;
    assert!(rest.contains("asked for its end"), "{rest}");
    relay.assert_ended("asked");
}

#[tokio::test]
async fn unrecorded_session_does_not_begin() {
    let relay = relay(false, |_| {});
    let pdb = Pdb::listed(&relay).await;
    relay.kept.refuse(EntryKind::SessionBegan);
    let mut person = Person::connect(&relay);
    person.say("0\nq\n").await;
    let rest = person.rest().await;
    assert!(rest.contains("audit log"), "{rest}");
    pdb.heard_nothing();
}

#[tokio::test]
async fn required_recording_is_made_or_the_session_refused() {
    let dir = tempfile::tempdir().unwrap();
    for recorded in [false, true] {
        let relay = relay(true, |config| {
            config.recording.dir = recorded.then(|| dir.path().to_owned());
        });
        let pdb = Pdb::listed(&relay).await;
        let mut mia = Person::connect(&relay);
        mia.say(&format!("{}\n0\n", token_of("mia"))).await;
        if !recorded {
            mia.until("cannot record it").await;
            pdb.heard_nothing();
            continue;
        }
        let mut prompt = pdb.entered().await;
        mia.until("(Pdb) ").await;
        mia.say("p password\n").await;
        until(&mut prompt, "p password\n").await;
        let output = b"'x'\r\n(Pdb) ";
        prompt.write_all(output).await.unwrap();
        mia.until("(Pdb) ").await;
        drop(prompt);
        mia.until("q leaves").await;
        mia.say("q\n").await;
        mia.rest().await;
    }
    let entry = std::fs::read_dir(dir.path()).unwrap().next().unwrap();
    let recording = std::fs::read_to_string(entry.unwrap().path()).unwrap();
    assert!(
        recording.contains("p password") && recording.contains("(Pdb) "),
        "{recording}"
    );
    assert!(!recording.contains("eyJ"), "{recording}");
}

#[tokio::test]
async fn long_command_is_recorded_in_full() {
    let relay = relay(true, |_| {});
    let said = format!("{}\n0\n", token_of("ann"));
    let (_pdb, mut ann, mut prompt) = picked(&relay, &said).await;
    let typed = format!("x = 1;{}__import__('os').system('id')", " ".repeat(600));
    ann.say(&format!("{typed}\n")).await;
    until(&mut prompt, "system('id')\n").await;
    let commands = relay.kept.take();
    let command = commands.iter().find(|e| e.action == EntryKind::Command);
    assert_eq!(command.unwrap().details["command"], *typed);
}

#[tokio::test]
async fn broken_connection_is_recorded_and_resumes_the_task() {
    let relay = relay(false, |config| config.park.r#for = Duration::ZERO);
    let (_pdb, person, mut prompt) = picked(&relay, "0\n").await;
    let Person { stream, ended, .. } = person;
    drop(stream);
    // There is no one to show it to.
    prompt.write_all(b"x = 1\r\n(Pdb) ").await.unwrap();
    assert!(until(&mut prompt, "c\n").await.ends_with("c\n"));
    over(ended).await;
    relay.assert_ended("client");
}
