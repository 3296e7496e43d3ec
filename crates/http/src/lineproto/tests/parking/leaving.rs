//! A client that disconnects while the relay attaches to a parked task for it.

use super::*;
use ray_relay_ray::ray::registry::Snapshot;

#[tokio::test]
async fn disconnect_during_attach_keeps_a_park() {
    let relay = relay(true, |_| {});
    let (debugpy, mut worker, ed) = at_debugpy_prompt(&relay, "ed").await;
    let id = debugpy.breakpoint.id;
    drop(ed.stream);
    until_state(&relay.context, id, "parked").await;
    let (editor, _) = attach_editor(&relay, "ed", id).await;
    drop(editor);
    until_state(&relay.context, id, "parked").await;
    worker.take_commands();
    let mut snapshots = relay.context.registry.watch();
    let session = |list: &Snapshot| Some(list.find(id)?.holder()?.session);
    let session_before = session(&snapshots.borrow());
    let mut next_client = Client::connect(&relay);
    next_client
        .send(&format!("{}\nenter {id}\n", token_of("ed")))
        .await;
    drop(next_client.stream);
    let is_parked_again = |list: &Arc<Snapshot>| {
        let attached = |row: &Arc<Breakpoint>| row.state.word() == "attached";
        session(list) != session_before && !list.find(id).is_some_and(attached)
    };
    let result = timeout(TEST_TIMEOUT, snapshots.wait_for(is_parked_again)).await;
    let list = result.unwrap().unwrap().clone();
    assert_eq!(list.find(id).map(|row| row.state.word()), Some("parked"));
    let commands = worker.take_commands();
    assert!(!commands.contains(&"disconnect".to_owned()), "{commands:?}");
}
