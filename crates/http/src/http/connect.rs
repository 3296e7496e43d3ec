//! Server side of `ray-relay connect`: a link for each connection that a client makes to that command, and the same
//! link again after its network was down.
//!
//! Both are WebSockets that end at the relay, for any authenticated client: permissions are checked as on every other
//! connection. [`ray_relay_session::connect`] counts the links, and admission control does not.

use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Response, StatusCode};

use super::answer::{self, Body};
use super::exchange::Exchange;
use super::refusal::HttpRefusal;
use super::tunnel::Handshake;
use ray_relay_access::identity::Principal;
use ray_relay_base::wire::resumed::messages::Opener;
use ray_relay_base::wire::resumed::{
    CONNECT_PROTOCOL, OPENER_HEADER, RECEIVED_HEADER, REPLICA_HEADER,
};
use ray_relay_base::wire::tunnel::stream_config;
use ray_relay_session::connect::{LinkRefusal, Links};
use ray_relay_session::session::shares::QuotaExceeded;

/// Opens a link, or another transport of an existing one.
pub(super) async fn open(
    exchange: &Exchange<'_>,
    principal: Principal,
    parts: Parts,
) -> Result<Response<Body>, HttpRefusal> {
    let (links, info) = (&exchange.ctx.peers.links, &exchange.connection.info);
    let received = received(&parts.headers).ok_or_else(|| {
        HttpRefusal::Malformed(format!("{RECEIVED_HEADER} has to be one whole number").into())
    })?;
    let opener = parts.headers.get(OPENER_HEADER);
    let opener = opener.and_then(|value| Opener::parse(value.to_str().ok()?));
    let hint = "this is asked for as a WebSocket over HTTP/1.1: `ray-relay connect` does";
    let handshake = Handshake::new(parts, CONNECT_PROTOCOL, hint)?;
    let transport = match exchange.words {
        [Some(id), _] => match links.resume(id, handshake.secret(), &principal, received) {
            Some(transport) => transport,
            None => return Ok(unknown(links)),
        },
        [None, _] => match links.begin(&principal, &info.summary, opener) {
            Ok(transport) => transport,
            Err(why) => return Ok(refusal(why)),
        },
    };
    let carry = async move |socket| transport.carry(socket).await;
    let answer = handshake.accept(exchange, stream_config(), &principal, carry);
    info.place.set_apart();
    Ok(answer)
}

/// Number of bytes that the command has received, 0 if it does not say. `None`: the header is not a number.
fn received(headers: &HeaderMap) -> Option<u64> {
    let mut values = headers.get_all(RECEIVED_HEADER).iter();
    let (value, more) = (values.next(), values.next());
    let digits = value.map_or(Some("0"), |value| value.to_str().ok())?;
    let is_number = more.is_none() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().ok()).flatten()
}

fn unknown(links: &Links) -> Response<Body> {
    let sentence = "this relay does not hold that connection (any more)";
    let mut response = answer::error(StatusCode::NOT_FOUND, sentence);
    if let Ok(replica) = HeaderValue::try_from(links.replica().digits()) {
        let name = HeaderName::from_static(REPLICA_HEADER);
        response.headers_mut().insert(name, replica);
    }
    response
}

fn refusal(why: LinkRefusal) -> Response<Body> {
    let (status, sentence) = match why {
        LinkRefusal::Crowded(QuotaExceeded::All(most)) => (
            StatusCode::SERVICE_UNAVAILABLE,
            format!(
                "all {most} connections through `ray-relay connect` are in use: close one, or have `connect.max_links` raised"
            ),
        ),
        LinkRefusal::Crowded(QuotaExceeded::Yours(most)) => (
            StatusCode::TOO_MANY_REQUESTS,
            format!(
                "you have {most} connections through `ray-relay connect`, a quarter of `connect.max_links`, the most that one person may have: close one"
            ),
        ),
        LinkRefusal::NoSecrets => (
            StatusCode::SERVICE_UNAVAILABLE,
            "the relay's system provides no random numbers; try again".to_owned(),
        ),
    };
    answer::error(status, sentence)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn received_header_must_be_a_single_number() {
        let received_of = |values: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(RECEIVED_HEADER, HeaderValue::from_static(value));
            }
            received(&headers)
        };
        assert_eq!(
            (
                received_of(&[]),
                received_of(&["0"]),
                received_of(&["4711"])
            ),
            (Some(0), Some(0), Some(4711))
        );
        for values in [
            &["-1"][..],
            &["+1"],
            &["0x1"],
            &[""],
            &["1 "],
            &["1", "1"],
            &["18446744073709551616"],
        ] {
            assert_eq!(received_of(values), None, "{values:?}");
        }
    }
}
