//! Tests revocations, and tickets, which end with their holder.

use super::*;
use crate::identity::PrincipalEnded;
use crate::identity::principal::VerifiedIdentity;
use crate::identity::revocation::LiveRevocations;
use crate::identity::testing::identity;
use crate::identity::ticket::{Opens, Tickets};

async fn ended(principal: &Principal) -> PrincipalEnded {
    let limit = Duration::from_secs(10);
    let ended = tokio::time::timeout(limit, principal.ended());
    ended.await.unwrap()
}

async fn revoke(authenticator: &Authenticator, target: Revoked) -> Result<StoredIn, RevokeError> {
    authenticator
        .revoke(Revocation {
            what: target,
            until: None,
        })
        .await
}

fn id(id: &str) -> Revoked {
    Revoked::CredentialId(id.to_owned())
}

#[tokio::test]
async fn revocation_ends_sessions_and_refuses_new_ones() {
    let mut scene = Scene::new(Algorithm::EdDsa);
    scene.auth.revocations_file = Some(scene.path("revoked"));
    let authenticator = scene.authenticator();
    let token = scene.token(&claims());
    let without_id = scene.token(&without("jti", claims()));
    let ada = authenticator.token(&token, PEER).await.unwrap();
    let ada_without_id = authenticator.token(&without_id, PEER).await.unwrap();
    let stored = revoke(&authenticator, id("one")).await;
    assert_eq!(stored.unwrap(), StoredIn::File);
    assert_eq!(ended(&ada).await, PrincipalEnded::Revoked);
    assert_eq!(ada_without_id.is_over(), None);
    assert_refused(&authenticator, &token, "revoked").await;
    // A token without an id is revoked by its derived id, also at a relay that shares the file.
    let derived = id(ada_without_id.credential().id());
    let (other, shutdown) = (scene.authenticator(), CancellationToken::new());
    let ada_at_other = other.token(&without_id, PEER).await.unwrap();
    let running = tokio::spawn({
        let (other, shutdown) = (other.clone(), shutdown.clone());
        async move { other.run(shutdown).await }
    });
    let started = std::time::Instant::now();
    revoke(&authenticator, derived).await.unwrap();
    assert_eq!(ended(&ada_at_other).await, PrincipalEnded::Revoked);
    let elapsed = started.elapsed();
    assert!(elapsed < Duration::from_secs(1), "{elapsed:?}");
    // Revoking a subject ends its earlier credentials; later ones are valid.
    let issued_before = SystemTime::now() - Duration::from_secs(5);
    let subject = "ada".to_owned();
    let all = Revoked::Subject {
        subject,
        at: issued_before,
    };
    revoke(&authenticator, all).await.unwrap();
    let second = scene.token(&claims_with(&json!({"jti": "two"})));
    assert_refused(&authenticator, &second, "of the subject").await;
    let new = claims_with(&json!({"jti": "three", "iat": now()}));
    accepted(&authenticator, &scene.token(&new)).await;
    // A certificate has no time of issue, so any revocation of its name applies.
    let later = SystemTime::now() + Duration::from_secs(60);
    assert!(authenticator.certificate("ada", "aa", later).is_err());
    assert!(authenticator.certificate("bob", "bb", later).is_ok());
    shutdown.cancel();
    running.await.unwrap();
    // Revocations still apply after a restart.
    assert_refused(&scene.authenticator(), &token, "revoked before").await;
}

#[tokio::test]
async fn unparsable_name_is_not_written() {
    let mut scene = Scene::new(Algorithm::EdDsa);
    let file = scene.path("revoked");
    scene.auth.revocations_file = Some(file.clone());
    let authenticator = scene.authenticator();
    for name in ["", " ada", "a\nb", "\u{202e}ada"] {
        let result = revoke(&authenticator, id(name)).await;
        assert!(matches!(result, Err(RevokeError::Name)), "{name:?}");
    }
    assert!(!file.exists());
    let result = revoke(&Authenticator::open(), id("one")).await;
    assert!(matches!(result, Err(RevokeError::Open)));
}

#[tokio::test]
async fn revocation_without_a_file_is_kept_in_memory() {
    let scene = Scene::new(Algorithm::EdDsa);
    let authenticator = scene.authenticator();
    let stored = revoke(&authenticator, id("one")).await;
    assert_eq!(stored.unwrap(), StoredIn::Memory);
    assert_refused(&authenticator, &scene.token(&claims()), "revoked").await;
    // If the file cannot be written, the revocation still applies here, and the answer reports the failure.
    let mut scene = Scene::new(Algorithm::EdDsa);
    scene.auth.revocations_file = Some(scene.path("no/such/folder"));
    let authenticator = scene.authenticator();
    let stored = revoke(&authenticator, id("one")).await;
    assert!(matches!(stored, Err(RevokeError::NotWritten(_))));
    assert_refused(&authenticator, &scene.token(&claims()), "revoked").await;
}

