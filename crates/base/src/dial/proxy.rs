//! The HTTP proxy in front of a server, as the environment names it: `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY`, and the
//! exceptions of `NO_PROXY`. All traffic to the server goes through a CONNECT tunnel, also without TLS.
//!
//! The user name and password of a proxy are never shown.

use std::env::{self, VarError};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Empty;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{HOST, HeaderValue, PROXY_AUTHORIZATION, USER_AGENT};
use hyper::{Request, StatusCode, Uri};
use hyper_util::client::proxy::matcher::Matcher;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

use super::limits::{self, DIAL_STEP_TIMEOUT};
use super::no_proxy::Exceptions;
use crate::wire::prefixed::Prefixed;
use crate::wire::relay_url::is_this_machine;
use crate::wire::text::{innermost_cause, shortened};

/// The deadline of the DNS lookup of a name whose address may be excepted.
const DNS_TIMEOUT: Duration = Duration::from_secs(2);

/// Longest scheme from a variable that is shown, in characters.
const MAX_SCHEME_CHARS: usize = 20;

/// Variables that may name the proxy, by the server's scheme; the first that is not empty counts.
const HTTPS_VARIABLES: [&str; 4] = ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];
const HTTP_VARIABLES: [&str; 4] = ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"];
const EXCEPTION_VARIABLES: [&str; 2] = ["NO_PROXY", "no_proxy"];

/// The reason why a server cannot be reached through its proxy. `Display` describes it; [`Self::hint`] is the next
/// step.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ProxyError {
    /// The variable does not name an HTTP proxy.
    #[error("{variable} names no http proxy{found}")]
    Unusable {
        /// The variable of the environment.
        variable: &'static str,
        /// The scheme in the variable, if there is one; nothing else of its value.
        found: String,
    },
    /// The proxy accepts no connections.
    #[error("cannot reach the proxy {proxy}: {cause}")]
    Unreachable {
        /// Its host and port.
        proxy: String,
        /// The variable of the environment.
        variable: &'static str,
        /// The operating system's error message.
        cause: String,
    },
    /// The response is not HTTP, too late or incomplete.
    #[error("the proxy {proxy} opens no tunnel: {cause}")]
    Broken {
        /// Its host and port.
        proxy: String,
        /// The variable of the environment.
        variable: &'static str,
        /// The cause, such as a malformed response or a timeout.
        cause: String,
    },
    /// The proxy refuses, or cannot reach the server either.
    #[error("the proxy {proxy} answers {status} when asked for {target}")]
    Refused {
        /// Its host and port.
        proxy: String,
        /// The variable of the environment.
        variable: &'static str,
        /// HTTP status of its answer.
        status: StatusCode,
        /// Host and port of the server.
        target: String,
    },
}

impl ProxyError {
    /// Whether the proxy tried to reach the server and failed, so that the proxy is not to blame.
    pub fn is_behind(&self) -> bool {
        // 500 to 504: RFC 9110 section 15.6; proxies use any of them for a server that they cannot reach.
        matches!(self, Self::Refused { status, .. } if status.is_server_error())
    }

    /// Whether a retry may succeed without a change here.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Unusable { .. } => false,
            Self::Unreachable { .. } | Self::Broken { .. } => true,
            Self::Refused { .. } => self.is_behind(),
        }
    }

    /// The next step, as a sentence.
    pub fn hint(&self) -> String {
        let except = "name the host in NO_PROXY where it is reached without the proxy";
        match self {
            Self::Unusable { variable, .. } => {
                format!("write {variable} as http://HOST:PORT, or {except}")
            }
            Self::Unreachable { variable, .. } | Self::Broken { variable, .. } => {
                format!("is {variable} right? {except}")
            }
            Self::Refused {
                variable, status, ..
            } if *status == StatusCode::PROXY_AUTHENTICATION_REQUIRED => format!(
                "it wants a user name and a password: write {variable} as http://USER:PASSWORD@HOST:PORT, or {except}"
            ),
            Self::Refused { .. } if self.is_behind() => {
                format!("is the address right, and the proxy up? {except}")
            }
            Self::Refused { .. } => format!("does the proxy allow that host and port? {except}"),
        }
    }
}

/// A proxy that speaks plain HTTP. `Display` shows its address alone.
#[derive(Clone)]
pub struct Proxy {
    variable: &'static str,
    /// The proxy's address alone.
    uri: Uri,
    authorization: Option<HeaderValue>,
}

impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&authority(&self.uri))
    }
}

/// The proxies for servers. Cheap to clone.
#[derive(Clone, Default)]
pub struct Proxies(Arc<ProxyVariables>);

#[derive(Default)]
struct ProxyVariables {
    for_https: Option<Result<Proxy, ProxyError>>,
    for_http: Option<Result<Proxy, ProxyError>>,
    except: Exceptions,
    /// Whether the proxy is used for all servers, including this machine.
    always: bool,
}

/// One route to a server with a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DialRoute {
    /// To this address of the server.
    Direct(SocketAddr),
    /// Through the proxy, which resolves the name.
    Proxy,
}

impl fmt::Display for DialRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Direct(address) => address.fmt(f),
            Self::Proxy => f.write_str("by a proxy"),
        }
    }
}

impl Proxies {
    /// No proxies.
    pub fn none() -> Self {
        Self::default()
    }

    /// Uses the proxy in `text` for every server; `place`: where the text was given, for messages.
    pub fn from_text(place: &'static str, text: &str) -> Self {
        let proxy = Proxy::read(place, text);
        Self(Arc::new(ProxyVariables {
            for_https: Some(proxy.clone()),
            for_http: Some(proxy),
            except: Exceptions::default(),
            always: true,
        }))
    }

    /// Reads the environment's current variables.
    pub fn from_env() -> Self {
        Self::of(|name| match env::var(name) {
            Ok(text) => Some(text),
            Err(VarError::NotPresent) => None,
            // This is no valid URL, and no exception.
            Err(VarError::NotUnicode(_)) => Some("?".to_owned()),
        })
    }

    /// Reads the variables through `variable`.
    pub(super) fn of(variable: impl Fn(&str) -> Option<String>) -> Self {
        let first = |names: &[&'static str]| {
            names.iter().find_map(|name| {
                let text = variable(name)?;
                let text = text.trim();
                (!text.is_empty()).then(|| (*name, text.to_owned()))
            })
        };
        let proxy = |names| first(names).map(|(variable, text)| Proxy::read(variable, &text));
        Self(Arc::new(ProxyVariables {
            for_https: proxy(&HTTPS_VARIABLES),
            for_http: proxy(&HTTP_VARIABLES),
            except: first(&EXCEPTION_VARIABLES)
                .map_or_else(Exceptions::default, |(_, list)| Exceptions::read(&list)),
            always: false,
        }))
    }

    /// The proxy in front of the server of `uri`; `None`: it is reached directly, as this machine always is. A name
    /// that is not excepted is resolved if one of its addresses may be.
    ///
    /// # Errors
    /// [`ProxyError::Unusable`].
    pub async fn towards(&self, uri: &Uri) -> Result<Option<Proxy>, ProxyError> {
        let proxy = match uri.scheme_str() {
            Some("https") => &self.0.for_https,
            _ => &self.0.for_http,
        };
        let Some(proxy) = proxy else {
            return Ok(None);
        };
        let (host, port) = (host(uri), port(uri));
        if self.0.always {
            return proxy.clone().map(Some);
        }
        if is_this_machine(host) || self.0.except.has(host, port) {
            return Ok(None);
        }
        if self.0.except.names_networks()
            && let Ok(Ok(mut addresses)) = timeout(DNS_TIMEOUT, lookup_host((host, port))).await
            && addresses.any(|address| self.0.except.has_address(address.ip(), port))
        {
            return Ok(None);
        }
        proxy.clone().map(Some)
    }

    /// All routes to the server of `uri`: one to each of its addresses, or the one through the proxy.
    ///
    /// # Errors
    /// The name cannot be resolved, or the proxy is unusable.
    pub async fn routes(&self, uri: &Uri) -> io::Result<Vec<DialRoute>> {
        match self.towards(uri).await {
            Ok(None) => {
                let addresses = lookup_host((host(uri), port(uri))).await?;
                Ok(addresses.map(DialRoute::Direct).collect())
            }
            Ok(Some(_)) => Ok(vec![DialRoute::Proxy]),
            Err(error) => Err(io::Error::other(error)),
        }
    }
}

