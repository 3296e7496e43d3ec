//! The origins of the relay and of the dashboards: their content and their redirects.

mod entrance;

use hyper::header::{CONTENT_SECURITY_POLICY, LOCATION};
use hyper::http::request::Builder;

use super::*;

/// The headers of a browser's navigation.
const NAVIGATION: [(&str, &str); 3] = [
    ("sec-fetch-site", "none"),
    ("sec-fetch-mode", "navigate"),
    ("sec-fetch-dest", "document"),
];

/// The headers of a script that requests its own origin.
const SCRIPT: [(&str, &str); 3] = [
    ("sec-fetch-site", "same-origin"),
    ("sec-fetch-mode", "cors"),
    ("sec-fetch-dest", "empty"),
];

/// The headers of Safari before 16.4, or of a browser over plain HTTP to another machine.
const OLD_BROWSER: [(&str, &str); 2] = [
    ("user-agent", "Mozilla/5.0 (Macintosh) Safari/605"),
    ("accept", "text/html,application/xhtml+xml,*/*;q=0.8"),
];

impl Relay {
    /// Returns `name` with the relay's port.
    fn host_with_port(&self, name: &str) -> String {
        format!("{name}:{}", self.address.port())
    }

    async fn request_page(
        &self,
        host: &str,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Response<Incoming> {
        let request = Request::builder().uri(path).header(HOST, host);
        self.send_request(with_headers(request, headers)).await
    }

    async fn send_request(&self, request: Builder) -> Response<Incoming> {
        let request = request.body(answer::empty()).unwrap();
        self.client().await.send(request).await
    }
}

fn with_headers(request: Builder, headers: &[(&str, &str)]) -> Builder {
    headers.iter().fold(request, |request, (name, value)| {
        request.header(*name, *value)
    })
}

fn location(response: &Response<Incoming>) -> &str {
    response.headers()[LOCATION].to_str().unwrap()
}

#[tokio::test]
async fn browser_is_redirected_to_the_dashboard_origin() {
    let (address, mut requests, _head) = test_head(|| ok("page")).await;
    let heads = [("default", address), ("gpu-2", address)];
    let relay = Relay::start(&heads, |_| {}).await;
    let port = relay.address.port();
    for host in ["127.0.0.1", "localhost", "[::1]"] {
        for (path, expected) in [
            ("/", format!("//default.localhost:{port}/")),
            (
                "/a/b?x=1&y",
                format!("//default.localhost:{port}/a/b?x=1&y"),
            ),
            ("//evil.com", format!("//default.localhost:{port}/")),
            (
                "/relay/clusters/gpu-2",
                format!("//gpu-2.localhost:{port}/"),
            ),
            (
                "/relay/clusters/gpu-2/x?y",
                format!("//gpu-2.localhost:{port}/x?y"),
            ),
            (
                "/relay/clusters/ml.a/",
                format!("//ml--a.localhost:{port}/"),
            ),
        ] {
            for browser in [&NAVIGATION[..], &OLD_BROWSER] {
                let sent = relay
                    .request_page(&relay.host_with_port(host), path, browser)
                    .await;
                assert_eq!(sent.status(), 307, "{host} {path}");
                assert_eq!(location(&sent), expected, "{host} {path}");
            }
        }
    }
    assert!(requests.try_recv().is_err(), "no head heard of it");
    // Other clients than browsers, and an editor built on a browser.
    for client in [
        &[][..],
        &[("user-agent", "curl/8.5.0"), ("accept", "*/*")],
        &[("user-agent", "python-requests/2.31"), ("accept", "*/*")],
        &[("user-agent", "node"), ("sec-fetch-mode", "cors")],
        &[
            ("user-agent", "Mozilla/5.0 Code/1.99"),
            ("sec-fetch-site", "none"),
        ],
    ] {
        for path in ["/", "/api/version", "/relay/clusters/gpu-2/api/version"] {
            let response = relay
                .request_page(&relay.host_with_port("127.0.0.1"), path, client)
                .await;
            assert_eq!(response.status(), 200, "{client:?} {path}");
            assert_eq!(requests.recv().await.unwrap().method, "GET");
            // A browser would still run no script of this page.
            let policy = &response.headers()[CONTENT_SECURITY_POLICY];
            assert_eq!(policy, "sandbox; default-src 'none'");
        }
    }
}

#[tokio::test]
async fn dashboard_without_its_own_origin_is_refused() {
    let head = UncontactedHead::new().await;
    let relay = Relay::start(&[("default", head.address)], |_| {}).await;
    for host in ["relay.example.com", "10.0.0.7:5678"] {
        let refused = relay.request_page(host, "/", &OLD_BROWSER).await;
        assert_eq!(refused.status(), 403);
        let sentence = text(refused).await;
        assert!(sentence.contains("`http.dashboard_hosts`"), "{sentence}");
    }
    let set_hosts = |config: &mut Config| {
        config.http.dashboard_hosts = Some("{cluster}.ray.example.com".to_owned());
    };
    let relay = Relay::start(&[("default", head.address)], set_hosts).await;
    for (host, expected) in [
        ("relay.example.com", "//default.ray.example.com/x?y"),
        (
            "relay.example.com:5678",
            "//default.ray.example.com:5678/x?y",
        ),
        ("10.0.0.7:5678", "//default.ray.example.com:5678/x?y"),
        ("127.0.0.1:5678", "//default.localhost:5678/x?y"),
    ] {
        let sent = relay.request_page(host, "/x?y", &OLD_BROWSER).await;
        assert_eq!((sent.status().as_u16(), location(&sent)), (307, expected));
    }
    head.expect_uncontacted().await;
}

#[tokio::test]
async fn relay_origin_serves_no_dashboard_content() {
    let head = UncontactedHead::new().await;
    let relay = Relay::start(&[("default", head.address)], |_| {}).await;
    let host = relay.host_with_port("localhost");
    for path in ["/", "/api/version", "/relay/clusters/default/x.js"] {
        let refused = relay.request_page(&host, path, &SCRIPT).await;
        assert_eq!(refused.status(), 403, "{path}");
        assert!(text(refused).await.contains("only on its own origin"));
        let worker = [("service-worker", "script")];
        for host in [&host, &relay.host_with_port("default.localhost")] {
            let refused = relay.request_page(host, path, &worker).await;
            assert_eq!(refused.status(), 403, "{host} {path}");
        }
    }
    let form = relay.request("POST", "/api/jobs/");
    let form = relay.send_request(with_headers(form, &NAVIGATION)).await;
    assert_eq!(form.status(), 403);
    head.expect_uncontacted().await;
}

#[tokio::test]
async fn dashboard_origin_serves_only_its_dashboard() {
    let (first_head, mut requests, _first) = test_head(|| ok("one")).await;
    let (second_head, _, _second) = test_head(|| ok("two")).await;
    let relay = Relay::start(&[("default", first_head), ("gpu-2", second_head)], |_| {}).await;
    relay.registry.insert(breakpoint("aa11"));
    let (first, second) = (
        relay.host_with_port("default.localhost"),
        relay.host_with_port("GPU-2.localhost."),
    );
    for browser in [&NAVIGATION[..], &SCRIPT, &OLD_BROWSER, &[]] {
        for path in ["/", "/api/x?y"] {
            let response = relay.request_page(&first, path, browser).await;
            assert_eq!(text(response).await, "one");
            assert_eq!(requests.recv().await.unwrap().uri, path);
            let response = relay.request_page(&second, path, browser).await;
            assert_eq!(text(response).await, "two");
        }
        for path in [
            "/relay",
            "/relay/",
            "/relay/page/main.js",
            "/relay/v1/breakpoints",
            "/relay/v1/whoami",
            "/relay/clusters/gpu-2/api/version",
            "/relay/healthz",
            "/relay/metrics",
        ] {
            let response = relay.request_page(&first, path, browser).await;
            assert_eq!(response.status(), 404, "{path}");
            let error = text(response).await;
            assert!(error.contains("a dashboard's alone"), "{path}: {error}");
        }
    }
    let response = relay
        .request_page(&relay.host_with_port("other.localhost"), "/", &NAVIGATION)
        .await;
    assert_eq!(response.status(), 404);
    assert!(requests.try_recv().is_err());
}

/// Some browsers treat `NAME.localhost` and `localhost` as one site, so cookies alone do not separate them.
#[tokio::test]
async fn scripts_on_a_dashboard_origin_reach_no_other() {
    let head = UncontactedHead::new().await;
    let heads = [("default", head.address), ("other", head.address)];
    let relay = Relay::start(&heads, |_| {}).await;
    let origin = format!("http://{}", relay.host_with_port("default.localhost"));
    for host in ["localhost", "127.0.0.1", "other.localhost"] {
        for path in [
            "/relay/v1/breakpoints",
            "/relay/v1/release",
            "/relay/v1/terminal",
            "/relay/v1/dashboard",
            "/relay/clusters/other/api/jobs/",
            "/api/jobs/",
        ] {
            for method in ["GET", "POST", "OPTIONS"] {
                for site in ["same-site", "cross-site"] {
                    let request = Request::builder().method(method).uri(path);
                    let request = request.header(HOST, relay.host_with_port(host));
                    let fetch = [("origin", &*origin), ("sec-fetch-site", site)];
                    let refused = relay.send_request(with_headers(request, &fetch)).await;
                    assert_eq!(refused.status(), 403, "{host} {method} {path}");
                    let headers = refused.headers();
                    assert!(!headers.contains_key("access-control-allow-origin"));
                }
            }
            let image = [
                ("sec-fetch-site", "same-site"),
                ("sec-fetch-mode", "no-cors"),
            ];
            let refused = relay
                .request_page(&relay.host_with_port(host), path, &image)
                .await;
            assert_eq!(refused.status(), 403, "{host} {path}");
        }
        let socket = [
            ("origin", &*origin),
            ("connection", "Upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ];
        let refused = relay
            .request_page(&relay.host_with_port(host), "/relay/v1/terminal", &socket)
            .await;
        assert_eq!(refused.status(), 403, "{host}");
    }
    head.expect_uncontacted().await;
}

#[tokio::test]
async fn http2_authority_selects_the_origin() {
    let (address, _seen, _head) = test_head(|| ok("page")).await;
    let relay = Relay::start(&[("default", address)], |_| {}).await;
    let stream = TcpStream::connect(relay.address).await.unwrap();
    let (mut send, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    tokio::spawn(connection);
    for (host, path, status) in [
        ("default.localhost", "/", 200),
        ("default.localhost", "/relay/v1/breakpoints", 404),
        ("localhost", "/relay/v1/breakpoints", 200),
        ("localhost", "/", 307),
    ] {
        let uri = format!("http://{}{path}", relay.host_with_port(host));
        let request = with_headers(Request::builder().uri(uri), &NAVIGATION);
        let request = request.body(answer::empty()).unwrap();
        let response = send.send_request(request).await.unwrap();
        assert_eq!(response.status(), status, "{host}{path}");
    }
}

/// A client follows a redirect with its credential, and after a 307 it sends its job again.
#[tokio::test]
async fn redirects_of_a_head_stay_on_its_origin() {
    let redirect_to = |location: &'static str| move || with(status(307), &[("location", location)]);
    let follow = async |location: &'static str, path: &str, host: Option<&str>| {
        let answer = redirect_to(location);
        let (address, _head) = head(move |_| async move { answer() }).await;
        let heads = [("default", address), ("evil", address)];
        let relay = Relay::start(&heads, |_| {}).await;
        let host = relay.host_with_port(host.unwrap_or("localhost"));
        let response = relay.request_page(&host, path, &[]).await;
        let location = response.headers().get(LOCATION);
        location.map(|location| location.to_str().unwrap().to_owned())
    };
    for location in [
        "/relay/v1/release",
        "/%72elay/clusters/default/api/jobs/",
        "//localhost/relay/v1/release",
        "/./relay/v1/release",
        "http://localhost:5678/relay/clusters/default/api/jobs/",
        "https://elsewhere.example.com/",
        "relay/",
    ] {
        assert_eq!(
            follow(location, "/api/jobs/", None).await,
            None,
            "{location}"
        );
    }
    let of_evil = "/relay/clusters/evil/api/jobs/";
    for location in [
        "/../default/api/jobs/",
        "/x/%2e%2e/../default/",
        "/x\\..\\..\\default/",
        "../default/",
    ] {
        assert_eq!(follow(location, of_evil, None).await, None, "{location}");
    }
    let within = follow("/nodes?x=..", of_evil, None).await;
    assert_eq!(within.as_deref(), Some("/relay/clusters/evil/nodes?x=.."));
    let response = follow(
        "https://elsewhere.example.com/",
        "/",
        Some("evil.localhost"),
    )
    .await;
    assert_eq!(response.as_deref(), Some("https://elsewhere.example.com/"));
}
