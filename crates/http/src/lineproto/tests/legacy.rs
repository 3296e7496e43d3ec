//! The prompt of the legacy debugger.

use crate::lineproto::tests::*;

#[tokio::test]
async fn lost_client_of_a_legacy_prompt_resumes_the_task() {
    let relay = relay(true, |config| config.park.r#for = Duration::ZERO);
    let pdb = Pdb::listed(&relay).await;
    let mut ann = Person::connect(&relay);
    ann.until("token: ").await;
    ann.say(&format!("{}\r\n", token_of("ann"))).await;
    ann.until("q leaves): ").await;
    ann.say("0\r\n").await;
    let mut prompt = pdb.entered().await;
    ann.until("-> x = x + 0\r\n(Pdb) ").await;
    ann.say("p x\r\n").await;
    until(&mut prompt, "p x\r\n").await;
    prompt.write_all(b"1\r\n(Pdb) ").await.unwrap();
    ann.until("1\r\n(Pdb) ").await;
    // Half a line is no command.
    ann.say("q").await;
    drop(ann.stream);
    let said = until(&mut prompt, "c\n").await;
    assert_eq!(said, "c\n");
    drop(prompt);
    over(ann.ended).await;
    let actions: Vec<_> = relay
        .kept
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
    let (_relay, _pdb, mut person, mut prompt) = at_the_prompt().await;
    person.say("q\n").await;
    person.until("makes the task fail").await;
    // What was asked is asked again: a program waits for it.
    person.until("(Pdb) ").await;
    person.say("q\n").await;
    assert_eq!(until(&mut prompt, "q\n").await, "q\n");
    drop(prompt);
    person.until("No task waits").await;
}

#[tokio::test]
async fn naming_a_breakpoint_skips_the_list() {
    let relay = relay(false, |_| {});
    let pdb = Pdb::listed(&relay).await;
    let mut program = Person::connect(&relay);
    program.say(&format!("enter {}\n", pdb.breakpoint.id)).await;
    let _prompt = pdb.entered().await;
    let said = program.until("(Pdb) ").await;
    assert!(
        !said.contains("INDEX") && !said.contains("q leaves"),
        "{said}"
    );
}
