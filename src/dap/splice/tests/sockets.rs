//! Between real sockets, where the kernel moves the rest of a long frame: what arrives is the same.

use std::net::Ipv4Addr;

use proptest::prelude::*;
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
    let splice = Splice::new(near, Vec::new(), up, far, Vec::new(), down);
    (client, worker, splice)
}

/// What reaches the client of what the worker writes in `chunks`, with a frame of the relay's own in the place of every one
/// that is captured.
async fn passed<S>(
    (mut client, mut worker, mut splice): (S, S, Splice<S, S>),
    chunks: &[&[u8]],
    slow: bool,
) -> Vec<u8>
where
    S: PeerStream,
{
    let write = async {
        for chunk in chunks {
            worker.write_all(chunk).await.unwrap();
            if chunk.len() % 3 == 0 {
                tokio::task::yield_now().await;
            }
        }
        worker.shutdown().await.unwrap();
    };
    let relay = async {
        loop {
            match splice.next().await {
                SpliceEvent::Captured(Side::Worker, body) => {
                    splice.insert(Side::Client, &frame(&json!({"instead": body.len()})));
                }
                SpliceEvent::Eof(Side::Worker) => splice.close(Side::Client),
                SpliceEvent::Eof(Side::Client) => {}
                other => panic!("{other:?}"),
            }
        }
    };
    let read = async {
        let (mut all, mut piece) = (Vec::new(), vec![0; if slow { 3000 } else { 1 << 16 }]);
        loop {
            match client.read(&mut piece).await.unwrap() {
                0 => return all,
                n => all.extend_from_slice(&piece[..n]),
            }
            if slow {
                tokio::task::yield_now().await;
            }
        }
    };
    let all = async { tokio::join!(write, read).1 };
    tokio::select! {
        all = timeout(Duration::from_secs(60), all) => all.unwrap(),
        () = relay => unreachable!(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn bytes_that_the_kernel_moves_arrive_as_those_that_are_copied(
        messages in proptest::collection::vec((0usize..4, 0usize..200_000, 0usize..900), 1..8),
        cuts in proptest::collection::vec(1usize..90_000, 1..6),
        slow in any::<bool>(),
    ) {
        let mut wire = Vec::new();
        for (number, (kind, long, short)) in messages.into_iter().enumerate() {
            let (name, filler) = match kind {
                0 => ("take", short),
                1 => ("pass", short),
                _ => ("pass", long),
            };
            wire.extend(frame(&message(name, number, filler)));
        }
        let (mut chunks, mut rest, mut cuts) = (Vec::new(), wire.as_slice(), cuts.into_iter().cycle());
        while !rest.is_empty() {
            let (now, later) = rest.split_at(cuts.next().unwrap().min(rest.len()));
            chunks.push(now);
            rest = later;
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (moved, copied) = runtime.block_on(async {
            let moved = passed(spliced_sockets().await, &chunks, slow).await;
            (moved, passed(spliced(1 << 16), &chunks, slow).await)
        });
        prop_assert!(moved == copied, "{} bytes and {}", moved.len(), copied.len());
    }
}

#[tokio::test]
async fn the_rest_of_a_long_frame_is_moved_by_the_kernel_and_nothing_is_held_for_an_idle_session() {
    let (mut client, mut worker, mut splice) = spliced_sockets().await;
    let long = frame(&message("pass", 1, 16 << 20));
    let writing = tokio::spawn(async move {
        worker.write_all(&long).await.unwrap();
        (worker, long)
    });
    let stalled = timeout(Duration::from_millis(300), splice.next()).await;
    assert!(stalled.is_err(), "the client reads nothing");
    assert!(
        splice
            .down
            .pipe
            .as_ref()
            .is_some_and(|pipe| !pipe.is_empty())
    );
    assert!(!splice.drained(Side::Client));
    // What the relay has to say waits for the end of the frame.
    let own = frame(&json!({"own": true}));
    splice.insert(Side::Client, &own);
    let expected = (16 << 20) + own.len();
    let read = async {
        let mut all = Vec::new();
        while all.len() < expected || !all.ends_with(&own) {
            client.read_buf(&mut all).await.unwrap();
        }
        all
    };
    let all = tokio::select! {
        all = timeout(Duration::from_secs(60), read) => all.unwrap(),
        event = splice.next() => panic!("{event:?}"),
    };
    let (_worker, long) = writing.await.unwrap();
    assert!(all.starts_with(&long) && all.len() == long.len() + own.len());
    assert!(
        timeout(Duration::from_millis(20), splice.next())
            .await
            .is_err()
    );
    assert!(splice.down.pipe.is_none());
}

#[tokio::test]
async fn an_end_in_the_middle_of_a_long_frame_is_told_as_any_other() {
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
