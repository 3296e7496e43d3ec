//! Headers that end at the relay: hop-by-hop headers and credentials.

use hyper::header::{
    ACCEPT_ENCODING, CONNECTION, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, COOKIE, ETAG, HOST,
    HeaderMap, HeaderName, HeaderValue, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE,
    RANGE, SET_COOKIE, X_CONTENT_TYPE_OPTIONS,
};

/// Name of the cookie with a token: Ray's own (set by its `POST /api/authenticate`, Ray 2.52 and later), or the
/// relay's.
pub(super) const RAY_COOKIE: &str = "ray-authentication-token";

/// Name of the relay's own cookie, if the client reached it at `port`. Browsers do not separate cookies by port:
/// without it, two relays on one host would sign each other out, and a Ray dashboard there would take the token for its
/// own.
pub(super) fn cookie_name(port: Option<u16>) -> String {
    port.map_or_else(
        || RAY_COOKIE.to_owned(),
        |port| format!("{RAY_COOKIE}-{port}"),
    )
}

/// Name of the cookie with a browser's ticket, on a dashboard's origin reached at `port`. Because of its prefix,
/// browsers accept it only from that very host, and from no sibling's script. They support the prefix only over TLS.
pub(super) fn ticket_cookie(port: Option<u16>, encrypted: bool) -> String {
    let prefix = if encrypted { HOST_ONLY } else { "" };
    format!("{prefix}{}", cookie_name(port) + "-ticket")
}

/// Prefix of the name of a cookie that no other host can set.
const HOST_ONLY: &str = "__Host-";

/// Headers that a head must not set: they affect an origin as a whole, or the relay's host beyond this answer.
const ORIGIN_HEADERS: [&str; 14] = [
    "accept-ch",
    "access-control-allow-credentials",
    "access-control-allow-headers",
    "access-control-allow-methods",
    "access-control-allow-origin",
    "alt-svc",
    "clear-site-data",
    "nel",
    "public-key-pins",
    "refresh",
    "report-to",
    "reporting-endpoints",
    "service-worker-allowed",
    "strict-transport-security",
];

/// Hop-by-hop headers (RFC 9110, 7.6.1), in addition to those that `Connection` names.
const HOP_BY_HOP: [&str; 9] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "transfer-encoding",
    "upgrade",
    "http2-settings",
];

/// Request headers that are meant for the relay itself.
const REQUEST_HEADERS: [&str; 4] = ["host", "authorization", "expect", "x-ray-authorization"];

/// The members of all `name` headers, which are comma-separated lists.
pub(super) fn listed<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> impl Iterator<Item = &'a str> {
    headers
        .get_all(name)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .filter(|member| !member.is_empty())
}

/// Removes the hop-by-hop headers and those in `names`. It iterates the headers, because they are few and the names
/// many.
fn strip(headers: &mut HeaderMap, names: &[&str]) {
    let named: Vec<HeaderName> = listed(headers, &CONNECTION)
        .filter_map(|name| name.parse().ok())
        // `Connection` must not remove headers that frame or address the message.
        .filter(|name| *name != HOST && *name != CONTENT_LENGTH)
        .collect();
    let ends = |name: &&HeaderName| {
        let text = name.as_str();
        HOP_BY_HOP.contains(&text) || names.contains(&text) || named.contains(name)
    };
    while let Some(name) = headers.keys().find(ends).cloned() {
        headers.remove(name);
    }
}

/// Prepares a client's headers for the head: removes credentials and connection headers.
pub(super) fn strip_request(headers: &mut HeaderMap) {
    strip(headers, &REQUEST_HEADERS);
    keep_cookies(headers, |pair| !is_ray_cookie(pair));
}

/// Keeps only cookies whose `name=value` passes `keep`.
pub(super) fn keep_cookies(headers: &mut HeaderMap, keep: impl Fn(&[u8]) -> bool) {
    if !headers.contains_key(COOKIE) {
        return;
    }
    let retained = |value: &HeaderValue| {
        let pairs = value.as_bytes().split(|b| *b == b';');
        let pairs = pairs.map(<[u8]>::trim_ascii);
        let pairs: Vec<&[u8]> = pairs
            .filter(|pair| !pair.is_empty() && keep(pair))
            .collect();
        HeaderValue::from_bytes(&pairs.join(&b"; "[..]))
            .ok()
            .filter(|value| !value.is_empty())
    };
    let cookies: Vec<HeaderValue> = headers
        .get_all(COOKIE)
        .iter()
        .filter_map(retained)
        .collect();
    headers.remove(COOKIE);
    for cookie in cookies {
        headers.append(COOKIE, cookie);
    }
}

/// Removes headers that would make the answer partial, compressed or conditional.
pub(super) fn ask_for_plain(headers: &mut HeaderMap) {
    for name in [
        ACCEPT_ENCODING,
        RANGE,
        IF_RANGE,
        IF_MATCH,
        IF_NONE_MATCH,
        IF_MODIFIED_SINCE,
    ] {
        headers.remove(name);
    }
}

