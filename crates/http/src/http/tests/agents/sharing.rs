//! Messages between two relays through an agent.

use super::*;
use ray_relay_access::identity::Issuers;
use ray_relay_access::identity::testing::{authenticator_with, principal, revoke};
use ray_relay_base::config::Auth;
use ray_relay_base::wire::tunnel::messages::Revocations;

/// A relay that shares the ticket key that is made of `secret` with others.
async fn sharing(secret: char) -> Scene {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tickets");
    let key = format!("hs256:{}", secret.to_string().repeat(64));
    std::fs::write(&path, key).unwrap();
    let adapt = |auth: &mut Auth| auth.ticket_key_file = Some(path);
    let auth = authenticator_with(POLICY, Issuers::default(), adapt);
    Scene::of(auth, |_| {}).await
}

async fn said(agent: &mut StandIn) -> Revocations {
    match agent.hear().await {
        Ok(FromRelay::Revocations(said)) => said,
        other => panic!("{other:?}"),
    }
}

/// Whether `person` is still welcome at `scene`, after everything that was said to it.
async fn is_over(
    scene: &Scene,
    agent: &mut StandIn,
    person: &ray_relay_access::identity::Principal,
) -> bool {
    // Answered behind what was said before.
    agent.socket.send(Message::Ping("x".into())).await.unwrap();
    loop {
        let next = timeout(TEST_TIMEOUT, agent.socket.next()).await;
        if let Message::Pong(_) = next.unwrap().unwrap().unwrap() {
            break;
        }
    }
    let _ = scene;
    person.is_over().is_some()
}

#[tokio::test]
async fn revocation_at_one_relay_applies_at_the_others() {
    let (one, other) = (sharing('a').await, sharing('a').await);
    let mut at_one = one.linked("agent", "a1", 1).await;
    let mut at_other = other.linked("agent", "a1", 1).await;
    let person = principal(&other.context.auth, "person").await;
    revoke(&one.context.auth, "person").await;
    let page = said(&mut at_one).await;
    at_other.say(&FromAgent::Revocations(page.clone())).await;
    let over = timeout(Duration::from_secs(1), person.ended()).await;
    assert!(over.is_ok(), "within a second");
    // It is on record, and told to agents that come later, as the same message.
    let told = said(&mut at_other).await;
    assert_eq!(told, page);
    let lines = other.record.lines();
    let heard = lines
        .iter()
        .find(|line| line.details.get("outcome").is_some_and(|o| o == "heard"));
    assert!(
        heard.unwrap().details["revocations"][0]
            .as_str()
            .unwrap()
            .contains("person")
    );
    drop(at_other);
    let mut late = other.linked("agent", "a1", 2).await;
    assert_eq!(said(&mut late).await, page);
}

#[tokio::test]
async fn agent_cannot_forge_or_alter_a_revocation() {
    let (one, other) = (sharing('a').await, sharing('a').await);
    let mut at_one = one.linked("agent", "a1", 1).await;
    let mut at_other = other.linked("agent", "a1", 1).await;
    let person = principal(&other.context.auth, "person").await;
    revoke(&one.context.auth, "somebody").await;
    let genuine = said(&mut at_one).await;
    let line = genuine.entries[0].replace("somebody", "person");
    let changed = Revocations {
        entries: vec![line.as_str().into()],
        mac: genuine.mac,
    };
    let made_up = Revocations {
        mac: Hex([0; 32]),
        ..changed.clone()
    };
    let more = Revocations {
        entries: vec![genuine.entries[0].clone(), line.as_str().into()],
        mac: genuine.mac,
    };
    for forged in [changed, made_up, more] {
        at_other.say(&FromAgent::Revocations(forged)).await;
        assert!(!is_over(&other, &mut at_other, &person).await);
    }
    let list = other.context.auth.revocations().unwrap();
    assert!(list.borrow().is_empty());
    // What is genuine is taken in all the same.
    at_other.say(&FromAgent::Revocations(genuine)).await;
    assert!(!is_over(&other, &mut at_other, &person).await);
    assert_eq!(list.borrow().len(), 1);
}

#[tokio::test]
async fn relays_without_a_shared_secret_exchange_nothing() {
    let (one, other, alone) = (sharing('a').await, sharing('b').await, Scene::new().await);
    let mut at_one = one.linked("agent", "a1", 1).await;
    revoke(&one.context.auth, "person").await;
    let page = said(&mut at_one).await;
    for scene in [&other, &alone] {
        let mut agent = scene.linked("agent", "a1", 1).await;
        let person = principal(&scene.context.auth, "person").await;
        agent.say(&FromAgent::Revocations(page.clone())).await;
        assert!(!is_over(scene, &mut agent, &person).await);
    }
    let mut agent = alone.linked("agent", "a1", 2).await;
    revoke(&alone.context.auth, "person").await;
    let silent = timeout(Duration::from_millis(200), agent.hear()).await;
    assert!(silent.is_err(), "{silent:?}");
}

#[tokio::test]
async fn ticket_is_valid_at_relays_with_the_same_secret() {
    let (one, other, foreign) = (sharing('a').await, sharing('a').await, sharing('b').await);
    let person = principal(&one.context.auth, "person").await;
    let breakpoint = ray_relay_ray::ray::testing::paused("square", 1);
    let ticket = one.context.auth.issue_ticket(&person, &breakpoint).unwrap();
    let peer = [127, 0, 0, 1].into();
    let (who, id) = other.context.auth.ticket(&ticket, peer).unwrap();
    assert_eq!((who.subject(), id), ("person", breakpoint.id));
    assert!(foreign.context.auth.ticket(&ticket, peer).is_err());
}
