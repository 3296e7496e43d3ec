//! Extracts the credential of a request, wherever a client can put it. Pure.
//!
//! Ray's own clients and its dashboard page put Ray's token into `Authorization: Bearer`, `X-Ray-Authorization: Bearer`
//! or the cookie `ray-authentication-token`. The relay's own cookie is `ray-authentication-token-PORT`. A token in a
//! header takes precedence over the connection's client certificate or link owner, and a cookie does not. On a
//! dashboard's own origin, the only accepted cookie is the ticket issued to the browser.
//!
//! A request with different credentials is refused: its principal would depend on the reader.

use hyper::Uri;
use hyper::header::{AUTHORIZATION, COOKIE, HOST, HeaderMap, HeaderName};

use super::hop::{self, RAY_COOKIE};
use super::route::unescaped;
use ray_relay_access::connection::ConnectionInfo;
use ray_relay_access::identity::{Opens, Secret};
use ray_relay_session::session::authenticate::PresentedCredential;

/// Ray's second header, for proxies that use the first for themselves.
const RAY_AUTHORIZATION: HeaderName = HeaderName::from_static("x-ray-authorization");

/// Two credentials, or one in a URL. `Display` is a sentence for the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum AmbiguousCredential {
    /// Several different credentials.
    #[error(
        "the request presents several credentials that are not the same: keep one of Authorization, X-Ray-Authorization and the cookie ray-authentication-token (`POST /api/authenticate` replaces the cookie)"
    )]
    Several,
    /// A token in the URL, which would be passed on, and logged by each host on the way.
    #[error(
        "the token stands in the request's URL, where it ends up in logs: treat it as lost, and put a new one into the Authorization header"
    )]
    InUrl,
}

/// Returns the one credential of a request with `headers` on the connection `info`. `Nothing` if the connection's
/// certificate, if any, is the only one.
pub(super) fn presented(
    headers: &HeaderMap,
    uri: &Uri,
    info: &ConnectionInfo,
) -> Result<PresentedCredential, AmbiguousCredential> {
    // Browsers also send cookies set by other servers on the same host. Ignore them if the connection itself is
    // authenticated.
    let cookies = match info.certificate.is_some() {
        true => Vec::new(),
        false => cookies(headers, port(headers, uri)),
    };
    one(headers, uri, cookies)
}

/// Returns the one credential of a request on a dashboard's own origin with this `label`. A cookie counts only without
/// any other credential.
pub(super) fn on_dashboard(
    headers: &HeaderMap,
    uri: &Uri,
    info: &ConnectionInfo,
    label: &str,
) -> Result<PresentedCredential, AmbiguousCredential> {
    let presented = one(headers, uri, Vec::new())?;
    if !matches!(presented, PresentedCredential::Nothing) || info.certificate.is_some() {
        return Ok(presented);
    }
    let name = hop::ticket_cookie(port(headers, uri), info.encrypted);
    let mut tickets = called(headers, &name);
    tickets.dedup();
    match tickets.as_slice() {
        [] => Ok(PresentedCredential::Nothing),
        [ticket] => {
            let opens = Opens::Dashboard(label.to_owned());
            Ok(PresentedCredential::Dashboard(Secret::new(*ticket), opens))
        }
        _ => Err(AmbiguousCredential::Several),
    }
}

fn one(
    headers: &HeaderMap,
    uri: &Uri,
    cookies: Vec<&str>,
) -> Result<PresentedCredential, AmbiguousCredential> {
    let mut tokens: Vec<&str> = bearers(headers, &AUTHORIZATION)
        .chain(bearers(headers, &RAY_AUTHORIZATION))
        .chain(cookies)
        .collect();
    let duplicated = headers.get_all(AUTHORIZATION).iter().count() > 1
        || headers.get_all(RAY_AUTHORIZATION).iter().count() > 1;
    tokens.dedup();
    match tokens.as_slice() {
        _ if duplicated => Err(AmbiguousCredential::Several),
        [] => Ok(PresentedCredential::Nothing),
        [token] => {
            let in_url = uri.path_and_query().is_some_and(|target| {
                let target = target.as_str();
                // As it is, and percent-decoded.
                target.contains(token)
                    || memchr::memmem::find(&unescaped(target), token.as_bytes()).is_some()
            });
            match in_url {
                true => Err(AmbiguousCredential::InUrl),
                false => Ok(PresentedCredential::Token(Secret::new(*token))),
            }
        }
        _ => Err(AmbiguousCredential::Several),
    }
}

/// The token of `Authorization: Bearer` alone, for signing in.
pub(super) fn bearer(headers: &HeaderMap) -> Option<Secret> {
    let mut tokens = bearers(headers, &AUTHORIZATION);
    match (tokens.next(), tokens.next()) {
        (Some(token), None) => Some(Secret::new(token)),
        _ => None,
    }
}

