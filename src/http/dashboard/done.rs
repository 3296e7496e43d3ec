//! What a change through the dashboard does, for the record: which job is submitted, which applications are served, and what
//! came of it.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap};
use hyper::{Response, StatusCode};
use serde_json::{Map, Value};
use tokio::time::timeout;

use crate::audit::chain::Hash;
use crate::http::answer::{self, Body};
use crate::http::refusal::chain;
use crate::http::required_access::Described;

/// Largest description of what is run, in bytes. Its files are uploaded by other requests.
const LARGEST: usize = 4 << 20;

/// Largest answer to it that is read, by what it says of itself.
const LARGEST_ANSWER: u64 = 64 << 10;

/// How long each may take to arrive.
const PATIENCE: Duration = Duration::from_secs(30);

/// What of a job's description says what runs; its environment may hold secrets.
const TOLD: [&str; 3] = ["entrypoint", "submission_id", "job_id"];

/// What the head calls an application that has no name.
const UNNAMED: &str = "default";

/// Reads the description of what is to be run. `Err` is the answer for the client.
pub(super) async fn description(
    what: Described,
    body: &mut Incoming,
) -> Result<Bytes, Response<Body>> {
    let what = match what {
        Described::Job => "a job",
        Described::Applications => "the applications",
    };
    let mut text = BytesMut::new();
    let read = async {
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|why| {
                let sentence = format!("the description of {what} broke off: {}", chain(&why));
                answer::text(StatusCode::BAD_REQUEST, sentence)
            })?;
            let part = frame.into_data().unwrap_or_default();
            if text.len() + part.len() > LARGEST {
                let sentence = format!(
                    "the description of {what} is longer than {LARGEST} bytes, and the relay records the submitted description: put files into the working_dir"
                );
                return Err(answer::text(StatusCode::PAYLOAD_TOO_LARGE, sentence));
            }
            text.extend_from_slice(&part);
        }
        Ok(())
    };
    match timeout(PATIENCE, read).await {
        Ok(Ok(())) => Ok(text.freeze()),
        Ok(Err(answer)) => Err(answer),
        Err(_) => {
            let sentence = format!("the description of {what} did not come in time");
            Err(answer::text(StatusCode::REQUEST_TIMEOUT, sentence))
        }
    }
}

/// What of a description goes on record. Of one that the head may read in another way than the relay, its length and
/// SHA-256.
pub(super) fn told(what: Described, headers: &HeaderMap, text: &[u8]) -> Map<String, Value> {
    let plain = !headers.contains_key(CONTENT_ENCODING)
        && headers.get(CONTENT_TYPE).is_none_or(|kind| {
            let kind = kind.to_str().unwrap_or("charset").to_ascii_lowercase();
            !kind.contains("charset") || kind.contains("charset=utf-8")
        });
    let read = serde_json::from_slice::<Map<String, Value>>(text);
    let read = read.ok().filter(|_| plain);
    let told = read.and_then(|description| match what {
        Described::Job => Some(of_job(description)),
        Described::Applications => of_applications(&description),
    });
    told.unwrap_or_else(|| {
        let hash = Hash::plain(text);
        let body = format!("({} bytes, SHA-256 {hash})", text.len());
        Map::from_iter([("body".to_owned(), body.into())])
    })
}

fn of_job(mut job: Map<String, Value>) -> Map<String, Value> {
    let known = TOLD.iter().filter_map(|key| {
        let value = job.remove(*key)?;
        (!value.is_null()).then(|| ((*key).to_owned(), value))
    });
    let mut told: Map<String, Value> = known.collect();
    let files = job
        .get_mut("runtime_env")
        .and_then(|e| e.get_mut("working_dir"));
    if let Some(files) = files {
        told.insert("working_dir".to_owned(), files.take());
    }
    told
}

/// What is to be served, by name: what is not in it ends. Arguments and environments may hold secrets.
fn of_applications(config: &Map<String, Value>) -> Option<Map<String, Value>> {
    let names = config.get("applications")?.as_array()?.iter().map(|one| {
        let name = one.as_object()?.get("name");
        name.map_or(Some(UNNAMED), Value::as_str).map(Value::from)
    });
    let names: Vec<Value> = names.collect::<Option<_>>()?;
    Some(Map::from_iter([("applications".to_owned(), names.into())]))
}

/// The id that the head gave a job, and the answer as it was.
pub(super) async fn submission(response: Response<Body>) -> (Option<String>, Response<Body>) {
    let small = |size: u64| size <= LARGEST_ANSWER;
    if !response.body().size_hint().upper().is_some_and(small) {
        return (None, response);
    }
    let (parts, body) = response.into_parts();
    match timeout(PATIENCE, body.collect()).await {
        Ok(Ok(whole)) => {
            let text = whole.to_bytes();
            let told = serde_json::from_slice::<Value>(&text).unwrap_or_default();
            let id = told["submission_id"].as_str().map(str::to_owned);
            (id, Response::from_parts(parts, answer::full(text)))
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

    fn of(what: Described, headers: &[(&'static str, &'static str)], text: &str) -> Value {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, value.parse().unwrap());
        }
        Value::Object(super::told(what, &map, text.as_bytes()))
    }

    #[test]
    fn a_job_is_told_by_what_it_runs_and_never_by_its_environment() {
        let job = r#"{"entrypoint": "python a.py", "submission_id": "s1", "job_id": null, "metadata": {"x": "y"},
            "runtime_env": {"working_dir": "gcs://p.zip", "env_vars": {"KEY": "s3cret"}}}"#;
        let told = json!({"entrypoint": "python a.py", "submission_id": "s1", "working_dir": "gcs://p.zip"});
        for headers in [
            &[][..],
            &[("content-type", "application/json; charset=UTF-8")],
        ] {
            assert_eq!(of(Described::Job, headers, job), told);
        }
    }

    #[test]
    fn applications_are_told_by_their_names() {
        let of = |text: &str| of(Described::Applications, &[], text);
        let config = r#"{"applications": [{"name": "chat", "import_path": "a:b", "args": {"key": "s3cret"}},
            {"import_path": "c:d", "runtime_env": {"env_vars": {"KEY": "s3cret"}}}], "http_options": {"port": 8000}}"#;
        assert_eq!(of(config), json!({"applications": ["chat", "default"]}));
        assert_eq!(of(r#"{"applications": []}"#), json!({"applications": []}));
        for strange in [
            r#"{"applications": {}}"#,
            r#"{"applications": ["chat"]}"#,
            r#"{"applications": [{"name": {"x": "s3cret"}}]}"#,
            "{}",
        ] {
            let told = of(strange);
            let said = told["body"].as_str().unwrap();
            assert!(
                said.contains("SHA-256") && !said.contains("s3cret"),
                "{said}"
            );
        }
    }

    #[test]
    fn what_the_head_may_read_in_another_way_is_told_by_its_hash() {
        let hash = "body";
        for (headers, text) in [
            (
                &[("content-type", "application/json; charset=utf-7")][..],
                "{\"entrypoint\": \"a\"}",
            ),
            (&[("content-encoding", "gzip")], "{\"entrypoint\": \"a\"}"),
            (&[], "{\"entrypoint\": \"a\", \"n\": NaN}"),
            (&[], ""),
        ] {
            let told = of(Described::Job, headers, text);
            let said = told[hash].as_str().unwrap();
            assert!(
                said.starts_with(&format!("({} bytes, SHA-256 ", text.len())),
                "{told}"
            );
            assert_eq!(told.get("entrypoint"), None);
        }
    }
}
