//! Tests the pump between a debugger and a relay: bulk data in both directions, and the end of either side.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex, split};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::super::pump::{Pump, PumpEnd};
use ray_relay_base::wire::tunnel::{ByteStream, stream_config};

const TRANSFER_TIMEOUT: Duration = Duration::from_secs(30);

/// Returns a pump, the debugger's end and the relay's.
async fn start_pump() -> (
    Pump<TcpStream, DuplexStream>,
    TcpStream,
    ByteStream<DuplexStream>,
) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let dialled = TcpStream::connect(listener.local_addr().unwrap());
    let (dialled, accepted) = tokio::join!(dialled, listener.accept());
    let (near, far) = duplex(50_000);
    let config = Some(stream_config());
    let near = WebSocketStream::from_raw_socket(near, Role::Client, config).await;
    let far = WebSocketStream::from_raw_socket(far, Role::Server, config).await;
    (
        Pump::new(dialled.unwrap(), ByteStream::new(near)),
        accepted.unwrap().0,
        ByteStream::new(far),
    )
}

fn bytes(seed: u8) -> Vec<u8> {
    (0..4 << 20)
        .map(|n: u32| (n.wrapping_mul(2_654_435_761) >> 24) as u8 ^ seed)
        .collect()
}

#[tokio::test]
async fn bulk_flows_both_ways_and_the_debugger_end_is_reported() {
    let (mut pump, debugger, relay) = start_pump().await;
    let (to_relay, to_debugger) = (bytes(1), bytes(2));
    let pumped = tokio::spawn(async move {
        let pump_end = pump.run().await;
        pump.linger().await;
        pump_end
    });
    let (mut from_pump, mut to_pump) = debugger.into_split();
    let (sent, expected_len) = (to_relay.clone(), to_debugger.len());
    let at_debugger = tokio::spawn(async move {
        let writing = async {
            to_pump.write_all(&sent).await.unwrap();
            to_pump
        };
        let mut received = vec![0; expected_len];
        let reading = from_pump.read_exact(&mut received);
        let (to_pump, read) = tokio::join!(writing, reading);
        read.unwrap();
        drop(to_pump);
        received
    });
    let (mut from_agent, mut to_agent) = split(relay);
    let sent = to_debugger.clone();
    let sending = tokio::spawn(async move {
        to_agent.write_all(&sent).await.unwrap();
        to_agent
    });
    let mut received = Vec::new();
    let reading = from_agent.read_to_end(&mut received);
    timeout(TRANSFER_TIMEOUT, reading).await.unwrap().unwrap();
    assert!(received == to_relay && at_debugger.await.unwrap() == to_debugger);
    drop((from_agent, sending.await.unwrap()));
    assert_eq!(
        timeout(TRANSFER_TIMEOUT, pumped).await.unwrap().unwrap(),
        PumpEnd::Debugger
    );
}

/// A relay that has closed its sending half still receives, and is gone only when its connection is.
#[tokio::test]
async fn half_closed_relay_still_receives() {
    let (mut pump, mut debugger, mut relay) = start_pump().await;
    let pumped = tokio::spawn(async move { pump.run().await });
    relay.write_all(b"last words").await.unwrap();
    relay.shutdown().await.unwrap();
    let mut received = [0; 10];
    debugger.read_exact(&mut received).await.unwrap();
    assert_eq!(&received, b"last words");
    debugger.write_all(b"answer").await.unwrap();
    let mut answer = [0; 6];
    relay.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"answer");
    // The debugger does not see a half-closed connection: debugpy would end with it.
    let no_eof = timeout(Duration::from_millis(50), debugger.read(&mut received));
    assert!(no_eof.await.is_err());
    drop(relay);
    assert_eq!(
        timeout(TRANSFER_TIMEOUT, pumped).await.unwrap().unwrap(),
        PumpEnd::Relay
    );
}

/// Bytes that the debugger has not read when the relay goes are returned to the task that detaches it.
#[tokio::test]
async fn undelivered_bytes_are_returned() {
    let (mut pump, debugger, mut relay) = start_pump().await;
    let all = bytes(3);
    let sent = all.clone();
    let sending = tokio::spawn(async move {
        // The debugger reads nothing: at some point the writer blocks.
        let writing = relay.write_all(&sent);
        let _ = timeout(Duration::from_millis(300), writing).await;
    });
    let mut pump_end = None;
    let _ = timeout(Duration::from_secs(1), async {
        pump_end = Some(pump.run().await);
    })
    .await;
    sending.await.unwrap();
    let (stream, undelivered) = pump.into_parts();
    drop(stream);
    let mut debugger = debugger;
    let mut delivered = Vec::new();
    debugger.read_to_end(&mut delivered).await.unwrap();
    assert!(all.starts_with(&delivered) && all[delivered.len()..].starts_with(&undelivered));
    assert!(pump_end.is_none_or(|pump_end| pump_end == PumpEnd::Relay));
}