/// The tokens after `Bearer`. Other schemes are for other servers, such as a proxy on the way.
fn bearers<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    headers
        .get_all(name)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .filter_map(|value| value.trim().split_once(' '))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
        .map(|(_, token)| token.trim())
        .filter(|token| !token.is_empty())
}

/// The relay's own cookie for `port`, or else Ray's. Cookies of other ports are for other servers.
fn cookies(headers: &HeaderMap, port: Option<u16>) -> Vec<&str> {
    let own = called(headers, &hop::cookie_name(port));
    match own.is_empty() {
        true => called(headers, RAY_COOKIE),
        false => own,
    }
}

/// The non-empty values of the cookies called `name`.
fn called<'a>(headers: &'a HeaderMap, name: &str) -> Vec<&'a str> {
    headers
        .get_all(COOKIE)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(';'))
        .filter_map(|pair| pair.split_once('='))
        .filter(|(of, _)| of.trim().eq_ignore_ascii_case(name))
        .map(|(_, value)| value.trim())
        .filter(|value| !value.is_empty())
        .collect()
}

/// The port at which the client reached the relay, if the request tells.
pub(super) fn port(headers: &HeaderMap, uri: &Uri) -> Option<u16> {
    uri.port_u16().or_else(|| {
        let host = headers.get(HOST)?.to_str().ok()?;
        host.rsplit_once(':')?.1.parse().ok()
    })
}

