//! Tests handshakes that fail or do not end.

use super::*;

#[tokio::test]
async fn failed_tls_negotiation_sends_an_alert() {
    let without_tls = Relay::start(|_| config::Tls::default()).await;
    let error = without_tls.tls(&Client::default()).await.unwrap_err();
    assert!(error.to_string().contains("HandshakeFailure"), "{error}");

    let relay = Relay::start(Files::config).await;
    // A ClientHello of TLS 1.0 with RSA key exchange and AES-CBC.
    let mut hello = vec![0x16, 3, 1, 0, 45, 1, 0, 0, 41, 3, 1];
    hello.extend([7; 32]);
    hello.extend([0, 0, 2, 0, 0x2f, 1, 0]);
    let mut stream = relay.plain().await;
    stream.write_all(&hello).await.unwrap();
    let alert = rest(&mut stream).await;
    // The alert is a fatal handshake_failure or protocol_version.
    assert_eq!((alert[0], alert[5]), (0x15, 2), "{alert:?}");
    assert!(matches!(alert[6], 40 | 70), "{alert:?}");
    // The client offers only unsupported protocols.
    let client = Client {
        alpn: &["smtp"],
        ..Client::default()
    };
    let error = relay.tls(&client).await.unwrap_err();
    assert_has(&error.to_string(), "NoApplicationProtocol");
    // Invalid bytes follow a valid prefix.
    let mut stream = relay.plain().await;
    let nonsense = b"\x16\x03\x01\x00\x05\x02\0\0\x01\0";
    stream.write_all(nonsense).await.unwrap();
    assert_eq!(rest(&mut stream).await[0], 0x15);
}

#[tokio::test]
async fn stalled_handshake_is_cut() {
    let timeout = Duration::from_millis(300);
    let relay = Relay::changed(Files::config, |config| {
        config.listen.handshake_timeout = timeout;
    })
    .await;
    // Stall within the record header, after it, and within the ClientHello.
    for bytes in [
        &b"\x16\x03"[..],
        b"\x16\x03\x01\x02\x00",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ] {
        let started = std::time::Instant::now();
        let mut stream = relay.plain().await;
        stream.write_all(bytes).await.unwrap();
        assert_eq!(rest(&mut stream).await, b"");
        assert!(started.elapsed() >= timeout - Duration::from_millis(20));
        assert!(started.elapsed() < TEST_TIMEOUT / 2);
        // Another client closes in the middle of the handshake.
        let mut stream = relay.plain().await;
        stream.write_all(bytes).await.unwrap();
        stream.shutdown().await.unwrap();
        rest(&mut stream).await;
    }
    // A client that is silent inside TLS gets a hint when its connection ends.
    let mut stream = relay.encrypted().await;
    let message = String::from_utf8(rest(&mut stream).await).unwrap();
    assert!(message.contains("press Enter"), "{message}");
    let metrics = relay.metrics().await;
    assert_has(
        &metrics,
        r#"ray_relay_tls_handshakes_total{outcome="timeout"} 3"#,
    );
}
