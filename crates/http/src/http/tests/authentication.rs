//! Credentials that authenticate a client, and refused ones.

use super::*;
use crate::http::routes::ROUTES;
use hyper::header::{RETRY_AFTER, SET_COOKIE, WWW_AUTHENTICATE};
use ray_relay_access::identity::testing::{authenticator_with, foreign_token, issuer_that_is_down};

fn everybody() -> User {
    User::new(
        "ann",
        "\"list\", \"debug\", \"dashboard:write\", \"admin\"",
        "",
    )
}

#[tokio::test]
async fn unauthenticated_request_never_reaches_the_head() {
    let head = UncontactedHead::new().await;
    let relay = Relay::with_users(&[("default", head.address)], &[&everybody()]).await;
    relay.registry.insert(breakpoint("aa11"));
    for (method, path) in [
        ("GET", "/api/version"),
        ("GET", "/api/v0/workers?detail=1"),
        ("GET", "/nodes"),
        ("POST", "/api/jobs/x/stop"),
        ("HEAD", "/api/v0/workers"),
        ("OPTIONS", "/"),
        ("POST", "/"),
        ("GET", "/static/../api/v0/workers"),
        ("GET", "/relay/clusters/default/"),
        ("GET", "/relay/clusters/other/"),
        ("GET", "/relay/v1/breakpoints"),
        ("GET", "/relay/v1/sessions"),
        ("GET", "/relay/v1/events"),
        ("GET", "/relay/metrics"),
        ("POST", "/relay/v1/breakpoints"),
        ("GET", "/relay/nothing"),
    ] {
        for token in [None, Some("wrong"), Some("")] {
            let mut request = relay.request(method, path);
            if let Some(token) = token {
                request = request.header("authorization", format!("Bearer {token}"));
            }
            let response = relay.client().await;
            let response = response.send(request.body(answer::empty()).unwrap()).await;
            assert_eq!(response.status(), 401, "{method} {path} {token:?}");
            let scheme = response.headers()[WWW_AUTHENTICATE].to_str().unwrap();
            assert!(scheme.starts_with("Bearer realm=\"ray-relay\""), "{scheme}");
            let text = text(response).await;
            assert!(
                !text.contains("default") && !text.contains("aa11"),
                "{text}"
            );
        }
    }
    head.expect_uncontacted().await;
    let entries = relay.audit.take();
    let entries = lines(&entries);
    assert_eq!(
        entries.len(),
        16,
        "each wrong token, and none that was not there"
    );
    assert_eq!(entries[0], "Authentication refused - /api/version");
    assert!(!format!("{entries:?}").contains("wrong"));
}

/// Covers each row of the route table, including new ones.
#[tokio::test]
async fn unauthenticated_routes_are_probes_and_the_page_only() {
    const OPEN: [&str; 4] = ["/relay", "/relay/", "/relay/healthz", "/relay/readyz"];
    let head = UncontactedHead::new().await;
    let relay = Relay::with_users(&[("default", head.address)], &[&everybody()]).await;
    for path in ROUTES.iter().map(|route| route.path) {
        for method in ["GET", "POST", "PUT", "DELETE"] {
            let request = relay.request(method, path).body(answer::empty()).unwrap();
            let response = relay.client().await.send(request).await;
            let is_authenticated = response.status() != 401;
            let is_open = method == "GET" && OPEN.contains(&path);
            assert_eq!(is_authenticated, is_open, "{method} {path}: {response:?}");
        }
    }
    head.expect_uncontacted().await;
}

#[tokio::test]
async fn token_is_accepted_in_every_place_and_not_forwarded() {
    let (ann, token) = (everybody(), token_of("ann"));
    let (address, mut requests, _head) = test_head(|| ok("page")).await;
    let relay = Relay::with_users(&[("default", address)], &[&ann]).await;
    for (name, value) in [
        ("authorization", bearer("ann")),
        ("x-ray-authorization", bearer("ann")),
        (
            "cookie",
            format!("a=1; ray-authentication-token={token}; b={token}"),
        ),
    ] {
        let request = relay
            .request("GET", "/nodes")
            .header(name, value)
            .header("x-echo", format!("is {token} here?"))
            .body(answer::empty())
            .unwrap();
        let response = relay.client().await.send(request).await;
        assert_eq!(response.status(), 200, "{name}");
        let request = requests.recv().await.unwrap();
        assert!(!format!("{request:?}").contains(&token), "{request:?}");
    }
    let request = relay
        .request("GET", &format!("/nodes?token={token}"))
        .header("authorization", bearer("ann"))
        .body(answer::empty())
        .unwrap();
    let response = relay.client().await.send(request).await;
    assert_eq!(response.status(), 400);
    assert!(text(response).await.contains("URL"));
    assert!(requests.try_recv().is_err());
}

