//! The HTTP proxy on the way to a relay, as the environment names it: `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY`, and what
//! `NO_PROXY` excepts. Whatever goes to the relay goes through it as through a tunnel (CONNECT).

use std::fmt;

use http_body_util::Empty;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{HOST, HeaderValue, PROXY_AUTHORIZATION, USER_AGENT};
use hyper::upgrade::Upgraded;
use hyper::{Request, Uri};
use hyper_util::client::proxy::matcher::Matcher;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::relay_token::is_this_machine;
use crate::wire::http_client;
use crate::wire::relay_url::RelayUrl;

/// A proxy that speaks plain HTTP. `Display` shows its address alone.
pub(super) struct Proxy {
    host: String,
    port: u16,
    authorization: Option<HeaderValue>,
}

impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// The proxy on the way to `relay`; `None`: it is reached directly, as this machine always is.
///
/// # Errors
/// Where the proxy is of a kind that is not spoken here, as a sentence.
pub(super) fn towards(relay: &RelayUrl) -> Result<Option<Proxy>, String> {
    if is_this_machine(relay.host()) {
        return Ok(None);
    }
    of(&Matcher::from_env(), relay)
}

fn of(environment: &Matcher, relay: &RelayUrl) -> Result<Option<Proxy>, String> {
    let uri = relay.uri("/");
    let Some(proxy) = uri.and_then(|uri| environment.intercept(&uri)) else {
        return Ok(None);
    };
    let uri: &Uri = proxy.uri();
    let (Some("http"), Some(host)) = (uri.scheme_str(), uri.host()) else {
        return Err(format!(
            "the environment names a proxy that is none for http: {}://…; name an http:// one in HTTPS_PROXY, or except the relay in NO_PROXY",
            uri.scheme_str().unwrap_or_default()
        ));
    };
    Ok(Some(Proxy {
        host: host.trim_matches(['[', ']']).to_owned(),
        port: uri.port_u16().unwrap_or(80),
        authorization: proxy.basic_auth().cloned(),
    }))
}

impl Proxy {
    pub(super) fn host(&self) -> &str {
        &self.host
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Has the proxy at the other end of `stream` connect to `relay`.
    ///
    /// # Errors
    /// Its refusal, as a sentence.
    pub(super) async fn through(
        &self,
        stream: TcpStream,
        relay: &RelayUrl,
    ) -> Result<TokioIo<Upgraded>, String> {
        let broken = |error: hyper::Error| format!("the proxy {self}: {error}");
        let target = match relay.host().contains(':') {
            true => format!("[{}]:{}", relay.host(), relay.port()),
            false => format!("{}:{}", relay.host(), relay.port()),
        };
        let mut request = Request::connect(&target)
            .header(HOST, &target)
            .header(USER_AGENT, http_client::USER_AGENT)
            .body(Empty::<Bytes>::new())
            .map_err(|error| error.to_string())?;
        if let Some(authorization) = &self.authorization {
            let headers = request.headers_mut();
            headers.insert(PROXY_AUTHORIZATION, authorization.clone());
        }
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(broken)?;
        let asked = async move {
            let response = sender.send_request(request).await.map_err(broken)?;
            match response.status() {
                status if status.is_success() => hyper::upgrade::on(response).await.map_err(broken),
                status => Err(format!("the proxy {self} answers {status}")),
            }
        };
        // The connection ends with the upgrade, or with its sender.
        let (upgraded, _) = tokio::join!(asked, connection.with_upgrades());
        upgraded.map(TokioIo::new)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    fn environment(https: &str, no: &str) -> Matcher {
        Matcher::builder().https(https).no(no).build()
    }

    #[test]
    fn the_environment_says_which_relay_is_behind_a_proxy() {
        let https = environment("http://ada:secret@proxy:3128", ".internal,10.0.0.0/8");
        let proxy = |relay: &str| of(&https, &relay.parse().unwrap()).unwrap();
        let found = proxy("https://relay.example.com").unwrap();
        assert_eq!(found.to_string(), "proxy:3128");
        assert!(
            found
                .authorization
                .is_some_and(|shown| shown.is_sensitive())
        );
        for direct in ["https://relay.internal", "https://10.1.2.3", "http://relay"] {
            assert!(proxy(direct).is_none(), "{direct}");
        }
        let socks = environment("socks5://proxy", "");
        let refused = of(&socks, &"https://relay".parse().unwrap());
        assert!(refused.is_err_and(|why| why.contains("HTTPS_PROXY")));
        assert!(
            towards(&"https://localhost".parse().unwrap())
                .unwrap()
                .is_none()
        );
    }

    #[tokio::test]
    async fn a_tunnel_is_asked_for_and_then_the_bytes_are_the_relays() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let https = environment(&format!("http://ada:secret@{address}"), "");
        let relay: RelayUrl = "https://relay.example.com".parse().unwrap();
        for (answer, works) in [
            ("200 OK", true),
            ("407 Proxy Authentication Required", false),
        ] {
            let proxy = of(&https, &relay).unwrap().unwrap();
            let serve = async {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut asked = Vec::new();
                while !asked.ends_with(b"\r\n\r\n") {
                    stream.read_buf(&mut asked).await.unwrap();
                }
                let asked = String::from_utf8(asked).unwrap();
                assert!(asked.starts_with("CONNECT relay.example.com:443 HTTP/1.1\r\n"));
                assert!(asked.contains("proxy-authorization: Basic YWRhOnNlY3JldA=="));
                let answer = format!("HTTP/1.1 {answer}\r\n\r\nhello");
                stream.write_all(answer.as_bytes()).await.unwrap();
                stream
            };
            let stream = TcpStream::connect(address).await.unwrap();
            let (tunnel, _kept) = tokio::join!(proxy.through(stream, &relay), serve);
            match tunnel {
                Ok(mut tunnel) => {
                    let mut heard = [0; 5];
                    tunnel.read_exact(&mut heard).await.unwrap();
                    assert_eq!((&heard, works), (b"hello", true));
                }
                Err(why) => assert!(!works && why.contains("407"), "{why}"),
            }
        }
    }
}
