//! Builders for the relay's own answers.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::{Frame, SizeHint};
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, X_CONTENT_TYPE_OPTIONS,
};
use hyper::{Response, StatusCode};
use parking_lot::Mutex;
use serde::Serialize;

use ray_relay_access::identity::{Principal, PrincipalEnded};
use ray_relay_access::telemetry::request::RequestId;
use ray_relay_ray::ray::head::StreamedBodyError;

/// The header of each answer that holds the id of its request.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Body of every answer.
pub(super) type Body = UnsyncBoxBody<Bytes, StreamedBodyError>;

/// A body of these bytes.
pub(super) fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into())
        .map_err(|never| match never {})
        .boxed_unsync()
}

/// An empty body.
pub(super) fn empty() -> Body {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

/// A body of these pieces, some of which may be shared with other answers.
pub(super) fn pieces(pieces: impl Into<VecDeque<Bytes>>) -> Body {
    let pieces = Pieces(pieces.into());
    pieces.map_err(|never| match never {}).boxed_unsync()
}

/// Body of [`pieces`]: the pieces that are still to be sent.
struct Pieces(VecDeque<Bytes>);

impl hyper::body::Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop_front().map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.iter().map(|piece| piece.len() as u64).sum())
    }
}

/// Wraps `body`, which keeps `guard` until it has been sent or dropped.
pub(super) fn held<G>(
    body: Body,
    guard: G,
) -> impl hyper::body::Body<Data = Bytes, Error = StreamedBodyError> {
    // The closure owns the guard. Errors pass unchanged.
    body.map_err(move |error| {
        let _kept = &guard;
        error
    })
}

/// Wraps `body`, which breaks off when `principal` expires or is revoked.
pub(super) fn while_valid<B>(body: B, principal: &Principal) -> WhileValid<B> {
    let principal = principal.clone();
    WhileValid {
        body,
        over: Mutex::new(Box::pin(async move { principal.ended().await })),
    }
}

/// Body of [`while_valid`]: it ends when the principal does.
pub(super) struct WhileValid<B> {
    body: B,
    /// Behind a mutex that is never contended: request bodies have to be `Sync`.
    over: Mutex<Pin<Box<dyn Future<Output = PrincipalEnded> + Send>>>,
}

impl<B> hyper::body::Body for WhileValid<B>
where
    B: hyper::body::Body<Data = Bytes> + Unpin,
    B::Error: Into<StreamedBodyError>,
{
    type Data = Bytes;
    type Error = StreamedBodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, StreamedBodyError>>> {
        let over = self.over.get_mut();
        if let Poll::Ready(ended) = over.as_mut().poll(cx) {
            // The future must not be polled again. This error ends the body, so hyper does not poll it again.
            return Poll::Ready(Some(Err(ended.into())));
        }
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        frame.map(|frame| frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Builds an answer with the headers that all of the relay's answers share.
pub(super) fn own(status: StatusCode, kind: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// JSON on one line, with a line feed for terminals.
pub(super) fn json(status: StatusCode, value: &impl Serialize) -> Response<Body> {
    let mut text = serde_json::to_vec(value).unwrap_or_default();
    text.push(b'\n');
    own(status, "application/json", full(text))
}

/// An error answer with the JSON body `{"error": sentence}`.
pub(super) fn error(status: StatusCode, sentence: impl std::fmt::Display) -> Response<Body> {
    let sentence = sentence.to_string();
    let mut response = json(status, &serde_json::json!({ "error": sentence }));
    response
        .extensions_mut()
        .insert(ErrorSentence::Json(sentence));
    response
}

/// Answers that a user, or all together, have as many requests of this kind open as they may.
pub(super) fn too_many() -> Response<Body> {
    let sentence = "too many of these requests run at a time, yours or all together: try again";
    error(StatusCode::TOO_MANY_REQUESTS, sentence)
}

/// Plain text, as in Ray's own errors: Ray's tools print the body.
pub(super) fn text(status: StatusCode, sentence: impl std::fmt::Display) -> Response<Body> {
    let sentence = sentence.to_string();
    let body = full(format!("{sentence}\n"));
    let mut response = own(status, "text/plain; charset=utf-8", body);
    response
        .extensions_mut()
        .insert(ErrorSentence::Text(sentence));
    response
}

/// The error sentence of an answer, with its format.
#[derive(Debug, Clone)]
enum ErrorSentence {
    Json(String),
    Text(String),
}

/// Adds the request `id` to the head of `response`, and to its body if that is an error: a user who reports the error
/// has the id at hand.
pub(super) fn marked(mut response: Response<Body>, id: RequestId) -> Response<Body> {
    let marked = match response.extensions_mut().remove::<ErrorSentence>() {
        Some(ErrorSentence::Json(sentence)) => {
            let value = serde_json::json!({ "error": sentence, "request": id });
            Some(format!("{value}\n"))
        }
        Some(ErrorSentence::Text(sentence)) => Some(format!("{sentence} (request {id})\n")),
        None => None,
    };
    if let Some(marked) = marked {
        *response.body_mut() = full(marked);
    }
    if let Ok(id) = HeaderValue::try_from(id.to_string()) {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    response
}

/// 405 with `Allow: GET, HEAD`.
pub(super) fn read_only() -> Response<Body> {
    let mut response = error(
        StatusCode::METHOD_NOT_ALLOWED,
        "the relay's API only takes GET and HEAD requests",
    );
    response
        .headers_mut()
        .insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    response
}

/// 405 with `Allow: POST`, and `sentence` as the error.
pub(super) fn post_only(sentence: &str) -> Response<Body> {
    let mut response = error(StatusCode::METHOD_NOT_ALLOWED, sentence);
    response
        .headers_mut()
        .insert(ALLOW, HeaderValue::from_static("POST"));
    response
}