#[tokio::test]
async fn conflicting_credentials_are_refused() {
    let (ann, bob) = (everybody(), User::new("bob", "\"list\"", ""));
    let head = UncontactedHead::new().await;
    let relay = Relay::with_users(&[("default", head.address)], &[&ann, &bob]).await;
    for (name, value) in [
        ("authorization", bearer("bob")),
        ("x-ray-authorization", bearer("bob")),
        (
            "cookie",
            format!("ray-authentication-token={}", token_of("bob")),
        ),
    ] {
        let request = relay
            .request("GET", "/nodes")
            .header("authorization", bearer("ann"))
            .header(name, value)
            .body(answer::empty())
            .unwrap();
        let response = relay.client().await.send(request).await;
        assert_eq!(response.status(), 400, "{name}");
        assert!(text(response).await.contains("several credentials"));
    }
    head.expect_uncontacted().await;
}

#[tokio::test]
async fn client_certificate_is_sufficient() {
    let relay = Relay::with_users(&[], &[&everybody()]).await;
    let auth = &relay.ctx.auth;
    let ann = principal(auth, "ann").await;
    let get = async |principal: &Principal| {
        let (client, server) = tokio::io::duplex(64 * 1024);
        let mut info = ConnectionInfo::plain(([127, 0, 0, 1], 9).into());
        info.certificate = Some(principal.clone());
        let ctx = Arc::clone(&relay.ctx);
        tokio::spawn(serve_connection(server, info, ctx, relay.shutdown.clone()));
        let (mut send, connection) = hyper::client::conn::http1::handshake(TokioIo::new(client))
            .await
            .unwrap();
        tokio::spawn(connection);
        let request = relay.request("GET", "/relay/v1/breakpoints");
        send.send_request(request.body(answer::empty()).unwrap())
            .await
            .unwrap()
            .status()
    };
    assert_eq!(get(&ann).await, 200);
    revoke(auth, "ann").await;
    assert_eq!(get(&ann).await, 401);
}

#[tokio::test]
async fn throttled_and_unavailable_have_their_own_status() {
    let issuers = issuer_that_is_down(Duration::from_millis(10)).await;
    let auth = authenticator_with("", issuers, |auth| auth.throttle_after = 1);
    let relay = Relay::with_auth(&[], auth, |_| {}).await;
    let response = relay.get_as(&foreign_token(), "/nodes").await;
    assert_eq!(response.status(), 503);
    let error = text(response).await;
    assert!(
        error.contains("keys of the issuer cannot be fetched"),
        "{error}"
    );
    assert_eq!(
        lines(&relay.audit.take()),
        Vec::<String>::new(),
        "nobody fills the log with these"
    );
    let throttled = async |n: usize| {
        let response = relay
            .get_as(&format!("wrong-{n}"), "/relay/v1/breakpoints")
            .await;
        (response.status() != 401).then_some(response)
    };
    let mut refused = 0;
    let response = loop {
        match throttled(refused).await {
            Some(response) => break response,
            None => refused += 1,
        }
        assert!(refused < 100);
    };
    assert_eq!(response.status(), 429);
    assert_eq!(response.headers()[RETRY_AFTER], "1");
    assert!(text(response).await.contains("try again in 1 s"));
    assert_eq!(throttled(1000).await.unwrap().status(), 429);
    assert_eq!(
        relay.audit.take().len(),
        refused,
        "nobody fills the log with these"
    );
}

#[tokio::test]
async fn probes_are_open_and_name_no_cluster() {
    let ann = everybody();
    let relay = Relay::with_users(&[], &[&ann]).await;
    assert_eq!(relay.get("/relay/healthz").await.status(), 200);
    let response = relay.get("/relay/readyz").await;
    assert_eq!(response.status(), 200);
    assert_eq!(json(response).await, serde_json::json!({"status": "ok"}));
    let cluster = "/relay/readyz?cluster=default";
    for cluster in [cluster, "/relay/readyz?cluster=nosuch"] {
        assert_eq!(relay.get(cluster).await.status(), 401);
    }
    let response = relay.get_as(&token_of("ann"), cluster).await;
    assert_eq!(response.status(), 503);
    let error = text(response).await;
    assert!(
        error.contains("cluster default has not answered yet"),
        "{error}"
    );
    assert_eq!(relay.get_as("wrong", "/relay/readyz").await.status(), 401);
}

