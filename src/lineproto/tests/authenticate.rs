//! Who a client is, and what it is told before that is known.

use crate::lineproto::tests::*;

#[tokio::test]
async fn nothing_is_said_to_nobody_and_three_wrong_tokens_are_enough() {
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

#[tokio::test(start_paused = true)]
async fn silence_costs_a_minute_and_nothing_else() {
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
async fn telnet_gets_no_echo_of_a_token() {
    let relay = relay(true, |_| {});
    let mut person = Person::connect(&relay);
    person.stream.write_all(b"\xff\xfb\x1f\r\n").await.unwrap();
    let mut all = bytes_until(&mut person.stream, "token: ").await;
    // Of the test's own making: nothing is read before the connection is served.
    let hidden = all.windows(3).filter(|w| *w == telnet::ECHO_OFF).count();
    assert!(hidden <= 2);
    person.say(&format!("{}\r\n", token_of("ann"))).await;
    all.extend(bytes_until(&mut person.stream, "q leaves").await);
    let has = |wanted: &[u8]| all.windows(wanted.len()).any(|w| w == wanted);
    assert!(has(&telnet::ECHO_OFF) && has(&telnet::ECHO_ON));
    assert!(has(b"No task waits at a breakpoint.\r\n"));
}

#[tokio::test]
async fn the_enter_that_shows_a_person_shows_the_list_once() {
    let relay = relay(false, |_| {});
    let mut person = Person::connect(&relay);
    person.say("\r\nq\r\n").await;
    let said = person.rest().await;
    assert_eq!(said.matches("No task waits").count(), 1, "{said}");
}
