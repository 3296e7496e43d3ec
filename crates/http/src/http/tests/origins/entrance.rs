//! Signing a browser in on the origin of a dashboard, which only the relay's page may do.

use hyper::header::SET_COOKIE;

use super::*;

/// Requests a sign-in for the dashboard of `cluster`, like the relay's page.
async fn request_entrance(relay: &Relay, subject: &str, cluster: &str) -> Response<Incoming> {
    let body = serde_json::json!({ "cluster": cluster, "path": "/x?y#z" }).to_string();
    let request = Request::post("/relay/v1/dashboard")
        .header(HOST, relay.host_with_port("localhost"))
        .header("authorization", bearer(subject));
    let request = with_headers(request, &SCRIPT);
    let request = request.body(answer::full(body)).unwrap();
    relay.client().await.send(request).await
}

/// The sign-in request of the page: host and form.
struct Entrance {
    host: String,
    form: String,
}

impl Entrance {
    async fn read(response: Response<Incoming>) -> Self {
        let answer = json(response).await;
        let text = |key: &str| answer[key].as_str().unwrap().to_owned();
        let url = text("url");
        let host = url.strip_prefix("//").unwrap().strip_suffix("/relay/enter");
        // A ticket has no characters that a form escapes.
        let target = text("at")
            .replace('/', "%2F")
            .replace('?', "%3F")
            .replace('#', "%23");
        Self {
            host: host.unwrap().to_owned(),
            form: format!("ticket={}&at={target}", text("ticket")),
        }
    }

    fn ticket(&self) -> &str {
        self.form.split(['=', '&']).nth(1).unwrap()
    }

    async fn post(
        &self,
        relay: &Relay,
        host: &str,
        headers: &[(&str, &str)],
    ) -> Response<Incoming> {
        let request = Request::post("/relay/enter").header(HOST, host);
        let request = with_headers(request, headers);
        let request = request.header("content-type", "application/x-www-form-urlencoded");
        let request = request.body(answer::full(self.form.clone())).unwrap();
        relay.client().await.send(request).await
    }
}

/// The headers of a browser for a form that a page of `origin` posts.
fn form_headers(origin: &str) -> [(&str, &str); 4] {
    [
        ("origin", origin),
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-mode", "navigate"),
        ("sec-fetch-dest", "document"),
    ]
}

#[tokio::test]
async fn entrance_opens_one_dashboard_without_a_credential() {
    let ann = User::new("ann", "\"list\", \"dashboard:write\", \"admin\"", "");
    let (first_head, mut requests, _first) = test_head(|| ok("one")).await;
    let (second_head, _, _second) = test_head(|| ok("two")).await;
    let relay =
        Relay::with_users(&[("default", first_head), ("gpu-2", second_head)], &[&ann]).await;
    // A navigation carries no token, so it is redirected to the page, which has it.
    for (path, expected) in [
        ("/", "relay/?dashboard=&at=%2F"),
        ("/a/b?x=1", "../relay/?dashboard=&at=%2Fa%2Fb%3Fx%3D1"),
        (
            "/relay/clusters/gpu-2/x",
            "../../../relay/?dashboard=gpu-2&at=%2Fx",
        ),
    ] {
        let response = relay
            .request_page(&relay.host_with_port("localhost"), path, &NAVIGATION)
            .await;
        assert_eq!(
            (response.status().as_u16(), location(&response)),
            (307, expected)
        );
    }
    let entrance = Entrance::read(request_entrance(&relay, "ann", "default").await).await;
    let host = &*entrance.host;
    assert_eq!(host, relay.host_with_port("default.localhost"));
    let page = format!("http://{}", relay.host_with_port("localhost"));
    let page_headers = form_headers(&page);
    let response = entrance.post(&relay, host, &page_headers).await;
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["refresh"], "0; url=/x?y#z");
    assert_eq!(response.headers()["referrer-policy"], "no-referrer");
    let cookie = response.headers()[SET_COOKIE].to_str().unwrap().to_owned();
    assert!(cookie.contains("; Path=/; HttpOnly; SameSite=Strict") && !cookie.contains("Domain"));
    let cookie = cookie.split(';').next().unwrap().to_owned();
    let with_cookie = |headers: &[(&'static str, &'static str)]| {
        let mut headers = headers.to_vec();
        headers.push(("cookie", cookie.clone().leak()));
        headers
    };

    for path in ["/", "/api/x"] {
        let response = relay.request_page(host, path, &with_cookie(&SCRIPT)).await;
        assert_eq!(text(response).await, "one");
        let request = format!("{:?}", requests.recv().await.unwrap());
        assert!(!request.contains("ray-authentication-token"), "{request}");
    }
    let mode = relay
        .request_page(host, "/api/authentication_mode", &with_cookie(&SCRIPT))
        .await;
    assert_eq!(json(mode).await["authentication_mode"], "disabled");
    // The cookie and the form are valid only on this dashboard's origin.
    let other_host = relay.host_with_port("gpu-2.localhost");
    for (host, path) in [
        (&*other_host, "/"),
        (&relay.host_with_port("localhost"), "/relay/v1/breakpoints"),
        (&relay.host_with_port("localhost"), "/api/version"),
    ] {
        let refused = relay.request_page(host, path, &with_cookie(&[])).await;
        assert_eq!(refused.status(), 401, "{host}{path}");
    }
    let refused = entrance.post(&relay, &other_host, &page_headers).await;
    assert_eq!(refused.status(), 401);
    // The ticket of the form is not valid as a cookie.
    let ticket = entrance.ticket();
    let name = cookie.split('=').next().unwrap();
    let cookie_header = format!("{name}={ticket}");
    let refused = relay
        .request_page(host, "/api/x", &[("cookie", &cookie_header)])
        .await;
    assert_eq!(refused.status(), 401);
    // Unauthenticated requests do not reach a head, and a head's page cannot accept a token.
    for path in [
        "/",
        "/favicon.ico",
        "/static/js/main.js",
        "/api/authentication_mode",
    ] {
        let refused = relay.request_page(host, path, &NAVIGATION).await;
        assert_eq!(refused.status(), 401, "{path}");
    }
    let request = Request::post("/api/authenticate").header(HOST, host);
    let request = request.header("authorization", bearer("ann"));
    let response = relay.send_request(request).await;
    assert_eq!(response.status(), 403);
    assert!(!response.headers().contains_key(SET_COOKIE));
    assert!(
        text(response)
            .await
            .contains("never give a token to a dashboard")
    );
    assert!(requests.try_recv().is_err());
    // The cookie ends with the token it was issued for.
    revoke(&relay.ctx.auth, "ann").await;
    let refused = relay
        .request_page(host, "/api/x", &with_cookie(&SCRIPT))
        .await;
    assert_eq!(refused.status(), 401);
}

