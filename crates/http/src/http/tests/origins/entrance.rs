//! How a browser becomes known on the origin of a dashboard, and whose page has it known there.

use hyper::header::SET_COOKIE;

use super::*;

/// The way to the dashboard of `cluster`, as the relay's page asks for it.
async fn way(relay: &Relay, subject: &str, cluster: &str) -> Response<Incoming> {
    let body = serde_json::json!({ "cluster": cluster, "path": "/x?y#z" }).to_string();
    let request = Request::post("/relay/v1/dashboard")
        .header(HOST, relay.at("localhost"))
        .header("authorization", bearer(subject));
    let request = with_headers(request, &SCRIPT);
    let request = request.body(answer::full(body)).unwrap();
    relay.client().await.send(request).await
}

/// The page's sign-in request: its address and its form.
struct Entrance {
    host: String,
    form: String,
}

impl Entrance {
    async fn of(way: Response<Incoming>) -> Self {
        let way = json(way).await;
        let text = |key: &str| way[key].as_str().unwrap().to_owned();
        let url = text("url");
        let host = url.strip_prefix("//").unwrap().strip_suffix("/relay/enter");
        // No character of a ticket is escaped in a form.
        let at = text("at")
            .replace('/', "%2F")
            .replace('?', "%3F")
            .replace('#', "%23");
        Self {
            host: host.unwrap().to_owned(),
            form: format!("ticket={}&at={at}", text("ticket")),
        }
    }

    fn ticket(&self) -> &str {
        self.form.split(['=', '&']).nth(1).unwrap()
    }

