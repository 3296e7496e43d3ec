//! The relay's own origin and those of dashboards: what is where, and who is sent where.

mod entrance;

use hyper::header::{CONTENT_SECURITY_POLICY, LOCATION};
use hyper::http::request::Builder;

use super::*;

/// A browser that is about to show what it gets.
const NAVIGATION: [(&str, &str); 3] = [
    ("sec-fetch-site", "none"),
    ("sec-fetch-mode", "navigate"),
    ("sec-fetch-dest", "document"),
];

/// A script of a page that asks for something of its own origin.
const SCRIPT: [(&str, &str); 3] = [
    ("sec-fetch-site", "same-origin"),
    ("sec-fetch-mode", "cors"),
    ("sec-fetch-dest", "empty"),
];

/// One of Safari before 16.4, or one over plain HTTP to another machine.
const OLD_BROWSER: [(&str, &str); 2] = [
    ("user-agent", "Mozilla/5.0 (Macintosh) Safari/605"),
    ("accept", "text/html,application/xhtml+xml,*/*;q=0.8"),
];

impl Relay {
    /// At `name` with the relay's port.
    fn at(&self, name: &str) -> String {
        format!("{name}:{}", self.address.port())
    }

    async fn asked(&self, host: &str, path: &str, headers: &[(&str, &str)]) -> Response<Incoming> {
        let request = Request::builder().uri(path).header(HOST, host);
        self.sent(with_headers(request, headers)).await
    }

    async fn sent(&self, request: Builder) -> Response<Incoming> {
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
    let (address, mut seen, _head) = telling(|| ok("page")).await;
    let heads = [("default", address), ("gpu-2", address)];
    let relay = Relay::start(&heads, |_| {}).await;
    let port = relay.address.port();
    for host in ["127.0.0.1", "localhost", "[::1]"] {
        for (path, to) in [
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
                let sent = relay.asked(&relay.at(host), path, browser).await;
                assert_eq!(sent.status(), 307, "{host} {path}");
                assert_eq!(location(&sent), to, "{host} {path}");
            }
        }
    }
    assert!(seen.try_recv().is_err(), "no head heard of it");
    // Another client than a browser, or an editor that is made of one.
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
            let served = relay.asked(&relay.at("127.0.0.1"), path, client).await;
            assert_eq!(served.status(), 200, "{client:?} {path}");
            assert_eq!(seen.recv().await.unwrap().method, "GET");
            // One that is a browser after all runs nothing of it.
            let policy = &served.headers()[CONTENT_SECURITY_POLICY];
            assert_eq!(policy, "sandbox; default-src 'none'");
        }
    }
}

#[tokio::test]
async fn dashboard_without_its_own_origin_is_refused() {
    let head = Untouched::new().await;
    let relay = Relay::start(&[("default", head.address)], |_| {}).await;
    for host in ["relay.example.com", "10.0.0.7:5678"] {
        let refused = relay.asked(host, "/", &OLD_BROWSER).await;
        assert_eq!(refused.status(), 403);
        let sentence = text(refused).await;
        assert!(sentence.contains("`http.dashboard_hosts`"), "{sentence}");
    }
    let set = |config: &mut Config| {
        config.http.dashboard_hosts = Some("{cluster}.ray.example.com".to_owned());
    };
    let relay = Relay::start(&[("default", head.address)], set).await;
    for (host, to) in [
        ("relay.example.com", "//default.ray.example.com/x?y"),
        (
            "relay.example.com:5678",
            "//default.ray.example.com:5678/x?y",
        ),
        ("10.0.0.7:5678", "//default.ray.example.com:5678/x?y"),
        ("127.0.0.1:5678", "//default.localhost:5678/x?y"),
    ] {
        let sent = relay.asked(host, "/x?y", &OLD_BROWSER).await;
        assert_eq!((sent.status().as_u16(), location(&sent)), (307, to));
    }
    head.check().await;
}