/// Removes each header that contains `token`, such as a WebSocket's list of protocols, and each cookie that does.
pub(super) fn strip(headers: &mut HeaderMap, token: &Secret) {
    let token = token.expose().as_bytes();
    let holds = |value: &[u8]| memchr::memmem::find(value, token).is_some();
    hop::keep_cookies(headers, |pair| !holds(pair));
    let names: Vec<HeaderName> = headers
        .iter()
        .filter(|(_, value)| holds(value.as_bytes()))
        .map(|(name, _)| name.clone())
        .collect();
    for name in names {
        headers.remove(name);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use ray_relay_access::identity::Principal;

    fn presented_in(
        pairs: &[(&'static str, &'static str)],
    ) -> Result<PresentedCredential, AmbiguousCredential> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        let info = ConnectionInfo::plain(([127, 0, 0, 1], 9).into());
        presented(&headers, &Uri::from_static("/x?a=tok-1"), &info)
    }

    fn token(pairs: &[(&'static str, &'static str)]) -> Option<String> {
        match presented_in(pairs).unwrap() {
            PresentedCredential::Token(token) => Some(token.expose().to_owned()),
            _ => None,
        }
    }

    #[test]
    fn token_is_read_from_each_supported_header() {
        for pair in [
            ("authorization", "Bearer abc"),
            ("authorization", "bearer  abc "),
            ("x-ray-authorization", "Bearer abc"),
            ("cookie", "a=1; ray-authentication-token=abc; b=2"),
        ] {
            assert_eq!(token(&[pair]).as_deref(), Some("abc"), "{pair:?}");
        }
        for pair in [
            ("authorization", "Basic abc"),
            ("authorization", "abc"),
            ("authorization", "Bearer "),
            ("cookie", "ray-authentication-token="),
            ("cookie", "xray-authentication-token=abc"),
        ] {
            assert!(
                matches!(presented_in(&[pair]), Ok(PresentedCredential::Nothing)),
                "{pair:?}"
            );
        }
        let proxy_header = ("authorization", "Basic abc");
        let relay_header = ("x-ray-authorization", "Bearer abc");
        assert_eq!(token(&[proxy_header, relay_header]).as_deref(), Some("abc"));
    }

    #[test]
    fn equal_credentials_count_once_and_different_are_refused() {
        let header = ("authorization", "Bearer abc");
        let same = ("cookie", "ray-authentication-token=abc");
        assert_eq!(token(&[header, same]).as_deref(), Some("abc"));
        for other in [
            ("x-ray-authorization", "Bearer xyz"),
            ("cookie", "ray-authentication-token=xyz"),
            ("authorization", "Bearer abc"),
            ("authorization", "Basic abc"),
        ] {
            assert_eq!(
                presented_in(&[header, other]).unwrap_err(),
                AmbiguousCredential::Several
            );
        }
        let cookies = (
            "cookie",
            "ray-authentication-token=a; ray-authentication-token=b",
        );
        assert_eq!(
            presented_in(&[cookies]).unwrap_err(),
            AmbiguousCredential::Several
        );
    }

    #[test]
    fn repeated_authorization_is_refused() {
        for name in ["authorization", "x-ray-authorization"] {
            for second in ["Bearer abc", "Bearer xyz", "Basic abc"] {
                let refused = presented_in(&[(name, "Bearer abc"), (name, second)]);
                assert_eq!(refused.unwrap_err(), AmbiguousCredential::Several);
            }
        }
        let mut headers = HeaderMap::new();
        headers.append(AUTHORIZATION, "Bearer abc".parse().unwrap());
        assert!(bearer(&headers).is_some_and(|token| token.expose() == "abc"));
        headers.append(AUTHORIZATION, "Bearer xyz".parse().unwrap());
        assert!(bearer(&headers).is_none(), "for signing in neither");
    }

    #[test]
    fn several_dashboard_tickets_are_refused() {
        let info = ConnectionInfo::plain(([127, 0, 0, 1], 9).into());
        let name = hop::ticket_cookie(None, info.encrypted);
        let dashboard_ticket = |tickets: &[&str]| {
            let mut headers = HeaderMap::new();
            for ticket in tickets {
                headers.append(COOKIE, format!("{name}={ticket}").parse().unwrap());
            }
            on_dashboard(&headers, &Uri::from_static("/"), &info, "east")
        };
        for tickets in [&["abc"][..], &["abc", "abc"]] {
            match dashboard_ticket(tickets).unwrap() {
                PresentedCredential::Dashboard(ticket, _) => assert_eq!(ticket.expose(), "abc"),
                other => panic!("{other:?}"),
            }
        }
        for several in [&["abc", "xyz"][..], &["abc", "xyz", "abc"]] {
            let refused = dashboard_ticket(several).unwrap_err();
            assert_eq!(refused, AmbiguousCredential::Several);
        }
    }

    #[test]
    fn cookie_for_this_port_takes_precedence() {
        let host = ("host", "127.0.0.1:5678");
        let own_cookie = "ray-authentication-token-5678=own";
        for (cookies, expected) in [
            (own_cookie.to_owned(), Some("own")),
            (
                format!(
                    "ray-authentication-token=rays; {own_cookie}; ray-authentication-token-9=other"
                ),
                Some("own"),
            ),
            (
                "ray-authentication-token=rays; ray-authentication-token-9=other".to_owned(),
                Some("rays"),
            ),
            ("ray-authentication-token-9=other".to_owned(), None),
        ] {
            let cookies: &'static str = cookies.leak();
            let credential = presented_in(&[host, ("cookie", cookies)]).unwrap();
            match (&credential, expected) {
                (PresentedCredential::Token(token), Some(expected)) => {
                    assert_eq!(token.expose(), expected)
                }
                (PresentedCredential::Nothing, None) => {}
                other => panic!("{cookies}: {other:?}"),
            }
        }
    }

    #[test]
    fn token_precedes_the_certificate_and_a_cookie_does_not() {
        let mut info = ConnectionInfo::plain(([127, 0, 0, 1], 9).into());
        info.certificate = Some(Principal::anonymous());
        let uri = Uri::from_static("/");
        let mut headers = HeaderMap::new();
        let alone = presented(&headers, &uri, &info);
        assert!(matches!(alone, Ok(PresentedCredential::Nothing)));
        headers.insert(COOKIE, "ray-authentication-token=xyz".parse().unwrap());
        let cookie = presented(&headers, &uri, &info);
        assert!(matches!(cookie, Ok(PresentedCredential::Nothing)));
        for (header, token) in [("authorization", "abc"), ("x-ray-authorization", "abc")] {
            let mut headers = headers.clone();
            headers.insert(header, format!("Bearer {token}").parse().unwrap());
            match presented(&headers, &uri, &info).unwrap() {
                PresentedCredential::Token(presented) => assert_eq!(presented.expose(), token),
                other => panic!("{header}: {other:?}"),
            }
        }
    }

    #[test]
    fn token_is_refused_in_the_url_and_stripped_from_headers() {
        let in_url = presented_in(&[("authorization", "Bearer tok-1")]);
        assert_eq!(in_url.unwrap_err(), AmbiguousCredential::InUrl);
        for target in [
            "/x?a=tok%2D1",
            "/%74%6f%6b-1",
            "/x?a=%2574ok-1#",
            "/x?%zz=tok-%31",
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, "Bearer tok-1".parse().unwrap());
            let info = ConnectionInfo::plain(([127, 0, 0, 1], 9).into());
            let escaped = presented(&headers, &target.parse().unwrap(), &info);
            assert_eq!(escaped.unwrap_err(), AmbiguousCredential::InUrl, "{target}");
        }
        let mut headers = HeaderMap::new();
        headers.insert("sec-websocket-protocol", "bearer, abc".parse().unwrap());
        headers.insert("x-kept", "ab".parse().unwrap());
        headers.insert(COOKIE, "a=1; b=xabcx; c=3".parse().unwrap());
        strip(&mut headers, &Secret::new("abc"));
        assert_eq!(headers.len(), 2);
        assert_eq!(headers[COOKIE], "a=1; c=3");
    }
}
