use std::future::poll_fn;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex, split};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::super::stream_config;
use super::*;

type End = ByteStream<DuplexStream>;

async fn sockets(
    buffer_size: usize,
) -> (WebSocketStream<DuplexStream>, WebSocketStream<DuplexStream>) {
    let (near, far) = duplex(buffer_size);
    let config = Some(stream_config());
    (
        WebSocketStream::from_raw_socket(near, Role::Client, config).await,
        WebSocketStream::from_raw_socket(far, Role::Server, config).await,
    )
}

async fn pair(buffer_size: usize) -> (End, End) {
    let (near, far) = sockets(buffer_size).await;
    (ByteStream::new(near), ByteStream::new(far))
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap()
}

/// Writes `bytes` in pieces, every second one without a copy, shuts down, and returns the bytes read meanwhile.
async fn exchange(end: End, bytes: Vec<u8>, cuts: Vec<usize>, read: usize) -> Vec<u8> {
    let mut end = end;
    let mut sent = Bytes::from(bytes);
    let mut cuts = cuts.into_iter().cycle();
    let mut piece = Bytes::new();
    let (mut copies, mut is_shut) = (false, false);
    let (mut received, mut buffer) = (Vec::new(), vec![0; read]);
    poll_fn(|cx| {
        // Both directions in one task: neither may wait for the other.
        let mut reading = true;
        while reading {
            let mut target = ReadBuf::new(&mut buffer);
            match Pin::new(&mut end).poll_read(cx, &mut target) {
                Poll::Ready(Ok(())) if target.filled().is_empty() => break,
                Poll::Ready(Ok(())) => received.extend_from_slice(target.filled()),
                Poll::Ready(Err(error)) => panic!("{error}"),
                Poll::Pending => reading = false,
            }
        }
        while !is_shut {
            if piece.is_empty() && !sent.is_empty() {
                piece = sent.split_to(cuts.next().unwrap().min(sent.len()));
                copies = !copies;
            }
            if piece.is_empty() {
                is_shut = Pin::new(&mut end).poll_shutdown(cx).is_ready();
                break;
            }
            let done = match copies {
                true => Pin::new(&mut end)
                    .poll_write(cx, &piece)
                    .map_ok(|n| piece.advance(n)),
                false => end.poll_send(cx, &mut piece),
            };
            match done {
                Poll::Ready(done) => done.unwrap(),
                Poll::Pending => break,
            }
        }
        match reading && is_shut {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
    assert!(end.ended_in_order());
    received
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn written_bytes_are_read_at_any_split(
        up in prop::collection::vec(any::<u8>(), 0..200_000),
        down in prop::collection::vec(any::<u8>(), 0..200_000),
        cuts in prop::collection::vec(1_usize..100_000, 1..8),
        buffer_size in 1_usize..100_000,
        read in 1_usize..100_000,
    ) {
        runtime().block_on(async {
            let (near, far) = pair(buffer_size).await;
            let exchanges = async {
                tokio::join!(
                    exchange(near, up.clone(), cuts.clone(), read),
                    exchange(far, down.clone(), cuts, read),
                )
            };
            let (at_near, at_far) = timeout(Duration::from_secs(60), exchanges).await.unwrap();
            assert!(at_near == down && at_far == up);
        });
    }
}

#[tokio::test]
async fn ended_half_leaves_the_other_open() {
    let (mut near, mut far) = pair(4096).await;
    near.write_all(b"last words").await.unwrap();
    near.shutdown().await.unwrap();
    let mut all = Vec::new();
    far.read_to_end(&mut all).await.unwrap();
    assert_eq!(all, b"last words");
    assert!(far.ended_in_order());
    far.write_all(b"the answer").await.unwrap();
    far.shutdown().await.unwrap();
    let mut all = Vec::new();
    near.read_to_end(&mut all).await.unwrap();
    assert_eq!(all, b"the answer");
    let after = near.write_all(b"more").await.unwrap_err();
    assert_eq!(after.kind(), io::ErrorKind::BrokenPipe);
}

#[tokio::test]
async fn lost_peer_is_not_a_clean_end() {
    let (mut near, mut far) = pair(4096).await;
    near.write_all(b"then").await.unwrap();
    drop(near);
    let mut all = Vec::new();
    far.read_to_end(&mut all).await.unwrap();
    assert_eq!(all, b"then");
    assert!(!far.ended_in_order());
    assert!(far.write_all(b"more").await.is_err());
}

#[tokio::test]
async fn loss_is_noticed_after_a_half_close() {
    let (mut near, mut far) = pair(4096).await;
    near.shutdown().await.unwrap();
    assert_eq!(far.read(&mut [0; 8]).await.unwrap(), 0);
    let mut peer_gone = poll_fn(|cx| Poll::Ready(far.poll_gone(cx)));
    assert!((&mut peer_gone).await.is_pending());
    drop(near);
    poll_fn(|cx| far.poll_gone(cx)).await;
    assert!(far.ended_in_order());
    assert!(far.write_all(b"more").await.is_err());
}

#[tokio::test]
async fn a_close_frame_ends_both_halves() {
    let (near, mut far) = sockets(4096).await;
    let mut near = ByteStream::new(near);
    far.send(Message::Binary("all".into())).await.unwrap();
    far.close(None).await.unwrap();
    let mut all = Vec::new();
    near.read_to_end(&mut all).await.unwrap();
    assert_eq!(all, b"all");
    assert!(near.ended_in_order());
    assert!(near.write_all(b"more").await.is_err());
    assert!(matches!(far.next().await, Some(Ok(Message::Close(_)))));
}

#[tokio::test]
async fn text_or_oversized_frame_breaks_the_stream() {
    let (near, mut far) = sockets(1 << 20).await;
    let mut near = ByteStream::new(near);
    far.send(Message::text("hello")).await.unwrap();
    let error = near.read(&mut [0; 8]).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    assert_eq!(near.read(&mut [0; 8]).await.unwrap(), 0);

    let (near, far) = duplex(1 << 20);
    let near = WebSocketStream::from_raw_socket(near, Role::Client, Some(stream_config())).await;
    let mut near = ByteStream::new(near);
    let mut far = WebSocketStream::from_raw_socket(far, Role::Server, None).await;
    far.send(Message::Binary(vec![0; MAX_FRAME_BYTES + 1].into()))
        .await
        .unwrap();
    let error = near.read(&mut [0; 8]).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
}

/// `write` may return before all bytes are sent; reading must send the rest.
#[tokio::test(start_paused = true)]
async fn pending_writes_are_flushed_while_reading() {
    let (mut near, mut far) = pair(64).await;
    let question = vec![7; 10_000];
    assert_eq!(near.write(&question).await.unwrap(), question.len());
    let client = async {
        let mut answer = [0; 2];
        near.read_exact(&mut answer).await.unwrap();
        answer
    };
    let server = async {
        let mut received = vec![0; 10_000];
        far.read_exact(&mut received).await.unwrap();
        far.write_all(b"ok").await.unwrap();
        far.flush().await.unwrap();
        received
    };
    let exchanges = async { tokio::join!(client, server) };
    let (answer, received) = timeout(Duration::from_secs(5), exchanges).await.unwrap();
    assert_eq!((&answer, received), (b"ok", question));
}

/// If the reader sends the pending bytes, the writer's task must be woken.
#[tokio::test(start_paused = true)]
async fn reader_and_writer_may_be_separate_tasks() {
    let (near, far) = pair(64).await;
    let echo = tokio::spawn(async move {
        let (mut from, mut to) = split(far);
        let copied = tokio::io::copy(&mut from, &mut to).await.unwrap();
        to.shutdown().await.unwrap();
        copied
    });
    let (mut from, mut to) = split(near);
    let writer = tokio::spawn(async move {
        for piece in vec![9; 500_000].chunks(9_999) {
            to.write_all(piece).await.unwrap();
        }
        to.shutdown().await.unwrap();
    });
    let mut all = Vec::new();
    let reading = from.read_to_end(&mut all);
    timeout(Duration::from_secs(5), reading)
        .await
        .unwrap()
        .unwrap();
    writer.await.unwrap();
    assert_eq!(echo.await.unwrap(), 500_000);
    assert!(all == vec![9; 500_000]);
}

#[tokio::test]
async fn pings_are_answered_while_reading() {
    let (near, mut far) = sockets(4096).await;
    let mut near = ByteStream::new(near);
    far.send(Message::Ping("1".into())).await.unwrap();
    far.send(Message::Binary("x".into())).await.unwrap();
    assert_eq!(near.read(&mut [0; 8]).await.unwrap(), 1);
    let mut rest = [0; 8];
    let waiting = timeout(Duration::from_millis(50), near.read(&mut rest));
    let (answer, _) = tokio::join!(far.next(), waiting);
    assert!(matches!(answer, Some(Ok(Message::Pong(_)))));
}