    async fn posted(
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

/// The headers of a browser for a form that a page of another origin posts.
fn posted_by(origin: &str) -> [(&str, &str); 4] {
    [
        ("origin", origin),
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-mode", "navigate"),
        ("sec-fetch-dest", "document"),
    ]
}

#[tokio::test]
async fn entrance_opens_one_dashboard_without_a_credential() {
    let ann = Person::new("ann", "\"list\", \"dashboard:write\", \"admin\"", "");
    let (one, mut seen, _one) = telling(|| ok("one")).await;
    let (two, _, _two) = telling(|| ok("two")).await;
    let relay = Relay::guarded(&[("default", one), ("gpu-2", two)], &[&ann]).await;
    // A navigation brings no token: the page has it.
    for (path, to) in [
        ("/", "relay/?dashboard=&at=%2F"),
        ("/a/b?x=1", "../relay/?dashboard=&at=%2Fa%2Fb%3Fx%3D1"),
        (
            "/relay/clusters/gpu-2/x",
            "../../../relay/?dashboard=gpu-2&at=%2Fx",
        ),
    ] {
        let sent = relay.asked(&relay.at("localhost"), path, &NAVIGATION).await;
        assert_eq!((sent.status().as_u16(), location(&sent)), (307, to));
    }
    let entrance = Entrance::of(way(&relay, "ann", "default").await).await;
    let host = &*entrance.host;
    assert_eq!(host, relay.at("default.localhost"));
    let page = format!("http://{}", relay.at("localhost"));
    let from_the_page = posted_by(&page);
    let entered = entrance.posted(&relay, host, &from_the_page).await;
    assert_eq!(entered.status(), 200);
    assert_eq!(entered.headers()["refresh"], "0; url=/x?y#z");
    assert_eq!(entered.headers()["referrer-policy"], "no-referrer");
    let cookie = entered.headers()[SET_COOKIE].to_str().unwrap().to_owned();
    assert!(cookie.contains("; Path=/; HttpOnly; SameSite=Strict") && !cookie.contains("Domain"));
    let cookie = cookie.split(';').next().unwrap().to_owned();
    let known = |headers: &[(&'static str, &'static str)]| {
        let mut headers = headers.to_vec();
        headers.push(("cookie", cookie.clone().leak()));
        headers
    };

    for path in ["/", "/api/x"] {
        let served = relay.asked(host, path, &known(&SCRIPT)).await;
        assert_eq!(text(served).await, "one");
        let seen = format!("{:?}", seen.recv().await.unwrap());
        assert!(!seen.contains("ray-authentication-token"), "{seen}");
    }
    let mode = relay
        .asked(host, "/api/authentication_mode", &known(&SCRIPT))
        .await;
    assert_eq!(json(mode).await["authentication_mode"], "disabled");
    // It opens nothing else, wherever it is shown, and neither does the way.
    let elsewhere = relay.at("gpu-2.localhost");
    for (host, path) in [
        (&*elsewhere, "/"),
        (&relay.at("localhost"), "/relay/v1/breakpoints"),
        (&relay.at("localhost"), "/api/version"),
    ] {
        let refused = relay.asked(host, path, &known(&[])).await;
        assert_eq!(refused.status(), 401, "{host}{path}");
    }
    let refused = entrance.posted(&relay, &elsewhere, &from_the_page).await;
    assert_eq!(refused.status(), 401);
    // Nor does the one in the form stay good as a cookie.
    let ticket = entrance.ticket();
    let name = cookie.split('=').next().unwrap();
    let taken = format!("{name}={ticket}");
    let refused = relay.asked(host, "/api/x", &[("cookie", &taken)]).await;
    assert_eq!(refused.status(), 401);
    // No head sees an unauthenticated visitor, and no page of a head's takes a token.
    for path in [
        "/",
        "/favicon.ico",
        "/static/js/main.js",
        "/api/authentication_mode",
    ] {
        let refused = relay.asked(host, path, &NAVIGATION).await;
        assert_eq!(refused.status(), 401, "{path}");
    }
    let typed = Request::post("/api/authenticate").header(HOST, host);
    let typed = typed.header("authorization", bearer("ann"));
    let typed = relay.sent(typed).await;
    assert_eq!(typed.status(), 403);
    assert!(!typed.headers().contains_key(SET_COOKIE));
    assert!(
        text(typed)
            .await
            .contains("never give a token to a dashboard")
    );
    assert!(seen.try_recv().is_err());
    // It ends with the token that it is of.
    revoke(&relay.ctx.auth, "ann").await;
    let refused = relay.asked(host, "/api/x", &known(&SCRIPT)).await;
    assert_eq!(refused.status(), 401);
}

/// The holder of a ticket could sign another user's browser in as themselves, and read there what that user types.
#[tokio::test]
async fn only_the_relay_page_can_sign_in_to_a_dashboard() {
    let mallory = Person::new("mallory", "\"dashboard:write\"", "");
    let head = Untouched::new().await;
    let auth = authenticator(&mallory.rules);
    let relay = Relay::with_auth(&[("default", head.address)], auth, |config| {
        config.http.dashboard_hosts = Some("{cluster}.ray.example.com".to_owned());
        config.http.allowed_hosts = vec!["relay.example.com".to_owned(), "192.0.2.7".to_owned()];
    })
    .await;
    let entrance = Entrance::of(way(&relay, "mallory", "default").await).await;
    let port = relay.address.port();
    let local = relay.at("default.localhost");
    let named = relay.at("default.ray.example.com");
    let other = port ^ 1;
    for (host, origin) in [
        (&local, "http://evil.example.com".to_owned()),
        (&local, format!("http://evil.example.com:{port}")),
        (&local, format!("http://192.0.2.1:{port}")),
        (&local, format!("http://localhost:{other}")),
        (&local, format!("http://evil.localhost:{port}")),
        (&local, format!("http://default.localhost:{port}")),
        (&local, format!("http://relay.example.com:{port}")),
        (&local, "null".to_owned()),
        (&named, format!("http://192.0.2.1:{port}")),
        (&named, format!("http://localhost:{port}")),
        (&named, format!("http://evil.ray.example.com:{port}")),
        (&named, "https://relay.example.com".to_owned()),
    ] {
        let refused = entrance.posted(&relay, host, &posted_by(&origin)).await;
        assert_eq!(refused.status(), 403, "{host} {origin}");
        assert!(!refused.headers().contains_key(SET_COOKIE), "{origin}");
        assert!(
            text(refused)
                .await
                .contains("only the relay's own page signs a browser in")
        );
    }
    // Nothing says whose it is, or two things; and no link is enough.
    let page = format!("http://localhost:{port}");
    let twice = [("origin", &*page), ("origin", &*page)];
    for headers in [&[][..], &twice] {
        let refused = entrance.posted(&relay, &local, headers).await;
        assert_eq!(refused.status(), 403, "{headers:?}");
    }
    let link = format!("/relay/enter?{}", entrance.form);
    let refused = relay.asked(&local, &link, &posted_by(&page)).await;
    assert_eq!(refused.status(), 403);
    // It was good all the time.
    for (host, origin) in [
        (&local, page),
        (&local, format!("http://127.0.0.1:{port}")),
        (&named, format!("http://relay.example.com:{port}")),
        (&named, format!("https://192.0.2.7:{port}")),
    ] {
        let entered = entrance.posted(&relay, host, &posted_by(&origin)).await;
        assert_eq!(entered.status(), 200, "{host} {origin}");
        assert!(entered.headers().contains_key(SET_COOKIE), "{origin}");
    }
    head.check().await;
}

#[tokio::test]
async fn entrance_needs_dashboard_read() {
    let ann = Person::new("ann", "\"dashboard:read\"", "clusters = [\"gpu-2\"]");
    let bob = Person::new("bob", "\"list\"", "");
    let head = Untouched::new().await;
    let heads = [("default", head.address), ("gpu-2", head.address)];
    let relay = Relay::guarded(&heads, &[&ann, &bob]).await;
    for (subject, cluster, status) in [
        ("ann", "gpu-2", 200),
        ("ann", "default", 404),
        ("ann", "none", 404),
        ("bob", "gpu-2", 403),
    ] {
        let told = way(&relay, subject, cluster).await;
        assert_eq!(told.status(), status, "{subject} {cluster}");
    }
    let nobody = Request::post("/relay/v1/dashboard").header(HOST, relay.at("localhost"));
    assert_eq!(relay.sent(nobody).await.status(), 401);
    head.check().await;
}