#[tokio::test]
async fn metrics_need_admin_unless_open() {
    let (ann, bob) = (everybody(), User::new("bob", "\"list\"", ""));
    let relay = Relay::with_users(&[], &[&ann, &bob]).await;
    assert_eq!(relay.get("/relay/metrics").await.status(), 401);
    let response = relay.get_as(&token_of("bob"), "/relay/metrics").await;
    assert_eq!(response.status(), 403);
    assert!(text(response).await.contains("`admin`"));
    assert_eq!(
        relay
            .get_as(&token_of("ann"), "/relay/metrics")
            .await
            .status(),
        200
    );
    let auth = authenticator("");
    let relay = Relay::with_auth(&[], auth, |config| config.http.metrics_open = true).await;
    assert_eq!(relay.get("/relay/metrics").await.status(), 200);
}

#[tokio::test]
async fn page_is_open_and_only_its_path_is_forwarded() {
    let (address, mut requests, _head) = test_head(|| ok("<html>")).await;
    let relay = Relay::with_users(&[("default", address)], &[]).await;
    for path in ["/", "/favicon.ico", "/static/js/main.js?x=1"] {
        let request = relay
            .request("GET", path)
            .header("cookie", "ray-authentication-token=old; a=1")
            .header("x-anything", "1")
            .header("if-none-match", "\"1\"");
        let request = request.body(answer::empty()).unwrap();
        assert_eq!(relay.client().await.send(request).await.status(), 200);
        let request = requests.recv().await.unwrap();
        assert_eq!(request.uri, path.split('?').next().unwrap());
        let mut names: Vec<_> = request.headers.keys().map(|name| name.as_str()).collect();
        names.sort_unstable();
        // The user who runs the tests may have a token of Ray's own.
        names.retain(|name| *name != "authorization");
        assert_eq!(names, ["host", "if-none-match", "user-agent"]);
    }
    let body = answer::full("smuggled");
    let request = relay.request("GET", "/").body(body).unwrap();
    assert_eq!(relay.client().await.send(request).await.status(), 401);
    assert!(requests.try_recv().is_err());
    let mode = json(relay.get("/api/authentication_mode").await).await;
    assert_eq!(mode["authentication_mode"], "token");
    assert!(requests.try_recv().is_err());
}

#[tokio::test]
async fn dashboard_signs_in_with_a_relay_token() {
    let head = UncontactedHead::new().await;
    let ann = everybody();
    let expiry = SystemTime::now() + Duration::from_secs(600);
    let relay = Relay::with_users(&[("default", head.address)], &[&ann]).await;
    let sign_in = async |path: &str, token: &str| {
        let request = relay
            .request("POST", path)
            .header("authorization", format!("Bearer {token}"))
            // A stale cookie of the browser must not prevent signing in.
            .header("cookie", "ray-authentication-token=old");
        let request = request.body(answer::empty()).unwrap();
        relay.client().await.send(request).await
    };
    let response = sign_in("/api/authenticate", &token_of("ann")).await;
    assert_eq!(response.status(), 200);
    assert_eq!(
        response.headers()[SET_COOKIE].to_str().unwrap(),
        format!(
            "ray-authentication-token-{}={}; Max-Age=2592000; Path=/; HttpOnly; SameSite=Strict",
            relay.address.port(),
            token_of("ann")
        )
    );
    assert_eq!(json(response).await["status"], "authenticated");
    let response = sign_in(
        "/relay/clusters/x/api/authenticate",
        &token_until("eve", expiry),
    )
    .await;
    let cookie = response.headers()[SET_COOKIE].to_str().unwrap();
    assert!(
        cookie.contains("Max-Age=59") || cookie.contains("Max-Age=60"),
        "{cookie}"
    );
    let response = sign_in("/api/authenticate", "wrong").await;
    assert_eq!(response.status(), 401);
    assert!(!response.headers().contains_key(SET_COOKIE));
    let request = relay.request("POST", "/api/authenticate");
    let request = request.header(
        "cookie",
        format!("ray-authentication-token={}", token_of("ann")),
    );
    let request = request.body(answer::empty()).unwrap();
    assert_eq!(relay.client().await.send(request).await.status(), 401);
    head.expect_uncontacted().await;
}

