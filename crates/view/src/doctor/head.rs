//! Findings about a Ray head that was queried for a diagnosis. Pure.

use super::lists::{DEBUGPY_BY_DEFAULT, MAX_LISTED_FINDINGS, answers, release};
use super::{ChainLink, Fault, Finding, split_sentence};
use ray_relay_ray::ray::head::HeadError;
use ray_relay_ray::ray::registry::Examined;

/// Reports how `head` answers, and what that means for breakpoints in its cluster.
pub fn findings(head: &Examined) -> Vec<Finding> {
    let cluster = &head.cluster;
    let version = match (&head.version, &head.state_api) {
        (Err(HeadError::Unreachable { address, .. }), _) if gcs_answers(head) => {
            let gcs = head
                .gcs
                .as_ref()
                .map_or("", |(address, _)| address.as_str());
            let says = format!(
                "cluster {cluster} runs (its GCS answers at {gcs}), but nothing answers at {address}, where its dashboard should be"
            );
            let found = Finding::error(ChainLink::Head, Fault::Misconfigured, says);
            return vec![found.next(NO_DASHBOARD)];
        }
        (Err(error), _) => return vec![trouble(cluster, error)],
        // A dashboard without the State API: Ray was installed without all extras.
        (Ok(version), Err(HeadError::Status { status: 404, .. })) => {
            let says = format!(
                "the head of cluster {cluster} (Ray {version}) answers, and has no State API"
            );
            let found = Finding::error(ChainLink::Head, Fault::Misconfigured, says);
            return vec![found.next(NO_DASHBOARD)];
        }
        (Ok(_), Err(error)) => return vec![trouble(cluster, error)],
        (Ok(version), Ok(())) => version,
    };
    let mut says = answers(cluster, Some(version));
    if let Some(mode) = &head.authentication {
        says += &format!(", authentication {mode}");
    }
    let mut all = vec![Finding::ok(ChainLink::Head, says)];
    all.extend(head.gcs.iter().filter(|(_, is_reachable)| !is_reachable).map(|(address, _)| {
        let says = format!("the GCS of cluster {cluster} at {address} does not answer: breakpoints of Ray's legacy debugger are not listed");
        Finding::note(ChainLink::Head, says)
            .next("open port 6379 of the head to the relay, or name it with `gcs_address`; where Ray runs with RAY_USE_TLS=1, give gcs_ca_file, gcs_cert_file and gcs_key_file")
    }));
    all.extend(debuggers(head, version));
    all
}

const NO_DASHBOARD: &str = "install `ray[default]` on the head (`ray` alone has no dashboard), start it with its dashboard, and name that in `ray_address`";

fn gcs_answers(head: &Examined) -> bool {
    head.gcs.as_ref().is_some_and(|(_, answers)| *answers)
}

fn trouble(cluster: &str, error: &HeadError) -> Finding {
    let fault = match error {
        HeadError::Unreachable { .. } | HeadError::TimedOut { .. } | HeadError::Crowded { .. } => {
            Fault::Unreachable
        }
        HeadError::Certificate { .. }
        | HeadError::TokenMissing { .. }
        | HeadError::TokenRefused { .. }
        | HeadError::Status { .. }
        | HeadError::NotJson { .. }
        | HeadError::TooLarge { .. }
        | HeadError::BadRequest { .. } => Fault::Misconfigured,
    };
    let (says, next) = split_sentence(&error.to_string());
    let found = Finding::error(ChainLink::Head, fault, format!("cluster {cluster}: {says}"));
    next.into_iter().fold(found, Finding::next)
}

