//! Ambiguous requests, byte by byte: none of them smuggles a request past the relay's checks
//! to the head.

use super::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Starts a head that records every byte, and answers each request head with an empty 200.
async fn recording_head() -> (SocketAddr, Arc<Mutex<Vec<u8>>>, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let received = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = JoinSet::new();
    let buffer_of_head = Arc::clone(&received);
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let buffer_of_head = Arc::clone(&buffer_of_head);
            connections.spawn(async move {
                let mut buffer = [0; 4096];
                while let Ok(read @ 1..) = stream.read(&mut buffer).await {
                    buffer_of_head
                        .lock()
                        .unwrap()
                        .extend_from_slice(&buffer[..read]);
                    if buffer[..read].windows(4).any(|w| w == b"\r\n\r\n") {
                        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
                        _ = stream.write_all(answer).await;
                    }
                }
            });
        }
    });
    (address, received, tasks)
}

/// Sends `bytes` on one connection, and returns everything until it closes.
async fn send_raw(relay: &Relay, bytes: &str) -> String {
    let mut stream = TcpStream::connect(relay.address).await.unwrap();
    // The relay may close the connection early.
    _ = stream.write_all(bytes.as_bytes()).await;
    _ = stream.shutdown().await;
    let mut answer = Vec::new();
    _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

const HOST: &str = "Host: 127.0.0.1\r\n";

#[tokio::test]
async fn smuggled_request_without_a_token_is_refused() {
    let head = UncontactedHead::new().await;
    let relay = Relay::with_users(&[("default", head.address)], &[]).await;
    let inner = format!("GET /nodes HTTP/1.1\r\n{HOST}\r\n");
    let length = inner.len();
    for bytes in [
        format!("POST /api/jobs/x/stop HTTP/1.1\r\n{HOST}Content-Length: {length}\r\n\r\n{inner}"),
        format!(
            "POST /api/jobs/x/stop HTTP/1.1\r\n{HOST}Content-Length: 0\r\nContent-Length: {length}\r\n\r\n{inner}"
        ),
        format!(
            "POST /api/jobs/x/stop HTTP/1.1\r\n{HOST}Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{inner}"
        ),
        format!(
            "POST /api/jobs/x/stop HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n{inner}"
        ),
        format!(
            "POST /api/jobs/x/stop HTTP/1.1\r\n{HOST}Transfer-Encoding: xchunked\r\n\r\n{inner}"
        ),
        format!(
            "POST /api/jobs/x/stop HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked, identity\r\n\r\n{inner}"
        ),
        format!(
            "POST /api/jobs/x/stop HTTP/1.1\r\n{HOST}Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n{inner}"
        ),
        format!(
            "POST /api/jobs/x/stop HTTP/1.0\r\n{HOST}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n{inner}"
        ),
        format!("GET /nodes HTTP/1.1\r\n{HOST}X-A: 1\r\n Authorization: Bearer x\r\n\r\n"),
        format!("GET / HTTP/1.1\r\n{HOST}X-A: 1\r\n\tX-B: 2\r\n\r\n"),
        format!(
            "GET /nodes HTTP/1.1\r\n{HOST}Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n\r\nPRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        ),
        format!(
            "GET /nodes HTTP/1.1\r\n{HOST}Connection: Upgrade\r\nUpgrade: anything\r\n\r\n{inner}"
        ),
        format!(
            "POST {TAIL} HTTP/1.1\r\n{HOST}Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n{inner}"
        ),
        format!(
            "GET {TAIL} HTTP/1.1\r\n{HOST}Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n{inner}"
        ),
        format!("GET http://127.0.0.1/nodes HTTP/1.1\r\n{HOST}\r\n"),
        format!("GET http://head.example/nodes HTTP/1.1\r\n{HOST}\r\n"),
        format!("GET / HTTP/1.1\r\n{HOST}Content-Length: {length}\r\n\r\n{inner}"),
        format!("GET / HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n{inner}"),
        format!("CONNECT 127.0.0.1:80 HTTP/1.1\r\n{HOST}\r\n{inner}"),
        format!(
            "GET /nodes HTTP/1.1\r\n{HOST}Authorization: Bearer a\r\nAuthorization: Bearer b\r\n\r\n"
        ),
        format!("GET /nodes HTTP/1.1\r\n{HOST}Host: other\r\n\r\n"),
        format!("GET /nodes\0 HTTP/1.1\r\n{HOST}\r\n"),
        "GET /nodes HTTP/1.1\nHost: 127.0.0.1\n\n".to_owned(),
        format!("TRACE / HTTP/1.1\r\n{HOST}\r\n"),
        format!("OPTIONS * HTTP/1.1\r\n{HOST}\r\n"),
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nGET /nodes HTTP/1.1\r\n\r\n".to_owned(),
    ] {
        let answer = send_raw(&relay, &bytes).await;
        let statuses = answer.lines().filter(|line| line.starts_with("HTTP/1."));
        for status in statuses {
            let refused = ["400", "401", "421"]
                .iter()
                .any(|code| status.contains(code));
            assert!(refused, "{status} to {bytes:?}");
        }
    }
    head.expect_uncontacted().await;
}

const TAIL: &str = "/api/jobs/1/logs/tail";

#[tokio::test]
async fn allowed_request_smuggles_no_other() {
    let ann = User::new("ann", "\"dashboard:write\"", "");
    let token = format!("Authorization: {}\r\n", bearer("ann"));
    let (address, received, _head) = recording_head().await;
    let relay = Relay::with_users(&[("default", address)], &[&ann]).await;
    let inner = format!("GET /smuggled HTTP/1.1\r\n{HOST}\r\n");
    let chunk = format!("{:x}\r\n{inner}\r\n0\r\n\r\n", inner.len());
    for bytes in [
        // The inner request is a body to one parser, and the next request to another.
        format!(
            "POST /a HTTP/1.1\r\n{HOST}{token}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{inner}"
        ),
        format!(
            "POST /a HTTP/1.1\r\n{HOST}{token}Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n{inner}"
        ),
        format!("POST /a HTTP/1.1\r\n{HOST}{token}Content-Length: 5, 5\r\n\r\n12345{inner}"),
        format!(
            "POST /a HTTP/1.1\r\n{HOST}{token}Content-Length: 5\r\nContent-Length: 5\r\n\r\n12345{inner}"
        ),
        format!(
            "GET /a HTTP/1.1\r\n{HOST}{token}Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n{inner}"
        ),
        format!(
            "GET /a HTTP/1.1\r\n{HOST}{token}Connection: Upgrade\r\nUpgrade: anything\r\n\r\n{inner}"
        ),
        format!(
            "GET /a HTTP/1.1\r\n{HOST}{token}Connection: Authorization, Content-Length\r\nContent-Length: 5\r\n\r\n12345{inner}"
        ),
        // The head refuses the upgrade, so the rest is a separate request.
        format!(
            "GET {TAIL} HTTP/1.1\r\n{HOST}{token}Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n{inner}"
        ),
    ] {
        let answer = send_raw(&relay, &bytes).await;
        let received_text = String::from_utf8_lossy(&received.lock().unwrap()).into_owned();
        assert!(
            !received_text.contains("smuggled"),
            "{bytes:?}: {received_text}"
        );
        assert!(
            !received_text.contains(&token_of("ann")),
            "{bytes:?}: {received_text}"
        );
        assert!(
            !received_text.to_ascii_lowercase().contains("upgrade: h2c"),
            "{received_text}"
        );
        let status_line = answer.lines().next().unwrap_or_default();
        let is_expected = ["200", "400"].iter().any(|code| status_line.contains(code));
        assert!(is_expected, "{status_line} to {bytes:?}");
        // A second request would have no token.
        assert!(answer.matches("HTTP/1.1 200").count() <= 1, "{answer}");
    }
    // A valid body stays a body.
    let bytes =
        format!("POST /b HTTP/1.1\r\n{HOST}{token}Transfer-Encoding: chunked\r\n\r\n{chunk}");
    send_raw(&relay, &bytes).await;
    let received_text = String::from_utf8_lossy(&received.lock().unwrap()).into_owned();
    let request = &received_text[received_text.find("POST /b").unwrap()..];
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    assert!(
        head.to_ascii_lowercase()
            .contains("transfer-encoding: chunked"),
        "{head}"
    );
    assert!(
        body.starts_with(&format!("{:X}\r\n", inner.len())),
        "{body:?}"
    );
}

#[tokio::test]
async fn refused_request_body_is_not_requested() {
    let head = UncontactedHead::new().await;
    let relay = Relay::with_users(&[("default", head.address)], &[]).await;
    let mut stream = TcpStream::connect(relay.address).await.unwrap();
    let request = format!(
        "PUT /api/packages/gcs/x.zip HTTP/1.1\r\n{HOST}Content-Length: 100000000\r\nExpect: 100-continue\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 401");
    head.expect_uncontacted().await;
}

#[tokio::test]
async fn http2_streams_are_authenticated_separately() {
    let ann = User::new("ann", "\"dashboard:write\"", "");
    let (address, mut requests, _head) = test_head(|| ok("")).await;
    let relay = Relay::with_users(&[("default", address)], &[&ann]).await;
    let stream = TcpStream::connect(relay.address).await.unwrap();
    let (mut send, connection) = hyper::client::conn::http2::handshake::<_, _, Body>(
        TokioExecutor::new(),
        TokioIo::new(stream),
    )
    .await
    .unwrap();
    tokio::spawn(connection);
    let mut send_with_token = async |token: Option<&str>| {
        let mut request = Request::get(format!("http://{}/nodes", relay.address));
        if let Some(token) = token {
            request = request.header("authorization", token);
        }
        let request = request.body(answer::empty()).unwrap();
        send.send_request(request).await.unwrap().status()
    };
    assert_eq!(send_with_token(Some(&bearer("ann"))).await, 200);
    assert!(requests.try_recv().is_ok());
    assert_eq!(send_with_token(None).await, 401);
    assert_eq!(send_with_token(Some("Bearer wrong")).await, 401);
    assert!(requests.try_recv().is_err());
}