/// Otherwise the holder of a ticket could sign another user's browser in as themselves, and read what that user types.
#[tokio::test]
async fn only_the_relay_page_can_sign_in_to_a_dashboard() {
    let mallory = User::new("mallory", "\"dashboard:write\"", "");
    let head = UncontactedHead::new().await;
    let auth = authenticator(&mallory.rules);
    let relay = Relay::with_auth(&[("default", head.address)], auth, |config| {
        config.http.dashboard_hosts = Some("{cluster}.ray.example.com".to_owned());
        config.http.allowed_hosts = vec!["relay.example.com".to_owned(), "192.0.2.7".to_owned()];
    })
    .await;
    let entrance = Entrance::read(request_entrance(&relay, "mallory", "default").await).await;
    let port = relay.address.port();
    let local = relay.host_with_port("default.localhost");
    let configured = relay.host_with_port("default.ray.example.com");
    let other_port = port ^ 1;
    for (host, origin) in [
        (&local, "http://evil.example.com".to_owned()),
        (&local, format!("http://evil.example.com:{port}")),
        (&local, format!("http://192.0.2.1:{port}")),
        (&local, format!("http://localhost:{other_port}")),
        (&local, format!("http://evil.localhost:{port}")),
        (&local, format!("http://default.localhost:{port}")),
        (&local, format!("http://relay.example.com:{port}")),
        (&local, "null".to_owned()),
        (&configured, format!("http://192.0.2.1:{port}")),
        (&configured, format!("http://localhost:{port}")),
        (&configured, format!("http://evil.ray.example.com:{port}")),
        (&configured, "https://relay.example.com".to_owned()),
    ] {
        let refused = entrance.post(&relay, host, &form_headers(&origin)).await;
        assert_eq!(refused.status(), 403, "{host} {origin}");
        assert!(!refused.headers().contains_key(SET_COOKIE), "{origin}");
        assert!(
            text(refused)
                .await
                .contains("only the relay's own page signs a browser in")
        );
    }
    // A missing or repeated origin is refused, and so is a link.
    let page = format!("http://localhost:{port}");
    let repeated = [("origin", &*page), ("origin", &*page)];
    for headers in [&[][..], &repeated] {
        let refused = entrance.post(&relay, &local, headers).await;
        assert_eq!(refused.status(), 403, "{headers:?}");
    }
    let link = format!("/relay/enter?{}", entrance.form);
    let refused = relay
        .request_page(&local, &link, &form_headers(&page))
        .await;
    assert_eq!(refused.status(), 403);
    // The ticket itself was valid all the time.
    for (host, origin) in [
        (&local, page),
        (&local, format!("http://127.0.0.1:{port}")),
        (&configured, format!("http://relay.example.com:{port}")),
        (&configured, format!("https://192.0.2.7:{port}")),
    ] {
        let response = entrance.post(&relay, host, &form_headers(&origin)).await;
        assert_eq!(response.status(), 200, "{host} {origin}");
        assert!(response.headers().contains_key(SET_COOKIE), "{origin}");
    }
    head.expect_uncontacted().await;
}

#[tokio::test]
async fn entrance_needs_dashboard_read() {
    let ann = User::new("ann", "\"dashboard:read\"", "clusters = [\"gpu-2\"]");
    let bob = User::new("bob", "\"list\"", "");
    let head = UncontactedHead::new().await;
    let heads = [("default", head.address), ("gpu-2", head.address)];
    let relay = Relay::with_users(&heads, &[&ann, &bob]).await;
    for (subject, cluster, status) in [
        ("ann", "gpu-2", 200),
        ("ann", "default", 404),
        ("ann", "none", 404),
        ("bob", "gpu-2", 403),
    ] {
        let response = request_entrance(&relay, subject, cluster).await;
        assert_eq!(response.status(), status, "{subject} {cluster}");
    }
    let request =
        Request::post("/relay/v1/dashboard").header(HOST, relay.host_with_port("localhost"));
    assert_eq!(relay.send_request(request).await.status(), 401);
    head.expect_uncontacted().await;
}
