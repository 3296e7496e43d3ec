//! Legacy sessions that are told to go on in another task.

use crate::lineproto::tests::*;

/// A person who has said `word` at a prompt, which is gone since.
async fn sent_on(word: &str) -> (Relay, Pdb, Person) {
    let (relay, pdb, mut person, mut prompt) = at_the_prompt().await;
    person.say(&format!("{word}\n")).await;
    until(&mut prompt, &format!("{word}\n")).await;
    drop(prompt);
    person.until("Waiting for the session to go on").await;
    (relay, pdb, person)
}

#[tokio::test]
async fn session_continuing_in_another_task_is_followed() {
    let (relay, _pdb, mut person) = sent_on("remote").await;
    // The same key, elsewhere.
    let next = Pdb::listen().await;
    relay.context.registry.insert(Breakpoint {
        stop: 2,
        ..next.breakpoint.clone()
    });
    let mut prompt = next.entered().await;
    person.until("(Pdb) ").await;
    person.say("c\n").await;
    until(&mut prompt, "c\n").await;
    drop(prompt);
    person.until("No task waits").await;
}

#[tokio::test]
async fn session_returns_to_the_list_when_ray_reports_its_exit() {
    let (relay, pdb, mut person) = sent_on("remote").await;
    relay.context.registry.exit(&pdb.breakpoint);
    person.until("*** it goes on in no other task").await;
    person.until("No task waits").await;
    person.say("q\n").await;
    person.rest().await;
}

#[tokio::test]
async fn session_without_news_returns_to_the_list_after_5_min() {
    let (_relay, _pdb, mut person) = sent_on("get").await;
    person.patience = DAY;
    tokio::time::pause();
    let began = tokio::time::Instant::now();
    person
        .until("*** it did not go on within five minutes")
        .await;
    let took = began.elapsed().as_secs();
    assert!((290..=300).contains(&took), "{took} s");
    person.until("No task waits").await;
}