/// Reports which debugger the jobs and nodes of a cluster with Ray `version` get.
fn debuggers(head: &Examined, version: &str) -> Vec<Finding> {
    let cluster = &head.cluster;
    let mut all = Vec::new();
    if !head.without_debugpy.is_empty() {
        let nodes: Vec<String> = head
            .without_debugpy
            .iter()
            .map(ToString::to_string)
            .collect();
        let more = match nodes.len() {
            ..=MAX_LISTED_FINDINGS => String::new(),
            n => format!(" and {} more", n - MAX_LISTED_FINDINGS),
        };
        let listed = nodes[..nodes.len().min(MAX_LISTED_FINDINGS)].join(", ");
        let says = format!(
            "workers of cluster {cluster} skip breakpoint(), because they have no debugpy 1.8.0 or newer: on node {listed}{more}"
        );
        let next = "`pip install debugpy` there, in the environment of the job where it has one of its own";
        all.push(Finding::warning(ChainLink::Debugger, says).next(next));
    }
    // Older versions treat any value as debugpy.
    if release(version).is_some_and(|version| version < DEBUGPY_BY_DEFAULT) {
        return all;
    }
    for (job, mode) in head.modes.iter().take(MAX_LISTED_FINDINGS) {
        all.extend(match mode.as_str() {
            "legacy" => {
                let says = format!("job {job} of cluster {cluster} runs with RAY_DEBUG=legacy: its tasks stop in Ray's legacy debugger, which no editor can speak with");
                Some(Finding::note(ChainLink::Debugger, says).next(
                    "enter them with `ray-relay debug` or `nc`; for an editor, run the job without it",
                ))
            }
            "0" => {
                let says = format!("job {job} of cluster {cluster} runs with RAY_DEBUG=0: breakpoint() does nothing in it");
                Some(Finding::warning(ChainLink::Debugger, says).next("run it without RAY_DEBUG"))
            }
            _ => None,
        });
    }
    all
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn healthy() -> Examined {
        Examined {
            cluster: "default".into(),
            version: Ok("2.60.0".to_owned()),
            authentication: Some("disabled".to_owned()),
            state_api: Ok(()),
            gcs: Some(("h:6379".to_owned(), true)),
            modes: Vec::new(),
            without_debugpy: Vec::new(),
        }
    }

    fn unreachable() -> HeadError {
        HeadError::Unreachable {
            address: "http://h:8265".to_owned(),
            cause: "Connection refused".to_owned(),
        }
    }

    fn status(status: u16) -> HeadError {
        HeadError::Status {
            address: "http://h:8265".to_owned(),
            status,
            words: "no".to_owned(),
        }
    }

    fn single_problem(head: &Examined) -> Finding {
        let found = findings(head);
        let problems: Vec<_> = found.iter().filter(|f| f.next.is_some()).collect();
        assert_eq!(problems.len(), 1, "{found:?}");
        problems[0].clone()
    }

    #[test]
    fn healthy_head_has_one_finding() {
        let found = findings(&healthy());
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0]
                .says
                .ends_with("Ray 2.60.0, authentication disabled")
        );
    }

    #[test]
    fn missing_dashboard_differs_from_an_unreachable_head() {
        let mut head = Examined {
            version: Err(unreachable()),
            state_api: Err(unreachable()),
            ..healthy()
        };
        let found = single_problem(&head);
        assert_eq!(found.exit_code, 78);
        assert!(found.next.unwrap().contains("ray[default]"));
        head.gcs = Some(("h:6379".to_owned(), false));
        let found = single_problem(&head);
        assert_eq!(found.exit_code, 69);
        assert!(found.next.unwrap().contains("is Ray up"));
        let no_api = Examined {
            state_api: Err(status(404)),
            ..healthy()
        };
        assert!(
            single_problem(&no_api)
                .next
                .unwrap()
                .contains("ray[default]")
        );
        let failing = Examined {
            state_api: Err(status(500)),
            ..healthy()
        };
        assert!(
            single_problem(&failing)
                .next
                .unwrap()
                .contains("dashboard.log")
        );
        let refused = Examined {
            version: Err(HeadError::TokenMissing {
                address: "http://h:8265".to_owned(),
            }),
            ..healthy()
        };
        assert!(
            single_problem(&refused)
                .next
                .unwrap()
                .contains("RAY_AUTH_TOKEN")
        );
    }

    #[test]
    fn causes_that_prevent_stops_are_named() {
        let missing = Examined {
            without_debugpy: vec![[10, 0, 0, 7].into()],
            ..healthy()
        };
        let found = single_problem(&missing);
        assert_eq!((found.link, found.exit_code), (ChainLink::Debugger, 1));
        assert!(found.says.ends_with("on node 10.0.0.7"), "{found:?}");
        for (mode, code) in [("legacy", 0), ("0", 1)] {
            let mut head = Examined {
                modes: vec![("01000000".to_owned(), mode.to_owned())],
                ..healthy()
            };
            let found = single_problem(&head);
            assert_eq!((found.link, found.exit_code), (ChainLink::Debugger, code));
            assert!(found.says.contains("job 01000000"));
            head.version = Ok("2.9.3".to_owned());
            assert_eq!(findings(&head).len(), 1, "any value is debugpy there");
        }
        let closed = Examined {
            gcs: Some(("h:6379".to_owned(), false)),
            ..healthy()
        };
        assert!(
            single_problem(&closed)
                .says
                .contains("legacy debugger are not listed")
        );
    }
}
