//! Who comes without TLS.

use std::pin::pin;

use tokio::time::Instant;

use super::*;
use crate::config::TlsMode;

#[tokio::test]
async fn plain_text_is_refused_in_its_own_words_where_tls_is_required() {
    let relay = Relay::start(Files::config).await;
    let (worker, breakpoint) = listening(paused("square", 1)).await;
    relay.running.registry().insert(breakpoint);
    let head = b"POST /api/jobs/ HTTP/1.1\r\nhost: localhost\r\ncontent-length: 900000\r\n\r\n";
    let answer = said(&mut relay.plain().await, head).await;
    assert!(
        answer.starts_with("HTTP/1.1 426 Upgrade Required\r\n"),
        "{answer}"
    );
    assert!(answer.contains("\r\nupgrade: TLS/1.2\r\n"), "{answer}");
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    let body: Value = serde_json::from_str(body).unwrap();
    assert!(
        body["error"].as_str().unwrap().contains("https://"),
        "{body}"
    );

    let stream = hyper_util::rt::TokioIo::new(relay.plain().await);
    let executor = hyper_util::rt::TokioExecutor::new();
    let (mut send, connection) = hyper::client::conn::http2::handshake(executor, stream)
        .await
        .unwrap();
    let driver = tokio::spawn(connection);
    let get = hyper::Request::get("http://localhost/")
        .body(http_body_util::Empty::<bytes::Bytes>::new())
        .unwrap();
    let failed = timeout(PATIENCE, send.send_request(get))
        .await
        .unwrap()
        .unwrap_err();
    let reason = format!("{failed:?} {:?}", driver.await.unwrap());
    assert!(
        reason.contains("INADEQUATE_SECURITY") && reason.contains("https://"),
        "{reason}"
    );

    let (mut dap, answer) = initialized(relay.plain().await).await;
    assert_eq!(
        (&answer["success"], &answer["request_seq"]),
        (&json!(false), &json!(7))
    );
    assert_eq!(answer["body"]["error"]["showUser"], true);
    assert!(
        answer["message"].as_str().unwrap().contains("TLS"),
        "{answer}"
    );
    let end = timeout(PATIENCE, dap.read()).await.unwrap();
    assert!(matches!(end, Err(Closed::ByPeer)), "{end:?}");

    for text in ["\r\n", "list\n", "\u{0}"] {
        let answer = said(&mut relay.plain().await, text.as_bytes()).await;
        assert!(
            answer.starts_with("ray-relay: ") && answer.contains("s_client"),
            "{answer}"
        );
        assert!(answer.ends_with("\r\n"));
    }
    let mut dialled = pin!(worker.accept());
    assert!(
        futures_util::poll!(dialled.as_mut()).is_pending(),
        "no worker was reached"
    );
    let metrics = relay.metrics(relay.encrypted().await).await;
    assert!(
        metrics.contains(r#"ray_relay_refusals_total{kind="forbidden"} 6"#),
        "{metrics}"
    );
}

#[tokio::test(start_paused = true)]
async fn who_is_silent_where_tls_is_required_has_the_whole_deadline() {
    let relay = Relay::changed(Files::config, |config| {
        config.listen.handshake_timeout = Duration::from_secs(3);
    })
    .await;
    let mut stream = relay.plain().await;
    let started = Instant::now();
    assert!(rest(&mut stream).await.starts_with(b"ray-relay: "));
    assert_eq!(started.elapsed().as_secs(), 3);
}

#[tokio::test]
async fn both_are_served_where_tls_is_optional() {
    let optional = |files: &Files| config::Tls {
        mode: TlsMode::Optional,
        ..files.config()
    };
    let relay = Relay::start(optional).await;
    let answer = said(&mut relay.plain().await, HEALTH).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    let answer = said(&mut relay.encrypted().await, HEALTH).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    let (_, answer) = initialized(relay.plain().await).await;
    assert_eq!(answer["success"], true);
}
