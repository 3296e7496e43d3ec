//! Authentication of a client, and the answers before it.

use crate::lineproto::tests::*;

#[tokio::test]
async fn unauthenticated_client_sees_nothing_and_has_3_tries() {
    let relay = relay(true, |_| {});
    let pdb = Pdb::listed(&relay).await;
    let mut person = Person::connect(&relay);
    for _ in 0..3 {
        let asked = person.until("token: ").await;
        assert!(!asked.contains("outer"), "{asked}");
        person.say("0\n").await;
    }
    let rest = person.rest().await;
    assert!(!rest.contains("outer"), "{rest}");
    let refused = relay.kept.take();
    assert_eq!(refused.len(), 3);
    for entry in refused {
        assert_eq!(entry.action, EntryKind::Authentication);
        assert_eq!(entry.details["protocol"], "terminal");
    }
    assert!(relay.context.sessions.table.is_empty());
    pdb.heard_nothing();
}

#[tokio::test]
async fn too_long_line_is_a_wrong_token() {
    let relay = relay(true, |_| {});
    let mut person = Person::connect(&relay);
    for _ in 0..3 {
        person.until("token: ").await;
        person.say(&format!("{}\n", "a".repeat(5000))).await;
    }
    let rest = person.rest().await;
    assert!(!rest.contains("token: "), "{rest}");
    assert_eq!(relay.kept.take().len(), 3);
}

#[tokio::test]
async fn empty_lines_end_the_token_prompt() {
    let relay = relay(true, |_| {});
    let mut person = Person::connect(&relay);
    person.say(&"\n".repeat(20)).await;
    let said = person.rest().await;
    assert_eq!(said.matches("token: ").count(), 10, "{said}");
}

#[tokio::test(start_paused = true)]
async fn silent_client_is_closed_after_a_minute() {
    for auth in [true, false] {
        let relay = relay(auth, |_| {});
        let pdb = Pdb::listed(&relay).await;
        let mut person = Person::connect(&relay);
        person.patience = DAY;
        let began = tokio::time::Instant::now();
        let said = person.rest().await;
        let took = began.elapsed();
        assert!(took <= Duration::from_secs(65), "{took:?}");
        assert!(said.contains("this connection is closed"), "{said}");
        assert_eq!(said.contains("outer"), !auth);
        pdb.heard_nothing();
    }
}

#[tokio::test]
async fn telnet_negotiation_is_not_a_token() {
    let relay = relay(true, |_| {});
    let mut person = Person::connect(&relay);
    person.stream.write_all(b"\xff\xfb\x1f\r\n").await.unwrap();
    bytes_until(&mut person.stream, "token: ").await;
    let token = [&b"\xff\xfd\x01"[..], token_of("ann").as_bytes(), b"\r\n"].concat();
    person.stream.write_all(&token).await.unwrap();
    let said = bytes_until(&mut person.stream, "q leaves").await;
    assert!(String::from_utf8_lossy(&said).contains("No task waits at a breakpoint."));
}

#[tokio::test]
async fn first_enter_shows_the_list_once() {
    let relay = relay(false, |_| {});
    let mut person = Person::connect(&relay);
    person.say("\r\nq\r\n").await;
    let said = person.rest().await;
    assert_eq!(said.matches("No task waits").count(), 1, "{said}");
}
