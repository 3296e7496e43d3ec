//! The page at `/relay/`: the paused tasks, and what may be done about them, for a browser.
//!
//! Its files are the same for every client and hold nothing of this relay, so they are served without a credential; what the page
//! shows it asks the API for, as its user. Nothing of it is from elsewhere, and its policy lets nothing else in: no script or
//! style within the document, no frame around it.

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

/// What the document may load, and what may be done with it. Forms go to dashboards, too, with the ticket of the person who goes there.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'";

/// What a page of the documentation may load: nothing but its styles and picture. It is the same for everybody, and holds nothing of this relay.
const MANUAL: &str = "default-src 'none'; style-src 'self'; img-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

/// Elsewhere no site is told more than that a page of the relay's leads there: with nothing at all a browser does not say so to a
/// dashboard's origin either.
const REFERRER: HeaderValue = HeaderValue::from_static("strict-origin");

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";
const SVG: &str = "image/svg+xml";

/// One file of the page.
#[derive(Debug)]
struct PageFile {
    /// Its place below `/relay/page/`; the document's is empty, and it is at `/relay/`.
    name: &'static str,
    kind: &'static str,
    text: &'static str,
}

/// A configuration of VS Code's debugger, with places to be filled in.
pub const VSCODE_CONFIGURATION: &str = include_str!("page/vscode.json");

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
    file!("run.js", SCRIPT),
    file!("notify.js", SCRIPT),
    file!("text.js", SCRIPT),
    // What `ray-relay launch-config vscode` prints, to be filled in.
    PageFile {
        name: "vscode.json",
        kind: TEXT,
        text: VSCODE_CONFIGURATION,
    },
];

/// The entity tag of each file of [`FILES`], in their order.
static TAGS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let tag = |file: &PageFile| {
        let digest = digest(&SHA256, file.text.as_bytes());
        format!("\"{}\"", URL_SAFE_NO_PAD.encode(&digest.as_ref()[..16]))
    };
    FILES.iter().map(tag).collect()
});

/// The answer with the file called `name`; `None`: there is none.
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
    // Kept, and asked for anew each time, so that the files of two versions never meet.
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

/// The documentation's page `topic`, and their list where that is empty; with `.md` behind, as it was written.
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

/// From `/relay` to the document, wherever that is for who asks: behind an ingress its path begins with more.
pub fn moved() -> Response<Body> {
    let sentence = "the page is at /relay/";
    let mut response = answer::error(StatusCode::PERMANENT_REDIRECT, sentence);
    let headers = response.headers_mut();
    headers.insert(LOCATION, HeaderValue::from_static("relay/"));
    response
}

/// There is nothing of the page, nor of the API, on a dashboard's origin.
pub(crate) fn not_here() -> Response<Body> {
    let sentence = "this address is a dashboard's alone: the relay's page and API are at the relay's own address";
    answer::error(StatusCode::NOT_FOUND, sentence)
}
