//! The manifests in docker/ are applied with kubectl, and `kubectl auth can-i` shows what the roles grant.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;
use tokio::time::timeout;

use crate::api::{Api, service_account};
use crate::relay::{Relay, clusters, ready_cluster};
use crate::server::{Server, TEST_TIMEOUT, binary, say};

/// kubectl, with a user's credentials.
struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
}

impl Kubectl {
    /// `None`, with a message, if this machine has none next to its API server.
    fn new(kubeconfig: PathBuf) -> Option<Self> {
        let program = binary("kubectl")?;
        if !program.exists() {
            say(format_args!(
                "SKIPPED a test: there is no {}",
                program.display()
            ));
            return None;
        }
        Some(Self {
            program,
            kubeconfig,
        })
    }

    /// Whether it succeeded, and its output on both streams.
    async fn run(&self, words: &str, input: &str) -> (bool, String) {
        let mut kubectl = Command::new(&self.program)
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .args(words.split_whitespace())
            .env("HOME", env!("CARGO_TARGET_TMPDIR"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = kubectl.stdin.take().unwrap();
        stdin.write_all(input.as_bytes()).await.unwrap();
        drop(stdin);
        let output = kubectl.wait_with_output().await.unwrap();
        let stderr = String::from_utf8([&*output.stdout, &output.stderr].concat());
        (output.status.success(), stderr.unwrap())
    }

    async fn done(&self, words: &str) -> String {
        let (done, output) = self.run(words, "").await;
        assert!(done, "{words}: {output}");
        output
    }

    /// Returns the answer of `auth can-i`.
    async fn can_i(&self, words: &str) -> String {
        let (_, output) = self.run(&format!("auth can-i {words}"), "").await;
        let answer = output.lines().find(|line| ["yes", "no"].contains(line));
        answer.unwrap_or_else(|| panic!("{output}")).to_owned()
    }
}

/// A folder with overlays/everywhere for `namespace`, for `apply -k` and `delete -k`.
fn everywhere(namespace: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path().canonicalize().unwrap();
    // kustomize takes no absolute paths.
    let up = "../".repeat(here.components().count() - 1);
    let docker = Path::new(env!("CARGO_MANIFEST_DIR")).join("docker/kubernetes");
    let docker = format!("{up}{}", docker.strip_prefix("/").unwrap().display());
    let kustomization =
        format!("namespace: {namespace}\nresources: [{docker}/overlays/everywhere]\n");
    std::fs::write(here.join("kustomization.yaml"), kustomization).unwrap();
    folder
}

async fn install(kubectl: &Kubectl, namespace: &str) {
    let folder = everywhere(namespace);
    let apply = format!("apply --validate=false -k {}", folder.path().display());
    kubectl.done(&apply).await;
}

/// The resource for roles, which belongs to no release.
async fn install_breakpoints(kubectl: &Kubectl) {
    let docker = Path::new(env!("CARGO_MANIFEST_DIR")).join("docker/kubernetes");
    let file = docker.join("components/breakpoints/breakpoints.yaml");
    kubectl.done(&format!("apply -f {}", file.display())).await;
}

async fn may_review(api: &Api, namespace: &str) -> bool {
    let user = format!("system:serviceaccount:{namespace}:ray-relay");
    let attributes =
        json!({"group": "authentication.k8s.io", "resource": "tokenreviews", "verb": "create"});
    let review = json!({"spec": {"user": user, "resourceAttributes": attributes}});
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let answer: Value = api.post(path, &review).await.unwrap();
    answer["status"]["allowed"] == true
}

#[tokio::test]
async fn shipped_manifests_apply_twice_and_roles_grant_what_they_say() {
    // No other test uses the kinds installed here.
    let Some(server) = Server::start(&[]).await else {
        return;
    };
    let Some(kubectl) = Kubectl::new(server.kubeconfig("admin")) else {
        return;
    };
    let api = server.api().await;
    let (first, second, mine) = (
        api.namespace().await,
        api.namespace().await,
        api.namespace().await,
    );
    let can_debug = format!("debug breakpoints.ray-relay.dev/train -n {mine} --as=ann");
    let before = kubectl.can_i(&can_debug).await;
    assert_eq!(before, "no");
    install_breakpoints(&kubectl).await;
    install(&kubectl, &first).await;
    assert!(may_review(&api, &first).await);
    install(&kubectl, &second).await;
    assert!(may_review(&api, &second).await && may_review(&api, &first).await);
    assert!(!may_review(&api, &mine).await);

    // A namespace with a default-deny policy, and a RayCluster of KubeRay 1.7.
    let denies = Path::new(env!("CARGO_MANIFEST_DIR")).join("docker/kubernetes/deny-all");
    let apply = format!("apply --validate=false -n {mine} -f {}", denies.display());
    kubectl.done(&apply).await;
    let path =
        format!("/apis/networking.k8s.io/v1/namespaces/{mine}/networkpolicies/ray-relay-comes-in");
    let policy = api.get(&path).await.unwrap();
    let pods = &policy["spec"]["ingress"][0]["from"][0]["podSelector"]["matchLabels"];
    assert_eq!(pods["app.kubernetes.io/name"], "ray-relay", "{policy}");

    // The resource is known, and stores nothing.
    let kinds = "/apis/ray-relay.dev/v1";
    api.until(kinds, Result::is_ok).await;
    let explained = async {
        loop {
            // The schema is published a moment later.
            let (done, output) = kubectl.run("explain breakpoints.ray-relay.dev", "").await;
            if done {
                break output;
            }
        }
    };
    let explained = timeout(TEST_TIMEOUT, explained).await.unwrap();
    let words = explained.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("never stored"), "{explained}");
    let object = format!(
        "{{\"apiVersion\": \"ray-relay.dev/v1\", \"kind\": \"Breakpoint\", \"metadata\": {{\"name\": \"x\", \"namespace\": \"{mine}\"}}}}"
    );
    let (stored, why) = kubectl.run("create -f -", &object).await;
    assert!(!stored && why.contains("is invalid"), "{why}");

    // A binding for all of a namespace, and a role for one RayCluster of it.
    let bound = format!(
        "create rolebinding ann -n {mine} --clusterrole={first}-ray-relay-debugger --user=ann"
    );
    kubectl.done(&bound).await;
    assert_eq!(kubectl.can_i(&can_debug).await, "yes");
    let role = format!(
        "create role train -n {mine} --verb=list,debug --resource=breakpoints.ray-relay.dev --resource-name=train"
    );
    kubectl.done(&role).await;
    let bound = format!("create rolebinding bob -n {mine} --role=train --user=bob");
    kubectl.done(&bound).await;
    for (who, what, answer) in [
        (
            "ann",
            format!("debug breakpoints.ray-relay.dev/other -n {mine}"),
            "yes",
        ),
        (
            "ann",
            format!("debug breakpoints.ray-relay.dev/train -n {first}"),
            "no",
        ),
        (
            "ann",
            format!("terminate breakpoints.ray-relay.dev/train -n {mine}"),
            "no",
        ),
        (
            "bob",
            format!("debug breakpoints.ray-relay.dev/train -n {mine}"),
            "yes",
        ),
        (
            "bob",
            format!("debug breakpoints.ray-relay.dev/other -n {mine}"),
            "no",
        ),
    ] {
        let text = kubectl.can_i(&format!("{what} --as={who}")).await;
        assert_eq!(text, answer, "{who} {what}");
    }
}

/// Names in no namespace that two releases shared took rights from the one that stayed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn removing_one_helm_release_leaves_the_other_working() {
    let Some(server) = Server::start(&[]).await else {
        return;
    };
    let Some(kubectl) = Kubectl::new(server.kubeconfig("admin")) else {
        return;
    };
    let api = server.api().await;
    let (removed, stays, team) = (
        api.namespace().await,
        api.namespace().await,
        api.namespace().await,
    );
    install_breakpoints(&kubectl).await;
    for home in [&removed, &stays] {
        install(&kubectl, home).await;
    }
    let head = ready_cluster(&api, &team, "train", "aa").await;
    api.make_service_account(&team, "ann").await;
    let role = format!("{stays}-ray-relay-debugger");
    let ann = service_account(&team, "ann");
    api.bind(Some(&team), ("ClusterRole", &role), ann).await;
    let mut relay = Relay::start_as(&server, &api, (&stays, "ray-relay"), |config| {
        config.kubernetes.enabled = true;
        config.kubernetes.recheck = Duration::from_secs(1);
        config.kubernetes.refused_for = Duration::from_millis(100);
    })
    .await;
    relay.token = Some(api.token(&team, "ann", Some("ray-relay")).await);
    let name = format!("{team}.train");
    let mut session = relay.session(&name).await;

    let folder = everywhere(&removed);
    let delete = format!("delete -k {}", folder.path().display());
    kubectl.done(&delete).await;
    assert!(may_review(&api, &stays).await && !may_review(&api, &removed).await);
    // Longer than an answer on the token holds, and a watch that begins anew.
    server.down();
    server.up().await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(session.is_over().await, None);
    let late = ready_cluster(&api, &team, "late", "bb").await;
    let new = format!("{team}.late");
    relay.until(|list| clusters(list).contains(&&*new)).await;
    let can_list = format!(
        "list breakpoints.ray-relay.dev/train -n {team} --as=system:serviceaccount:{team}:ann"
    );
    assert_eq!(kubectl.can_i(&can_list).await, "yes");
    relay.end().await;
    drop((head, late));
}