#[tokio::test]
async fn relay_origin_serves_no_dashboard_content() {
    let head = Untouched::new().await;
    let relay = Relay::start(&[("default", head.address)], |_| {}).await;
    let at = relay.at("localhost");
    for path in ["/", "/api/version", "/relay/clusters/default/x.js"] {
        let refused = relay.asked(&at, path, &SCRIPT).await;
        assert_eq!(refused.status(), 403, "{path}");
        assert!(text(refused).await.contains("only on its own origin"));
        let worker = [("service-worker", "script")];
        for host in [&at, &relay.at("default.localhost")] {
            let refused = relay.asked(host, path, &worker).await;
            assert_eq!(refused.status(), 403, "{host} {path}");
        }
    }
    let form = relay.request("POST", "/api/jobs/");
    let form = relay.sent(with_headers(form, &NAVIGATION)).await;
    assert_eq!(form.status(), 403);
    head.check().await;
}

#[tokio::test]
async fn dashboard_origin_serves_only_its_dashboard() {
    let (one, mut seen, _one) = telling(|| ok("one")).await;
    let (two, _, _two) = telling(|| ok("two")).await;
    let relay = Relay::start(&[("default", one), ("gpu-2", two)], |_| {}).await;
    relay.registry.insert(breakpoint("aa11"));
    let (first, second) = (relay.at("default.localhost"), relay.at("GPU-2.localhost."));
    for browser in [&NAVIGATION[..], &SCRIPT, &OLD_BROWSER, &[]] {
        for path in ["/", "/api/x?y"] {
            let served = relay.asked(&first, path, browser).await;
            assert_eq!(text(served).await, "one");
            assert_eq!(seen.recv().await.unwrap().uri, path);
            let served = relay.asked(&second, path, browser).await;
            assert_eq!(text(served).await, "two");
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
            let nothing = relay.asked(&first, path, browser).await;
            assert_eq!(nothing.status(), 404, "{path}");
            let sentence = text(nothing).await;
            assert!(
                sentence.contains("a dashboard's alone"),
                "{path}: {sentence}"
            );
        }
    }
    let unknown = relay
        .asked(&relay.at("other.localhost"), "/", &NAVIGATION)
        .await;
    assert_eq!(unknown.status(), 404);
    assert!(seen.try_recv().is_err());
}

/// `NAME.localhost` and `localhost` are the same site to some browsers, so cookies alone do not keep them apart.
#[tokio::test]
async fn scripts_on_a_dashboard_origin_reach_no_other() {
    let head = Untouched::new().await;
    let heads = [("default", head.address), ("other", head.address)];
    let relay = Relay::start(&heads, |_| {}).await;
    let origin = format!("http://{}", relay.at("default.localhost"));
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
                    let request = request.header(HOST, relay.at(host));
                    let fetch = [("origin", &*origin), ("sec-fetch-site", site)];
                    let refused = relay.sent(with_headers(request, &fetch)).await;
                    assert_eq!(refused.status(), 403, "{host} {method} {path}");
                    let headers = refused.headers();
                    assert!(!headers.contains_key("access-control-allow-origin"));
                }
            }
            let image = [
                ("sec-fetch-site", "same-site"),
                ("sec-fetch-mode", "no-cors"),
            ];
            let refused = relay.asked(&relay.at(host), path, &image).await;
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
            .asked(&relay.at(host), "/relay/v1/terminal", &socket)
            .await;
        assert_eq!(refused.status(), 403, "{host}");
    }
    head.check().await;
}

#[tokio::test]
async fn http2_authority_selects_the_origin() {
    let (address, _seen, _head) = telling(|| ok("page")).await;
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
        let uri = format!("http://{}{path}", relay.at(host));
        let request = with_headers(Request::builder().uri(uri), &NAVIGATION);
        let request = request.body(answer::empty()).unwrap();
        let response = send.send_request(request).await.unwrap();
        assert_eq!(response.status(), status, "{host}{path}");
    }
}

/// A client follows a redirect with its credential, and a 307 has it send its job again.
#[tokio::test]
async fn redirects_of_a_head_stay_on_its_origin() {
    let of = |location: &'static str| move || with(status(307), &[("location", location)]);
    let follow = async |location: &'static str, path: &str, host: Option<&str>| {
        let answer = of(location);
        let (address, _head) = head(move |_| async move { answer() }).await;
        let heads = [("default", address), ("evil", address)];
        let relay = Relay::start(&heads, |_| {}).await;
        let at = relay.at(host.unwrap_or("localhost"));
        let response = relay.asked(&at, path, &[]).await;
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
    let own = follow(
        "https://elsewhere.example.com/",
        "/",
        Some("evil.localhost"),
    )
    .await;
    assert_eq!(own.as_deref(), Some("https://elsewhere.example.com/"));
}
