//! Debugger sessions inside TLS, and how they end.

use super::*;
use ray_relay_base::wire::dap::message::Request;

/// A session over TLS with a worker whose part the test plays.
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
        answered(&mut debugpy, command).await;
    }
    let answer = read(&mut client).await;
    assert_eq!(answer["command"], "attach");
    assert_eq!(answer["success"], true);
    (client, debugpy)
}

/// The next request to the worker, which is this one, is answered.
async fn answered(debugpy: &mut Conversation<TcpStream>, command: &str) {
    let mut asked = read(debugpy).await;
    let asked = Request::read(&mut asked).unwrap();
    assert_eq!(asked.command, command);
    debugpy.send(&asked.success(json!({}))).await.unwrap();
}

#[tokio::test]
async fn a_session_inside_tls_passes_large_messages_and_half_closes() {
    let relay = Relay::start(Files::config).await;
    let (client, mut debugpy) = attached(&relay).await;
    // Through the TLS buffers many times over, both ways at once.
    let text = "x".repeat(8 << 20);
    let big = json!({"seq": 9, "type": "event", "event": "output", "body": {"output": text}});
    let up = request(9, "evaluate", &json!({"expression": text}));
    let (mut client, _) = client.into_parts();
    let frame = ray_relay_base::wire::dap::codec::frame(&up);
    let (mut reading, mut writing) = tokio::io::split(&mut client);
    let mut seen = Conversation::new(tokio::io::join(&mut reading, tokio::io::sink()), 1 << 26);
    let (sent, asked, event) = tokio::join!(
        async {
            writing.write_all(&frame).await?;
            writing.flush().await
        },
        async {
            debugpy.send(&big).await.unwrap();
            read(&mut debugpy).await
        },
        async {
            loop {
                let message = read(&mut seen).await;
                if message["seq"] == 9 {
                    return message;
                }
            }
        },
    );
    sent.unwrap();
    assert_eq!(asked["arguments"], up["arguments"]);
    assert_eq!(event, big);
    // Answered, so that no goodbye has to wait for it.
    let answer = json!({"seq": 10, "type": "response", "request_seq": asked["seq"], "success": true, "command": "evaluate", "body": {"result": ""}});
    debugpy.send(&answer).await.unwrap();

    // The client closes its half: the worker is told goodbye behind all that was asked, and what it still says arrives.
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
    let counted = async { while !relay.metrics().await.contains(ended) {} };
    timeout(TEST_TIMEOUT, counted).await.unwrap();
}

#[tokio::test]
async fn every_session_ends_with_a_tls_close_notify() {
    let relay = Relay::start(Files::config).await;
    let (client, mut debugpy) = attached(&relay).await;
    let (mut stream, _) = client.into_parts();
    let goodbye = ray_relay_base::wire::dap::codec::frame(&request(9, "disconnect", &json!({})));
    stream.write_all(&goodbye).await.unwrap();
    stream.shutdown().await.unwrap();
    for command in ["setFunctionBreakpoints", "disconnect"] {
        assert_eq!(read(&mut debugpy).await["command"], command);
    }
    closed(&mut Conversation::new(stream, 1 << 20)).await;
    drop(debugpy);

    let (mut client, mut debugpy) = attached(&relay).await;
    // The relay waits for a worker that it has said goodbye to.
    let answering = async {
        while let Ok(asked) = debugpy.read().await {
            let answer = json!({"seq": 3, "type": "response", "request_seq": asked["seq"], "success": true, "command": asked["command"]});
            debugpy.send(&answer).await.unwrap();
        }
    };
    tokio::join!(relay.running.abort(), answering);
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
        answered(&mut debugpy, command).await;
    }
    closed(&mut debugpy).await;
}
