#![allow(clippy::unwrap_used)]

use super::*;
use hyper::Request;
use ray_relay_base::config::Advertise;

fn check_request(
    method: &str,
    headers: &[(&str, &str)],
    change: impl FnOnce(&mut Config),
) -> Result<ExternalAddress, GuardRefusal> {
    check_request_for(method, "/", headers, change)
}

fn check_request_for(
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    change: impl FnOnce(&mut Config),
) -> Result<ExternalAddress, GuardRefusal> {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let (parts, ()) = request.body(()).unwrap().into_parts();
    let mut config = crate::http::tests::config();
    change(&mut config);
    let table = AdvertisedAddresses::new(config.advertise.clone());
    check(&parts, &config, &table).map(|checked| checked.reached)
}

fn get(host: &str) -> Result<ExternalAddress, GuardRefusal> {
    check_request("GET", &[("host", host)], |_| {})
}

#[test]
fn own_hosts_are_accepted() {
    for host in [
        "127.0.0.1:5678",
        "0x7f.0.0x0.01:5678",
        "[::1]:5678",
        "10.1.2.3",
        "localhost:1",
        "LOCALHOST",
        "ray.localhost",
        "Relay.Example.Com:5678",
        "relay.example.com.",
    ] {
        assert!(get(host).is_ok(), "{host}");
    }
    assert_eq!(get("0x7f.0.0x0.01:9").unwrap().host, "127.0.0.1");
}

#[test]
fn foreign_hosts_are_refused() {
    for host in [
        "evil.example.com",
        "localhost.evil.com",
        "127.0.0.1.evil.com",
        "xlocalhost",
        "sub.relay.example.com",
    ] {
        assert!(
            matches!(get(host), Err(GuardRefusal::UnknownHost { .. })),
            "{host}"
        );
    }
    for host in [
        "",
        "a b",
        "user@127.0.0.1",
        "127.0.0.1:x",
        "127.0.0.1, 127.0.0.1",
    ] {
        assert_eq!(get(host), Err(GuardRefusal::BadHost), "{host:?}");
    }
    assert_eq!(check_request("GET", &[], |_| {}), Err(GuardRefusal::NoHost));
    let headers = [("host", "127.0.0.1"), ("host", "127.0.0.1")];
    assert_eq!(
        check_request("GET", &headers, |_| {}),
        Err(GuardRefusal::NoHost)
    );
}

/// Browsers connect to this machine for these hosts, and send no origin of the page.
#[test]
fn address_aliases_are_refused_as_hosts() {
    for host in [
        "0.0.0.0:5678",
        "0",
        "0x0:5678",
        "00.0",
        "0.0.0.1",
        "[::]:5678",
        "[::ffff:127.0.0.1]:5678",
        "[::ffff:7f00:1]",
        "[0:0:0:0:0:ffff:10.0.0.7]",
        "[::127.0.0.1]",
        "[::ffff:0:127.0.0.1]",
        "[::2]",
        "[64:ff9b::127.0.0.1]",
        "[64:ff9b::0.0.0.0]",
        "[2002:7f00:1::]",
    ] {
        let refused = get(host).unwrap_err();
        assert!(
            matches!(refused, GuardRefusal::EmbeddedHost { .. }),
            "{host}: {refused}"
        );
        assert_eq!(refused.status(), StatusCode::MISDIRECTED_REQUEST);
        let allowed = check_request("GET", &[("host", host)], |config| {
            config.http.allowed_hosts =
                vec![host.to_owned(), "0.0.0.0".to_owned(), "::".to_owned()];
        });
        assert_eq!(allowed, Err(refused), "{host}");
    }
    for host in [
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f.1",
        "127.0.0.2",
        "[::1]:5678",
        "10.0.0.7",
        "[fd00::7f00:1]",
        "[64:ff9b::10.0.0.7]",
        "[2002:a00:7::1]",
    ] {
        assert!(get(host).is_ok(), "{host}");
    }
}

/// Headers by which a browser is recognised.
const BROWSER: [(&str, &str); 4] = [
    (
        "user-agent",
        "Mozilla/5.0 (X11; Linux x86_64; rv:153.0) Gecko/20100101 Firefox/153.0",
    ),
    ("accept-language", "en-US,en;q=0.9"),
    ("referer", "http://evil.example.com/"),
    ("origin", "http://10.0.0.7:5678"),
];

