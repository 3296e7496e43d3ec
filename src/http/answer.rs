//! Answers that the relay gives itself.

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use hyper::{Response, StatusCode};
use serde::Serialize;

use crate::head::BodyError;

/// Body of every answer.
pub(crate) type Body = BoxBody<Bytes, BodyError>;

/// A whole body.
pub(crate) fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed()
}

/// Bytes of the relay's own, with what every one of its answers carries.
pub(crate) fn own(status: StatusCode, kind: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// JSON on one line, ended as a terminal likes it.
pub(crate) fn json(status: StatusCode, value: &impl Serialize) -> Response<Body> {
    let mut text = serde_json::to_vec(value).unwrap_or_default();
    text.push(b'\n');
    own(status, "application/json", full(text))
}

/// `{"error": sentence}`.
pub(crate) fn error(status: StatusCode, sentence: impl std::fmt::Display) -> Response<Body> {
    json(status, &serde_json::json!({ "error": sentence.to_string() }))
}

/// The sentence alone, as Ray's own errors are, because Ray's tools print the body.
pub(crate) fn text(status: StatusCode, sentence: impl std::fmt::Display) -> Response<Body> {
    own(status, "text/plain; charset=utf-8", full(format!("{sentence}\n")))
}

/// 405 with what is allowed instead.
pub(crate) fn read_only() -> Response<Body> {
    let mut response = error(
        StatusCode::METHOD_NOT_ALLOWED,
        "the relay's API only takes GET and HEAD requests",
    );
    response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    response
}
