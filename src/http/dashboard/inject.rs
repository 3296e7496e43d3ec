//! The hook of workers for jobs that are submitted through the relay: as a variable in the job's runtime environment, by which
//! Ray lets the hook's package add to what the driver asks for. So a hook of the driver's own does not clash with it. Pure.

use bytes::Bytes;
use hyper::header::{CONTENT_ENCODING, HeaderMap};
use serde_json::{Map, Value};

use crate::ray::registry::SUBMITTER;

/// By which Ray is told of a function that changes runtime environments.
const HOOK: &str = "RAY_RUNTIME_ENV_HOOK";
/// The relay's.
const OURS: &str = "ray_relay.runtime_env";
/// By which that one is told of the job's own.
const THEN: &str = "RAY_RELAY_ENV_THEN";
/// By which a job refuses.
const REFUSED: (&str, &str) = ("RAY_RELAY_HOOK", "off");

/// The job that `description` is of, with the hook; `None` where it refuses, or is none that can be read.
pub(super) fn with_hook(headers: &HeaderMap, description: &[u8]) -> Option<Bytes> {
    if headers.contains_key(CONTENT_ENCODING) {
        return None;
    }
    let mut job: Map<String, Value> = serde_json::from_slice(description).ok()?;
    let environment = object(&mut job, "runtime_env")?;
    let variables = object(environment, "env_vars")?;
    if variables
        .get(REFUSED.0)
        .is_some_and(|value| value == REFUSED.1)
    {
        return None;
    }
    if let Some(own) = variables
        .insert(HOOK.to_owned(), OURS.into())
        .filter(|own| own != OURS)
    {
        variables.insert(THEN.to_owned(), own);
    }
    serde_json::to_vec(&job).ok().map(Bytes::from)
}

/// The job that `description` is of, with `subject` as its submitter in the metadata that Ray keeps with it, whatever it said
/// itself; `None`: it is none that can be read.
pub(super) fn with_submitter(
    headers: &HeaderMap,
    description: &[u8],
    subject: &str,
) -> Option<Bytes> {
    if headers.contains_key(CONTENT_ENCODING) {
        return None;
    }
    let mut job: Map<String, Value> = serde_json::from_slice(description).ok()?;
    let metadata = object(&mut job, "metadata")?;
    metadata.insert(SUBMITTER.to_owned(), subject.into());
    serde_json::to_vec(&job).ok().map(Bytes::from)
}

/// The object `key` of `parent`, made where there is none.
fn object<'a>(parent: &'a mut Map<String, Value>, key: &str) -> Option<&'a mut Map<String, Value>> {
    let value = parent.entry(key).or_insert(Value::Null);
    if value.is_null() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    fn injected(job: &Value) -> Option<Value> {
        let changed = with_hook(&HeaderMap::new(), job.to_string().as_bytes())?;
        Some(serde_json::from_slice(&changed).unwrap())
    }

    #[test]
    fn a_job_has_the_hook_and_all_that_it_had() {
        for environment in [json!({}), Value::Null] {
            let job = json!({"entrypoint": "python a.py", "runtime_env": environment, "metadata": {"a": "1"}});
            let with = json!({"entrypoint": "python a.py", "metadata": {"a": "1"},
                "runtime_env": {"env_vars": {HOOK: OURS}}});
            assert_eq!(injected(&job).unwrap(), with);
        }
        let own = json!({"entrypoint": "x", "runtime_env": {"working_dir": "gcs://a.zip", "worker_process_setup_hook": "mine.hook",
            "env_vars": {"A": "b", HOOK: "uv.hook"}}});
        let with = injected(&own).unwrap();
        let variables = &with["runtime_env"]["env_vars"];
        assert_eq!(*variables, json!({"A": "b", HOOK: OURS, THEN: "uv.hook"}));
        assert_eq!(
            with["runtime_env"]["worker_process_setup_hook"],
            "mine.hook"
        );
        // Twice is once.
        assert_eq!(injected(&with).unwrap(), with);
    }

    #[test]
    fn a_submitted_job_names_its_submitter_whatever_it_says_itself() {
        let marked = |job: &Value| -> Option<Value> {
            let text = job.to_string();
            let marked = with_submitter(&HeaderMap::new(), text.as_bytes(), "ann")?;
            Some(serde_json::from_slice(&marked).unwrap())
        };
        let own = json!({"entrypoint": "x", "metadata": {"a": "1", SUBMITTER: "bob"}});
        let metadata = json!({"a": "1", SUBMITTER: "ann"});
        assert_eq!(marked(&own).unwrap()["metadata"], metadata);
        let plain = json!({"entrypoint": "x", "metadata": null});
        assert_eq!(
            marked(&plain).unwrap()["metadata"],
            json!({SUBMITTER: "ann"})
        );
        assert_eq!(marked(&json!({"metadata": "bob"})), None);
    }

    #[test]
    fn a_job_may_refuse_and_what_is_no_job_stays_as_it_is() {
        let refuses =
            json!({"entrypoint": "x", "runtime_env": {"env_vars": {"RAY_RELAY_HOOK": "off"}}});
        assert_eq!(injected(&refuses), None);
        for other in [
            json!([]),
            json!({"runtime_env": 5}),
            json!({"runtime_env": {"env_vars": "x"}}),
        ] {
            assert_eq!(injected(&other), None, "{other}");
        }
        let packed = HeaderMap::from_iter([(CONTENT_ENCODING, "gzip".parse().unwrap())]);
        assert_eq!(with_hook(&packed, b"{}"), None);
        assert_eq!(with_hook(&HeaderMap::new(), b"{\"entrypoint\": "), None);
    }
}
