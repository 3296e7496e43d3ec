//! Revocation, and tickets, which end with their holder.

use super::*;
use crate::identity::principal::VerifiedIdentity;
use crate::identity::revocation::LiveRevocations;
use crate::identity::ticket::Tickets;

async fn ended(principal: &Principal) -> crate::identity::Ended {
    let patience = Duration::from_secs(10);
    tokio::time::timeout(patience, principal.ended())
        .await
        .unwrap()
}

#[tokio::test]
async fn revoking_ends_who_is_there_and_refuses_who_comes() {
    let mut scene = Scene::new(Algorithm::EdDsa);
    scene.auth.revocations_file = Some(scene.path("revoked"));
    let authenticator = scene.authenticator();
    let token = scene.token(&claims());
    let nameless = scene.token(&without("jti"));
    let ada = authenticator.token(&token, PEER).await.unwrap();
    let also_ada = authenticator.token(&nameless, PEER).await.unwrap();
    let revoke = |what| authenticator.revoke(Revocation { what, until: None });
    assert_eq!(
        revoke(Revoked::CredentialId("one".to_owned()))
            .await
            .unwrap(),
        StoredIn::File
    );
    assert_eq!(ended(&ada).await, crate::identity::Ended::Revoked);
    assert_eq!(also_ada.is_over(), None);
    refused(&authenticator, &token, "revoked").await;
    // By what stands for the id, and by another relay that reads the same file.
    let id = also_ada.credential().id().to_owned();
    let (other, shutdown) = (scene.authenticator(), CancellationToken::new());
    let there = other.token(&nameless, PEER).await.unwrap();
    let running = tokio::spawn({
        let (other, shutdown) = (other.clone(), shutdown.clone());
        async move { other.run(shutdown).await }
    });
    let begun = std::time::Instant::now();
    revoke(Revoked::CredentialId(id)).await.unwrap();
    assert_eq!(ended(&there).await, crate::identity::Ended::Revoked);
    assert!(
        begun.elapsed() < Duration::from_secs(1),
        "{:?}",
        begun.elapsed()
    );
    // A subject, with what it had; what is issued later counts.
    let at = SystemTime::now() - Duration::from_secs(5);
    let subject = "ada".to_owned();
    revoke(Revoked::Subject { subject, at }).await.unwrap();
    refused(
        &authenticator,
        &scene.token(&but(&json!({"jti": "two"}))),
        "of the subject",
    )
    .await;
    let new = but(&json!({"jti": "three", "iat": now()}));
    authenticator.token(&scene.token(&new), PEER).await.unwrap();
    // A certificate has no time of issue: it is revoked as long as its name is on the list.
    let later = SystemTime::now() + Duration::from_secs(60);
    assert!(authenticator.certificate("ada", "aa", later).is_err());
    assert!(authenticator.certificate("bob", "bb", later).is_ok());
    shutdown.cancel();
    running.await.unwrap();
    // After a restart they hold as before.
    refused(&scene.authenticator(), &token, "revoked before").await;
}

#[tokio::test]
async fn a_name_that_cannot_be_read_back_is_not_written() {
    let mut scene = Scene::new(Algorithm::EdDsa);
    let file = scene.path("revoked");
    scene.auth.revocations_file = Some(file.clone());
    let authenticator = scene.authenticator();
    for name in ["", " ada", "a\nb", "\u{202e}ada"] {
        let what = Revoked::CredentialId(name.to_owned());
        let answer = authenticator.revoke(Revocation { what, until: None }).await;
        assert!(matches!(answer, Err(RevokeError::Name)), "{name:?}");
    }
    assert!(!file.exists());
    let open = Authenticator::open();
    let what = Revoked::CredentialId("one".to_owned());
    let answer = open.revoke(Revocation { what, until: None }).await;
    assert!(matches!(answer, Err(RevokeError::Open)));
}

