//! `GET /relay/v1/breakpoints`: the list, or a page of it.
//!
//! Its rows are those that the principal may list in the current snapshot. Their text is shared by all clients with the
//! same rows ([`SharedRows`]). The entity tag covers the rows and the state of the heads, but no ages. A client that
//! already has the same list gets 304.

use std::sync::Arc;

use hyper::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, ETAG, HeaderMap, HeaderValue, IF_NONE_MATCH,
    VARY,
};
use hyper::{Response, StatusCode};

use super::page::ListQuery;
use crate::http::answer::{self, Body};
use crate::http::{hop, query};
use ray_relay_access::identity::Principal;
use ray_relay_access::policy::Scope;
use ray_relay_ray::ray::registry::Snapshot;
use ray_relay_session::session::within;
use ray_relay_view::listing::json::Rest;
use ray_relay_view::listing::shared::SharedRows;

/// Minimum length of a list that is compressed, in bytes.
const MIN_COMPRESSED_BYTES: usize = 1024;

/// Answers with the list in `snapshot` for `principal`, or with a page of it ([`super::page`]).
pub async fn breakpoints(
    shared: &SharedRows,
    snapshot: &Arc<Snapshot>,
    query: Option<&str>,
    headers: &HeaderMap,
    principal: &Principal,
) -> Response<Body> {
    let bad = |sentence: String| answer::error(StatusCode::BAD_REQUEST, sentence);
    let selection = match query::pairs(query).and_then(|pairs| ListQuery::read(&pairs)) {
        Ok(selection) => selection,
        Err(sentence) => return bad(sentence),
    };
    let listed = within(principal, Scope::List, snapshot);
    let page = match selection.of(&listed) {
        Ok(page) => page,
        Err(sentence) => return bad(sentence),
    };
    let rest = Rest {
        total: page.total,
        hidden: page.hidden,
        next: page.next.as_deref(),
        snapshot: &listed,
    };
    let rows = shared.list(&page.rows);
    let tag = shared.tag(&rows, &rest);
    if is_known(headers, &tag) {
        let mut unchanged = Response::new(answer::empty());
        *unchanged.status_mut() = StatusCode::NOT_MODIFIED;
        return tagged(unchanged, &tag);
    }
    let mut end = rest.end();
    end.push(b'\n');
    let compressed = match takes_gzip(headers) && rows.text.len() >= MIN_COMPRESSED_BYTES {
        true => rows.compressed(&end).await,
        false => None,
    };
    let is_compressed = compressed.is_some();
    let pieces = compressed.unwrap_or_else(|| rows.ended_with(end));
    let mut response = answer::own(StatusCode::OK, "application/json", answer::pieces(pieces));
    if is_compressed {
        let gzip = HeaderValue::from_static("gzip");
        response.headers_mut().insert(CONTENT_ENCODING, gzip);
    }
    tagged(response, &tag)
}

fn tagged(mut response: Response<Body>, tag: &str) -> Response<Body> {
    let headers = response.headers_mut();
    if let Ok(tag) = HeaderValue::from_str(tag) {
        headers.insert(ETAG, tag);
    }
    headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Whether the client already has the list with this `tag`.
fn is_known(headers: &HeaderMap, tag: &str) -> bool {
    let opaque = |tag: &str| tag.strip_prefix("W/").unwrap_or(tag).to_owned();
    hop::listed(headers, &IF_NONE_MATCH).any(|known| known == "*" || opaque(known) == opaque(tag))
}

/// Whether the client accepts gzip.
fn takes_gzip(headers: &HeaderMap) -> bool {
    hop::listed(headers, &ACCEPT_ENCODING).any(|coding| {
        let (name, quality) = coding.split_once(';').unwrap_or((coding, "q=1"));
        let is_gzip = ["gzip", "x-gzip"]
            .iter()
            .any(|gzip| name.trim().eq_ignore_ascii_case(gzip));
        let quality = quality.trim().trim_start_matches(['q', 'Q', '=', ' ']);
        is_gzip && quality.parse::<f32>().is_ok_and(|quality| quality > 0.0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_is_used_only_if_the_client_accepts_it() {
        let accepts = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(value));
            takes_gzip(&headers)
        };
        for value in [
            "gzip",
            "br, GZIP",
            "gzip;q=0.5",
            "deflate, gzip ; q = 1.0, *;q=0",
        ] {
            assert!(accepts(value), "{value}");
        }
        for value in ["", "identity", "gzip;q=0", "gzip;q=0.000", "*", "gzipped"] {
            assert!(!accepts(value), "{value}");
        }
        assert!(!takes_gzip(&HeaderMap::new()));
    }
}
