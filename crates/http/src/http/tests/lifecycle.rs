//! Deadlines and draining of a connection, on a paused clock.

use super::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

async fn serve_client(relay: &Relay) -> (DuplexStream, JoinHandle<()>) {
    let (client, server) = duplex(64 * 1024);
    let peer = ([127, 0, 0, 1], 9).into();
    let task = tokio::spawn(serve_connection(
        server,
        ConnectionInfo::plain(peer),
        Arc::clone(&relay.ctx),
        relay.shutdown.clone(),
    ));
    (client, task)
}

const REQUEST: &[u8] = b"GET /relay/healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";

#[tokio::test(start_paused = true)]
async fn silence_or_slow_headers_end_the_connection() {
    let relay = Relay::start(&[], |_| {}).await;
    for sent in [
        &b""[..],
        b"PRI",
        b"GET / HTTP/1.1\r\nHost:",
        REQUEST,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ] {
        let (mut client, task) = serve_client(&relay).await;
        client.write_all(sent).await.unwrap();
        let started = tokio::time::Instant::now();
        task.await.unwrap();
        let elapsed = started.elapsed();
        assert!(
            elapsed >= Duration::from_secs(29) && elapsed < Duration::from_secs(40),
            "{elapsed:?} for {sent:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn idle_connection_closes_at_shutdown() {
    let relay = Relay::start(&[], |_| {}).await;
    let (mut client, task) = serve_client(&relay).await;
    client.write_all(REQUEST).await.unwrap();
    let mut answer = [0; 15];
    client.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200 OK");
    let started = tokio::time::Instant::now();
    relay.shutdown.cancel();
    task.await.unwrap();
    assert!(started.elapsed() < Duration::from_secs(1));
}

#[tokio::test]
async fn request_in_progress_finishes_at_shutdown() {
    let (finish, wait) = oneshot::channel::<()>();
    let wait = Arc::new(tokio::sync::Mutex::new(Some(wait)));
    let (sender, mut arrivals) = tokio::sync::mpsc::unbounded_channel();
    let (address, _head) = head(move |_| {
        let (wait, sender) = (Arc::clone(&wait), sender.clone());
        async move {
            sender.send(()).unwrap();
            let wait = wait.lock().await.take().unwrap();
            wait.await.unwrap();
            ok("done")
        }
    })
    .await;
    let mut relay = Relay::start(&[("default", address)], |_| {}).await;
    let request = relay.request("GET", "/slow").body(answer::empty()).unwrap();
    let client = relay.client().await;
    let pending = tokio::spawn(client.send(request));
    arrivals.recv().await.unwrap();
    relay.shutdown.cancel();
    finish.send(()).unwrap();
    assert_eq!(text(pending.await.unwrap()).await, "done");
    relay.until_disconnected().await;
}
