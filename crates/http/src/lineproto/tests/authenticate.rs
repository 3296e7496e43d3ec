//! Authentication of a client, and the answers before it.

use crate::lineproto::tests::*;

#[tokio::test]
async fn unauthenticated_client_sees_nothing_and_has_3_tries() {
    let relay = relay(true, |_| {});
    let pdb = Pdb::listed(&relay).await;
    let mut client = Client::connect(&relay);
    for _ in 0..3 {
        let output = client.until("token: ").await;
        assert!(!output.contains("outer"), "{output}");
        client.send("0\n").await;
    }
    let output = client.read_all().await;
    assert!(!output.contains("outer"), "{output}");
    let refused = relay.spy.take();
    assert_eq!(refused.len(), 3);
    for entry in refused {
        assert_eq!(entry.action, EntryKind::Authentication);
        assert_eq!(entry.details["protocol"], "terminal");
    }
    assert!(relay.context.sessions.table.is_empty());
    pdb.expect_not_dialled();
}

#[tokio::test]
async fn too_long_line_is_a_wrong_token() {
    let relay = relay(true, |_| {});
    let mut client = Client::connect(&relay);
    for _ in 0..3 {
        client.until("token: ").await;
        client.send(&format!("{}\n", "a".repeat(5000))).await;
    }
    let output = client.read_all().await;
    assert!(!output.contains("token: "), "{output}");
    assert_eq!(relay.spy.take().len(), 3);
}

#[tokio::test]
async fn empty_lines_end_the_token_prompt() {
    let relay = relay(true, |_| {});
    let mut client = Client::connect(&relay);
    client.send(&"\n".repeat(20)).await;
    let output = client.read_all().await;
    assert_eq!(output.matches("token: ").count(), 10, "{output}");
}

#[tokio::test(start_paused = true)]
async fn silent_client_is_closed_after_a_minute() {
    for auth in [true, false] {
        let relay = relay(auth, |_| {});
        let pdb = Pdb::listed(&relay).await;
        let mut client = Client::connect(&relay);
        client.timeout = DAY;
        let started = tokio::time::Instant::now();
        let output = client.read_all().await;
        let elapsed = started.elapsed();
        assert!(elapsed <= Duration::from_secs(65), "{elapsed:?}");
        assert!(output.contains("this connection is closed"), "{output}");
        assert_eq!(output.contains("outer"), !auth);
        pdb.expect_not_dialled();
    }
}

#[tokio::test]
async fn telnet_negotiation_is_not_a_token() {
    let relay = relay(true, |_| {});
    let mut client = Client::connect(&relay);
    client.stream.write_all(b"\xff\xfb\x1f\r\n").await.unwrap();
    read_bytes_until(&mut client.stream, "token: ").await;
    let token = [&b"\xff\xfd\x01"[..], token_of("ann").as_bytes(), b"\r\n"].concat();
    client.stream.write_all(&token).await.unwrap();
    let output = read_bytes_until(&mut client.stream, "q leaves").await;
    assert!(String::from_utf8_lossy(&output).contains("No task waits at a breakpoint."));
}

#[tokio::test]
async fn first_enter_shows_the_list_once() {
    let relay = relay(false, |_| {});
    let mut client = Client::connect(&relay);
    client.send("\r\nq\r\n").await;
    let output = client.read_all().await;
    assert_eq!(output.matches("No task waits").count(), 1, "{output}");
}
