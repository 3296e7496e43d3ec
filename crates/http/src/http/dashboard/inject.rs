//! The hook of workers for jobs that are submitted through the relay: as a variable in the job's runtime environment, by which
//! Ray lets the hook's package add to what the driver asks for. So a hook of the driver's own does not clash with it. Pure.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use ray_relay_ray::ray::registry::SUBMITTER;

/// By which Ray is told of a function that changes runtime environments.
const HOOK: &str = "RAY_RUNTIME_ENV_HOOK";
/// The relay's.
const OURS: &str = "ray_relay.runtime_env";
/// By which that one is told of the job's own.
const THEN: &str = "RAY_RELAY_ENV_THEN";
/// By which a job refuses.
const REFUSED: (&str, &str) = ("RAY_RELAY_HOOK", "off");

/// What of a job was changed.
#[derive(Debug, PartialEq)]
pub(super) struct JobChanges {
    /// It has the hook: it did not refuse.
    pub(super) hook: bool,
    /// Its metadata names its submitter.
    pub(super) submitter: bool,
}

impl JobChanges {
    /// Whether the job is another one now.
    pub(super) fn any(&self) -> bool {
        self.hook || self.submitter
    }
}

/// An object whose values stay as they are written.
type RawObject = BTreeMap<String, Box<RawValue>>;

/// Puts the hook into `job` where the relay `injects` it, and names its `submitter`, where known, in the metadata that Ray keeps.
/// `None`: the job, its runtime environment or its metadata is no object, so neither can be done.
pub(super) fn change(
    job: &[u8],
    injects: bool,
    submitter: Option<&str>,
) -> Option<(JobChanges, String)> {
    let mut job: RawObject = serde_json::from_slice(job).ok()?;
    let hook = injects && add_hook(&mut job)?;
    if let Some(submitter) = submitter {
        // Whatever the job says itself.
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

/// Whether `job` has the hook now; `false`: it refuses.
fn add_hook(job: &mut RawObject) -> Option<bool> {
    let mut environment = object(job, "runtime_env")?;
    let mut variables = object(&environment, "env_vars")?;
    let text = |value: &RawValue| serde_json::from_str::<String>(value.get()).ok();
    let refuses = variables.get(REFUSED.0).and_then(|value| text(value));
    if refuses.as_deref() == Some(REFUSED.1) {
        return Some(false);
    }
    let own = variables.insert(HOOK.to_owned(), raw(OURS)?);
    if let Some(own) = own.filter(|own| text(own).as_deref() != Some(OURS)) {
        variables.insert(THEN.to_owned(), own);
    }
    environment.insert("env_vars".to_owned(), raw(&variables)?);
    job.insert("runtime_env".to_owned(), raw(&environment)?);
    Some(true)
}

/// The object `key` of `parent`, empty where there is none.
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

    /// Ray, and what a job reads of its description, may tell numbers apart that are the same to the relay.
    #[test]
    fn what_is_not_changed_stays_as_it_is_written() {
        let job = r#"{"entrypoint_num_cpus":1.0E0,"metadata":{"a":"\u0062"},"runtime_env":{"config":{"n":123456789012345678901234567890,"m":1e2}}}"#;
        let (_, changed) = change(job.as_bytes(), true, Some("ann")).unwrap();
        for kept in [
            r#""entrypoint_num_cpus":1.0E0"#,
            r#""a":"\u0062""#,
            r#"{"n":123456789012345678901234567890,"m":1e2}"#,
        ] {
            assert!(changed.contains(kept), "{changed}");
        }
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
            let (changes, job) = change(job.to_string().as_bytes(), false, Some("ann"))?;
            assert!(changes.any() && !changes.hook);
            Some(serde_json::from_str(&job).unwrap())
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
    fn a_job_may_refuse_and_is_not_sent_without_the_hook_otherwise() {
        let of = |environment: Value| {
            let job = json!({"runtime_env": environment}).to_string();
            change(job.as_bytes(), true, None).map(|(changes, _)| changes)
        };
        let refuses = json!({"env_vars": {"RAY_RELAY_HOOK": "off"}});
        assert!(of(refuses).is_some_and(|changes| !changes.any()));
        for other in [json!(5), json!({"env_vars": "x"})] {
            assert_eq!(of(other.clone()), None, "{other}");
        }
    }
}
