//! Audit details of a change through the dashboard: the submitted job, the deployed applications, and the result.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap};
use hyper::{Response, StatusCode};
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::time::timeout;

use crate::http::answer::{self, Body};
use crate::http::refusal::chain;
use crate::http::required_access::Described;

/// Maximum size of the description of a job or applications, in bytes. Its files are uploaded by other requests.
const MAX_DESCRIPTION_BYTES: usize = 4 << 20;

/// Maximum size of an answer to parse, as declared by the head.
const MAX_ANSWER_BYTES: u64 = 64 << 10;

/// Time limit for receiving either.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// Keys of a job's description to audit. Its environment may contain secrets.
const AUDITED_KEYS: [&str; 3] = ["entrypoint", "submission_id", "job_id"];

/// Name that the head gives an unnamed application.
const UNNAMED: &str = "default";

/// The description of a job or of applications.
#[derive(Debug)]
pub(super) struct Description {
    /// The original text.
    pub(super) text: Bytes,
    /// Details for the audit log.
    pub(super) details: Map<String, Value>,
}

/// Reads the description. `Err` is the answer for the client.
pub(super) async fn description(
    what: Described,
    headers: &HeaderMap,
    body: &mut Incoming,
) -> Result<Description, Response<Body>> {
    let name = match what {
        Described::Job => "a job",
        Described::Applications => "the applications",
    };
    let mut text = BytesMut::new();
    let read = async {
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|why| {
                let sentence = format!("the description of {name} broke off: {}", chain(&why));
                answer::text(StatusCode::BAD_REQUEST, sentence)
            })?;
            let part = frame.into_data().unwrap_or_default();
            if text.len() + part.len() > MAX_DESCRIPTION_BYTES {
                let sentence = format!(
                    "the description of {name} is longer than {MAX_DESCRIPTION_BYTES} bytes, and the relay records the submitted description: put files into the working_dir"
                );
                return Err(answer::text(StatusCode::PAYLOAD_TOO_LARGE, sentence));
            }
            text.extend_from_slice(&part);
        }
        Ok(())
    };
    match timeout(BODY_TIMEOUT, read).await {
        Ok(Ok(())) => {
            let text = text.freeze();
            let details = parsed(headers, &text).and_then(|fields| details(what, &fields));
            let details = details.ok_or_else(|| unreadable(name))?;
            Ok(Description { text, details })
        }
        Ok(Err(answer)) => Err(answer),
        Err(_) => {
            let sentence = format!("the description of {name} did not come in time");
            Err(answer::text(StatusCode::REQUEST_TIMEOUT, sentence))
        }
    }
}

/// Refuses a description of `name` that the head might parse differently than the relay.
pub(super) fn unreadable(name: &str) -> Response<Body> {
    let sentence = format!(
        "the relay records the description of {name} and cannot read this one: send one JSON object in UTF-8, not compressed, nested at most 100 deep, without NaN, numbers beyond 1e308 or halves of surrogate pairs, and with the types that Ray documents"
    );
    answer::text(StatusCode::BAD_REQUEST, sentence)
}

/// Parses `text` as an object, if all parsers agree on it.
fn parsed(headers: &HeaderMap, text: &[u8]) -> Option<Map<String, Value>> {
    let mut encodings = headers.get_all(CONTENT_ENCODING).iter();
    let mut kinds = headers.get_all(CONTENT_TYPE).iter();
    let kind = kinds.next().map_or(Some(""), |kind| kind.to_str().ok())?;
    let kind = kind.to_ascii_lowercase().replace(['"', ' ', '\t'], "");
    let mut charsets = kind.split("charset").skip(1);
    let is_plain = encodings.all(|encoding| encoding == "identity")
        && kinds.next().is_none()
        && charsets.all(|rest| rest == "=utf-8" || rest.starts_with("=utf-8;"));
    is_plain
        .then(|| serde_json::from_slice(text).ok())
        .flatten()
}

/// Audit details of a description; `None`: its fields have types that the head does not accept.
fn details(what: Described, fields: &Map<String, Value>) -> Option<Map<String, Value>> {
    match what {
        Described::Job => of_job(fields),
        Described::Applications => of_applications(fields),
    }
}

fn of_job(job: &Map<String, Value>) -> Option<Map<String, Value>> {
    let mut details = Map::new();
    for key in AUDITED_KEYS {
        match job.get(key) {
            None | Some(Value::Null) => {}
            Some(text) => _ = details.insert(key.to_owned(), text.as_str()?.into()),
        }
    }
    let environment = match job.get("runtime_env") {
        None | Some(Value::Null) => return Some(details),
        Some(environment) => environment.as_object()?,
    };
    if let Some(files) = environment.get("working_dir") {
        details.insert("working_dir".to_owned(), files.clone());
    }
    Some(details)
}

/// The names of all applications: one that is missing is deleted. Arguments and environments may contain secrets.
fn of_applications(config: &Map<String, Value>) -> Option<Map<String, Value>> {
    let names = config.get("applications")?.as_array()?.iter().map(|one| {
        let name = one.as_object()?.get("name");
        name.map_or(Some(UNNAMED), Value::as_str).map(Value::from)
    });
    let names: Vec<Value> = names.collect::<Option<_>>()?;
    Some(Map::from_iter([("applications".to_owned(), names.into())]))
}

