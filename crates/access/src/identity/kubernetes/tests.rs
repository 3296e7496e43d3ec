//! Reviews against a stand-in for the API server that checks every field of them. Caching and revalidation against a
//! stand-in for Kubernetes under a paused clock.
#![allow(clippy::unwrap_used)]

mod found;
mod keeping;
mod server;
mod through;

use std::collections::HashSet;
use std::time::Instant as Clock;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::*;
use crate::policy::{Access, Grants, RelayScope};
use crate::telemetry::testing::Log;
use server::{Mode, NAME, Server};

/// Returns the configured clusters with these names, without discovered ones.
fn clusters(names: &[&str]) -> Places {
    let (_, snapshot) = watch::channel(Arc::default());
    Places::new(&configured(names), snapshot)
}

fn configured(names: &[&str]) -> config::Config {
    let cluster = |name: &&str| config::Cluster {
        name: (*name).to_owned(),
        ..config::Cluster::default()
    };
    config::Config {
        clusters: names.iter().map(cluster).collect(),
        ..config::Config::default()
    }
}

/// Returns an unsigned JWT with these claims.
fn jwt(claims: &str) -> String {
    let parts = [r#"{"alg":"RS256"}"#, claims, "signature"];
    parts.map(|part| URL_SAFE_NO_PAD.encode(part)).join(".")
}

fn access(reviewed: &VerifiedIdentity) -> Access {
    Access::granted(reviewed.roles.clone().unwrap_or_default())
}

struct Fixture {
    server: Server,
    reviewer: Reviewer,
    token: Secret,
    _files: tempfile::TempDir,
}

async fn fixture(change: impl Fn(&mut config::Kubernetes)) -> Fixture {
    let token = jwt("{\"exp\": 4000000000}");
    let server = Server::start(&token).await;
    let files = tempfile::tempdir().unwrap();
    let mut config = server.files(files.path());
    change(&mut config);
    let clusters = clusters(&["east", "west"]);
    let reviewer = Reviewer::new(&config, clusters).await;
    Fixture {
        reviewer: reviewer.unwrap(),
        token: Secret::new(token),
        server,
        _files: files,
    }
}

impl Fixture {
    async fn review(&self) -> Result<VerifiedIdentity, AuthError> {
        self.reviewer.review(&self.token).await
    }
}

#[tokio::test]
async fn roles_become_cluster_scopes_by_correct_reviews() {
    let fixture = fixture(|_| {}).await;
    let allowed = "east/debug east/list west/dashboard-write west/terminate";
    fixture.server.state().allowed = allowed.split(' ').collect();
    let reviewed = fixture.review().await.unwrap();
    assert_eq!(reviewed.subject, NAME);
    let groups = ["system:authenticated", "system:serviceaccounts"];
    assert_eq!(reviewed.grants.groups, groups);
    assert_eq!(reviewed.credential.id().len(), 16);
    let expires = SystemTime::UNIX_EPOCH + Duration::from_secs(4_000_000_000);
    assert_eq!(reviewed.expires, Some(expires));
    let state = fixture.server.state();
    assert_eq!(state.faults, Vec::<String>::new());
    assert_eq!(state.token_reviews, 1);
    let verbs =
        "list view debug attach terminal dashboard-read dashboard-write admin terminate node";
    let east_verbs = verbs.split(' ').map(|verb| format!("east/{verb}"));
    // In the west `list` is refused, and a ServiceAccount may be an agent; `admin` is for the relay itself.
    let others = ["west/list", "west/node", "/admin"].map(str::to_owned);
    assert_eq!(state.access_reviews.len(), 13);
    let reviews: HashSet<_> = state.access_reviews.iter().cloned().collect();
    assert_eq!(reviews, east_verbs.chain(others).collect());
    use crate::policy::Scope::*;
    let allowed_scopes = |cluster: &str| {
        let mut scopes = crate::policy::Scope::ALL.to_vec();
        scopes.retain(|scope| access(&reviewed).may_on_cluster(*scope, cluster));
        scopes
    };
    assert_eq!(allowed_scopes("east"), [List, View, Debug]);
    assert_eq!(allowed_scopes("west"), []);
    assert_eq!(allowed_scopes("other"), []);
}

#[tokio::test]
async fn unnamed_admin_role_is_for_the_relay() {
    for (allowed, on_relay) in [("east/list east/admin", false), ("/admin", true)] {
        let fixture = fixture(|_| {}).await;
        fixture.server.state().allowed = allowed.split(' ').collect();
        let access = access(&fixture.review().await.unwrap());
        assert_eq!(fixture.server.state().faults, Vec::<String>::new());
        assert_eq!(
            access.may_on_relay(RelayScope::Admin),
            on_relay,
            "{allowed}"
        );
        assert!(access.may_anywhere(crate::policy::Scope::PlaceAdmin));
        let lists = access.may_anywhere(crate::policy::Scope::List);
        assert_eq!(lists, !on_relay);
    }
}

#[tokio::test]
async fn token_without_the_audience_of_the_relay_is_refused() {
    for mode in [Mode::Refuse, Mode::NoAudience, Mode::OtherAudience] {
        let fixture = fixture(|_| {}).await;
        fixture.server.state().tokens = mode;
        let refused = fixture.review().await;
        assert_eq!(refused.unwrap_err(), AuthError::Refused, "{mode:?}");
        let state = fixture.server.state();
        assert_eq!(state.access_reviews, Vec::<String>::new(), "{mode:?}");
        assert_eq!(state.faults, Vec::<String>::new());
    }
}

#[tokio::test]
async fn allowed_and_denied_at_once_allows_nothing() {
    let fixture = fixture(|_| {}).await;
    fixture.server.state().access = Mode::Both;
    let reviewed = fixture.review().await.unwrap();
    assert_eq!(reviewed.roles, Some(Grants::default()));
}

#[tokio::test]
async fn failing_api_server_admits_no_user_and_is_retried() {
    let modes = [
        Mode::Status(401),
        Mode::Status(403),
        Mode::Status(500),
        Mode::Status(503),
        Mode::Slow,
        Mode::Huge,
        Mode::NotJson,
        Mode::OtherKind,
        Mode::NoStatus,
    ];
    for mode in modes {
        let fixture = fixture(|config| config.timeout = Duration::from_secs(2)).await;
        for (tokens, access) in [(mode, Mode::Normal), (Mode::Normal, mode)] {
            fixture.server.state().tokens = tokens;
            fixture.server.state().access = access;
            let started = Clock::now();
            let failed = fixture.review().await.unwrap_err();
            let status = match mode {
                Mode::Status(status) => Some(status),
                _ => None,
            };
            assert_eq!(failed, unavailable(status), "{tokens:?} {access:?}");
            assert!(started.elapsed() < Duration::from_secs(10), "{mode:?}");
        }
        fixture.server.state().access = Mode::Normal;
        // A failure is not cached.
        fixture.review().await.unwrap();
    }
    let fixture = fixture(|_| {}).await;
    fixture.server.state().tokens = Mode::NoName;
    assert_eq!(fixture.review().await.unwrap_err(), unavailable(None));
}

#[tokio::test]
async fn unverified_api_server_gets_no_request() {
    let other = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let files = tempfile::tempdir().unwrap();
    let path = files.path().join("other.pem");
    std::fs::write(&path, other.cert.pem()).unwrap();
    let fixture = fixture(|config| config.ca_file = Some(path.clone())).await;
    assert_eq!(fixture.review().await.unwrap_err(), unavailable(None));
    assert_eq!(fixture.server.state().token_reviews, 0);
}

#[tokio::test]
async fn malformed_token_is_not_sent_for_review() {
    let fixture = fixture(|_| {}).await;
    let expired = jwt("{\"exp\": 1000}");
    for text in [
        "",
        "a b",
        "a\nb",
        "ä",
        &"x".repeat(MAX_TOKEN_BYTES + 1),
        &expired,
    ] {
        let refused = fixture.reviewer.review(&Secret::new(text)).await;
        assert_eq!(refused.unwrap_err(), AuthError::Refused);
    }
    assert_eq!(fixture.server.state().token_reviews, 0);
    assert_eq!(unverified_expiry("opaque"), None);
    assert_eq!(unverified_expiry(&jwt("{\"exp\": -1}")), None);
    assert_eq!(unverified_expiry(&jwt("{\"exp\": 1e300}")), None);
}

#[tokio::test]
async fn forbidden_by_a_starting_api_server_is_retried() {
    let fixture = fixture(|_| {}).await;
    fixture.server.state().tokens = Mode::Status(403);
    let reads_its_roles = async {
        while fixture.server.state().token_reviews < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        fixture.server.state().tokens = Mode::Normal;
    };
    let (reviewed, ()) = tokio::join!(fixture.review(), reads_its_roles);
    reviewed.unwrap();
}

#[tokio::test]
async fn overloaded_api_server_is_not_retried() {
    for status in [429, 503, 504] {
        let fixture = fixture(|_| {}).await;
        fixture.server.state().tokens = Mode::Status(status);
        let failed = fixture.review().await.unwrap_err();
        assert_eq!(failed, unavailable(Some(status)));
        assert_eq!(fixture.server.state().token_reviews, 1, "{status}");
    }
}

#[tokio::test]
async fn log_contains_no_token_for_any_api_server_answer() {
    let log = Log::start();
    // Both answers quote the request.
    for mode in [Mode::NotJson, Mode::Status(400), Mode::OtherKind] {
        let fixture = fixture(|_| {}).await;
        fixture.server.state().tokens = mode;
        let failed = fixture.review().await.unwrap_err();
        let token = fixture.token.expose();
        let logged = log.text();
        for secret in token.split('.').chain([token, server::OWN_TOKEN]) {
            assert!(!logged.contains(secret), "{logged}");
            assert!(!failed.to_string().contains(secret));
        }
    }
    let logged = log.text();
    assert!(logged.contains("cannot have tokens reviewed"), "{logged}");
}

#[tokio::test]
async fn unusable_setup_names_its_remedy() {
    let server = Server::start("").await;
    let files = tempfile::tempdir().unwrap();
    let valid = server.files(files.path());
    let refused = async |change: &dyn Fn(&mut config::Kubernetes)| {
        let mut config = valid.clone();
        change(&mut config);
        let reviewer = Reviewer::new(&config, clusters(&[])).await;
        reviewer.err().unwrap().to_string()
    };
    let missing = files.path().join("missing");
    let missing_ca = refused(&|config| config.ca_file = Some(missing.clone())).await;
    assert!(missing_ca.contains("kubernetes.ca_file"), "{missing_ca}");
    let no_token = refused(&|config| config.token_file = Some(missing.clone())).await;
    assert!(no_token.contains("kubernetes.token_file"), "{no_token}");
    let broken = files.path().join("broken");
    std::fs::write(&broken, format!("{}\n", server::OWN_TOKEN)).unwrap();
    let broken = refused(&|config| config.token_file = Some(broken.clone())).await;
    assert!(broken.contains("ends in a line break"), "{broken}");
    assert!(!broken.contains(server::OWN_TOKEN));
    let invalid_ca = refused(&|config| config.ca_file = config.token_file.clone()).await;
    assert!(invalid_ca.contains("no certificate"), "{invalid_ca}");
    assert!(!invalid_ca.contains(server::OWN_TOKEN));
}
