//! Tests that the roles on a discovered RayCluster are checked only in its own namespace.

use std::collections::BTreeSet;

use super::super::quiet::MAX_NEW_PLACES;
use super::super::review::User;
use super::*;
use crate::policy::Scope;
use ray_relay_ray::ray::registry::{ClusterStatus, Snapshot};

const VERBS: &str =
    "list view debug attach terminal dashboard-read dashboard-write admin terminate node";

/// A relay in the namespace `ray` with a configured cluster `east`, which has discovered these RayClusters.
struct DiscoveryScene {
    server: Server,
    reviewer: Reviewer,
    snapshot: watch::Sender<Arc<Snapshot>>,
    token: Secret,
    _files: tempfile::TempDir,
}

fn listing(found: &[&str]) -> Arc<Snapshot> {
    let status = |name: &&str| ClusterStatus {
        name: Arc::from(*name),
        ray_job: None,
        ray_version: None,
        polled: None,
        trouble: None,
        pending: false,
        incomplete: None,
    };
    let configured = ["east", "kubernetes"];
    Arc::new(Snapshot {
        clusters: configured.iter().chain(found).map(status).collect(),
        ..Snapshot::default()
    })
}

async fn found(names: &[&str], allowed: &'static str) -> DiscoveryScene {
    let token = jwt("{\"exp\": 4000000000}");
    let server = Server::start(&token).await;
    server.state().allowed = allowed.split(' ').collect();
    let files = tempfile::tempdir().unwrap();
    let mut config = configured(&["east"]);
    config.discovery.kubernetes = true;
    config.discovery.namespaces = vec!["ml".to_owned(), "empty".to_owned()];
    let snapshot = watch::Sender::new(listing(names));
    let places = Places::new(&config, snapshot.subscribe());
    let mut of_relay = server.files(files.path());
    // Hundreds of reviews take longer on a busy machine, and this test does not measure time.
    of_relay.timeout = Duration::from_secs(60);
    let reviewer = Reviewer::new(&of_relay, places).await;
    DiscoveryScene {
        server,
        reviewer: reviewer.unwrap(),
        snapshot,
        token: Secret::new(token),
        _files: files,
    }
}

impl DiscoveryScene {
    async fn access(&self) -> Access {
        // A client retries after a timeout.
        let reviewed = async {
            loop {
                match self.reviewer.review(&self.token).await {
                    Err(AuthError::Unavailable(_)) => {}
                    reviewed => break reviewed.unwrap(),
                }
            }
        };
        let reviewed = timeout(Duration::from_secs(60), reviewed).await.unwrap();
        assert_eq!(self.server.state().faults, Vec::<String>::new());
        access(&reviewed)
    }

    /// Returns the reviewed places as `namespace:name`, and checks that no review is repeated: all verbs where `list`
    /// is allowed, else `list` and `node`.
    fn reviews(&self, listed: &[&str]) -> BTreeSet<String> {
        let reviews = self.server.state().access_reviews.clone();
        let places: BTreeSet<_> = reviews
            .iter()
            .filter_map(|reviews| Some(reviews.split_once('/')?.0.to_owned()))
            .collect();
        for place in places.iter().filter(|place| !place.is_empty()) {
            for verb in VERBS.split(' ') {
                let question = format!("{place}/{verb}");
                let times = reviews
                    .iter()
                    .filter(|reviews| **reviews == question)
                    .count();
                let is_reviewed = listed.contains(&&**place) || ["list", "node"].contains(&verb);
                assert_eq!(times, usize::from(is_reviewed), "{question}");
            }
        }
        places
    }
}

/// Returns the places where `scope` is allowed.
fn places_allowing(access: &Access, scope: Scope) -> Vec<&'static str> {
    let all = [
        "east",
        "kubernetes",
        "ml.other",
        "ml.train",
        "ray.east",
        "serving.train",
        "empty.new",
    ];
    let is_allowed = |cluster: &&str| access.may_on_cluster(scope, cluster);
    all.into_iter().filter(is_allowed).collect()
}

const ALL_PLACES: [&str; 4] = ["ml.other", "ml.train", "ray.own", "serving.train"];

