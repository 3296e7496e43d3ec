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
        let found = variables
            .iter()
            .find(|(variable_name, _)| *variable_name == name);
        found.map(|(_, text)| (*text).to_owned())
    })
}

async fn proxy_for(variables: &[(&'static str, &str)], uri: &str) -> Option<String> {
    let uri: Uri = uri.parse().unwrap();
    let found = environment(variables).towards(&uri).await.unwrap();
    found.map(|proxy| format!("{proxy} by {}", proxy.variable()))
}

#[tokio::test]
async fn environment_selects_the_proxy_of_each_server() {
    let variables = [
        ("HTTPS_PROXY", "http://ada:secret@proxy:3128"),
        ("http_proxy", "other"),
        ("NO_PROXY", ".internal,10.0.0.0/8,exact:444"),
    ];
    let proxied = |name: &str| Some(name.to_owned());
    for (uri, expected) in [
        (
            "https://relay.example.com",
            proxied("proxy:3128 by HTTPS_PROXY"),
        ),
        (
            "http://relay.example.com:5678",
            proxied("other:80 by http_proxy"),
        ),
        ("https://exact:443", proxied("proxy:3128 by HTTPS_PROXY")),
        ("https://exact:444", None),
        ("https://relay.internal", None),
        ("https://10.1.2.3", None),
        ("http://10.1.2.3", None),
        ("https://localhost", None),
        ("https://a.LOCALHOST:1", None),
        ("http://127.9.9.9", None),
        ("https://[::1]:443", None),
    ] {
        assert_eq!(proxy_for(&variables, uri).await, expected, "{uri}");
    }
    for (variables, expected) in [
        (
            &[("ALL_PROXY", "http://[fd88::1]:1")][..],
            proxied("[fd88::1]:1 by ALL_PROXY"),
        ),
        (&[("all_proxy", "HTTP://p")], proxied("p:80 by all_proxy")),
        (
            &[("HTTPS_PROXY", " "), ("https_proxy", "p:2")],
            proxied("p:2 by https_proxy"),
        ),
        (&[("HTTP_PROXY", "http://p")], None),
        (&[], None),
        (&[("ALL_PROXY", "p"), ("no_proxy", "*")], None),
    ] {
        assert_eq!(
            proxy_for(variables, "https://192.0.2.1").await,
            expected,
            "{variables:?}"
        );
    }
}

/// In a Kubernetes pod, `NO_PROXY` lists the cluster's networks.
#[tokio::test]
async fn name_is_resolved_for_excepted_networks() {
    // The host name may resolve to loopback, but is not `localhost`.
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let uri: Uri = format!("http://{}:1", name.trim()).parse().unwrap();
    let addresses = tokio::net::lookup_host((name.trim(), 1)).await;
    let Some(address) = addresses.ok().and_then(|mut all| all.next()) else {
        return;
    };
    let network = match address.ip().is_loopback() {
        // With loopback networks alone the name would not be resolved.
        true => "192.0.2.1,127.0.0.0/8,::1".to_owned(),
        false => format!("{}/24", address.ip()),
    };
    let within = environment(&[("HTTP_PROXY", "p"), ("NO_PROXY", &network)]);
    assert!(within.towards(&uri).await.unwrap().is_none());
    assert!(
        within
            .routes(&uri)
            .await
            .unwrap()
            .contains(&DialRoute::Direct(address))
    );
    let other_network = environment(&[("HTTP_PROXY", "p"), ("NO_PROXY", "192.0.2.0/24")]);
    assert_eq!(
        other_network.routes(&uri).await.unwrap(),
        [DialRoute::Proxy]
    );
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

async fn read_connect_request(listener: &TcpListener) -> (TcpStream, String) {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut read_connect_request = Vec::new();
    while !read_connect_request.ends_with(b"\r\n\r\n") {
        stream.read_buf(&mut read_connect_request).await.unwrap();
    }
    (stream, String::from_utf8(read_connect_request).unwrap())
}

#[tokio::test]
async fn proxy_tunnel_passes_bytes_after_connect() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    for (uri, target) in [
        ("http://relay.example.com:5678", "relay.example.com:5678"),
        ("http://[fd88::1]:80", "[fd88::1]:80"),
    ] {
        let serve = async {
            let (mut stream, read_connect_request) = read_connect_request(&listener).await;
            assert!(
                read_connect_request.starts_with(&format!("CONNECT {target} HTTP/1.1\r\n")),
                "{read_connect_request}"
            );
            assert!(read_connect_request.contains("proxy-authorization: Basic YWRhOnNlY3JldA=="));
            stream
                .write_all(b"HTTP/1.1 200 OK\r\n\r\nhello")
                .await
                .unwrap();
            stream
        };
        let (tunnel, _proxy_side) = tokio::join!(through(&listener, uri), serve);
        let mut received = [0; 5];
        tunnel.unwrap().read_exact(&mut received).await.unwrap();
        assert_eq!(&received, b"hello");
    }
}

#[tokio::test]
async fn failed_proxy_connect_is_reported() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    for (answer, expected_message, hint, is_behind) in [
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
            let (mut stream, _) = read_connect_request(&listener).await;
            stream.write_all(answer.as_bytes()).await.unwrap();
        };
        let (error, ()) = tokio::join!(through(&listener, "https://relay"), serve);
        let Err(DialError::Proxy(error)) = error else {
            panic!("{answer}");
        };
        let message = error.to_string();
        assert!(
            message.contains(&format!("the proxy {address} {expected_message}")),
            "{message}"
        );
        assert!(error.hint().contains(hint), "{}", error.hint());
        assert!(error.hint().contains("NO_PROXY"), "{}", error.hint());
        assert_eq!(error.is_behind(), is_behind, "{message}");
        assert!(
            !format!("{error:?} {message}").contains("secret"),
            "{message}"
        );
    }
    // Reserve the port, so that no other process listens there.
    let reserved = TcpSocket::new_v4().unwrap();
    reserved.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = reserved.local_addr().unwrap();
    let tls = trusting(Roots::None).unwrap().with_no_client_auth();
    let proxies = environment(&[("HTTPS_PROXY", &address.to_string())]);
    let connector = Connector::new(tls, Duration::from_secs(5), proxies);
    let error = connector.connect(&"https://relay".parse().unwrap()).await;
    let message = error.err().unwrap().to_string();
    assert!(message.starts_with(&format!(
        "cannot reach the proxy {address}: Connection refused"
    )));
}

