#![allow(clippy::unwrap_used)]

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::time::timeout;

use super::testing::{KeptRelay, keeper, place, relay};
use super::*;
use ray_relay_base::shutdown::Signals;

const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// Waits until the keeper has processed all messages of `relay`, which it shows by closing a returned connection.
async fn processed(relay: &KeptRelay) {
    let (near, far) = UnixStream::pair().unwrap();
    drop(relay.keeper.keep(near.as_fd()).unwrap());
    drop(near);
    far.set_nonblocking(true).unwrap();
    let mut far = tokio::net::UnixStream::from_std(far).unwrap();
    let read = timeout(TEST_TIMEOUT, far.read(&mut [0; 1])).await;
    assert_eq!(read.unwrap().unwrap(), 0);
}

#[tokio::test]
async fn connections_of_a_killed_relay_pass_to_the_next() {
    let keeper_path = place();
    let serving = keeper(&keeper_path).await;
    let first = relay(&keeper_path).await;
    assert!(first.left.is_empty());
    let (near, mut debugger) = UnixStream::pair().unwrap();
    let mut slot = first.keeper.keep(near.as_fd()).unwrap();
    slot.write(b"at line 42").unwrap();
    processed(&first).await;
    slot.leave();
    drop(near);
    first.killed().await;

    let mut second = relay(&keeper_path).await;
    let unclaimed = second.is_left(1).await.remove(0);
    assert_eq!(unclaimed.record, b"at line 42");
    let mut connection = UnixStream::from(unclaimed.connection);
    connection.write_all(b"go on").unwrap();
    let mut received = [0; 5];
    debugger.read_exact(&mut received).unwrap();
    assert_eq!(&received, b"go on");
    serving.abort();
}

#[tokio::test]
async fn running_relay_gets_only_released_connections() {
    let keeper_path = place();
    let serving = keeper(&keeper_path).await;
    let first = relay(&keeper_path).await;
    let (near, _debugger) = UnixStream::pair().unwrap();
    let mut slot = first.keeper.keep(near.as_fd()).unwrap();
    slot.write(b"the first one's").unwrap();
    processed(&first).await;
    let mut second = relay(&keeper_path).await;
    assert!(second.left.is_empty());
    assert!(second.later.try_recv().is_err());
    slot.leave();
    first.killed().await;
    let unclaimed = timeout(TEST_TIMEOUT, second.later.recv()).await.unwrap();
    assert_eq!(unclaimed.unwrap().record, b"the first one's");
    serving.abort();
}

#[tokio::test(start_paused = true)]
async fn missing_keeper_names_the_command_to_start() {
    let keeper_path = place();
    let error = Keeper::open(Some(&keeper_path.path), &mut PassedDescriptors::default())
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("start `ray-relay keeper"), "{error}");
    let _serving = keeper(&keeper_path).await;
    let signals = Signals::new().unwrap();
    let error = serve::serve(&keeper_path.path, signals).await.unwrap_err();
    assert!(
        error.to_string().contains("listens there already"),
        "{error}"
    );
}