#[tokio::test]
async fn role_on_a_raycluster_applies_to_that_one_only() {
    let found = found(&ALL_PLACES, "ml:train/debug ml:train/list").await;
    let access = found.access().await;
    assert_eq!(places_allowing(&access, Scope::Debug), ["ml.train"]);
    assert_eq!(places_allowing(&access, Scope::List), ["ml.train"]);
    assert!(!access.may_on_relay(RelayScope::Admin));
    let reviews = found
        .reviews(&["ml:train"])
        .into_iter()
        .collect::<Vec<_>>()
        .join(" ");
    assert_eq!(
        reviews,
        " : east empty: ml: ml:other ml:train own serving:train"
    );
}

#[tokio::test]
async fn unnamed_role_applies_to_its_whole_namespace() {
    let found = found(&ALL_PLACES, "ml:/list empty:/list empty:/view").await;
    let access = found.access().await;
    let all = ["ml.other", "ml.train", "empty.new"];
    assert_eq!(places_allowing(&access, Scope::List), all);
    assert!(access.may_on_cluster(Scope::List, "ml.later"));
    assert_eq!(places_allowing(&access, Scope::View), ["empty.new"]);
    let reviews = found.server.state().access_reviews.clone();
    assert!(
        !reviews.contains(&"ml:train/list".to_owned()),
        "{reviews:?}"
    );
    assert!(reviews.contains(&"ml:train/view".to_owned()), "{reviews:?}");
    assert!(
        !reviews.contains(&"serving:train/view".to_owned()),
        "{reviews:?}"
    );
}

#[tokio::test]
async fn role_in_the_relay_namespace_applies_there_only() {
    let names = ["ml.train", "ray.east", "ray.other"];
    let found = found(&names, "/list /debug east/list east/view").await;
    let access = found.access().await;
    // A RayCluster in the relay's namespace and a configured cluster of the same name share their roles.
    assert_eq!(places_allowing(&access, Scope::View), ["east", "ray.east"]);
    assert_eq!(places_allowing(&access, Scope::List), ["east", "ray.east"]);
    assert_eq!(places_allowing(&access, Scope::Debug), ["ray.east"]);
}

#[tokio::test]
async fn cluster_role_is_reviewed_once_for_all_namespaces() {
    let allowed = ":/list :/view :/debug :/attach :/terminal :/dashboard-read :/dashboard-write :/admin :/terminate :/node";
    let found = found(&ALL_PLACES, allowed).await;
    let access = found.access().await;
    let all = [
        "ml.other",
        "ml.train",
        "ray.east",
        "serving.train",
        "empty.new",
    ];
    assert_eq!(places_allowing(&access, Scope::Terminate), all);
    assert_eq!(places_allowing(&access, Scope::List), all);
    // `list` and `node` for `east`, 10 for all namespaces, and `admin` for the relay.
    assert_eq!(found.server.state().access_reviews.len(), 13);
}

