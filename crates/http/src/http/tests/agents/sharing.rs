//! Messages between two relays through an agent.

use super::*;
use ray_relay_access::identity::Issuers;
use ray_relay_access::identity::testing::{authenticator_with, principal, revoke};
use ray_relay_base::config::Auth;
use ray_relay_base::wire::tunnel::messages::Revocations;

/// Starts a relay with a ticket key made of `secret`.
async fn relay_with_secret(secret: char) -> Scene {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tickets");
    let key = format!("hs256:{}", secret.to_string().repeat(64));
    std::fs::write(&path, key).unwrap();
    let adapt = |auth: &mut Auth| auth.ticket_key_file = Some(path);
    let auth = authenticator_with(POLICY, Issuers::default(), adapt);
    Scene::of(auth, |_| {}).await
}

async fn next_revocations(agent: &mut StandIn) -> Revocations {
    match agent.hear().await {
        Ok(FromRelay::Revocations(revocations)) => revocations,
        other => panic!("{other:?}"),
    }
}

/// Whether `user` is revoked once the relay has processed all messages of `agent`.
async fn is_revoked(
    scene: &Scene,
    agent: &mut StandIn,
    user: &ray_relay_access::identity::Principal,
) -> bool {
    // The relay answers the ping after all earlier messages.
    agent.socket.send(Message::Ping("x".into())).await.unwrap();
    loop {
        let next = timeout(TEST_TIMEOUT, agent.socket.next()).await;
        if let Message::Pong(_) = next.unwrap().unwrap().unwrap() {
            break;
        }
    }
    let _ = scene;
    user.is_over().is_some()
}

#[tokio::test]
async fn revocation_at_one_relay_applies_at_the_others() {
    let (first, second) = (relay_with_secret('a').await, relay_with_secret('a').await);
    let mut first_agent = first.linked("agent", "a1", 1).await;
    let mut second_agent = second.linked("agent", "a1", 1).await;
    let user = principal(&second.context.auth, "person").await;
    revoke(&first.context.auth, "person").await;
    let page = next_revocations(&mut first_agent).await;
    second_agent
        .say(&FromAgent::Revocations(page.clone()))
        .await;
    let revoked = timeout(Duration::from_secs(1), user.ended()).await;
    assert!(revoked.is_ok(), "within a second");
    // The revocation is recorded, and agents that link later get the same message.
    let forwarded = next_revocations(&mut second_agent).await;
    assert_eq!(forwarded, page);
    let lines = second.record.lines();
    let entry = lines
        .iter()
        .find(|line| line.details.get("outcome").is_some_and(|o| o == "heard"));
    assert!(
        entry.unwrap().details["revocations"][0]
            .as_str()
            .unwrap()
            .contains("person")
    );
    drop(second_agent);
    let mut late_agent = second.linked("agent", "a1", 2).await;
    assert_eq!(next_revocations(&mut late_agent).await, page);
}

#[tokio::test]
async fn agent_cannot_forge_or_alter_a_revocation() {
    let (first, second) = (relay_with_secret('a').await, relay_with_secret('a').await);
    let mut first_agent = first.linked("agent", "a1", 1).await;
    let mut second_agent = second.linked("agent", "a1", 1).await;
    let user = principal(&second.context.auth, "person").await;
    revoke(&first.context.auth, "somebody").await;
    let genuine = next_revocations(&mut first_agent).await;
    let line = genuine.entries[0].replace("somebody", "person");
    let changed = Revocations {
        entries: vec![line.as_str().into()],
        mac: genuine.mac,
    };
    let wrong_mac = Revocations {
        mac: Hex([0; 32]),
        ..changed.clone()
    };
    let extended = Revocations {
        entries: vec![genuine.entries[0].clone(), line.as_str().into()],
        mac: genuine.mac,
    };
    for forged in [changed, wrong_mac, extended] {
        second_agent.say(&FromAgent::Revocations(forged)).await;
        assert!(!is_revoked(&second, &mut second_agent, &user).await);
    }
    let list = second.context.auth.revocations().unwrap();
    assert!(list.borrow().is_empty());
    // A genuine message is still accepted.
    second_agent.say(&FromAgent::Revocations(genuine)).await;
    assert!(!is_revoked(&second, &mut second_agent, &user).await);
    assert_eq!(list.borrow().len(), 1);
}

#[tokio::test]
async fn relays_without_a_shared_secret_exchange_nothing() {
    let (first, second, alone) = (
        relay_with_secret('a').await,
        relay_with_secret('b').await,
        Scene::new().await,
    );
    let mut first_agent = first.linked("agent", "a1", 1).await;
    revoke(&first.context.auth, "person").await;
    let page = next_revocations(&mut first_agent).await;
    for scene in [&second, &alone] {
        let mut agent = scene.linked("agent", "a1", 1).await;
        let user = principal(&scene.context.auth, "person").await;
        agent.say(&FromAgent::Revocations(page.clone())).await;
        assert!(!is_revoked(scene, &mut agent, &user).await);
    }
    let mut agent = alone.linked("agent", "a1", 2).await;
    revoke(&alone.context.auth, "person").await;
    let message = timeout(Duration::from_millis(200), agent.hear()).await;
    assert!(message.is_err(), "{message:?}");
}

#[tokio::test]
async fn ticket_is_valid_at_relays_with_the_same_secret() {
    let (first, second, foreign) = (
        relay_with_secret('a').await,
        relay_with_secret('a').await,
        relay_with_secret('b').await,
    );
    let user = principal(&first.context.auth, "person").await;
    let breakpoint = ray_relay_ray::ray::testing::paused("square", 1);
    let ticket = first.context.auth.issue_ticket(&user, &breakpoint).unwrap();
    let peer = [127, 0, 0, 1].into();
    let (principal_of_ticket, id) = second.context.auth.ticket(&ticket, peer).unwrap();
    assert_eq!(
        (principal_of_ticket.subject(), id),
        ("person", breakpoint.id)
    );
    assert!(foreign.context.auth.ticket(&ticket, peer).is_err());
}
