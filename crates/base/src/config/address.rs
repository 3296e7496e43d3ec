//! Addresses: the relay's own and those of Ray heads.
//!
//! Pure. Used by [`mod@super::resolve`]; no name is looked up, nothing is dialled.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use std::str::FromStr;

use hyper::Uri;
use hyper::http::uri::Authority;

use super::problem::Wrong;

/// Port of Ray's dashboard.
const DASHBOARD_PORT: u16 = 8265;

/// The address of a cluster's GCS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Gcs {
    /// Port 6379 of the head's host, where `ray_address` is `http`; its failures are not worth a warning.
    Auto,
    /// The GCS is not asked.
    Off,
    /// The GCS at this address, `host:port`.
    At(String),
}

impl FromStr for Gcs {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse_gcs(text).map_err(|_| format!("write {GCS}"))
    }
}

impl fmt::Display for Gcs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Off => "off",
            Self::At(address) => address,
        })
    }
}

fn wrong(expected: &str, hint: impl Into<String>) -> Wrong {
    Wrong::expected(expected).hint(hint)
}

/// Reads the address to listen on, `IP:PORT`.
pub(super) fn parse_listen(text: &str) -> Result<SocketAddr, Wrong> {
    const EXPECTED: &str = "an IP address and a port, such as 127.0.0.1:5678 or [::1]:5678";
    let text = text.trim();
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    Err(match text.rsplit_once(':') {
        Some(("localhost", port)) => {
            wrong(EXPECTED, format!("write 127.0.0.1:{port} for localhost"))
        }
        Some(("" | "*", port)) => wrong(
            EXPECTED,
            format!(
                "write 127.0.0.1:{port} for this machine alone, 0.0.0.0:{port} for every network"
            ),
        ),
        None if text.parse::<u16>().is_ok() => wrong(EXPECTED, format!("write 127.0.0.1:{text}")),
        None if text.parse::<std::net::IpAddr>().is_ok() => {
            wrong(EXPECTED, "add the port, 5678 by custom")
        }
        _ => Wrong::expected(EXPECTED),
    })
}

/// The address of a head's dashboard, in its normal form: scheme, host, port, path prefix without
/// a slash at its end.
pub(super) fn parse_ray_address(text: &str) -> Result<String, Wrong> {
    const EXPECTED: &str =
        "the http or https address of a Ray head's dashboard, such as http://127.0.0.1:8265";
    let text = text.trim();
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme, rest)) => (scheme.to_ascii_lowercase(), rest),
        None if text.is_empty() => return Err(Wrong::expected(EXPECTED)),
        None => return Err(wrong(EXPECTED, "put http:// in front of it")),
    };
    match scheme.as_str() {
        "http" | "https" => {}
        "ray" => {
            return Err(wrong(
                EXPECTED,
                "ray:// is the address of Ray Client (port 10001); the dashboard is on port 8265 of the same host",
            ));
        }
        _ => return Err(wrong(EXPECTED, "use http:// or https://")),
    }
    if rest
        .split('/')
        .next()
        .is_some_and(|host| host.contains('@'))
    {
        return Err(wrong(
            EXPECTED,
            "no user name or password in the address: Ray takes a token, which belongs in a file that token_file names",
        ));
    }
    if rest.contains(['?', '#']) {
        return Err(wrong(EXPECTED, "end the address before the ? or #"));
    }
    let uri: Uri = format!("{scheme}://{rest}")
        .parse()
        .map_err(|_| Wrong::expected(EXPECTED))?;
    let host = uri.host().filter(|host| !host.is_empty());
    let Some(host) = host else {
        return Err(wrong(EXPECTED, "add the head's host name or IP address"));
    };
    // hyper ignores a port that is no number, so `http://head:port` has to be noticed here.
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    let written_port =
        authority[authority.find(host).map_or(0, |at| at + host.len())..].strip_prefix(':');
    let port = match (written_port, uri.port_u16()) {
        (None, _) if scheme == "http" => Some(DASHBOARD_PORT),
        (None, _) => None,
        (Some(_), Some(6379)) => {
            return Err(wrong(
                EXPECTED,
                "6379 is the port of Ray's GCS; the dashboard is on 8265 of the same host",
            ));
        }
        (Some(_), Some(port)) if port > 0 => Some(port),
        (Some(_), _) => return Err(wrong(EXPECTED, "the port is a number from 1 to 65535")),
    };
    let port = port.map_or(String::new(), |port| format!(":{port}"));
    let prefix = uri.path().trim_end_matches('/');
    Ok(format!("{scheme}://{host}{port}{prefix}"))
}

/// `URL` or `NAME=URL`, as a flag or the environment gives it.
pub(super) fn split_cluster(text: &str) -> (Option<&str>, &str) {
    match text.split_once('=') {
        Some((name, url)) if !name.contains(['/', ':', '?', '@']) => {
            (Some(name.trim()), url.trim())
        }
        _ => (None, text.trim()),
    }
}

