//! Tests every protocol inside TLS.

use super::*;
use crate::listener::refusal::TLS_ALERT;

#[tokio::test]
async fn every_protocol_is_detected_inside_tls() {
    let relay = Relay::start(Files::config).await;
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        for alpn in [&[][..], &["http/1.1"], &["x", "http/1.1"]] {
            let client = Client {
                alpn,
                version: Some(version),
                ..Client::default()
            };
            let mut stream = relay.tls(&client).await.unwrap();
            assert_healthy(&mut stream).await;
        }
    }
    let h2 = Client {
        alpn: &["h2", "http/1.1"],
        ..Client::default()
    };
    let stream = relay.tls(&h2).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let uri = "https://localhost/relay/healthz";
    assert_eq!(http2(stream, uri).await.0.unwrap(), 200);
    // HTTP/2 is detected by its preface without ALPN.
    assert_eq!(http2(relay.encrypted().await, uri).await.0.unwrap(), 200);

    let (_, answer) = initialized(relay.encrypted().await).await;
    assert_eq!(answer["success"], true);
    assert_eq!(answer["request_seq"], 7);

    let answer = exchange(&mut relay.encrypted().await, b"q\r\n").await;
    assert_has(&answer, "tasks that wait at a breakpoint");
    let answer = exchange(&mut relay.encrypted().await, b"\0\0").await;
    assert!(answer.contains("neither"), "{answer}");
    let mut stream = relay.encrypted().await;
    stream.write_all(b"\x16\x03\x01").await.unwrap();
    assert_eq!(rest(&mut stream).await, TLS_ALERT, "TLS inside TLS");

    let metrics = relay.metrics().await;
    assert_has(
        &metrics,
        r#"ray_relay_tls_handshakes_total{outcome="ok"} 13"#,
    );
    assert_has(&metrics, r#"ray_relay_connections_total{protocol="dap"} 1"#);
    assert_has(&metrics, "ray_relay_tls_certificate_not_after_seconds ");
}

#[tokio::test(start_paused = true)]
async fn client_with_http_alpn_may_stay_idle() {
    let relay = Relay::start(Files::config).await;
    let client = Client {
        alpn: &["http/1.1"],
        ..Client::default()
    };
    let mut stream = relay.tls(&client).await.unwrap();
    let mut byte = [0];
    // A browser may connect in advance; then `HEADER_TIMEOUT` applies.
    let idle = timeout(Duration::from_secs(20), stream.read(&mut byte));
    assert!(idle.await.is_err());
    assert_healthy(&mut stream).await;
}
