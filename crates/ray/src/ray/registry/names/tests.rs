//! Tests of the names of workers and tasks.
#![allow(clippy::unwrap_used)]

use super::*;

fn task(name: &str, environment: &str) -> TaskRow {
    serde_json::from_value(serde_json::json!({
        "task_id": "t1", "name": name, "state": "RUNNING", "job_id": "01000000", "actor_id": null,
        "worker_id": "w", "runtime_env_info": {"serialized_runtime_env": environment},
    }))
    .unwrap()
}

fn actor(class_name: &str, name: &str, repr_name: &str) -> ActorRow {
    serde_json::from_value(serde_json::json!({
        "actor_id": "a1", "class_name": class_name, "name": name, "repr_name": repr_name,
        "job_id": "01000000", "ray_namespace": "train", "state": "ALIVE", "pid": 7,
    }))
    .unwrap()
}

fn name_of(tasks: &[&str]) -> String {
    let rows: Vec<_> = tasks.iter().map(|name| task(name, "{}")).collect();
    of_tasks(&rows).unwrap().names.name.unwrap()
}

#[test]
fn concurrent_tasks_are_joined_once_each() {
    assert_eq!(name_of(&["Pool.a", "Pool.a"]), "Pool.a");
    assert_eq!(name_of(&["Pool.a", "Pool.b", "Pool.a"]), "Pool.a, Pool.b");
    assert_eq!(name_of(&["a", "b", "c", "d"]), "a, b, c, …");
}

#[test]
fn names_are_cut_and_cleaned() {
    let name = name_of(&[&"x".repeat(500)]);
    assert_eq!(
        (name.chars().count(), name.ends_with('…')),
        (MAX_NAME_CHARS, true)
    );
    assert_eq!(name_of(&["a\u{1b}[31m\nb"]), "a [31m b");
}