#[test]
fn browser_writes_must_name_their_origin() {
    let host = ("host", "10.0.0.7:5678");
    for (method, path) in [
        ("POST", "/relay/v1/release"),
        ("POST", "/api/jobs/"),
        ("POST", "/api/task_events/query"),
        ("PUT", "/api/serve/applications/"),
        ("DELETE", "/api/jobs/x"),
        ("OPTIONS", "/api/jobs/"),
        ("GET", "/api/actors/kill?actor_id=1"),
        ("GET", "/relay/clusters/b/api/actors/kill?actor_id=1"),
        ("HEAD", "/worker/traceback"),
        ("GET", "/relay/clusters/b//worker/%74raceback"),
        ("GET", "/api/data/datasets/1"),
    ] {
        let check_headers = |headers: &[(&str, &str)]| {
            let headers = [&[host][..], headers].concat();
            check_request_for(method, path, &headers, |_| {})
        };
        // Programs other than browsers need no origin.
        assert!(
            check_headers(&[("user-agent", "curl/8.5.0"), ("accept", "*/*")]).is_ok(),
            "{path}"
        );
        let node = [
            ("user-agent", "node"),
            ("accept-language", "*"),
            ("sec-fetch-mode", "cors"),
        ];
        assert!(check_headers(&node).is_ok(), "{path}");
        for mark in &BROWSER[..3] {
            assert_eq!(
                check_headers(&[*mark]),
                Err(GuardRefusal::UnknownPage),
                "{path} {mark:?}"
            );
            for proof in [
                ("origin", "http://10.0.0.7:5678"),
                ("sec-fetch-site", "same-origin"),
            ] {
                assert!(
                    check_headers(&[*mark, proof]).is_ok(),
                    "{path} {mark:?} {proof:?}"
                );
            }
        }
        let browser = &BROWSER[..2];
        for (name, value) in [
            // A typed address, or a link in another program.
            ("sec-fetch-site", "none"),
            ("referer", "http://10.0.0.7:5679/"),
            ("referer", "http://10.0.0.7:5678.evil.example.com/"),
            ("referer", "http://evil.example.com/http://10.0.0.7:5678/"),
            ("referer", "10.0.0.7:5678"),
        ] {
            let headers = [browser, &[(name, value)]].concat();
            assert_eq!(
                check_headers(&headers),
                Err(GuardRefusal::UnknownPage),
                "{path} {value}"
            );
        }
        for referer in [
            "http://10.0.0.7:5678/",
            "http://10.0.0.7:5678/relay/?x#y",
            "http://10.0.0.7:5678",
        ] {
            assert!(
                check_headers(&[browser, &[("referer", referer)]].concat()).is_ok(),
                "{path} {referer}"
            );
        }
        let headers = [browser, &[("origin", "http://evil.example.com")]].concat();
        assert_eq!(
            check_headers(&headers),
            Err(GuardRefusal::CrossOrigin),
            "{path}"
        );
    }
    // WebSockets need a proof of origin too, except for one read-only socket of Ray.
    let socket = [("connection", "upgrade"), ("upgrade", "websocket")];
    for (path, refused) in [
        ("/relay/v1/terminal", true),
        ("/api/jobs/x", true),
        ("/api/jobs/x/logs/tail", false),
    ] {
        let headers = [&[host][..], &BROWSER[..2], &socket[..]].concat();
        assert_eq!(
            check_request_for("GET", path, &headers, |_| {}).is_err(),
            refused,
            "{path}"
        );
    }
    // Read-only requests need no proof of origin.
    for path in [
        "/",
        "/relay/",
        "/relay/v1/breakpoints",
        "/api/version",
        "/api/jobs/",
        "/static/js/main.js",
    ] {
        let headers = [&[host][..], &BROWSER[..3]].concat();
        assert!(
            check_request_for("GET", path, &headers, |_| {}).is_ok(),
            "{path}"
        );
    }
}

#[test]
fn configured_hosts_are_accepted() {
    let headers = [("host", "any.example.com")];
    assert!(
        check_request("GET", &headers, |config| config.http.allowed_hosts =
            vec!["any.example.com".to_owned()])
        .is_ok()
    );
    let template = Advertise::Host("{id}.debug.example.com".to_owned());
    let by_id = [("host", "0123abcd.debug.example.com")];
    assert!(check_request("GET", &by_id, |config| config.advertise = template.clone()).is_ok());
    assert!(check_request("GET", &headers, |config| config.advertise = template).is_err());
}

#[test]
fn absolute_form_must_match_the_host() {
    let check_host = |host: &str| {
        let request = Request::get("http://localhost:5678/")
            .header("host", host)
            .body(())
            .unwrap();
        check(
            &request.into_parts().0,
            &crate::http::tests::config(),
            &AdvertisedAddresses::new(Advertise::Single),
        )
    };
    assert!(check_host("localhost:5678").is_ok());
    assert_eq!(check_host("evil.example.com"), Err(GuardRefusal::NoHost));
}

#[test]
fn open_port_still_refuses_unknown_hosts() {
    let headers = [("host", "any.example.com")];
    let refused = check_request("GET", &headers, |config| {
        config.listen.insecure_no_auth = true;
        config.listen.address = ([0, 0, 0, 0], 5678).into();
    });
    let refusal = refused.unwrap_err();
    assert_eq!(refusal.status(), StatusCode::MISDIRECTED_REQUEST);
    assert!(refusal.to_string().contains("`http.allowed_hosts`"));
}