/// Expected form of `gcs_address`, for messages.
pub(super) const GCS: &str = "\"auto\", \"off\" or a host and a port, such as \"10.0.0.2:6379\"";

/// `auto`, `off` or `host:port`.
pub(super) fn parse_gcs(text: &str) -> Result<Gcs, Wrong> {
    match text {
        "auto" => return Ok(Gcs::Auto),
        "off" => return Ok(Gcs::Off),
        _ => {}
    }
    let authority = text.parse::<Authority>().ok();
    let fits = authority.as_ref().is_some_and(|authority| {
        authority.port_u16().is_some_and(|port| port != 0)
            && !authority.as_str().contains('@')
            && !authority.host().is_empty()
    });
    if fits {
        return Ok(Gcs::At(text.to_owned()));
    }
    let wrong = Wrong::expected(GCS);
    Err(match text.contains("://") {
        true => wrong.hint("without a scheme: the GCS speaks gRPC, not HTTP"),
        false => wrong,
    })
}

/// `text` without what may be a credential: user name and password, query, fragment.
pub(super) fn redacted(text: &str) -> String {
    let text = text.split(['?', '#']).next().unwrap_or_default();
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme, rest)) => (format!("{scheme}://"), rest),
        None => (String::new(), text),
    };
    let rest = match rest.rsplit_once('@') {
        Some((_, host)) => format!("***@{host}"),
        None => rest.to_owned(),
    };
    format!("{scheme}{rest}")
}

/// Whether the host of a URL is this machine: `localhost`, or a loopback address, in brackets or without.
pub fn is_loopback_host(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// A host name that is neither a URL nor carries a port.
pub(super) fn is_host_name(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 253
        && text
            .split('.')
            .all(|label| is_label(label, |b| b.is_ascii_alphanumeric() || b == b'_'))
}

/// A label of RFC 1123, in lower-case letters.
pub fn is_host_label(text: &str) -> bool {
    is_label(text, |b| b.is_ascii_lowercase() || b.is_ascii_digit())
}

/// A label of RFC 1123, at most 63 characters that are `usual` or `-`, which is neither first nor last.
pub(super) fn is_label(text: &str, usual: impl Fn(u8) -> bool) -> bool {
    (1..=63).contains(&text.len())
        && text.bytes().all(|b| usual(b) || b == b'-')
        && !text.starts_with('-')
        && !text.ends_with('-')
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn head_address_defaults_to_port_8265() {
        for (text, normalised) in [
            ("http://head", "http://head:8265"),
            ("http://head/", "http://head:8265"),
            ("HTTP://head:8000/", "http://head:8000"),
            ("https://ray.example/c/one/", "https://ray.example/c/one"),
            ("http://[fd00::1]", "http://[fd00::1]:8265"),
            ("http://[fd00::1]:80", "http://[fd00::1]:80"),
        ] {
            assert_eq!(parse_ray_address(text).as_deref(), Ok(normalised), "{text}");
        }
    }

    #[test]
    fn invalid_head_address_gets_a_hint() {
        for (text, hint) in [
            ("head:8265", "put http://"),
            ("ray://head:10001", "Ray Client"),
            ("http://head:6379", "GCS"),
            ("ftp://head", "use http://"),
            ("http://user:pass@head", "token_file"),
            ("http://head?token=x", "before the ?"),
            ("http://head:port", "number"),
            ("http://head:0", "number"),
        ] {
            let error = parse_ray_address(text).unwrap_err();
            let hint_given = error.hint.unwrap_or_default();
            assert!(hint_given.contains(hint), "{text}: {hint_given}");
        }
        for text in ["", "http://", "http:///x", "http://he ad"] {
            assert!(parse_ray_address(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn credentials_are_redacted() {
        for (text, printable) in [
            ("http://u:p@h@head:1/x?token=t#f", "http://***@head:1/x"),
            ("u:p@head", "***@head"),
            ("http://head:1/x", "http://head:1/x"),
        ] {
            assert_eq!(redacted(text), printable);
        }
    }

    #[test]
    fn cluster_name_ends_at_the_first_equals_sign() {
        let named = split_cluster("gpu=http://head");
        assert_eq!(named, (Some("gpu"), "http://head"));
        assert_eq!(split_cluster("http://head/a=b"), (None, "http://head/a=b"));
    }

    #[test]
    fn listen_addresses_are_an_ip_and_a_port() {
        assert!(parse_listen("[::1]:5678").is_ok());
        for (text, hint) in [
            ("localhost:5678", "127.0.0.1:5678"),
            (":5678", "0.0.0.0:5678"),
            ("5678", "127.0.0.1:5678"),
            ("10.0.0.1", "port"),
        ] {
            let suggestion = parse_listen(text).unwrap_err().hint.unwrap_or_default();
            assert!(suggestion.contains(hint), "{text}: {suggestion}");
        }
    }
}
