//! The hook of workers for jobs that are submitted through the relay: as a variable in the job's runtime environment, by which
//! Ray lets the hook's package add to what the driver asks for. So a hook of the driver's own does not clash with it. Pure.

use serde_json::{Map, Value};

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

/// Puts the hook into `job` where the relay `injects` it, and names its `submitter`, where known, in the metadata that Ray keeps.
/// `None`: its runtime environment or its metadata is no object, so neither can be done.
pub(super) fn change(
    job: &mut Map<String, Value>,
    injects: bool,
    submitter: Option<&str>,
) -> Option<JobChanges> {
    let hook = injects && add_hook(job)?;
    if let Some(submitter) = submitter {
        // Whatever the job says itself.
        object(job, "metadata")?.insert(SUBMITTER.to_owned(), submitter.into());
    }
    Some(JobChanges {
        hook,
        submitter: submitter.is_some(),
    })
}

/// Whether `job` has the hook now; `false`: it refuses.
fn add_hook(job: &mut Map<String, Value>) -> Option<bool> {
    let variables = object(object(job, "runtime_env")?, "env_vars")?;
    let refuses = variables.get(REFUSED.0);
    if refuses.is_some_and(|value| value == REFUSED.1) {
        return Some(false);
    }
    if let Some(own) = variables
        .insert(HOOK.to_owned(), OURS.into())
        .filter(|own| own != OURS)
    {
        variables.insert(THEN.to_owned(), own);
    }
    Some(true)
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
        let mut job = job.as_object().unwrap().clone();
        let changes = change(&mut job, true, None)?;
        changes.hook.then_some(Value::Object(job))
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
            let mut job = job.as_object().unwrap().clone();
            let changes = change(&mut job, false, Some("ann"))?;
            assert!(changes.any() && !changes.hook);
            Some(Value::Object(job))
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
            let mut job = Map::from_iter([("runtime_env".to_owned(), environment)]);
            change(&mut job, true, None)
        };
        let refuses = json!({"env_vars": {"RAY_RELAY_HOOK": "off"}});
        assert!(of(refuses).is_some_and(|changes| !changes.any()));
        for other in [json!(5), json!({"env_vars": "x"})] {
            assert_eq!(of(other.clone()), None, "{other}");
        }
    }
}