#[tokio::test]
async fn new_clusters_are_reviewed_for_live_users() {
    let found = found(
        &["ml.train"],
        "ml:train/list new:later/list new:later/debug",
    )
    .await;
    let running = found.reviewer.clone();
    let stop = CancellationToken::new();
    let (run, ended) = (stop.clone(), async move { running.run(stop).await });
    let ended = tokio::spawn(ended);
    let reviewed = found.reviewer.review(&found.token).await.unwrap();
    let access = access(&reviewed);
    assert!(!access.may_on_cluster(Scope::List, "new.later"));
    let before = found.server.state().access_reviews.len();
    found
        .snapshot
        .send_replace(listing(&["ml.train", "new.later", "new.other"]));
    let granted = async {
        while !access.may_on_cluster(Scope::Debug, "new.later") {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(20), granted).await.unwrap();
    assert!(!access.may_on_cluster(Scope::List, "new.other"));
    assert!(access.may_on_cluster(Scope::List, "ml.train"));
    let reviews = found.server.state().access_reviews[before..].to_vec();
    // All namespaces of `new`, and its RayClusters: two of three places are refused.
    assert_eq!(reviews.len(), 14, "{reviews:?}");
    assert!(
        reviews.iter().all(|reviews| reviews.starts_with("new:")),
        "{reviews:?}"
    );
    assert_eq!(found.server.state().faults, Vec::<String>::new());
    run.cancel();
    ended.await.unwrap();
}

#[tokio::test]
async fn each_check_reviews_few_of_many_hidden_clusters() {
    let names: Vec<String> = (0..300).map(|n| format!("n{n}.train")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let found = found(
        &names,
        "ml:/list n7:train/list n290:train/list n299:train/list n299:train/debug",
    )
    .await;
    let (running, stop) = (found.reviewer.clone(), CancellationToken::new());
    let ended = stop.clone();
    let ended = tokio::spawn(async move { running.run(ended).await });
    let access = found.access().await;
    // One for `east`, for all namespaces and for each of the two named namespaces, and as many as one review may add.
    let first = found.server.state().access_reviews.len();
    assert!(first <= 2 * (4 + MAX_NEW_PLACES) + 8 * 3 + 1, "{first}");
    let all = ["n7.train", "n290.train"];
    let sees_all = || {
        all.iter()
            .all(|name| access.may_on_cluster(Scope::List, name))
    };
    let all_granted = async {
        while !(sees_all() && access.may_on_cluster(Scope::Debug, "n299.train")) {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(60), all_granted).await.unwrap();
    assert!(!access.may_on_cluster(Scope::List, "n8.train"));

    // A second token of the same user is reviewed only for the places where the user has rights.
    let before = found.server.state().access_reviews.len();
    let other = found.reviewer.0.review(&found.token, None).await;
    let other = other.ok().flatten().unwrap();
    let reviews = found.server.state().access_reviews.len() - before;
    assert!(reviews < 9 * 16, "{reviews}");
    let allows_less = other.allows_less_than(&other);
    assert!(
        !allows_less && grants(&other).len() == 4,
        "{:?}",
        grants(&other)
    );
    // A removed right is noticed at the next review.
    found.server.state().allowed.remove("n290:train/list");
    let later = found.reviewer.0.review(&found.token, None).await;
    assert!(later.ok().flatten().unwrap().allows_less_than(&other));
    assert_eq!(found.server.state().faults, Vec::<String>::new());
    stop.cancel();
    ended.await.unwrap();
}

/// Checks the figure in docs/operate.md.
#[tokio::test]
async fn one_check_of_64_rayclusters_costs_few_reviews() {
    let names: Vec<String> = (0..64).map(|n| format!("n{}.train{n}", n % 20)).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let found = found(&names, "n7:train7/list n7:train7/view n7:train7/debug").await;
    let access = found.access().await;
    assert!(access.may_on_cluster(Scope::Debug, "n7.train7"));
    // `list` and `node` (of a ServiceAccount) for `east`, all namespaces, 22 of them and 64 RayClusters; 8 more for one, and `admin`.
    assert_eq!(found.server.state().access_reviews.len(), 2 * 88 + 8 + 1);
}

#[tokio::test]
async fn lost_grants_narrow_and_removed_clusters_do_not() {
    let review = |grants: &[(&str, &str)]| Review {
        user: User {
            name: "ann".to_owned(),
            uid: String::new(),
            groups: BTreeSet::new(),
        },
        grants: grants
            .iter()
            .map(|(clusters, scopes)| ((*clusters).to_owned(), scopes.parse().unwrap()))
            .collect(),
        administers_relay: false,
        is_partial: false,
    };
    let before = review(&[("*.*", ""), ("ml.*", "list"), ("ml.train", "list,debug")]);
    let allows_less = |grants: &[(&str, &str)]| review(grants).allows_less_than(&before);
    assert!(!allows_less(&[
        ("*.*", ""),
        ("ml.*", "list"),
        ("ml.train", "list,debug")
    ]));
    assert!(allows_less(&[
        ("*.*", ""),
        ("ml.*", "list"),
        ("ml.train", "list,view")
    ]));
    assert!(allows_less(&[
        ("*.*", ""),
        ("ml.*", ""),
        ("ml.train", "list,debug")
    ]));
    // The right is removed, another is added, or all rights move to another place.
    assert!(!allows_less(&[("*.*", ""), ("ml.*", "list")]));
    assert!(!allows_less(&[("*.*", "")]));
    let changed_roles = [
        ("*.*", ""),
        ("ml.*", "list"),
        ("ml.train", "list,debug"),
        ("a.b", ""),
    ];
    assert!(!allows_less(&changed_roles));
    assert!(!allows_less(&[
        ("*.*", "list,debug"),
        ("ml.*", ""),
        ("ml.train", "")
    ]));
    assert!(!allows_less(&[("ml.*", "list,debug"), ("ml.train", "")]));
}