impl Proxy {
    /// Parses the value of the variable.
    fn read(variable: &'static str, text: &str) -> Result<Self, ProxyError> {
        let unusable = |found: String| ProxyError::Unusable { variable, found };
        let scheme = text.split_once("://").map(|(scheme, _)| scheme);
        if let Some(other) = scheme.filter(|scheme| !scheme.eq_ignore_ascii_case("http")) {
            return Err(unusable(format!(
                " but {}://",
                shortened(other, MAX_SCHEME_CHARS)
            )));
        }
        let read = Matcher::builder().http(text.to_owned()).build();
        // Any address will do, since there are no exceptions.
        let read = read.intercept(&Uri::from_static("http://relay/"));
        let read = read.ok_or_else(|| unusable(String::new()))?;
        if host(read.uri()).is_empty() {
            return Err(unusable(String::new()));
        }
        Ok(Self {
            variable,
            uri: read.uri().clone(),
            authorization: read.basic_auth().cloned(),
        })
    }

    /// The environment variable that names it.
    pub fn variable(&self) -> &'static str {
        self.variable
    }

    /// Its own address.
    pub(super) fn uri(&self) -> Uri {
        self.uri.clone()
    }

    /// The error for a proxy that accepts no connections.
    pub(super) fn unreachable(&self, cause: String) -> ProxyError {
        ProxyError::Unreachable {
            proxy: self.to_string(),
            variable: self.variable,
            cause,
        }
    }

    /// Requests a tunnel to the server of `uri` from the proxy at the other end of `stream`.
    ///
    /// # Errors
    /// [`ProxyError`], at the deadline at the latest.
    pub(super) async fn through(
        &self,
        stream: TcpStream,
        uri: &Uri,
    ) -> Result<Prefixed<TcpStream>, ProxyError> {
        let target = authority(uri);
        let broken = |cause: String| ProxyError::Broken {
            proxy: self.to_string(),
            variable: self.variable,
            cause,
        };
        let answer = timeout(
            DIAL_STEP_TIMEOUT,
            Box::pin(self.open_tunnel(stream, &target)),
        )
        .await;
        match answer {
            Ok(Ok(Ok(tunnel))) => Ok(tunnel),
            Ok(Ok(Err(status))) => Err(ProxyError::Refused {
                proxy: self.to_string(),
                variable: self.variable,
                status,
                target,
            }),
            Ok(Err(error)) => Err(broken(innermost_cause(&*error))),
            Err(_) => Err(broken(format!(
                "no answer within {} s",
                DIAL_STEP_TIMEOUT.as_secs()
            ))),
        }
    }

    /// Returns the tunnel to `target`, or the status of a refusal.
    async fn open_tunnel(
        &self,
        stream: TcpStream,
        target: &str,
    ) -> Result<Result<Prefixed<TcpStream>, StatusCode>, Box<dyn std::error::Error + Send + Sync>>
    {
        let mut request = Request::connect(target)
            .header(HOST, target)
            .header(USER_AGENT, limits::USER_AGENT)
            .body(Empty::<Bytes>::new())?;
        if let Some(authorization) = &self.authorization {
            let headers = request.headers_mut();
            headers.insert(PROXY_AUTHORIZATION, authorization.clone());
        }
        let mut builder = http1::Builder::new();
        builder.max_buf_size(limits::MAX_BUFFER);
        let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
        let answer = async move {
            let response = sender.send_request(request).await?;
            match response.status() {
                status if status.is_success() => hyper::upgrade::on(response).await.map(Ok),
                status => Ok(Err(status)),
            }
        };
        // The connection ends with the upgrade, or with its sender.
        let (answer, _) = tokio::join!(answer, connection.with_upgrades());
        Ok(match answer? {
            Ok(upgraded) => {
                let parts = upgraded.downcast::<TokioIo<TcpStream>>();
                let parts = parts.map_err(|_| "the connection is another one")?;
                Ok(Prefixed::new(parts.read_buf, parts.io.into_inner()))
            }
            Err(status) => Err(status),
        })
    }
}

/// The host of `uri`, without brackets.
pub(super) fn host(uri: &Uri) -> &str {
    let host = uri.host().unwrap_or_default();
    host.trim_start_matches('[').trim_end_matches(']')
}

/// The port of `uri`, or the default of its scheme.
pub(super) fn port(uri: &Uri) -> u16 {
    let of_scheme = match uri.scheme_str() {
        Some("https") => 443,
        _ => 80,
    };
    uri.port_u16().unwrap_or(of_scheme)
}

fn authority(uri: &Uri) -> String {
    let (host, port) = (host(uri), port(uri));
    match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }
}