/// Prepares the head's headers for a client: removes credentials, connection headers, and those with an effect beyond
/// the answer. On an origin that is the head's `own`, host-only cookies are kept.
pub(super) fn strip_answer(headers: &mut HeaderMap, own: bool) {
    strip(headers, &ORIGIN_HEADERS);
    let cookies: Vec<HeaderValue> = headers
        .get_all(SET_COOKIE)
        .iter()
        .filter(|value| own && !is_ray_cookie(value.as_bytes()) && is_host_only(value.as_bytes()))
        .cloned()
        .collect();
    headers.remove(SET_COOKIE);
    for cookie in cookies {
        headers.append(SET_COOKIE, cookie);
    }
    let policy = match own {
        // No framing by other sites.
        true => "frame-ancestors 'self'",
        // If an unrecognized browser displays it, it runs none of it.
        false => "sandbox; default-src 'none'",
    };
    headers.append(CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy));
    if !own {
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    }
}

/// Whether the cookie has no `Domain` attribute.
fn is_host_only(cookie: &[u8]) -> bool {
    let mut attributes = cookie.split(|b| *b == b';').skip(1);
    let name = |attribute: &[u8]| {
        let name = attribute.split(|b| *b == b'=').next();
        name.unwrap_or_default().trim_ascii().to_ascii_lowercase()
    };
    attributes.all(|attribute| name(attribute) != b"domain")
}

/// Removes headers that are invalid once the body may have changed.
pub(super) fn forget_body(headers: &mut HeaderMap) {
    for name in [CONTENT_LENGTH, ETAG] {
        headers.remove(name);
    }
    for name in [
        "content-md5",
        "digest",
        "content-digest",
        "repr-digest",
        "accept-ranges",
    ] {
        headers.remove(name);
    }
}

/// Whether the pair `name=value`, perhaps with attributes, is the cookie with a token.
pub(super) fn is_ray_cookie(pair: &[u8]) -> bool {
    let name = pair
        .split(|b| matches!(b, b'=' | b';'))
        .next()
        .unwrap_or_default();
    let name = name.trim_ascii();
    let name = match name.split_at_checked(HOST_ONLY.len()) {
        Some((prefix, name)) if prefix.eq_ignore_ascii_case(HOST_ONLY.as_bytes()) => name,
        _ => name,
    };
    // Cookie names are case-sensitive, but no other server's cookie has this name in another case either.
    name.split_at_checked(RAY_COOKIE.len())
        .is_some_and(|(name, port)| {
            name.eq_ignore_ascii_case(RAY_COOKIE.as_bytes())
                && (port.is_empty() || port.starts_with(b"-"))
        })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(*name, HeaderValue::from_static(value));
        }
        map
    }

    #[test]
    fn headers_named_by_connection_are_removed() {
        let mut map = headers(&[
            ("connection", "keep-alive, X-Once"),
            ("connection", "close,content-length"),
            ("x-once", "1"),
            ("keep-alive", "timeout=5"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
            ("content-length", "3"),
            ("x-stays", "1"),
        ]);
        strip_request(&mut map);
        assert_eq!(map, headers(&[("content-length", "3"), ("x-stays", "1")]));
    }

    #[test]
    fn credentials_are_not_sent_upstream() {
        let mut map = headers(&[
            ("authorization", "Bearer relay"),
            ("x-ray-authorization", "Bearer relay"),
            ("cookie", "a=1; ray-authentication-token=secret; b=2"),
            ("cookie", "ray-authentication-token=secret"),
            ("cookie", "ray-authentication-token-5678=secret"),
        ]);
        strip_request(&mut map);
        assert_eq!(map, headers(&[("cookie", "a=1; b=2")]));
    }

    #[test]
    fn ray_token_cookie_is_removed_from_answers() {
        let mut map = headers(&[
            ("set-cookie", "ray-authentication-token=secret; HttpOnly"),
            ("set-cookie", "__Host-ray-authentication-token-443-ticket=x"),
            ("set-cookie", "theme=dark; Path=/"),
            ("set-cookie", "theme=dark; domain=example.com"),
            ("set-cookie", "theme=dark;DOMAIN"),
        ]);
        let mut other_origin = map.clone();
        strip_answer(&mut map, true);
        let cookies: Vec<_> = map.get_all(SET_COOKIE).iter().collect();
        assert_eq!(cookies, ["theme=dark; Path=/"]);
        strip_answer(&mut other_origin, false);
        assert!(!other_origin.contains_key(SET_COOKIE));
    }

    #[test]
    fn origin_wide_headers_of_a_head_are_removed() {
        for is_own_origin in [true, false] {
            let mut map = headers(&[
                ("service-worker-allowed", "/"),
                ("clear-site-data", "\"*\""),
                ("strict-transport-security", "max-age=1"),
                ("refresh", "0; url=/relay/"),
                ("access-control-allow-origin", "*"),
                ("content-security-policy", "default-src 'self'"),
                ("content-type", "text/html"),
            ]);
            strip_answer(&mut map, is_own_origin);
            let policies = map.get_all(CONTENT_SECURITY_POLICY).iter();
            let policies: Vec<_> = policies.map(|policy| policy.to_str().unwrap()).collect();
            assert_eq!(policies[0], "default-src 'self'");
            assert_eq!(
                policies[1].starts_with("sandbox"),
                !is_own_origin,
                "{policies:?}"
            );
            for name in ORIGIN_HEADERS {
                assert!(!map.contains_key(name), "{name}");
            }
            assert_eq!(map["content-type"], "text/html");
        }
    }
}
