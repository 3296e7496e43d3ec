//! Tests the evaluation of policy files, and the reports of mistakes in them.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::policy::{BreakpointSelector, Scopes};
use crate::visibility::Visibility;
use ray_relay_ray::ray::registry::Breakpoint;
use ray_relay_ray::ray::testing::paused;

const EXAMPLE: &str = include_str!("../../../../../config/policy.example.toml");

fn policy(text: &str) -> Policy {
    read::parse("policy.toml", text).unwrap()
}

fn breakpoint(cluster: &str, job: &str, task: &str) -> Breakpoint {
    let mut breakpoint = paused("step", 1);
    breakpoint.cluster = cluster.into();
    breakpoint.names_mut().job_id = Some(job.to_owned());
    breakpoint.names_mut().name = Some(task.to_owned());
    breakpoint
}

fn groups(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn example_policy_matches_its_comments() {
    let policy = policy(EXAMPLE);
    let own_job = breakpoint("default", "04000000", "step");
    let other_job = breakpoint("default", "05000000", "step");
    let nonmember = policy.access("bob", &[]).rights(&own_job);
    assert_eq!(nonmember.scopes.to_string(), "list,dashboard:read");
    let member = policy.access("bob", &groups(&["ml-team"]));
    let rights = member.rights(&own_job);
    assert_eq!(rights.scopes.to_string(), "list,view,debug,dashboard:read");
    let limit = rights.obligations.session_limit;
    assert_eq!(limit, Some(Duration::from_secs(36 * 3600)));
    assert!(!member.rights(&other_job).scopes.contains(Scope::Debug));
    assert!(rights.obligations.together && !member.rights(&other_job).obligations.together);
    let oncall = policy.access("oncall-3", &[]);
    assert!(oncall.rights(&other_job).obligations.record);
    assert!(oncall.may_on_cluster(Scope::DashboardWrite, "default"));
    assert!(!oncall.may_on_cluster(Scope::DashboardWrite, "staging"));
    // An unknown name matches nothing, and neither does an uncertain one.
    let mut trainer = breakpoint("default", "01000000", "train_it");
    trainer.names_mut().namespace = Some("training".to_owned());
    let may_view = |breakpoint: &Breakpoint| {
        let access = policy.access("carol", &groups(&["support"]));
        access.rights(breakpoint).scopes.contains(Scope::View)
    };
    assert!(may_view(&trainer));
    // After an earlier stop of the worker, the name may be that of a previous task.
    trainer.stop = 2;
    trainer.names_mut().provisional = true;
    assert!(!may_view(&trainer));
    let support = policy.access("carol", &groups(&["support"]));
    assert!(!support.rights(&other_job).scopes.contains(Scope::View));
}

#[test]
fn empty_policy_allows_nothing() {
    let access = policy("# nobody\n").access("alice", &groups(&["admin"]));
    let rights = access.rights(&breakpoint("default", "01000000", "f"));
    assert_eq!(rights.scopes, Scopes::NONE);
    let mut all = Scope::ALL.into_iter();
    assert!(all.all(|scope| !access.may_anywhere(scope)));
}

#[test]
fn rule_unmasks_all_or_named_variables() {
    let shown_names = |scopes: &str, key: &str| {
        let rule = format!("[[rule]]\nsubjects = [\"ann\"]\nscopes = [{scopes}]\n{key}\n");
        let access = policy(&rule).access("ann", &groups(&[]));
        let rights = access.rights(&breakpoint("default", "01000000", "f"));
        let visible = Visibility::of(&rights);
        ["path", "shard_1", "password"].map(|name| visible.shows(name))
    };
    assert_eq!(shown_names("\"view\"", ""), [false; 3]);
    let named = shown_names("\"view\"", "show = [\"path\", \"shard*\"]");
    assert_eq!(named, [true, true, false]);
    assert_eq!(shown_names("\"view\"", "unmasked = true"), [true; 3]);
    assert_eq!(shown_names("\"debug\"", ""), [true; 3]);
}

#[test]
fn shortest_limit_of_matching_rules_applies() {
    let rule = |times: [&str; 4]| {
        let keys = ["session_limit", "idle_limit", "park", "park_max"];
        let times = keys.iter().zip(times);
        let times: String = times
            .map(|(key, time)| format!("{key} = \"{time}\"\n"))
            .collect();
        format!("[[rule]]\nsubjects = [\"ann\"]\nscopes = [\"debug\"]\n{times}")
    };
    let (one, other_job) = (
        rule(["8h", "1h", "2h", "9h"]),
        rule(["4h", "3h", "1h", "16h"]),
    );
    let without_limits = "[[rule]]\nsubjects = [\"ann\"]\nscopes = [\"list\"]\n";
    for text in [
        [&*one, &*other_job, without_limits],
        [without_limits, &*other_job, &*one],
    ] {
        let access = policy(&text.concat()).access("ann", &groups(&[]));
        let all = access
            .rights(&breakpoint("default", "01000000", "f"))
            .obligations;
        let times = [all.session_limit, all.idle_limit, all.park, all.park_max];
        let hours = times.map(|time| time.unwrap().as_secs() / 3600);
        assert_eq!(hours, [4, 1, 1, 9]);
    }
}

#[test]
fn subject_and_group_must_both_match() {
    let policy = policy("[[rule]]\nsubjects = [\"a*\"]\ngroups = [\"ml\"]\nscopes = [\"list\"]\n");
    let may_list = |subject: &str, groups_of: &[&str]| {
        let access = policy.access(subject, &groups(groups_of));
        access.may_anywhere(Scope::List)
    };
    assert!(may_list("alice", &["x", "ml"]));
    assert!(!may_list("alice", &["x"]));
    assert!(!may_list("bob", &["ml"]));
}

#[test]
fn all_problems_are_reported_with_their_lines() {
    let text = "\
[[rule]]
subject = [\"alice\"]
scopes = [\"list\", \"debgu\"]
jobs = []
session_limit = 5
[[rule]]
groups = [\"\"]
unmasked = \"yes\"
[rules]
[[rule]]
subjects = [1]
scopes = []
idle_limit = \"90d\"
";
    let problems = read::parse("policy.toml", text).unwrap_err();
    let locations: Vec<_> = problems
        .problems
        .iter()
        .map(|p| (p.place.rsplit(' ').next().unwrap(), p.key.as_str()))
        .collect();
    assert_eq!(
        locations,
        [
            ("2", "rule.subject"),
            ("3", "rule.scopes"),
            ("4", "rule.jobs"),
            ("5", "rule.session_limit"),
            ("1", "rule"),
            ("7", "rule.groups"),
            ("8", "rule.unmasked"),
            ("6", "rule.scopes"),
            ("11", "rule.subjects"),
            ("12", "rule.scopes"),
            ("13", "rule.idle_limit"),
            ("9", "rules"),
        ]
    );
    let text = problems.to_string();
    assert!(text.contains("did you mean `subjects`?"), "{text}");
    assert!(text.contains("did you mean \"debug\"?"), "{text}");
    assert!(text.contains("subjects = [\"*\"]"), "{text}");
}

#[test]
fn group_setting_accepts_only_job() {
    let rule = |group: &str| {
        format!("[[rule]]\nsubjects = [\"*\"]\nscopes = [\"debug\"]\ngroup = {group}\n")
    };
    assert!(read::parse("policy.toml", &rule("\"job\"")).is_ok());
    for group in ["\"ml-team\"", "true", "[\"job\"]", "\"none\""] {
        let problems = read::parse("policy.toml", &rule(group)).unwrap_err();
        let text = problems.to_string();
        assert!(
            text.contains("expected  \"job\"") && text.contains("of a group"),
            "{text}"
        );
    }
}

#[test]
fn invalid_toml_is_reported_without_quotation() {
    let problems = read::parse("policy.toml", "[[rule]]\nsubjects = [\"s3cret").unwrap_err();
    assert!(!problems.to_string().contains("s3cret"));
    assert!(read::parse("policy.toml", "rule = 1").is_err());
    assert!(read::parse("policy.toml", "[rule]\nscopes = [\"list\"]").is_err());
}

#[test]
fn policy_is_explained_in_full() {
    let policy = policy(EXAMPLE);
    let text = policy.explained().join("\n");
    let description = "group \"ml-team\" may view, debug; jobs \"raysubmit_ml_*\" or \"04000000\"; a session for at most 36h; kept for 15m when the connection is lost; parked for at most 16h; the others of a job stop with a task";
    assert!(text.contains(description), "{text}");
    let json = policy.to_json();
    assert_eq!(json[2]["clusters"][0], "default");
    assert_eq!(
        (&json[1]["group"], &json[2]["group"]),
        (&"job".into(), &Value::Null)
    );
    assert_eq!(policy.doubts(&["default"], false), Vec::<String>::new());
    assert!(policy.doubts(&["prod"], true)[0].contains("\"default\""));
}

#[test]
fn changed_policy_is_reloaded_unless_invalid() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("policy.toml");
    let rule = |subject: &str| format!("[[rule]]\nsubjects = [{subject:?}]\nscopes = [\"list\"]\n");
    let replace = |text: &str| {
        let new = dir.path().join("new");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(new, &path).unwrap();
    };
    assert!(PolicyFile::open(path.clone()).is_err());
    replace(&rule("alice"));
    let mut file = PolicyFile::open(path.clone()).unwrap();
    let may_list = |file: &PolicyFile, subject: &str| {
        file.policy().access(subject, &[]).may_anywhere(Scope::List)
    };
    assert_eq!(file.reload(), Ok(false));
    replace(&rule("bob"));
    assert_eq!(file.reload(), Ok(true));
    assert!(may_list(&file, "bob") && !may_list(&file, "alice"));
    replace("[[rule]]\n");
    assert!(file.reload().is_err());
    assert_eq!(file.reload(), Ok(false), "said once");
    assert!(may_list(&file, "bob"));
    std::fs::remove_file(&path).unwrap();
    assert!(file.reload().is_err() && may_list(&file, "bob"));
    replace("");
    assert_eq!(file.reload(), Ok(true));
    assert!(!may_list(&file, "bob"));
}

fn names() -> impl Strategy<Value = Vec<String>> {
    proptest::collection::vec("[ab]{0,2}\\*?[ab]?", 1..3).prop_map(|names| {
        let non_empty = |n: String| if n.is_empty() { "*".to_owned() } else { n };
        names.into_iter().map(non_empty).collect()
    })
}

prop_compose! {
    fn rule()(
        subjects in proptest::option::of(names()),
        groups in names(),
        scopes in proptest::sample::subsequence(Scope::ALL.to_vec(), 1..4),
        selector in proptest::collection::vec(("clusters|jobs|namespaces|tasks|nodes", names()), 0..3),
    ) -> String {
        let mut keys = std::collections::BTreeMap::new();
        match subjects {
            Some(subjects) => keys.insert("subjects".to_owned(), subjects),
            None => keys.insert("groups".to_owned(), groups),
        };
        keys.insert("scopes".to_owned(), scopes.iter().map(|s| s.word().to_owned()).collect());
        keys.extend(selector);
        let lines: Vec<_> = keys.iter().map(|(key, list)| format!("{key} = {list:?}\n")).collect();
        format!("[[rule]]\n{}", lines.concat())
    }
}

/// Returns all rights of a user, evaluated for every kind of request.
fn rights(access: &Access, name: &str) -> Vec<Scopes> {
    let fold = |is_allowed: &dyn Fn(Scope) -> bool| {
        let granted = Scope::ALL
            .into_iter()
            .filter(|s| is_allowed(*s))
            .map(Scope::word);
        granted.collect::<Vec<_>>().join(",").parse().unwrap()
    };
    vec![
        access.rights(&breakpoint(name, name, name)).scopes,
        fold(&|scope| access.may_on_cluster(scope, name)),
        fold(&|scope| access.may_somewhere_on(scope, name)),
        fold(&|scope| access.may_anywhere(scope)),
    ]
}

fn within(lower: &[Scopes], upper: &[Scopes]) -> bool {
    let mut pairs = lower.iter().zip(upper);
    pairs.all(|(s, l)| s.intersection(*l) == *s)
}

proptest! {
    #[test]
    fn added_rule_never_removes_a_right(
        rules in proptest::collection::vec(rule(), 0..5),
        added in rule(),
        at in 0usize..5,
        subject in "[ab]{1,2}",
        group in "[ab]{1,2}",
        place in "[ab]{1,2}",
    ) {
        let member = [group];
        let before = policy(&rules.concat());
        let mut rules = rules;
        rules.insert(at.min(rules.len()), added);
        let after = policy(&rules.concat());
        prop_assert_eq!(after.len(), rules.len());
        let (before, after) = (before.access(&subject, &member), after.access(&subject, &member));
        prop_assert!(within(&rights(&before, &place), &rights(&after, &place)));
    }

    #[test]
    fn limits_only_reduce_rights(
        rules in proptest::collection::vec(rule(), 1..4),
        key in "clusters|jobs|namespaces|tasks|nodes",
        list in names(),
        subject in "[ab]{1,2}",
        place in "[ab]{1,2}",
    ) {
        let wide = policy(&rules.concat());
        let mut narrow = rules;
        if !narrow[0].contains(&key) {
            narrow[0] += &format!("{key} = {list:?}\n");
        }
        let narrow = policy(&narrow.concat());
        let member = [subject.clone()];
        let (wide, narrow) = (wide.access(&subject, &member), narrow.access(&subject, &member));
        prop_assert!(within(&rights(&narrow, &place), &rights(&wide, &place)));
        // A limit of the credential only reduces the rights, too.
        let limit = BreakpointSelector { jobs: list.iter().map(Pattern::new).collect(), ..BreakpointSelector::default() };
        let limited = wide.clone().limited(Scopes::USUAL, limit);
        prop_assert!(within(&rights(&limited, &place), &rights(&wide, &place)));
    }

    #[test]
    fn any_policy_is_parsed_without_panic(text in "(\\[\\[rule\\]\\]\n|[a-z]{1,8} = (\\[\"[a-z*]{0,3}\"\\]|[0-9]|\"[0-9]s\")\n|\\PC{0,6}){0,6}") {
        let _ = read::parse("policy.toml", &text);
    }
}
