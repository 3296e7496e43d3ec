//! The prompt of the legacy debugger.

use crate::lineproto::tests::*;

#[tokio::test]
async fn lost_client_of_a_legacy_prompt_resumes_the_task() {
    let relay = relay(true, |config| config.park.r#for = Duration::ZERO);
    let pdb = Pdb::listed(&relay).await;
    let mut ann = Client::connect(&relay);
    ann.until("token: ").await;
    ann.send(&format!("{}\r\n", token_of("ann"))).await;
    ann.until("q leaves): ").await;
    ann.send("0\r\n").await;
    let mut prompt = pdb.accept().await;
    ann.until("-> x = x + 0\r\n(Pdb) ").await;
    ann.send("p x\r\n").await;
    read_until(&mut prompt, "p x\r\n").await;
    prompt.write_all(b"1\r\n(Pdb) ").await.unwrap();
    ann.until("1\r\n(Pdb) ").await;
    // A partial line is not a command.
    ann.send("q").await;
    drop(ann.stream);
    let received = read_until(&mut prompt, "c\n").await;
    assert_eq!(received, "c\n");
    drop(prompt);
    expect_session_end(ann.ended).await;
    let actions: Vec<_> = relay
        .spy
        .take()
        .into_iter()
        .map(|e| (e.action, e.details.get("command").cloned()))
        .collect();
    assert_eq!(actions[0].0, EntryKind::SessionBegan);
    assert_eq!(actions[1], (EntryKind::Command, Some("p x".into())));
    assert_eq!(actions.last().unwrap().0, EntryKind::SessionEnded);
    assert!(relay.context.sessions.table.is_empty());
}

#[tokio::test]
async fn legacy_prompt_quits_on_the_second_q() {
    let (_relay, _pdb, mut client, mut prompt) = at_the_prompt().await;
    client.send("q\n").await;
    client.until("makes the task fail").await;
    // The prompt is shown again, because a program waits for it.
    client.until("(Pdb) ").await;
    client.send("q\n").await;
    assert_eq!(read_until(&mut prompt, "q\n").await, "q\n");
    drop(prompt);
    client.until("No task waits").await;
}

#[tokio::test]
async fn naming_a_breakpoint_skips_the_list() {
    let relay = relay(false, |_| {});
    let pdb = Pdb::listed(&relay).await;
    let mut client = Client::connect(&relay);
    client.send(&format!("enter {}\n", pdb.breakpoint.id)).await;
    let _prompt = pdb.accept().await;
    let output = client.until("(Pdb) ").await;
    assert!(
        !output.contains("INDEX") && !output.contains("q leaves"),
        "{output}"
    );
}