#[tokio::test]
async fn without_a_file_a_revocation_holds_here() {
    let scene = Scene::new(Algorithm::EdDsa);
    let authenticator = scene.authenticator();
    let what = Revoked::CredentialId("one".to_owned());
    let kept = authenticator.revoke(Revocation { what, until: None }).await;
    assert_eq!(kept.unwrap(), StoredIn::Memory);
    refused(&authenticator, &scene.token(&claims()), "revoked").await;
    // Where it cannot be written it holds here too, and that is said.
    let mut scene = Scene::new(Algorithm::EdDsa);
    scene.auth.revocations_file = Some(scene.path("no/such/folder"));
    let authenticator = scene.authenticator();
    let what = Revoked::CredentialId("one".to_owned());
    let kept = authenticator.revoke(Revocation { what, until: None }).await;
    assert!(matches!(kept, Err(RevokeError::NotWritten(_))));
    refused(&authenticator, &scene.token(&claims()), "revoked").await;
}

#[tokio::test]
async fn a_ticket_is_for_one_breakpoint_and_ends_with_its_holder() {
    let scene = Scene::new(Algorithm::EdDsa);
    let authenticator = scene.authenticator();
    let narrow = but(&json!({"ray_relay": {"clusters": ["default"]}, "groups": ["ml"]}));
    let ada = authenticator
        .token(&scene.token(&narrow), PEER)
        .await
        .unwrap();
    let breakpoint = paused("f", 1);
    let ticket = authenticator.issue_ticket(&ada, &breakpoint).unwrap();
    let (holder, id) = authenticator.ticket(&ticket, PEER).unwrap();
    assert_eq!(id, breakpoint.id);
    assert_eq!(format!("{holder:?}"), "ada (token:one)");
    assert_eq!(holder.access(), ada.access());
    assert_eq!(holder.grants(), ada.grants());
    let until = |who: &Principal| {
        who.expires()
            .unwrap()
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_secs()
    };
    assert_eq!(until(&holder), until(&ada));
    // Neither stands for the other.
    refused(&authenticator, &ticket, "a ticket is no token").await;
    let token = scene.token(&claims());
    assert_eq!(
        authenticator.ticket(&token, PEER).unwrap_err(),
        AuthError::Refused
    );
    // Another relay has another secret, unless they share a file.
    assert!(scene.authenticator().ticket(&ticket, PEER).is_err());
    let what = Revoked::CredentialId("one".to_owned());
    authenticator
        .revoke(Revocation { what, until: None })
        .await
        .unwrap();
    assert_eq!(
        authenticator.ticket(&ticket, PEER).unwrap_err(),
        AuthError::Refused
    );
    assert_eq!(holder.is_over(), Some(crate::identity::Ended::Revoked));
    assert!(
        authenticator
            .issue_ticket(&Principal::anonymous(), &breakpoint)
            .is_none()
    );
}

#[tokio::test]
async fn replicas_that_share_a_secret_accept_each_others_tickets() {
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
fn a_ticket_is_good_for_a_short_time_and_never_longer_than_its_holder() {
    let leeway = Duration::from_secs(5);
    let tickets = Tickets::new(&[7; 32], leeway).unwrap();
    let live = LiveRevocations::open(None, SystemTime::now()).unwrap();
    let now = SystemTime::now();
    let principal = |expires| {
        let who = VerifiedIdentity {
            subject: "ada".to_owned(),
            credential: CredentialId::Certificate {
                fingerprint: "ff".to_owned(),
            },
            expires,
            issued: None,
            grants: CredentialGrants::default(),
            roles: None,
            validity: None,
        };
        Principal::issued(who, crate::policy::Access::default(), live.watch())
    };
    let breakpoint = paused("f", 1);
    let issue = |expires| {
        tickets
            .issue(&principal(expires), &breakpoint, now)
            .unwrap()
    };
    let ticket = issue(None);
    let last = now + ticket::LIFETIME + leeway;
    assert!(tickets.read(&ticket, last - Duration::from_secs(2)).is_ok());
    assert_eq!(
        tickets.read(&ticket, last).err(),
        Some(CredentialRefusal::Expired)
    );
    let ticket = issue(Some(now + Duration::from_secs(3)));
    assert!(tickets.read(&ticket, now).is_ok());
    let over = now + Duration::from_secs(4);
    assert_eq!(
        tickets.read(&ticket, over).err(),
        Some(CredentialRefusal::Expired)
    );
}