#[test]
fn leading_dot_allows_a_domain() {
    let under = |host: &str| {
        check_request("GET", &[("host", host)], |config| {
            config.http.allowed_hosts = vec![".svc.cluster.local".to_owned()];
        })
    };
    for host in ["relay.ray.svc.cluster.local:5678", "A.SVC.cluster.local"] {
        assert!(under(host).is_ok(), "{host}");
    }
    for host in [
        "svc.cluster.local",
        "evilsvc.cluster.local",
        "svc.cluster.local.evil.com",
        "cluster.local",
    ] {
        assert!(under(host).is_err(), "{host}");
    }
}

#[test]
fn foreign_origins_are_refused() {
    let host = ("host", "localhost:5678");
    for origin in [
        "http://evil.example.com",
        "http://localhost:3000",
        "https://localhost",
        "null",
        "file://",
    ] {
        let headers = [host, ("origin", origin)];
        for method in ["GET", "HEAD", "OPTIONS", "POST", "DELETE"] {
            assert_eq!(
                check_request(method, &headers, |_| {}),
                Err(GuardRefusal::CrossOrigin),
                "{method} {origin}"
            );
        }
        let upgrade = [
            host,
            ("origin", origin),
            ("connection", "Upgrade"),
            ("upgrade", "websocket"),
        ];
        assert_eq!(
            check_request("GET", &upgrade, |_| {}),
            Err(GuardRefusal::CrossOrigin),
            "{origin}"
        );
    }
    assert!(check_request("POST", &[host], |_| {}).is_ok());
    for method in ["GET", "POST"] {
        let headers = [host, ("origin", "http://localhost:5678")];
        assert!(check_request(method, &headers, |_| {}).is_ok());
    }
    let behind_tls = [
        ("host", "relay.example.com"),
        ("origin", "https://relay.example.com"),
    ];
    assert!(check_request("POST", &behind_tls, |_| {}).is_ok());
}

/// Checks a request with the `Sec-Fetch` headers of a browser.
fn fetch(
    method: &str,
    path: &str,
    site: &'static str,
    mode: &'static str,
    dest: &'static str,
) -> Result<ExternalAddress, GuardRefusal> {
    let headers = [
        ("host", "localhost:5678"),
        ("sec-fetch-site", site),
        ("sec-fetch-mode", mode),
        ("sec-fetch-dest", dest),
    ];
    check_request_for(method, path, &headers, |_| {})
}

#[test]
fn cross_site_page_may_only_navigate_to_the_dashboard() {
    for site in ["cross-site", "same-site", "whatever-comes-next"] {
        for path in [
            "/",
            "/?x=1",
            "/relay/",
            "/relay/clusters/b",
            "/relay/clusters/b/",
        ] {
            assert!(
                fetch("GET", path, site, "navigate", "document").is_ok(),
                "{site} {path}"
            );
            for (method, mode, dest) in [
                ("GET", "no-cors", "image"),
                ("GET", "cors", "empty"),
                ("GET", "navigate", "iframe"),
                ("POST", "navigate", "document"),
                ("HEAD", "no-cors", "empty"),
            ] {
                assert_eq!(
                    fetch(method, path, site, mode, dest),
                    Err(GuardRefusal::CrossOrigin),
                    "{site} {method} {path} {mode} {dest}"
                );
            }
        }
        // Links with side effects.
        for path in [
            "/api/actors/kill?actor_id=1&force_kill=true",
            "//api/actors/kill",
            "/./",
            "/index.html",
            "/worker/cpu_profile?pid=1",
            "/task/traceback",
            "/log_proxy?url=http://10.0.0.1",
            "/relay/v1/breakpoints",
            "/relay/page/main.js",
            "/relay/metrics",
            "/relay/clusters/b/api/actors/kill",
            "/relay/clusters/b//",
        ] {
            assert_eq!(
                fetch("GET", path, site, "navigate", "document"),
                Err(GuardRefusal::CrossOrigin),
                "{site} {path}"
            );
        }
    }
}

#[test]
fn same_origin_and_direct_requests_are_accepted() {
    for path in ["/", "/api/actors/kill", "/relay/v1/breakpoints"] {
        assert!(fetch("GET", path, "none", "navigate", "document").is_ok());
        assert!(fetch("GET", path, "same-origin", "cors", "empty").is_ok());
        assert!(fetch("POST", path, "same-origin", "cors", "empty").is_ok());
        // The fetch of Node, for example in a VS Code extension.
        let node = [("host", "localhost:5678"), ("sec-fetch-mode", "cors")];
        assert!(check_request_for("GET", path, &node, |_| {}).is_ok());
    }
    // No regular client repeats this header, so one cross-site value is enough to refuse.
    let headers = [
        ("host", "localhost"),
        ("sec-fetch-site", "same-origin"),
        ("sec-fetch-site", "cross-site"),
    ];
    assert_eq!(
        check_request("GET", &headers, |_| {}),
        Err(GuardRefusal::CrossOrigin)
    );
}