/// A head's answer to a submitted job.
#[derive(Default, Deserialize)]
struct Submitted {
    submission_id: Option<String>,
}

/// Reads the id that the head gave a job, and returns the answer unchanged.
pub(super) async fn submission(response: Response<Body>) -> (Option<String>, Response<Body>) {
    let small = |size: u64| size <= MAX_ANSWER_BYTES;
    if !response.body().size_hint().upper().is_some_and(small) {
        return (None, response);
    }
    let (parts, body) = response.into_parts();
    match timeout(BODY_TIMEOUT, body.collect()).await {
        Ok(Ok(whole)) => {
            let text = whole.to_bytes();
            let submitted: Submitted = serde_json::from_slice(&text).unwrap_or_default();
            (
                submitted.submission_id,
                Response::from_parts(parts, answer::full(text)),
            )
        }
        Ok(Err(_)) | Err(_) => {
            let sentence = "the Ray head's answer broke off; `ray job list` tells whether the job was submitted";
            (None, answer::text(StatusCode::BAD_GATEWAY, sentence))
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(
        what: Described,
        headers: &[(&'static str, &'static str)],
        text: &[u8],
    ) -> Option<Value> {
        let headers = headers.iter().map(|(name, value)| {
            let name: hyper::header::HeaderName = name.parse().unwrap();
            (name, value.parse().unwrap())
        });
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(name, value);
        }
        details(what, &parsed(&map, text)?).map(Value::Object)
    }

    #[test]
    fn job_is_recorded_by_its_command_not_its_environment() {
        let job = r#"{"entrypoint": "python a.py", "submission_id": "s1", "job_id": null, "metadata": {"x": "y"},
            "runtime_env": {"working_dir": "gcs://p.zip", "env_vars": {"KEY": "s3cret"}}}"#;
        let recorded = json!({"entrypoint": "python a.py", "submission_id": "s1", "working_dir": "gcs://p.zip"});
        for headers in [
            &[][..],
            &[("content-type", "application/json")],
            &[("content-type", "application/json; charset=UTF-8")],
            &[
                ("content-type", "application/json;charset=\"utf-8\"; x=y"),
                ("content-encoding", "identity"),
            ],
        ] {
            let job = read(Described::Job, headers, job.as_bytes());
            assert_eq!(job.as_ref(), Some(&recorded), "{headers:?}");
        }
    }

    #[test]
    fn applications_are_recorded_by_their_names() {
        let applications_of = |text: &str| read(Described::Applications, &[], text.as_bytes());
        let config = r#"{"applications": [{"name": "chat", "import_path": "a:b", "args": {"key": "s3cret"}},
            {"import_path": "c:d", "runtime_env": {"env_vars": {"KEY": "s3cret"}}}], "http_options": {"port": 8000}}"#;
        assert_eq!(
            applications_of(config),
            Some(json!({"applications": ["chat", "default"]}))
        );
        assert_eq!(
            applications_of(r#"{"applications": []}"#),
            Some(json!({"applications": []}))
        );
        for text in [
            r#"{"applications": {}}"#,
            r#"{"applications": ["chat"]}"#,
            r#"{"applications": [{"name": {"x": "s3cret"}}]}"#,
            "{}",
        ] {
            assert_eq!(applications_of(text), None, "{text}");
        }
    }

    /// Ray accepts each of these bodies.
    #[test]
    fn ambiguous_job_body_is_not_parsed() {
        let deep = format!(
            "{{\"entrypoint\": \"id\", \"n\": {}1{}}}",
            "[".repeat(200),
            "]".repeat(200)
        );
        let plain = "{\"entrypoint\": \"id\"}";
        let wide: Vec<u8> = plain.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let json = ("content-type", "application/json");
        for (headers, text) in [
            (&[][..], r#"{"entrypoint": "id", "n": "\ud800"}"#.as_bytes()),
            (&[], br#"{"entrypoint": "id", "n": NaN}"#),
            (&[], br#"{"entrypoint": "id", "n": -Infinity}"#),
            (&[], br#"{"entrypoint": "id", "n": 1e400}"#),
            (&[], br#"{"entrypoint": 5}"#),
            (&[], br#"{"entrypoint": "id", "runtime_env": "x"}"#),
            (&[], deep.as_bytes()),
            (&[], &wide),
            (&[], b""),
            (&[], b"[]"),
            (
                &[("content-type", "application/json; charset=utf-16")],
                &wide,
            ),
            (
                &[("content-type", "application/json; charset=utf-7")],
                plain.as_bytes(),
            ),
            (
                &[(
                    "content-type",
                    "application/json; charset=utf-8; charset=utf-7",
                )],
                plain.as_bytes(),
            ),
            (
                &[("content-type", "application/json; charset*=utf-7''x")],
                plain.as_bytes(),
            ),
            (
                &[("content-type", "application/json; charset=utf-8-sig")],
                plain.as_bytes(),
            ),
            (
                &[json, ("content-type", "text/plain; charset=utf-7")],
                plain.as_bytes(),
            ),
            (&[json, ("content-encoding", "gzip")], plain.as_bytes()),
            (&[("content-encoding", "deflate")], plain.as_bytes()),
        ] {
            let text_of = String::from_utf8_lossy(text);
            assert_eq!(
                read(Described::Job, headers, text),
                None,
                "{headers:?} {text_of}"
            );
        }
    }
}
