//! The address of a relay, as given to client commands and agents.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use hyper::Uri;

/// Port of a relay whose URL names none.
const RELAY_PORT: u16 = 5678;

/// `http` or `https`, host, port and perhaps a path prefix under which the relay is published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelayUrl {
    https: bool,
    host: String,
    port: u16,
    prefix: String,
    /// The name shown in place of the address, if the address means nothing to a person.
    called: Option<String>,
}

impl RelayUrl {
    /// Host name or address, IPv6 without brackets.
    pub fn host(&self) -> &str {
        self.host.trim_start_matches('[').trim_end_matches(']')
    }

    /// Whether the relay is reached over TLS.
    pub fn is_https(&self) -> bool {
        self.https
    }

    /// The TCP port. If the URL names none, it is 443 for `https` and the relay's own, 5678, for `http`.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// A relay at the far end of a forwarded connection, as it is addressed there; `called`: its name for people.
    pub fn within(https: bool, port: u16, called: String) -> Self {
        Self {
            https,
            // A host name that every relay accepts.
            host: "localhost".to_owned(),
            port,
            prefix: String::new(),
            called: Some(called),
        }
    }

    /// The URI of `path` (with its slash) at this relay.
    pub fn uri(&self, path: &str) -> Option<Uri> {
        format!("{}{path}", self.text()).parse().ok()
    }

    fn text(&self) -> String {
        let scheme = if self.https { "https" } else { "http" };
        format!("{scheme}://{}:{}{}", self.host, self.port, self.prefix)
    }
}

impl fmt::Display for RelayUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.called {
            Some(called) => f.write_str(called),
            None => f.write_str(&self.text()),
        }
    }
}

/// The reason why a text is not a relay's address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadRelayUrl {
    /// Not `http` or `https`, or no host.
    #[error("write it as http://HOST:PORT, such as http://127.0.0.1:5678")]
    Malformed,
    /// The URL has `user:password@` in it.
    #[error("leave out user name and password: they would end up in shell histories and logs")]
    Credentials,
}

impl FromStr for RelayUrl {
    type Err = BadRelayUrl;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        let whole = if text.contains("://") {
            text.to_owned()
        } else {
            format!("http://{text}")
        };
        let uri: Uri = whole.parse().map_err(|_| BadRelayUrl::Malformed)?;
        let https = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(BadRelayUrl::Malformed),
        };
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        if authority.contains('@') {
            return Err(BadRelayUrl::Credentials);
        }
        let host = uri
            .host()
            .filter(|host| !host.is_empty())
            .ok_or(BadRelayUrl::Malformed)?;
        let names_port = authority.len() > host.len();
        let port = match uri.port_u16() {
            Some(port) if port > 0 => port,
            None if !names_port && https => 443,
            None if !names_port => RELAY_PORT,
            _ => return Err(BadRelayUrl::Malformed),
        };
        if uri.query().is_some() {
            return Err(BadRelayUrl::Malformed);
        }
        Ok(Self {
            https,
            host: host.to_owned(),
            port,
            prefix: uri.path().trim_end_matches('/').to_owned(),
            called: None,
        })
    }
}

/// Whether `host`, a name or an address without brackets, always means this machine.
pub fn is_this_machine(host: &str) -> bool {
    let host = host.to_ascii_lowercase();
    // RFC 6761 section 6.3: these names are loopback for every resolver.
    host == "localhost"
        || host.ends_with(".localhost")
        || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relay_url_defaults_to_port_5678() {
        for (text, normalised) in [
            ("http://relay", "http://relay:5678"),
            ("relay:7000", "http://relay:7000"),
            ("127.0.0.1", "http://127.0.0.1:5678"),
            ("https://relay/x/", "https://relay:443/x"),
            ("http://[::1]:80/", "http://[::1]:80"),
        ] {
            assert_eq!(
                text.parse::<RelayUrl>()
                    .map(|url| url.to_string())
                    .as_deref(),
                Ok(normalised),
                "{text}"
            );
        }
        for text in [
            "",
            "ftp://relay",
            "http://",
            "http://relay:port",
            "http://relay:0",
            "http://relay/?a",
        ] {
            assert!(text.parse::<RelayUrl>().is_err(), "{text}");
        }
        assert_eq!(
            "http://u:p@relay".parse::<RelayUrl>(),
            Err(BadRelayUrl::Credentials)
        );
    }
}
