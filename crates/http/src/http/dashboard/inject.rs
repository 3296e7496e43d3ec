//! Adds the worker hook to jobs that are submitted through the relay. A variable in the job's runtime environment makes
//! Ray call the hook's package, which adds to the driver's settings. So it does not clash with a hook of the driver's
//! own. Pure.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use ray_relay_ray::ray::registry::SUBMITTER;

/// Names the function that Ray calls to change runtime environments.
const HOOK: &str = "RAY_RUNTIME_ENV_HOOK";
/// The relay's function.
const RELAY_HOOK: &str = "ray_relay.runtime_env";
/// Passes the job's own function on to the relay's.
const NEXT_HOOK_VARIABLE: &str = "RAY_RELAY_ENV_THEN";
/// Opts a job out of the hook, by a word among those that have commas between them.
const HOOK_DISABLED: (&str, &str) = ("RAY_RELAY_HOOK", "off");

/// Changes that were made to a job.
#[derive(Debug, PartialEq)]
pub(super) struct JobChanges {
    /// The hook was added: the job did not opt out.
    pub(super) hook: bool,
    /// The submitter was added to the metadata.
    pub(super) submitter: bool,
}

impl JobChanges {
    /// Whether the job was changed at all.
    pub(super) fn any(&self) -> bool {
        self.hook || self.submitter
    }
}

/// An object whose values keep their original text.
type RawObject = BTreeMap<String, Box<RawValue>>;

/// Adds the hook to `job` if the relay `injects` it, and the `submitter`, if known, to the metadata that Ray stores.
/// `None`: the job, its runtime environment or its metadata is no object.
pub(super) fn change(
    job: &[u8],
    injects: bool,
    submitter: Option<&str>,
) -> Option<(JobChanges, String)> {
    let mut job: RawObject = serde_json::from_slice(job).ok()?;
    let hook = injects && add_hook(&mut job)?;
    if let Some(submitter) = submitter {
        // Overrides the job's own value.
        let mut metadata = object(&job, "metadata")?;
        metadata.insert(SUBMITTER.to_owned(), raw(submitter)?);
        job.insert("metadata".to_owned(), raw(&metadata)?);
    }
    let changes = JobChanges {
        hook,
        submitter: submitter.is_some(),
    };
    Some((changes, serde_json::to_string(&job).ok()?))
}

/// Adds the hook to `job`; `false`: the job opts out.
fn add_hook(job: &mut RawObject) -> Option<bool> {
    let mut environment = object(job, "runtime_env")?;
    let mut variables = object(&environment, "env_vars")?;
    let text = |value: &RawValue| serde_json::from_str::<String>(value.get()).ok();
    let refuses = variables.get(HOOK_DISABLED.0).and_then(|value| text(value));
    let mut words = refuses.iter().flat_map(|words| words.split(','));
    if words.any(|word| word.trim() == HOOK_DISABLED.1) {
        return Some(false);
    }
    let own = variables.insert(HOOK.to_owned(), raw(RELAY_HOOK)?);
    if let Some(own) = own.filter(|own| text(own).as_deref() != Some(RELAY_HOOK)) {
        variables.insert(NEXT_HOOK_VARIABLE.to_owned(), own);
    }
    environment.insert("env_vars".to_owned(), raw(&variables)?);
    job.insert("runtime_env".to_owned(), raw(&environment)?);
    Some(true)
}

/// The object `key` of `parent`, empty if it is absent.
fn object(parent: &RawObject, key: &str) -> Option<RawObject> {
    let text = parent.get(key).map_or("null", |value| value.get());
    let object: Option<RawObject> = serde_json::from_str(text).ok()?;
    Some(object.unwrap_or_default())
}

fn raw(value: &(impl Serialize + ?Sized)) -> Option<Box<RawValue>> {
    to_raw_value(value).ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn injected(job: &Value) -> Option<Value> {
        let (changes, job) = change(job.to_string().as_bytes(), true, None)?;
        changes.hook.then(|| serde_json::from_str(&job).unwrap())
    }

    /// Ray and the job may distinguish numbers that are equal to the relay.
    #[test]
    fn unchanged_fields_keep_their_exact_spelling() {
        let job = r#"{"entrypoint_num_cpus":1.0E0,"metadata":{"a":"\u0062"},"runtime_env":{"config":{"n":123456789012345678901234567890,"m":1e2}}}"#;
        let (_, changed) = change(job.as_bytes(), true, Some("ann")).unwrap();
        for expected in [
            r#""entrypoint_num_cpus":1.0E0"#,
            r#""a":"\u0062""#,
            r#"{"n":123456789012345678901234567890,"m":1e2}"#,
        ] {
            assert!(changed.contains(expected), "{changed}");
        }
    }

    #[test]
    fn hook_is_added_and_the_rest_of_the_job_kept() {
        for environment in [json!({}), Value::Null] {
            let job = json!({"entrypoint": "python a.py", "runtime_env": environment, "metadata": {"a": "1"}});
            let expected = json!({"entrypoint": "python a.py", "metadata": {"a": "1"},
                "runtime_env": {"env_vars": {HOOK: RELAY_HOOK}}});
            assert_eq!(injected(&job).unwrap(), expected);
        }
        let job = json!({"entrypoint": "x", "runtime_env": {"working_dir": "gcs://a.zip", "worker_process_setup_hook": "mine.hook",
            "env_vars": {"A": "b", HOOK: "uv.hook"}}});
        let changed = injected(&job).unwrap();
        let variables = &changed["runtime_env"]["env_vars"];
        assert_eq!(
            *variables,
            json!({"A": "b", HOOK: RELAY_HOOK, NEXT_HOOK_VARIABLE: "uv.hook"})
        );
        assert_eq!(
            changed["runtime_env"]["worker_process_setup_hook"],
            "mine.hook"
        );
        // A second injection changes nothing.
        assert_eq!(injected(&changed).unwrap(), changed);
    }

    #[test]
    fn submitter_overrides_the_metadata_of_the_job() {
        let marked = |job: &Value| -> Option<Value> {
            let (changes, job) = change(job.to_string().as_bytes(), false, Some("ann"))?;
            assert!(changes.any() && !changes.hook);
            Some(serde_json::from_str(&job).unwrap())
        };
        let job = json!({"entrypoint": "x", "metadata": {"a": "1", SUBMITTER: "bob"}});
        let metadata = json!({"a": "1", SUBMITTER: "ann"});
        assert_eq!(marked(&job).unwrap()["metadata"], metadata);
        let plain = json!({"entrypoint": "x", "metadata": null});
        assert_eq!(
            marked(&plain).unwrap()["metadata"],
            json!({SUBMITTER: "ann"})
        );
        assert_eq!(marked(&json!({"metadata": "bob"})), None);
    }

    #[test]
    fn job_may_refuse_the_hook_and_malformed_one_is_rejected() {
        let changes_for = |environment: Value| {
            let job = json!({"runtime_env": environment}).to_string();
            change(job.as_bytes(), true, None).map(|(changes, _)| changes)
        };
        for words in ["off", "look, off"] {
            let environment = json!({"env_vars": {"RAY_RELAY_HOOK": words}});
            assert!(changes_for(environment).is_some_and(|changes| !changes.any()));
        }
        for other in [json!(5), json!({"env_vars": "x"})] {
            assert_eq!(changes_for(other.clone()), None, "{other}");
        }
    }
}