#[tokio::test]
async fn without_authentication_no_credential_is_forwarded() {
    let (address, mut requests, _head) = test_head(|| ok("page")).await;
    let relay = Relay::start(&[("default", address)], |_| {}).await;
    let request = relay
        .request("GET", "/api/authentication_mode?a=1")
        .header("authorization", "Bearer one")
        .header("cookie", "ray-authentication-token=two; a=1");
    let request = request.body(answer::empty()).unwrap();
    assert_eq!(relay.client().await.send(request).await.status(), 200);
    let request = requests.recv().await.unwrap();
    assert_eq!(request.headers["cookie"], "a=1");
    assert!(!format!("{request:?}").contains("Bearer one"));
}

#[tokio::test]
async fn revocation_by_an_admin_applies_at_once() {
    use ray_relay_access::identity::SigningKey;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("key");
    let key = "hs256:c2l4dHktZm91ciBjaGFyYWN0ZXJzIG9mIHNlY3JldCBhcmUgZW5vdWdoIGZvciBldmVyeWJvZHk=";
    std::fs::write(&file, key).unwrap();
    let auth = config::Auth {
        keys: vec![file],
        ..config::Auth::default()
    };
    let auth =
        Authenticator::from_config(&auth, ray_relay_access::identity::Issuers::default()).unwrap();
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap()
        .as_secs();
    let mint = |subject: &str, scope: &str| {
        let claims = serde_json::json!({
            "sub": subject, "scope": scope, "jti": format!("id-of-{subject}"),
            "aud": "ray-relay", "iat": now, "exp": now + 600,
        });
        let key = SigningKey::from_file(key).unwrap();
        key.sign("JWT", &claims).unwrap().expose().to_owned()
    };
    let (ann, bob, eve) = (
        mint("ann", "admin"),
        mint("bob", "list"),
        mint("eve", "list"),
    );
    let relay = Relay::with_auth(&[], auth, |_| {}).await;
    let list = "/relay/v1/breakpoints";
    assert_eq!(relay.get_as(&bob, list).await.status(), 200);
    let revoke = async |token: &str, body: &'static str| {
        let request = relay
            .request("POST", "/relay/v1/revocations")
            .header("authorization", format!("Bearer {token}"));
        let request = request.body(answer::full(body)).unwrap();
        relay.client().await.send(request).await
    };
    assert_eq!(revoke(&bob, r#"{"sub": "ann"}"#).await.status(), 403);
    assert_eq!(revoke("wrong", r#"{"sub": "ann"}"#).await.status(), 401);
    assert_eq!(revoke(&ann, r#"{"subject": "bob"}"#).await.status(), 400);
    let mut events = relay.get_as(&bob, "/relay/v1/events").await.into_body();
    events.frame().await.unwrap().unwrap();
    let response = revoke(&ann, r#"{"jti": "id-of-bob"}"#).await;
    assert_eq!(response.status(), 200);
    let answer = json(response).await;
    assert_eq!(
        answer,
        serde_json::json!({ "revoked": { "jti": "id-of-bob" }, "kept": "memory" })
    );
    let event = events.frame().await.unwrap().unwrap().into_data().unwrap();
    assert!(event.starts_with(b"event: ended\n"), "{event:?}");
    assert_eq!(relay.get_as(&bob, list).await.status(), 401);
    assert_eq!(relay.get_as(&eve, list).await.status(), 200);
    assert_eq!(revoke(&ann, r#"{"sub": "eve"}"#).await.status(), 200);
    assert_eq!(relay.get_as(&eve, list).await.status(), 401);
    let response = relay.get_as(&ann, "/relay/v1/revocations").await;
    assert_eq!(
        (response.status().as_u16(), &response.headers()["allow"]),
        (405, &"POST".parse().unwrap())
    );
    let entries = lines(&relay.audit.take());
    let administered = entries
        .iter()
        .filter(|line| line.starts_with("Administration allowed ann"));
    assert_eq!(administered.count(), 2, "{entries:?}");
    relay.audit.refuse_all(true);
    assert_eq!(revoke(&ann, r#"{"sub": "ann"}"#).await.status(), 503);
}
