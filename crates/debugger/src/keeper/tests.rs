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

/// Waits until the keeper has taken in what `relay` has said: a connection that is given and taken back is closed then.
async fn heard(relay: &KeptRelay) {
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
    let place = place();
    let serving = keeper(&place).await;
    let first = relay(&place).await;
    assert!(first.left.is_empty());
    let (near, mut debugger) = UnixStream::pair().unwrap();
    let mut slot = first.keeper.keep(near.as_fd()).unwrap();
    slot.write(b"at line 42").unwrap();
    heard(&first).await;
    slot.leave();
    drop(near);
    first.killed().await;

    let mut second = relay(&place).await;
    let left = second.is_left(1).await.remove(0);
    assert_eq!(left.record, b"at line 42");
    let mut connection = UnixStream::from(left.connection);
    connection.write_all(b"go on").unwrap();
    let mut said = [0; 5];
    debugger.read_exact(&mut said).unwrap();
    assert_eq!(&said, b"go on");
    serving.abort();
}

#[tokio::test]
async fn running_relay_gets_only_released_connections() {
    let place = place();
    let serving = keeper(&place).await;
    let first = relay(&place).await;
    let (near, _debugger) = UnixStream::pair().unwrap();
    let mut slot = first.keeper.keep(near.as_fd()).unwrap();
    slot.write(b"the first one's").unwrap();
    heard(&first).await;
    let mut second = relay(&place).await;
    assert!(second.left.is_empty());
    assert!(second.later.try_recv().is_err());
    slot.leave();
    first.killed().await;
    let left = timeout(TEST_TIMEOUT, second.later.recv()).await.unwrap();
    assert_eq!(left.unwrap().record, b"the first one's");
    serving.abort();
}

#[tokio::test(start_paused = true)]
async fn missing_keeper_names_the_command_to_start() {
    let place = place();
    let why = Keeper::open(Some(&place.path), &mut PassedDescriptors::default())
        .await
        .unwrap_err()
        .to_string();
    assert!(why.contains("start `ray-relay keeper"), "{why}");
    let _serving = keeper(&place).await;
    let signals = Signals::new().unwrap();
    let why = serve::serve(&place.path, signals).await.unwrap_err();
    assert!(why.to_string().contains("listens there already"), "{why}");
}
