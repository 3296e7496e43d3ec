//! Tests Kubernetes principals through the authenticator: their tickets and their end.

use std::net::{IpAddr, Ipv4Addr};

use super::*;
use crate::identity::{Authenticator, Issuers, PrincipalEnded, Withdrawn};
use crate::policy::Scope;
use ray_relay_base::config::Config;
use ray_relay_ray::ray::testing::paused;

const PEER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

struct Scene {
    server: Server,
    auth: Arc<Authenticator>,
    token: Secret,
    dir: tempfile::TempDir,
}

async fn scene(change: impl Fn(&mut Config, &std::path::Path)) -> Scene {
    let token = jwt("{\"exp\": 4000000000}");
    let server = Server::start(&token).await;
    let dir = tempfile::tempdir().unwrap();
    let mut config = Config {
        kubernetes: server.files(dir.path()),
        clusters: ["default", "west"]
            .map(|name| config::Cluster {
                name: name.to_owned(),
                ..config::Cluster::default()
            })
            .into(),
        ..Config::default()
    };
    config.kubernetes.recheck = Duration::from_secs(1);
    change(&mut config, dir.path());
    let (_, snapshot) = watch::channel(Arc::default());
    let issuers = Issuers::from_config(&config, snapshot).await.unwrap();
    let auth = Authenticator::from_config(&config.auth, issuers).unwrap();
    let background = Arc::clone(&auth);
    tokio::spawn(async move { background.run(CancellationToken::new()).await });
    Scene {
        server,
        auth,
        token: Secret::new(token),
        dir,
    }
}

#[tokio::test]
async fn principal_and_tickets_last_while_kubernetes_confirms() {
    let scene = scene(|_, _| {}).await;
    scene.server.state().allowed = HashSet::from(["default/list", "default/debug", "west/list"]);
    assert!(scene.auth.is_on() && scene.auth.anonymous().is_none());
    let principal = scene.auth.token(&scene.token, PEER).await.unwrap();
    assert_eq!(principal.subject(), NAME);
    let credential = principal.credential().to_string();
    assert!(credential.starts_with("kubernetes:"), "{credential}");
    let breakpoint = paused("train", 1);
    assert_eq!(&*breakpoint.cluster, "default");
    let rights = |principal: &crate::identity::Principal| {
        let rights = principal.access().rights(&breakpoint);
        rights.scopes.to_string()
    };
    assert_eq!(rights(&principal), "list,view,debug");
    assert!(principal.access().may_on_cluster(Scope::List, "west"));
    assert!(!principal.access().may_on_cluster(Scope::Debug, "west"));

    let ticket = scene.auth.issue_ticket(&principal, &breakpoint).unwrap();
    let (child, id) = scene.auth.ticket(&ticket, PEER).unwrap();
    assert_eq!(id, breakpoint.id);
    assert_eq!(child.subject(), NAME);
    assert_eq!(rights(&child), "list,view,debug");

    // The ServiceAccount is deleted.
    scene.server.state().tokens = Mode::Refuse;
    let all_ended = async { (principal.ended().await, child.ended().await) };
    let ended = timeout(Duration::from_secs(20), all_ended).await.unwrap();
    let not_accepted = PrincipalEnded::Withdrawn(Withdrawn::NotAccepted);
    assert_eq!(ended, (not_accepted, not_accepted));
    let not_accepted = scene.auth.ticket(&ticket, PEER);
    assert_eq!(not_accepted.unwrap_err(), AuthError::Refused);
    let retried = scene.auth.token(&scene.token, PEER).await;
    assert_eq!(retried.unwrap_err(), AuthError::Refused);
    assert_eq!(scene.server.state().faults, Vec::<String>::new());
}

#[tokio::test]
async fn removed_role_binding_ends_the_session() {
    let scene = scene(|_, _| {}).await;
    scene.server.state().allowed = HashSet::from(["default/debug", "default/list"]);
    let principal = scene.auth.token(&scene.token, PEER).await.unwrap();
    scene.server.state().allowed = HashSet::from(["default/list"]);
    let ended = timeout(Duration::from_secs(20), principal.ended()).await;
    let allows_less = PrincipalEnded::Withdrawn(Withdrawn::AllowsLess);
    assert_eq!(ended.unwrap(), allows_less);
    assert!(
        allows_less
            .to_string()
            .contains("your roles in Kubernetes allow less")
    );
    let after = scene.auth.token(&scene.token, PEER).await.unwrap();
    assert!(after.access().may_on_cluster(Scope::List, "default"));
    assert!(!after.access().may_anywhere(Scope::Debug));
    assert_eq!(after.is_over(), None);
}

#[tokio::test]
async fn roles_grant_no_more_than_the_policy_file() {
    let scene = scene(|config, dir| {
        let policy = dir.join("policy.toml");
        std::fs::write(&policy, "").unwrap();
        config.auth.policy_file = Some(policy);
    })
    .await;
    scene.server.state().allowed = HashSet::from(["default/debug", "default/list"]);
    let principal = scene.auth.token(&scene.token, PEER).await.unwrap();
    let mut scopes = Scope::ALL.into_iter();
    assert!(!scopes.any(|scope| principal.access().may_anywhere(scope)));
}

#[tokio::test]
async fn unavailable_keys_do_not_lock_out_kubernetes_users() {
    let scene = scene(|config, _| {
        config.jwks.url = Some("http://127.0.0.1:1/keys".to_owned());
    })
    .await;
    scene.auth.token(&scene.token, PEER).await.unwrap();
    let other = Secret::new(jwt("{\"sub\": \"eve\"}"));
    scene.server.state().tokens = Mode::Refuse;
    let error = scene.auth.token(&other, PEER).await.unwrap_err();
    assert!(error.to_string().contains("cannot be fetched"), "{error}");
}

#[tokio::test]
async fn token_of_a_known_key_is_not_sent_to_kubernetes() {
    use crate::identity::SigningKey;
    use crate::identity::keys::Algorithm;
    let generated = crate::identity::Generated::new(Algorithm::EdDsa).unwrap();
    let public = pem::parse(generated.public.as_ref().unwrap()).unwrap();
    // The last 32 bytes of such a key are the key.
    let x = URL_SAFE_NO_PAD.encode(&public.contents()[public.contents().len() - 32..]);
    let scene = scene(|config, dir| {
        let path = dir.join("jwks.json");
        let set = serde_json::json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "x": x}]});
        std::fs::write(&path, set.to_string()).unwrap();
        config.jwks.file = Some(path);
    })
    .await;
    let key = SigningKey::from_file(&generated.private).unwrap();
    let claims = |aud: &str| {
        let exp = 4_000_000_000_u64;
        serde_json::json!({"sub": "ada", "aud": aud, "exp": exp, "scope": "list"})
    };
    let token = key.sign("JWT", &claims("ray-relay")).unwrap();
    let principal = scene.auth.token(&token, PEER).await.unwrap();
    assert_eq!(principal.subject(), "ada");
    let other = key.sign("JWT", &claims("other")).unwrap();
    let not_accepted = scene.auth.token(&other, PEER).await;
    assert_eq!(not_accepted.unwrap_err(), AuthError::Refused);
    assert_eq!(scene.server.state().token_reviews, 0);
    drop(scene.dir);
}
