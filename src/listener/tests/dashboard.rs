//! Tests the Ray dashboard inside TLS, with a head played by the test.

use super::*;

#[tokio::test]
async fn dashboard_is_served_over_tls_with_relay_addresses() {
    let head = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let head_address = head.local_addr().unwrap();
    let head_task = tokio::spawn(async move {
        loop {
            let (mut stream, _) = head.accept().await.unwrap();
            tokio::spawn(async move {
                let mut received = Vec::new();
                while stream.read_buf(&mut received).await.unwrap_or(0) > 0 {
                    if !received.ends_with(b"\r\n\r\n") {
                        continue;
                    }
                    let text = String::from_utf8(std::mem::take(&mut received)).unwrap();
                    let (extra, body) = match text.contains("/api/v0/workers") {
                        true => (
                            "content-type: application/json\r\n".to_owned(),
                            r#"{"data": {"result": {"result": [{"worker_id": "aa", "ip": "10.88.0.10", "debugger_port": 38645, "num_paused_threads": 0}]}}}"#,
                        ),
                        false => (
                            format!(
                                "location: http://{head_address}/there\r\nx-origin: {}\r\n",
                                text.contains("origin")
                            ),
                            "",
                        ),
                    };
                    let status = match body {
                        "" => "302 Found",
                        _ => "200 OK",
                    };
                    let answer = format!(
                        "HTTP/1.1 {status}\r\n{extra}content-length: {}\r\n\r\n{body}",
                        body.len()
                    );
                    if stream.write_all(answer.as_bytes()).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    let relay = Relay::changed(Files::config, |config| {
        config.clusters[0].ray_address = format!("http://{head_address}");
    })
    .await;
    let get = async |path: &str, headers: &str| {
        let request = format!(
            "GET {path} HTTP/1.1\r\nhost: localhost:15678\r\n{headers}connection: close\r\n\r\n"
        );
        exchange(&mut relay.encrypted().await, request.as_bytes()).await
    };
    let answer = get("/api/v0/workers?detail=1", "").await;
    assert!(
        answer.contains(r#""ip": "localhost""#) && answer.contains("15678"),
        "{answer}"
    );
    assert!(
        !answer.contains("10.88.0.10") && !answer.contains("38645"),
        "{answer}"
    );
    // A redirect within the head becomes one within the relay.
    let origin = "origin: https://localhost:15678\r\n";
    let answer = get("/here", origin).await;
    assert!(
        answer.starts_with("HTTP/1.1 302") && answer.contains("location: /there\r\n"),
        "{answer}"
    );
    let foreign = "origin: https://elsewhere\r\n";
    let answer = get("/here", foreign).await;
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    head_task.abort();
}
