//! A client that leaves while the relay attaches to a parked task for it.

use super::*;
use ray_relay_ray::ray::registry::Snapshot;

#[tokio::test]
async fn disconnect_during_attach_keeps_a_park() {
    let relay = relay(true, |_| {});
    let (debugpy, mut worker, ed) = standing(&relay, "ed").await;
    let id = debugpy.breakpoint.id;
    drop(ed.stream);
    until_listed(&relay.context, id, "parked").await;
    let (editor, _) = edits(&relay, "ed", id).await;
    drop(editor);
    until_listed(&relay.context, id, "parked").await;
    worker.asked_so_far();
    let mut lists = relay.context.registry.watch();
    let session = |list: &Snapshot| Some(list.find(id)?.holder()?.session);
    let before = session(&lists.borrow());
    let mut again = Person::connect(&relay);
    again
        .say(&format!("{}\nenter {id}\n", token_of("ed")))
        .await;
    drop(again.stream);
    let is_over = |list: &Arc<Snapshot>| {
        let attached = |row: &Arc<Breakpoint>| row.state.word() == "attached";
        session(list) != before && !list.find(id).is_some_and(attached)
    };
    let over = timeout(TEST_TIMEOUT, lists.wait_for(is_over)).await;
    let list = over.unwrap().unwrap().clone();
    assert_eq!(list.find(id).map(|row| row.state.word()), Some("parked"));
    let asked = worker.asked_so_far();
    assert!(!asked.contains(&"disconnect".to_owned()), "{asked:?}");
}
