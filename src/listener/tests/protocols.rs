//! Every protocol inside TLS.

use super::*;
use crate::listener::refusal::TLS_ALERT;

#[tokio::test]
async fn every_protocol_is_found_inside_tls() {
    let relay = Relay::start(Files::config).await;
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        for alpn in [&[][..], &["http/1.1"], &["x", "http/1.1"]] {
            let client = Client {
                alpn,
                version: Some(version),
                ..Client::default()
            };
            let mut stream = relay.tls(&client).await.unwrap();
            let answer = said(&mut stream, HEALTH).await;
            assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
        }
    }
    let h2 = Client {
        alpn: &["h2", "http/1.1"],
        ..Client::default()
    };
    let stream = relay.tls(&h2).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    assert_eq!(http2(stream).await, 200);
    // By its preface, without ALPN.
    assert_eq!(http2(relay.encrypted().await).await, 200);

    let (_, answer) = initialized(relay.encrypted().await).await;
    assert_eq!(
        (&answer["success"], &answer["request_seq"]),
        (&json!(true), &json!(7))
    );

    let answer = said(&mut relay.encrypted().await, b"q\r\n").await;
    assert!(
        answer.contains("tasks that wait at a breakpoint"),
        "{answer}"
    );
    let answer = said(&mut relay.encrypted().await, b"\0\0").await;
    assert!(answer.contains("neither"), "{answer}");
    let mut stream = relay.encrypted().await;
    stream.write_all(b"\x16\x03\x01").await.unwrap();
    assert_eq!(rest(&mut stream).await, TLS_ALERT, "TLS inside TLS");

    let metrics = relay.metrics(relay.encrypted().await).await;
    assert!(
        metrics.contains(r#"ray_relay_tls_handshakes_total{outcome="ok"} 13"#),
        "{metrics}"
    );
    assert!(
        metrics.contains(r#"ray_relay_connections_total{protocol="dap"} 1"#),
        "{metrics}"
    );
    assert!(
        metrics.contains("ray_relay_tls_certificate_not_after_seconds "),
        "{metrics}"
    );
}

async fn http2(stream: TlsStream<TcpStream>) -> u16 {
    let io = hyper_util::rt::TokioIo::new(stream);
    let executor = hyper_util::rt::TokioExecutor::new();
    let (mut send, connection) = hyper::client::conn::http2::handshake(executor, io)
        .await
        .unwrap();
    let driver = tokio::spawn(connection);
    let request = hyper::Request::get("https://localhost/relay/healthz")
        .body(http_body_util::Empty::<bytes::Bytes>::new())
        .unwrap();
    let answer = timeout(PATIENCE, send.send_request(request))
        .await
        .unwrap()
        .unwrap();
    drop(send);
    driver.abort();
    answer.status().as_u16()
}

#[tokio::test(start_paused = true)]
async fn who_has_agreed_on_http_may_take_its_time() {
    let relay = Relay::start(Files::config).await;
    let client = Client {
        alpn: &["http/1.1"],
        ..Client::default()
    };
    let mut stream = relay.tls(&client).await.unwrap();
    let mut byte = [0];
    // A browser that connects before it knows what for; then `http.header_timeout` counts.
    assert!(
        timeout(Duration::from_secs(20), stream.read(&mut byte))
            .await
            .is_err()
    );
    let answer = said(&mut stream, HEALTH).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
}