#[tokio::test]
async fn ticket_is_for_one_breakpoint_and_ends_with_its_token() {
    let scene = Scene::new(Algorithm::EdDsa);
    let authenticator = scene.authenticator();
    let narrow = claims_with(&json!({"ray_relay": {"clusters": ["default"]}, "groups": ["ml"]}));
    let ada = accepted(&authenticator, &scene.token(&narrow)).await;
    let breakpoint = paused("f", 1);
    let ticket = authenticator.issue_ticket(&ada, &breakpoint).unwrap();
    let (holder, breakpoint_id) = authenticator.ticket(&ticket, PEER).unwrap();
    assert_eq!(breakpoint_id, breakpoint.id);
    assert_eq!(format!("{holder:?}"), "ada (token:one)");
    assert_eq!(holder.access(), ada.access());
    assert_eq!(holder.grants(), ada.grants());
    let until = |principal: &Principal| seconds(principal.expires().unwrap());
    assert_eq!(until(&holder), until(&ada));
    // Tickets and tokens are not interchangeable.
    assert_refused(&authenticator, &ticket, "a ticket is no token").await;
    let assert_refused = |ticket: &Secret| {
        let result = authenticator.ticket(ticket, PEER);
        assert_eq!(result.unwrap_err(), AuthError::Refused);
    };
    assert_refused(&scene.token(&claims()));
    // Relays accept each other's tickets only if they share the secret's file.
    assert!(scene.authenticator().ticket(&ticket, PEER).is_err());
    revoke(&authenticator, id("one")).await.unwrap();
    assert_refused(&ticket);
    assert_eq!(holder.is_over(), Some(PrincipalEnded::Revoked));
    let refusal = authenticator.issue_ticket(&Principal::anonymous(), &breakpoint);
    assert!(refusal.is_none());
}

#[tokio::test]
async fn replicas_with_one_secret_share_tickets() {
    let mut scene = Scene::new(Algorithm::EdDsa);
    let path = scene.path("tickets.key");
    std::fs::write(&path, &*Generated::new(Algorithm::Hs256).unwrap().private).unwrap();
    scene.auth.ticket_key_file = Some(path);
    let (one, other) = (scene.authenticator(), scene.authenticator());
    let ada = one.token(&scene.token(&claims()), PEER).await.unwrap();
    let ticket = one.issue_ticket(&ada, &paused("f", 1)).unwrap();
    other.ticket(&ticket, PEER).unwrap();
}

#[test]
fn ticket_is_short_lived_and_never_outlives_its_token() {
    let leeway = Duration::from_secs(5);
    let tickets = Tickets::new(&[7; 32], leeway).unwrap();
    let revocations = LiveRevocations::open(None, SystemTime::now()).unwrap();
    let now = SystemTime::now();
    let principal = |expires| {
        let identity = VerifiedIdentity {
            expires,
            ..identity("ada")
        };
        Principal::issued(
            identity,
            crate::policy::Access::default(),
            revocations.watch(),
        )
    };
    let opens = Opens::Breakpoint(paused("f", 1).id);
    let last = now + ticket::BREAKPOINT_TICKET_LIFETIME + leeway;
    for (expires, is_valid, is_expired) in [
        (None, last - Duration::from_secs(2), last),
        (
            Some(now + Duration::from_secs(3)),
            now,
            now + Duration::from_secs(4),
        ),
    ] {
        let issued = tickets.issue(&principal(expires), &opens, now);
        let ticket = issued.unwrap();
        assert!(tickets.read(&ticket, is_valid).is_ok());
        let refusal = tickets.read(&ticket, is_expired).err();
        assert_eq!(refusal, Some(CredentialRefusal::Expired));
    }
}

#[tokio::test]
async fn dashboard_ticket_opens_only_its_dashboard() {
    let scene = Scene::new(Algorithm::EdDsa);
    let authenticator = scene.authenticator();
    let ada = accepted(&authenticator, &scene.token(&claims())).await;
    let entrance = Opens::Entrance("gpu".to_owned());
    let dashboard = Opens::Dashboard("gpu".to_owned());
    let breakpoint = Opens::Breakpoint(paused("f", 1).id);
    for opens in [&entrance, &dashboard, &breakpoint] {
        let ticket = authenticator.issue(&ada, opens).unwrap();
        let principal = authenticator.opens(&ticket, PEER, opens).unwrap();
        assert_eq!(principal.grants(), ada.grants());
        for other in [
            &entrance,
            &dashboard,
            &Opens::Dashboard("gpu2".to_owned()),
            &breakpoint,
        ] {
            let opened = authenticator.opens(&ticket, PEER, other);
            assert_eq!(opened.is_ok(), other == opens, "{opens:?} {other:?}");
        }
        let attached = authenticator.ticket(&ticket, PEER);
        assert_eq!(attached.is_ok(), *opens == breakpoint, "{opens:?}");
        assert_refused(&authenticator, &ticket, "a ticket is no token").await;
    }
    let ticket = authenticator.issue(&ada, &dashboard).unwrap();
    revoke(&authenticator, id("one")).await.unwrap();
    assert!(authenticator.opens(&ticket, PEER, &dashboard).is_err());
}
