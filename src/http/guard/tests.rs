#![allow(clippy::unwrap_used)]

use super::*;
use crate::config::Advertise;
use hyper::Request;

fn ask(
    method: &str,
    headers: &[(&str, &str)],
    change: impl FnOnce(&mut Config),
) -> Result<Reached, Refusal> {
    let mut request = Request::builder().method(method).uri("/");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let (parts, ()) = request.body(()).unwrap().into_parts();
    let mut config = crate::http::tests::config();
    change(&mut config);
    let table = Table::new(config.advertise.clone());
    check(&parts, &config, &table)
}

fn get(host: &str) -> Result<Reached, Refusal> {
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
            matches!(get(host), Err(Refusal::UnknownHost { .. })),
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
        assert_eq!(get(host), Err(Refusal::BadHost), "{host:?}");
    }
    assert_eq!(ask("GET", &[], |_| {}), Err(Refusal::NoHost));
    let twice = [("host", "127.0.0.1"), ("host", "127.0.0.1")];
    assert_eq!(ask("GET", &twice, |_| {}), Err(Refusal::NoHost));
}

#[test]
fn settings_let_hosts_in() {
    let evil = [("host", "any.example.com")];
    assert!(ask("GET", &evil, |config| config.listen.insecure_no_auth = true).is_ok());
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
            &Table::new(Advertise::Single),
        )
    };
    assert!(of("localhost:5678").is_ok());
    assert_eq!(of("evil.example.com"), Err(Refusal::NoHost));
}

#[test]
fn other_origins_may_only_read() {
    let host = ("host", "localhost:5678");
    for origin in [
        "http://evil.example.com",
        "http://localhost:3000",
        "https://localhost",
        "null",
        "file://",
    ] {
        let headers = [host, ("origin", origin)];
        assert_eq!(
            ask("POST", &headers, |_| {}),
            Err(Refusal::CrossOrigin),
            "{origin}"
        );
        assert!(ask("GET", &headers, |_| {}).is_ok(), "{origin}");
        let upgrade = [
            host,
            ("origin", origin),
            ("connection", "Upgrade"),
            ("upgrade", "websocket"),
        ];
        assert_eq!(
            ask("GET", &upgrade, |_| {}),
            Err(Refusal::CrossOrigin),
            "{origin}"
        );
    }
    assert!(ask("POST", &[host], |_| {}).is_ok());
    assert!(ask("POST", &[host, ("origin", "http://localhost:5678")], |_| {}).is_ok());
    let behind_tls = [
        ("host", "relay.example.com"),
        ("origin", "https://relay.example.com"),
    ];
    assert!(ask("POST", &behind_tls, |_| {}).is_ok());
}
