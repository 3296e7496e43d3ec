#![allow(clippy::unwrap_used)]

use super::*;
use crate::config::Advertise;
use hyper::Request;

fn ask(
    method: &str,
    headers: &[(&str, &str)],
    change: impl FnOnce(&mut Config),
) -> Result<ExternalAddress, GuardRefusal> {
    ask_for(method, "/", headers, change)
}

fn ask_for(
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
    check(&parts, &config, &table).map(|arrived| arrived.reached)
}

fn get(host: &str) -> Result<ExternalAddress, GuardRefusal> {
    ask("GET", &[("host", host)], |_| {})
}

#[test]
fn hosts_that_are_this_relay() {
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
fn hosts_that_are_not() {
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
    assert_eq!(ask("GET", &[], |_| {}), Err(GuardRefusal::NoHost));
    let twice = [("host", "127.0.0.1"), ("host", "127.0.0.1")];
    assert_eq!(ask("GET", &twice, |_| {}), Err(GuardRefusal::NoHost));
}

#[test]
fn settings_let_hosts_in() {
    let evil = [("host", "any.example.com")];
    assert!(
        ask("GET", &evil, |config| config.http.allowed_hosts =
            vec!["any.example.com".to_owned()])
        .is_ok()
    );
    let template = Advertise::Host("{id}.debug.example.com".to_owned());
    let named = [("host", "0123abcd.debug.example.com")];
    assert!(ask("GET", &named, |config| config.advertise = template.clone()).is_ok());
    assert!(ask("GET", &evil, |config| config.advertise = template).is_err());
}

#[test]
fn an_absolute_form_must_agree_with_the_host() {
    let of = |host: &str| {
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
    assert!(of("localhost:5678").is_ok());
    assert_eq!(of("evil.example.com"), Err(GuardRefusal::NoHost));
}

#[test]
fn an_open_port_is_open_to_no_other_name() {
    let evil = [("host", "any.example.com")];
    let refused = ask("GET", &evil, |config| {
        config.listen.insecure_no_auth = true;
        config.listen.address = ([0, 0, 0, 0], 5678).into();
    });
    let refusal = refused.unwrap_err();
    assert_eq!(refusal.status(), StatusCode::MISDIRECTED_REQUEST);
    assert!(refusal.to_string().contains("`http.allowed_hosts`"));
}

#[test]
fn a_leading_dot_lets_a_domain_in() {
    let under = |host: &str| {
        ask("GET", &[("host", host)], |config| {
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
fn other_origins_may_do_nothing() {
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
                ask(method, &headers, |_| {}),
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
            ask("GET", &upgrade, |_| {}),
            Err(GuardRefusal::CrossOrigin),
            "{origin}"
        );
    }
    assert!(ask("POST", &[host], |_| {}).is_ok());
    for method in ["GET", "POST"] {
        let own = [host, ("origin", "http://localhost:5678")];
        assert!(ask(method, &own, |_| {}).is_ok());
    }
    let behind_tls = [
        ("host", "relay.example.com"),
        ("origin", "https://relay.example.com"),
    ];
    assert!(ask("POST", &behind_tls, |_| {}).is_ok());
}

/// What a browser says of a request that a page of another site has it send.
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
    ask_for(method, path, &headers, |_| {})
}

#[test]
fn a_page_of_another_site_may_only_link_to_the_dashboard() {
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
        // Links to what does something.
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
fn the_dashboards_own_page_and_typed_addresses_may_ask_for_anything() {
    for path in ["/", "/api/actors/kill", "/relay/v1/breakpoints"] {
        assert!(fetch("GET", path, "none", "navigate", "document").is_ok());
        assert!(fetch("GET", path, "same-origin", "cors", "empty").is_ok());
        assert!(fetch("POST", path, "same-origin", "cors", "empty").is_ok());
        // fetch of Node, as in an extension of VS Code.
        let node = [("host", "localhost:5678"), ("sec-fetch-mode", "cors")];
        assert!(ask_for("GET", path, &node, |_| {}).is_ok());
    }
    // Added by nothing that is well: one bad word is enough.
    let both = [
        ("host", "localhost"),
        ("sec-fetch-site", "same-origin"),
        ("sec-fetch-site", "cross-site"),
    ];
    assert_eq!(ask("GET", &both, |_| {}), Err(GuardRefusal::CrossOrigin));
}
