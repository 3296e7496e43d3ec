//! Tests clients without TLS.

use tokio::time::Instant;

use super::*;
use ray_relay_ray::ray::testing::assert_not_dialled;

#[tokio::test]
async fn plain_text_is_refused_where_tls_is_required() {
    let relay = Relay::start(Files::config).await;
    let worker = listed(relay.running.registry(), paused("square", 1)).await;
    let head = b"POST /api/jobs/ HTTP/1.1\r\nhost: localhost\r\ncontent-length: 900000\r\n\r\n";
    let answer = exchange(&mut relay.plain().await, head).await;
    let status = "HTTP/1.1 426 Upgrade Required\r\n";
    assert!(answer.starts_with(status), "{answer}");
    assert_has(&answer, "\r\nupgrade: TLS/1.2\r\n");
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    let body: Value = serde_json::from_str(body).unwrap();
    assert_has(body["error"].as_str().unwrap(), "https://");

    let (answer, end) = http2(relay.plain().await, "http://localhost/").await;
    let reason = format!("{:?} {end:?}", answer.unwrap_err());
    assert_has(&reason, "INADEQUATE_SECURITY");
    assert_has(&reason, "https://");

    let (mut dap, answer) = initialized(relay.plain().await).await;
    assert_eq!(answer["success"], false);
    assert_eq!(answer["request_seq"], 7);
    assert_eq!(answer["body"]["error"]["showUser"], true);
    assert_has(answer["message"].as_str().unwrap(), "TLS");
    closed(&mut dap).await;

    for text in ["\r\n", "list\n", "\u{0}"] {
        let answer = exchange(&mut relay.plain().await, text.as_bytes()).await;
        assert!(answer.starts_with("ray-relay: "), "{answer}");
        assert_has(&answer, "s_client");
        assert!(answer.ends_with("\r\n"));
    }
    assert_not_dialled(worker);
    let metrics = relay.metrics().await;
    assert_has(&metrics, r#"ray_relay_refusals_total{kind="forbidden"} 6"#);
}

#[tokio::test(start_paused = true)]
async fn silent_client_gets_the_whole_deadline_under_tls() {
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
async fn optional_tls_serves_both() {
    let relay = Relay::start(optional).await;
    assert_healthy(&mut relay.plain().await).await;
    assert_healthy(&mut relay.encrypted().await).await;
    let (_, answer) = initialized(relay.plain().await).await;
    assert_eq!(answer["success"], true);
}