#[test]
fn working_dirs_are_unpacked_when_they_are_uris() {
    let unpacked = |environment| {
        of_tasks(&[task("f", environment)])
            .unwrap()
            .names
            .unpacked_working_dir
    };
    assert!(unpacked(r#"{"working_dir": "gcs://_ray_pkg_1f2e.zip"}"#));
    assert!(unpacked(r#"{"working_dir": "https://host/code.zip"}"#));
    assert!(!unpacked(r#"{"working_dir": "/srv/code"}"#));
    assert!(!unpacked(r#"{"env_vars": {}}"#) && !unpacked("not json") && !unpacked(""));
}

#[test]
fn collective_timeout_is_read_from_the_environment() {
    let timeout_of = |environment| of_task(&task("f", environment)).collective_timeout;
    let minutes = |minutes: u64| Some(std::time::Duration::from_secs(60 * minutes));
    let environment = r#"{"env_vars": {"A": "b", "RAY_RELAY_COLLECTIVE_TIMEOUT": "10m"}}"#;
    assert_eq!(timeout_of(environment), minutes(10));
    for invalid in [
        r#"{"env_vars": {"RAY_RELAY_COLLECTIVE_TIMEOUT": "soon"}}"#,
        r#"{"env_vars": {"RAY_RELAY_COLLECTIVE_TIMEOUT": "0s"}}"#,
        r#"{"env_vars": {"RAY_RELAY_COLLECTIVE_TIMEOUT": "9999d"}}"#,
        r#"{"env_vars": {"RAY_RELAY_COLLECTIVE_TIMEOUT": ["10m"]}}"#,
        r#"{"env_vars": ["RAY_RELAY_COLLECTIVE_TIMEOUT"]}"#,
        "{}",
    ] {
        assert_eq!(timeout_of(invalid), None, "{invalid}");
    }
    // An actor's value applies to a method without one.
    let mut actor = actor("Trainer", "", "");
    actor.serialized_runtime_env = environment.to_owned();
    assert_eq!(of_actor(&actor).names.collective_timeout, minutes(10));
}

#[test]
fn ranks_come_from_the_runtime_environment() {
    let ranks_of = |environment: &str| {
        let names = of_tasks(&[task("step_rank_9", environment)]).unwrap().names;
        (names.rank, names.local_rank, names.world_size)
    };
    let all = r#"{"env_vars": {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "8", "TOKEN": "x"}}"#;
    assert_eq!(ranks_of(all), (Some(3), Some(1), Some(8)));
    // Ranks outside the world size and values that are no numbers are ignored.
    let invalid = r#"{"env_vars": {"RANK": "8", "LOCAL_RANK": "x", "WORLD_SIZE": "8"}}"#;
    assert_eq!(ranks_of(invalid), (Some(9), None, Some(8)));
    for other in ["{}", r#"{"env_vars": []}"#, r#"{"env_vars": {"RANK": 3}}"#] {
        assert_eq!(ranks_of(other), (Some(9), None, None), "{other}");
    }
    // An actor's environment overrides its name.
    let mut names = Names::default();
    let mut ranked_actor = actor("Trainer", "worker-7", "");
    ranked_actor.serialized_runtime_env = all.to_owned();
    add_actor(&mut names, &ranked_actor);
    assert_eq!((names.rank, names.world_size), (Some(3), Some(8)));
}

#[test]
fn certain_rank_stays_with_its_actor_and_beats_a_name() {
    let names_with = |actor: &str, rank, certain| Names {
        actor_id: Some(actor.to_owned()),
        rank: Some(rank),
        rank_is_certain: certain,
        ..Names::default()
    };
    let before = names_with("a", 5, true);
    for (mut next, rank) in [
        (names_with("a", 7, false), 5),
        (names_with("a", 7, true), 7),
        (names_with("b", 7, false), 7),
    ] {
        next.keep_rank(&before);
        assert_eq!(next.rank, Some(rank));
    }
    let mut names = before;
    add_actor(&mut names, &actor("Trainer", "worker-7", ""));
    assert_eq!((names.rank, names.rank_is_certain), (Some(5), true));
}

#[test]
fn an_actor_adds_its_given_name_and_rank() {
    let mut names = of_tasks(&[task("Trainer.step", "{}")]).unwrap().names;
    add_actor(&mut names, &actor("Trainer", "worker-7", ""));
    assert_eq!(
        (names.actor_name.as_deref(), names.rank),
        (Some("worker-7"), Some(7))
    );
    assert_eq!(names.namespace.as_deref(), Some("train"));
    add_actor(&mut names, &actor("Trainer", "", "Trainer(rank=2)"));
    assert_eq!((names.actor_name, names.rank), (None, Some(2)));
}

#[test]
fn a_serve_replica_is_named_by_its_deployment() {
    let found = of_actor(&actor(
        "ServeReplica:app1:Echo",
        "SERVE_REPLICA::app1#Echo#oqmuf2kx",
        "",
    ));
    assert_eq!(found.names.name.as_deref(), Some("Serve app1:Echo"));
    assert_eq!(
        (found.names.actor_name, found.certainty),
        (None, Certainty::Settled)
    );
    assert_eq!(
        of_actor(&actor("Counter", "", "")).certainty,
        Certainty::Provisional
    );
}

#[test]
fn serve_replica_with_a_task_has_the_same_name() {
    let mut names = of_tasks(&[task("ServeReplica:app1:Echo.handle_request", "{}")])
        .unwrap()
        .names;
    add_actor(
        &mut names,
        &actor(
            "ServeReplica:app1:Echo",
            "SERVE_REPLICA::app1#Echo#DjCmR-3",
            "",
        ),
    );
    assert_eq!(names.name.as_deref(), Some("Serve app1:Echo"));
    assert_eq!(
        (names.actor_name, names.namespace, names.rank),
        (None, None, None)
    );
}

#[test]
fn a_driver_without_its_job_is_named_by_the_job_id() {
    let found = of_driver("05000000", None);
    assert_eq!(found.names.name.as_deref(), Some("driver of job 05000000"));
    assert_eq!(found.certainty, Certainty::Provisional);
}
