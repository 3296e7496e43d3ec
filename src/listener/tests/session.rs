//! Tests debugger sessions inside TLS, and how they end.

use super::*;
use ray_relay_base::wire::dap::message::Request;

/// Returns a session over TLS with a worker played by the test.
async fn attached(relay: &Relay) -> (Conversation<TlsStream<TcpStream>>, Conversation<TcpStream>) {
    let worker = listed(relay.running.registry(), paused("square", 1)).await;
    let (mut client, answer) = initialized(relay.encrypted().await).await;
    assert_eq!(answer["success"], true);
    let attach = request(8, "attach", &json!({}));
    client.send(&attach).await.unwrap();
    let (stream, _) = timeout(TEST_TIMEOUT, worker.accept())
        .await
        .unwrap()
        .unwrap();
    let mut debugpy = Conversation::new(stream, 1 << 26);
    let greeting = json!({"seq": 1, "type": "event", "event": "output", "body": {"category": "telemetry", "output": "ptvsd"}});
    debugpy.send(&greeting).await.unwrap();
    for command in ["initialize", "attach"] {
        answer_next(&mut debugpy, command).await;
    }
    let answer = read(&mut client).await;
    assert_eq!(answer["command"], "attach");
    assert_eq!(answer["success"], true);
    (client, debugpy)
}

/// Expects the request `command` as the worker, and answers it.
async fn answer_next(debugpy: &mut Conversation<TcpStream>, command: &str) {
    let mut request = read(debugpy).await;
    let request = Request::read(&mut request).unwrap();
    assert_eq!(request.command, command);
    debugpy.send(&request.success(json!({}))).await.unwrap();
}

#[tokio::test]
async fn a_session_inside_tls_passes_large_messages_and_half_closes() {
    let relay = Relay::start(Files::config).await;
    let (client, mut debugpy) = attached(&relay).await;
    // The messages fill the TLS buffers many times in both directions at once.
    let text = "x".repeat(8 << 20);
    let large_event =
        json!({"seq": 9, "type": "event", "event": "output", "body": {"output": text}});
    let large_request = request(9, "evaluate", &json!({"expression": text}));
    let (mut client, _) = client.into_parts();
    let frame = ray_relay_base::wire::dap::codec::frame(&large_request);
    let (mut reading, mut writing) = tokio::io::split(&mut client);
    let mut reader = Conversation::new(tokio::io::join(&mut reading, tokio::io::sink()), 1 << 26);
    let (sent, request, event) = tokio::join!(
        async {
            writing.write_all(&frame).await?;
            writing.flush().await
        },
        async {
            debugpy.send(&large_event).await.unwrap();
            read(&mut debugpy).await
        },
        async {
            loop {
                let message = read(&mut reader).await;
                if message["seq"] == 9 {
                    return message;
                }
            }
        },
    );
    sent.unwrap();
    assert_eq!(request["arguments"], large_request["arguments"]);
    assert_eq!(event, large_event);
    // A pending request would delay the detach sequence.
    let answer = json!({"seq": 10, "type": "response", "request_seq": request["seq"], "success": true, "command": "evaluate", "body": {"result": ""}});
    debugpy.send(&answer).await.unwrap();

    // After the client's half-close the worker is detached, and its last messages still arrive.
    client.shutdown().await.unwrap();
    for command in ["setFunctionBreakpoints", "disconnect"] {
        assert_eq!(read(&mut debugpy).await["command"], command);
    }
    let last = json!({"seq": 11, "type": "event", "event": "terminated"});
    debugpy.send(&last).await.unwrap();
    drop(debugpy);
    let mut client = Conversation::new(client, 1 << 26);
    while read(&mut client).await != last {}
    closed(&mut client).await;
    let ended = r#"ray_relay_sessions_total{client="other",outcome="client",protocol="dap"} 1"#;
    let recorded = async { while !relay.metrics().await.contains(ended) {} };
    timeout(TEST_TIMEOUT, recorded).await.unwrap();
}

#[tokio::test]
async fn every_session_ends_with_a_tls_close_notify() {
    let relay = Relay::start(Files::config).await;
    let (client, mut debugpy) = attached(&relay).await;
    let (mut stream, _) = client.into_parts();
    let disconnect = ray_relay_base::wire::dap::codec::frame(&request(9, "disconnect", &json!({})));
    stream.write_all(&disconnect).await.unwrap();
    stream.shutdown().await.unwrap();
    for command in ["setFunctionBreakpoints", "disconnect"] {
        assert_eq!(read(&mut debugpy).await["command"], command);
    }
    closed(&mut Conversation::new(stream, 1 << 20)).await;
    drop(debugpy);

    let (mut client, mut debugpy) = attached(&relay).await;
    // The relay waits for the answers of a worker that it detaches.
    let answers = async {
        while let Ok(request) = debugpy.read().await {
            let answer = json!({"seq": 3, "type": "response", "request_seq": request["seq"], "success": true, "command": request["command"]});
            debugpy.send(&answer).await.unwrap();
        }
    };
    tokio::join!(relay.running.abort(), answers);
    while read(&mut client).await["event"] != "terminated" {}
    closed(&mut client).await;
}

#[tokio::test]
async fn abrupt_client_close_ends_its_session() {
    let relay = Relay::start(Files::config).await;
    let (client, mut debugpy) = attached(&relay).await;
    let (stream, _) = client.into_parts();
    let (mut tcp, _) = stream.into_inner();
    tcp.shutdown().await.unwrap();
    for command in ["setFunctionBreakpoints", "disconnect"] {
        answer_next(&mut debugpy, command).await;
    }
    closed(&mut debugpy).await;
}
