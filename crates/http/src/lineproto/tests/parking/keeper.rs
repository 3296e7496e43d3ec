//! Prompts of a relay process that ends next to a keeper: they are parked, and the next process gets their records.

use tokio_util::task::AbortOnDropHandle;

use super::*;
use ray_relay_debugger::debugger::kept::Stored;
use ray_relay_debugger::keeper::testing::{self, KeeperPlace, KeptRelay};
use ray_relay_debugger::keeper::{self, UnclaimedConnection};

/// A relay with a keeper.
struct RelayWithKeeper {
    relay: Relay,
    link: KeptRelay,
    place: KeeperPlace,
    _keeper: AbortOnDropHandle<Result<(), keeper::Error>>,
}

async fn relay_with_keeper() -> RelayWithKeeper {
    let place = testing::place();
    let keeper = testing::keeper(&place).await;
    let link = testing::relay(&place).await;
    let mut relay = relay(true, |_| {});
    Arc::get_mut(&mut relay.context).unwrap().keeper = Some(Arc::clone(&link.keeper));
    RelayWithKeeper {
        relay,
        link,
        place,
        _keeper: keeper,
    }
}

/// Ends the relay's process and expects that the client is notified. Returns the record that the next relay gets.
async fn end_process(setup: RelayWithKeeper, client: Client) -> (NextProcess, Stored) {
    let shutdown = &setup.relay.context.shutdown;
    shutdown.drain.cancel();
    shutdown.abort.cancel();
    let output = client.read_all().await;
    assert!(
        output.contains("the task stays parked for 15m 00s"),
        "{output}"
    );
    setup.link.killed().await;
    let mut next = testing::relay(&setup.place).await;
    let connection = next.is_left(1).await.remove(0);
    let stored = serde_json::from_slice(&connection.record).unwrap();
    let next = NextProcess {
        _connection: connection,
        _next: next,
        _previous: (setup.relay, setup.place, setup._keeper),
    };
    (next, stored)
}

/// Keeps the connection open until it is dropped.
struct NextProcess {
    _connection: UnclaimedConnection,
    _next: KeptRelay,
    _previous: (
        Relay,
        KeeperPlace,
        AbortOnDropHandle<Result<(), keeper::Error>>,
    ),
}

#[tokio::test]
async fn prompt_of_an_ending_process_is_resumed_at_the_next() {
    let setup = relay_with_keeper().await;
    let (_debugpy, mut worker, ann) = at_debugpy_prompt(&setup.relay, "ann").await;
    let (_next, stored) = end_process(setup, ann).await;
    assert!(stored.prompt.is_none(), "{stored:?}");
    let commands = worker.take_commands();
    assert!(!commands.contains(&"disconnect".to_owned()), "{commands:?}");
}

#[tokio::test]
async fn attaching_prompt_is_resumed_at_the_next_process() {
    let setup = relay_with_keeper().await;
    let relay = &setup.relay;
    let debugpy = Debugpy::listen().await;
    let id = debugpy.breakpoint.id;
    relay.context.registry.insert(debugpy.breakpoint.clone());
    let mut ann = Client::connect(relay);
    ann.send(&format!("{}\nenter {id}\n", token_of("ann")))
        .await;
    let mut worker = debugpy.accept().await;
    worker.expect_command("configurationDone").await;
    let (_next, _) = end_process(setup, ann).await;
    let commands = worker.take_commands();
    assert!(!commands.contains(&"disconnect".to_owned()), "{commands:?}");
}

#[tokio::test]
async fn legacy_prompt_is_resumed_at_the_next_process() {
    let setup = relay_with_keeper().await;
    let input = format!("{}\n0\n", token_of("ann"));
    let (_pdb, ann, mut prompt) = at_prompt_of(&setup.relay, &input).await;
    let (next, stored) = end_process(setup, ann).await;
    assert!(stored.prompt.is_some(), "{stored:?}");
    drop(next);
    // The relay sent no command.
    assert_eq!(prompt.read(&mut [0; 16]).await.unwrap(), 0);
}
