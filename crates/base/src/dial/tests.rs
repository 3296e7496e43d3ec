#![allow(clippy::unwrap_used)]

use std::time::Duration;

use hyper::Uri;
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use super::http::{Roots, trusting};
use super::*;

fn environment(variables: &[(&'static str, &str)]) -> Proxies {
    Proxies::of(|name| {
        let found = variables.iter().find(|(known, _)| *known == name);
        found.map(|(_, text)| (*text).to_owned())
    })
}

async fn towards(variables: &[(&'static str, &str)], uri: &str) -> Option<String> {
    let uri: Uri = uri.parse().unwrap();
    let found = environment(variables).towards(&uri).await.unwrap();
    found.map(|proxy| format!("{proxy} by {}", proxy.variable()))
}

#[tokio::test]
async fn environment_selects_the_proxy_of_each_server() {
    let both = [
        ("HTTPS_PROXY", "http://ada:secret@proxy:3128"),
        ("http_proxy", "other"),
        ("NO_PROXY", ".internal,10.0.0.0/8,exact:444"),
    ];
    let by = |name: &str| Some(name.to_owned());
    for (uri, expected) in [
        ("https://relay.example.com", by("proxy:3128 by HTTPS_PROXY")),
        (
            "http://relay.example.com:5678",
            by("other:80 by http_proxy"),
        ),
        ("https://exact:443", by("proxy:3128 by HTTPS_PROXY")),
        ("https://exact:444", None),
        ("https://relay.internal", None),
        ("https://10.1.2.3", None),
        ("http://10.1.2.3", None),
        ("https://localhost", None),
        ("https://a.LOCALHOST:1", None),
        ("http://127.9.9.9", None),
        ("https://[::1]:443", None),
    ] {
        assert_eq!(towards(&both, uri).await, expected, "{uri}");
    }
    for (variables, expected) in [
        (
            &[("ALL_PROXY", "http://[fd88::1]:1")][..],
            by("[fd88::1]:1 by ALL_PROXY"),
        ),
        (&[("all_proxy", "HTTP://p")], by("p:80 by all_proxy")),
        (
            &[("HTTPS_PROXY", " "), ("https_proxy", "p:2")],
            by("p:2 by https_proxy"),
        ),
        (&[("HTTP_PROXY", "http://p")], None),
        (&[], None),
        (&[("ALL_PROXY", "p"), ("no_proxy", "*")], None),
    ] {
        assert_eq!(
            towards(variables, "https://192.0.2.1").await,
            expected,
            "{variables:?}"
        );
    }
}

/// A name whose address is excepted, as `NO_PROXY` in a Kubernetes pod has the cluster's networks.
#[tokio::test]
async fn name_is_resolved_for_excepted_networks() {
    // It has the address of loopback, but is no name of this machine by itself.
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let uri: Uri = format!("http://{}:1", name.trim()).parse().unwrap();
    let addresses = tokio::net::lookup_host((name.trim(), 1)).await;
    let Some(own) = addresses.ok().and_then(|mut all| all.next()) else {
        return;
    };
    let network = match own.ip().is_loopback() {
        // Loopback alone would be no reason to look it up.
        true => "192.0.2.1,127.0.0.0/8,::1".to_owned(),
        false => format!("{}/24", own.ip()),
    };
    let within = environment(&[("HTTP_PROXY", "p"), ("NO_PROXY", &network)]);
    assert!(within.towards(&uri).await.unwrap().is_none());
    assert!(
        within
            .routes(&uri)
            .await
            .unwrap()
            .contains(&DialRoute::Direct(own))
    );
    let elsewhere = environment(&[("HTTP_PROXY", "p"), ("NO_PROXY", "192.0.2.0/24")]);
    assert_eq!(elsewhere.routes(&uri).await.unwrap(), [DialRoute::Proxy]);
}

#[tokio::test]
async fn unsupported_proxy_is_refused_without_its_secret() {
    for (text, found) in [
        ("socks5://ada:secret@proxy", " but socks5://"),
        ("https://ada:secret@proxy", " but https://"),
        ("http://ada:secret@", ""),
        ("http://ada:se cret@proxy", ""),
        ("http://:3128", ""),
        ("?", ""),
    ] {
        let proxies = environment(&[("ALL_PROXY", text)]);
        let refused = proxies.towards(&"https://relay".parse().unwrap()).await;
        let refused = refused.err().unwrap();
        assert_eq!(
            refused.to_string(),
            format!("ALL_PROXY names no http proxy{found}")
        );
        assert!(
            refused
                .hint()
                .contains("write ALL_PROXY as http://HOST:PORT")
        );
        assert!(!format!("{refused:?}{}", refused.hint()).contains("ecret"));
    }
}

/// Connects to `uri` through a proxy at the other end of `listener`.
async fn through(listener: &TcpListener, uri: &str) -> Result<Stream, DialError> {
    let proxy = format!("http://ada:secret@{}", listener.local_addr().unwrap());
    let tls = trusting(Roots::None).unwrap().with_no_client_auth();
    let proxies = environment(&[("ALL_PROXY", &proxy)]);
    let connector = Connector::new(tls, Duration::from_secs(5), proxies);
    connector.connect(&uri.parse().unwrap()).await
}

async fn asked(listener: &TcpListener) -> (TcpStream, String) {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut asked = Vec::new();
    while !asked.ends_with(b"\r\n\r\n") {
        stream.read_buf(&mut asked).await.unwrap();
    }
    (stream, String::from_utf8(asked).unwrap())
}

#[tokio::test]
async fn proxy_tunnel_passes_bytes_after_connect() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    for (uri, target) in [
        ("http://relay.example.com:5678", "relay.example.com:5678"),
        ("http://[fd88::1]:80", "[fd88::1]:80"),
    ] {
        let serve = async {
            let (mut stream, asked) = asked(&listener).await;
            assert!(
                asked.starts_with(&format!("CONNECT {target} HTTP/1.1\r\n")),
                "{asked}"
            );
            assert!(asked.contains("proxy-authorization: Basic YWRhOnNlY3JldA=="));
            stream
                .write_all(b"HTTP/1.1 200 OK\r\n\r\nhello")
                .await
                .unwrap();
            stream
        };
        let (tunnel, _kept) = tokio::join!(through(&listener, uri), serve);
        let mut heard = [0; 5];
        tunnel.unwrap().read_exact(&mut heard).await.unwrap();
        assert_eq!(&heard, b"hello");
    }
}

#[tokio::test]
async fn failed_proxy_connect_is_reported() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    for (answer, says, hint, behind) in [
        (
            "HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n",
            "answers 407 Proxy Authentication Required when asked for relay:443",
            "ALL_PROXY as http://USER:PASSWORD@HOST:PORT",
            false,
        ),
        (
            "HTTP/1.1 403 Go away secret\r\ncontent-length: 6\r\n\r\nsecret",
            "answers 403 Forbidden when asked for relay:443",
            "does the proxy allow",
            false,
        ),
        (
            "HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n",
            "answers 503 Service Unavailable",
            "is the address right",
            true,
        ),
        (
            "SSH-2.0-x\r\n",
            "opens no tunnel: ",
            "is ALL_PROXY right",
            false,
        ),
        ("", "opens no tunnel: ", "is ALL_PROXY right", false),
    ] {
        let serve = async {
            let (mut stream, _) = asked(&listener).await;
            stream.write_all(answer.as_bytes()).await.unwrap();
        };
        let (refused, ()) = tokio::join!(through(&listener, "https://relay"), serve);
        let Err(DialError::Proxy(refused)) = refused else {
            panic!("{answer}");
        };
        let told = refused.to_string();
        assert!(
            told.contains(&format!("the proxy {address} {says}")),
            "{told}"
        );
        assert!(refused.hint().contains(hint), "{}", refused.hint());
        assert!(refused.hint().contains("NO_PROXY"), "{}", refused.hint());
        assert_eq!(refused.is_behind(), behind, "{told}");
        assert!(!format!("{refused:?} {told}").contains("secret"), "{told}");
    }
    // Taken, so that no other process listens there meanwhile.
    let taken = TcpSocket::new_v4().unwrap();
    taken.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = taken.local_addr().unwrap();
    let tls = trusting(Roots::None).unwrap().with_no_client_auth();
    let proxies = environment(&[("HTTPS_PROXY", &address.to_string())]);
    let connector = Connector::new(tls, Duration::from_secs(5), proxies);
    let refused = connector.connect(&"https://relay".parse().unwrap()).await;
    let told = refused.err().unwrap().to_string();
    assert!(told.starts_with(&format!(
        "cannot reach the proxy {address}: Connection refused"
    )));
}

/// Every step has a deadline: no server answers in this one.
#[tokio::test(start_paused = true)]
async fn unresponsive_server_times_out_at_every_step() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let late = async |uri: String, by: bool| {
        let tls = trusting(Roots::None).unwrap().with_no_client_auth();
        let address = listener.local_addr().unwrap().to_string();
        let proxies = match by {
            true => environment(&[("ALL_PROXY", &address)]),
            false => Proxies::none(),
        };
        let connector = Connector::new(tls, Duration::from_secs(5), proxies);
        let given_up = connector.connect(&uri.parse().unwrap()).await;
        given_up.err().unwrap().to_string()
    };
    let of_proxy = late("http://relay".to_owned(), true).await;
    assert!(
        of_proxy.ends_with("opens no tunnel: no answer within 10 s"),
        "{of_proxy}"
    );
    let own = format!("https://{}", listener.local_addr().unwrap());
    assert_eq!(late(own, false).await, "no TLS handshake within 10 s");
}

/// A laptop that changes its network while a command waits for an answer: by the system's own settings, that takes eleven minutes.
#[tokio::test]
async fn lost_server_is_noticed_within_30_s() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let tls = trusting(Roots::None).unwrap().with_no_client_auth();
    let connector = Connector::new(tls, Duration::from_secs(5), Proxies::none());
    let uri: Uri = format!("http://{address}").parse().unwrap();
    for made in [
        connector.connect(&uri).await,
        connector.connect_by(DialRoute::Direct(address), &uri).await,
    ] {
        let stream = made.unwrap();
        let socket = SockRef::from(stream.tcp().unwrap());
        let (idle, probe) = (
            socket.tcp_keepalive_time().unwrap(),
            socket.tcp_keepalive_interval().unwrap(),
        );
        let noticed = idle + probe * socket.tcp_keepalive_retries().unwrap();
        assert!(socket.keepalive().unwrap() && noticed <= Duration::from_secs(30));
    }
}

/// As a kubeconfig names one: client-go looks at nothing else then.
#[tokio::test]
async fn explicit_proxy_applies_to_every_server() {
    let given = Proxies::from_text("proxy-url", "http://ada:secret@proxy:3128");
    for uri in [
        "https://api.example.com",
        "http://localhost:1",
        "https://[::1]",
    ] {
        let proxy = given.towards(&uri.parse().unwrap()).await.unwrap().unwrap();
        assert_eq!(
            (&*proxy.to_string(), proxy.variable()),
            ("proxy:3128", "proxy-url")
        );
    }
    let other = Proxies::from_text("proxy-url", "socks5://ada:secret@proxy");
    let refused = other.towards(&"https://api".parse().unwrap()).await.err();
    assert_eq!(
        refused.unwrap().to_string(),
        "proxy-url names no http proxy but socks5://"
    );
}