/// No server answers in this test.
#[tokio::test(start_paused = true)]
async fn unresponsive_server_times_out_at_every_step() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let connect_error = async |uri: String, via_proxy: bool| {
        let tls = trusting(Roots::None).unwrap().with_no_client_auth();
        let address = listener.local_addr().unwrap().to_string();
        let proxies = match via_proxy {
            true => environment(&[("ALL_PROXY", &address)]),
            false => Proxies::none(),
        };
        let connector = Connector::new(tls, Duration::from_secs(5), proxies);
        let result = connector.connect(&uri.parse().unwrap()).await;
        result.err().unwrap().to_string()
    };
    let proxy_error = connect_error("http://relay".to_owned(), true).await;
    assert!(
        proxy_error.ends_with("opens no tunnel: no answer within 10 s"),
        "{proxy_error}"
    );
    let url = format!("https://{}", listener.local_addr().unwrap());
    assert_eq!(
        connect_error(url, false).await,
        "no TLS handshake within 10 s"
    );
}

/// With the system's default keepalive, a lost server would be noticed after eleven minutes.
#[tokio::test]
async fn lost_server_is_noticed_within_30_s() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let tls = trusting(Roots::None).unwrap().with_no_client_auth();
    let connector = Connector::new(tls, Duration::from_secs(5), Proxies::none());
    let uri: Uri = format!("http://{address}").parse().unwrap();
    for result in [
        connector.connect(&uri).await,
        connector.connect_by(DialRoute::Direct(address), &uri).await,
    ] {
        let stream = result.unwrap();
        let socket = SockRef::from(stream.tcp().unwrap());
        let (idle, probe) = (
            socket.tcp_keepalive_time().unwrap(),
            socket.tcp_keepalive_interval().unwrap(),
        );
        let lost_after = idle + probe * socket.tcp_keepalive_retries().unwrap();
        assert!(socket.keepalive().unwrap() && lost_after <= Duration::from_secs(30));
    }
}

/// client-go ignores the environment if the kubeconfig names a proxy.
#[tokio::test]
async fn explicit_proxy_applies_to_every_server() {
    let proxies = Proxies::from_text("proxy-url", "http://ada:secret@proxy:3128");
    for uri in [
        "https://api.example.com",
        "http://localhost:1",
        "https://[::1]",
    ] {
        let proxy = proxies
            .towards(&uri.parse().unwrap())
            .await
            .unwrap()
            .unwrap();
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
