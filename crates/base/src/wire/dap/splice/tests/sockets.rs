//! Tests between real sockets, with frames longer than the buffer.

use std::net::Ipv4Addr;

use tokio::net::{TcpListener, TcpStream};

use super::*;

async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let far = TcpStream::connect(listener.local_addr().unwrap());
    let (far, near) = tokio::join!(far, listener.accept());
    (far.unwrap(), near.unwrap().0)
}

async fn spliced_sockets() -> (TcpStream, TcpStream, Splice<TcpStream, TcpStream>) {
    let ((client, near), (worker, far)) = (pair().await, pair().await);
    let (up, down) = (rules(Depth::Whole), rules(Depth::Deciding));
    let splice = Splice::new(
        Account::default(),
        near,
        Vec::new(),
        up,
        far,
        Vec::new(),
        down,
    );
    (client, worker, splice)
}

#[tokio::test]
async fn relay_message_waits_for_the_end_of_a_long_frame() {
    let (mut client, mut worker, mut splice) = spliced_sockets().await;
    let long = frame(&message("pass", 1, 16 << 20));
    let writing = tokio::spawn(async move {
        worker.write_all(&long).await.unwrap();
        (worker, long)
    });
    let stalled = async {
        while splice.drained(Side::Client) {
            let next = timeout(Duration::from_millis(50), splice.next()).await;
            assert!(next.is_err(), "the client reads nothing");
        }
    };
    timeout(Duration::from_secs(60), stalled).await.unwrap();
    // The relay's own frames wait for the end of the frame in progress.
    let relay_frame = frame(&json!({"own": true}));
    splice.insert(Side::Client, &relay_frame);
    let expected = (16 << 20) + relay_frame.len();
    let read = async {
        let mut all = Vec::new();
        while all.len() < expected || !all.ends_with(&relay_frame) {
            client.read_buf(&mut all).await.unwrap();
        }
        all
    };
    let all = tokio::select! {
        all = timeout(Duration::from_secs(60), read) => all.unwrap(),
        event = splice.next() => panic!("{event:?}"),
    };
    let (_worker, long) = writing.await.unwrap();
    assert!(all.starts_with(&long) && all.len() == long.len() + relay_frame.len());
}

#[tokio::test]
async fn eof_within_a_long_frame_is_reported() {
    let (mut client, mut worker, mut splice) = spliced_sockets().await;
    let long = frame(&message("pass", 1, 1 << 20));
    let half = &long[..long.len() / 2];
    let write = async {
        worker.write_all(half).await.unwrap();
        drop(worker);
    };
    let read = async {
        let mut all = vec![0; half.len()];
        client.read_exact(&mut all).await.unwrap();
        all
    };
    let ended = timeout(Duration::from_secs(60), splice.next());
    let (ended, (), all) = tokio::join!(ended, write, read);
    assert!(
        matches!(ended, Ok(SpliceEvent::Eof(Side::Worker))),
        "{ended:?}"
    );
    assert!(all == half && !splice.down.scanner.between_frames());
}
