//! The web page at `/relay/`: the paused tasks, and the actions on them.
//!
//! Its files are the same for every client and contain nothing of this relay, so they need no credential. The page gets
//! its data from the API, as its user. It loads nothing from other hosts, and its policy permits nothing else: no
//! inline script or style, and no frame around it.

use std::sync::LazyLock;

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hyper::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, ETAG, HeaderMap, HeaderName, HeaderValue,
    IF_NONE_MATCH, LOCATION, REFERRER_POLICY,
};
use hyper::{Response, StatusCode};

use super::answer::{self, Body};
use super::{hop, origin};
use ray_relay_base::config::Config;
use ray_relay_view::manual;

/// Policy of the document. Forms may also go to dashboards, with the ticket of the user who goes there.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'";

/// Policy of a documentation page: only its styles and picture. The pages are the same for every client, and contain
/// nothing of this relay.
const MANUAL: &str = "default-src 'none'; style-src 'self'; img-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

/// Other sites learn only the relay's origin. With no referrer at all, a browser would not tell it to a dashboard's
/// origin either.
const REFERRER: HeaderValue = HeaderValue::from_static("strict-origin");

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";
const SVG: &str = "image/svg+xml";

/// One file of the page.
#[derive(Debug)]
struct PageFile {
    /// Its path below `/relay/page/`. The document's is empty, and it is at `/relay/`.
    name: &'static str,
    kind: &'static str,
    text: &'static str,
}

macro_rules! file {
    ($name:literal, $kind:expr) => {
        PageFile {
            name: $name,
            kind: $kind,
            text: include_str!(concat!("page/", $name)),
        }
    };
}

const FILES: &[PageFile] = &[
    PageFile {
        name: "",
        kind: HTML,
        text: include_str!("page/index.html"),
    },
    file!("page.css", CSS),
    file!("docs.css", CSS),
    file!("icon.svg", SVG),
    file!("paused.svg", SVG),
    file!("main.js", SCRIPT),
    file!("views.js", SCRIPT),
    file!("relay.js", SCRIPT),
    file!("dashboards.js", SCRIPT),
    file!("feed.js", SCRIPT),
    file!("list.js", SCRIPT),
    file!("grid.js", SCRIPT),
    file!("stop.js", SCRIPT),
    file!("pane.js", SCRIPT),
    file!("task.js", SCRIPT),
    file!("actions.js", SCRIPT),
    file!("dialog.js", SCRIPT),
    file!("compare.js", SCRIPT),
    file!("snapshot.js", SCRIPT),
    file!("python.js", SCRIPT),
    file!("value.js", SCRIPT),
    file!("terminal.js", SCRIPT),
    file!("sessions.js", SCRIPT),
    file!("several.js", SCRIPT),
    file!("asked.js", SCRIPT),
    file!("running.js", SCRIPT),
    file!("why.js", SCRIPT),
    file!("run.js", SCRIPT),
    file!("notify.js", SCRIPT),
    file!("text.js", SCRIPT),
];

/// The entity tags of [`FILES`], in their order.
static TAGS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let tag = |file: &PageFile| {
        let digest = digest(&SHA256, file.text.as_bytes());
        format!("\"{}\"", URL_SAFE_NO_PAD.encode(&digest.as_ref()[..16]))
    };
    FILES.iter().map(tag).collect()
});

/// Answers with the file called `name`; `None`: there is none.
pub fn answer(name: &str, headers: &HeaderMap, config: &Config) -> Option<Response<Body>> {
    let (file, tag) = FILES
        .iter()
        .zip(TAGS.iter())
        .find(|(file, _)| file.name == name)?;
    let is_known = hop::listed(headers, &IF_NONE_MATCH)
        .any(|known| known == "*" || known.trim_start_matches("W/") == tag);
    let mut response = match is_known {
        true => {
            let mut unchanged = Response::new(answer::empty());
            *unchanged.status_mut() = StatusCode::NOT_MODIFIED;
            unchanged
        }
        false => answer::own(StatusCode::OK, file.kind, answer::full(file.text)),
    };
    let own = HeaderValue::from_static("same-origin");
    let headers = response.headers_mut();
    if let Ok(tag) = HeaderValue::from_str(tag) {
        headers.insert(ETAG, tag);
    }
    // Cached, and revalidated each time, so that files of two versions never mix.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    let dashboards = origin::all(config);
    if let Ok(policy) = HeaderValue::try_from(format!("{POLICY} {dashboards}")) {
        headers.insert(CONTENT_SECURITY_POLICY, policy);
    }
    headers.insert(REFERRER_POLICY, REFERRER);
    for name in ["cross-origin-opener-policy", "cross-origin-resource-policy"] {
        headers.insert(HeaderName::from_static(name), own.clone());
    }
    Some(response)
}

/// Answers with the documentation page `topic`, or the table of contents if that is empty. With `.md`, answers with the
/// source.
pub fn manual(topic: &str) -> Option<Response<Body>> {
    let (picture, drawn) = manual::PICTURE;
    let (kind, text) = match topic.strip_suffix(".md") {
        None if topic == picture => (SVG, drawn.to_owned()),
        Some(topic) => (TEXT, manual::page(topic)?.text.to_owned()),
        None if topic.is_empty() => (HTML, manual::html::contents()),
        None => (HTML, manual::html::page(topic, manual::page(topic)?.text)),
    };
    let mut response = answer::own(StatusCode::OK, kind, answer::full(text));
    let headers = response.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(MANUAL));
    headers.insert(REFERRER_POLICY, REFERRER);
    Some(response)
}

/// Redirects `/relay` to the document. The location is relative, because an ingress may add a prefix.
pub fn redirect_to_page() -> Response<Body> {
    let sentence = "the page is at /relay/";
    let mut response = answer::error(StatusCode::PERMANENT_REDIRECT, sentence);
    let headers = response.headers_mut();
    headers.insert(LOCATION, HeaderValue::from_static("relay/"));
    response
}

/// 404 on a dashboard's origin, which serves neither the page nor the API.
pub(crate) fn misdirected() -> Response<Body> {
    let sentence = "this address is a dashboard's alone: the relay's page and API are at the relay's own address";
    answer::error(StatusCode::NOT_FOUND, sentence)
}
