//! What docker/ has for kubectl, applied as people do, and what kubectl says of roles then.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;
use tokio::time::timeout;

use crate::api::Api;
use crate::server::{PATIENCE, Server, binary, say};

/// kubectl, as somebody.
struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
}

impl Kubectl {
    /// `None` (said aloud): this machine has none beside its API server.
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

    /// Whether it went well, and what it said on both streams.
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
        let said = String::from_utf8([&*output.stdout, &output.stderr].concat());
        (output.status.success(), said.unwrap())
    }

    async fn done(&self, words: &str) -> String {
        let (done, said) = self.run(words, "").await;
        assert!(done, "{words}: {said}");
        said
    }

    /// What `auth can-i` answers.
    async fn can_i(&self, words: &str) -> String {
        let (_, said) = self.run(&format!("auth can-i {words}"), "").await;
        let answer = said.lines().find(|line| ["yes", "no"].contains(line));
        answer.unwrap_or_else(|| panic!("{said}")).to_owned()
    }
}

/// A relay that finds RayClusters, and takes Kubernetes' word for who is there, in `namespace`.
async fn install(kubectl: &Kubectl, namespace: &str) {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path().canonicalize().unwrap();
    // kustomize takes no absolute paths.
    let up = "../".repeat(here.components().count() - 1);
    let docker = Path::new(env!("CARGO_MANIFEST_DIR")).join("docker/kubernetes");
    let docker = format!("{up}{}", docker.strip_prefix("/").unwrap().display());
    let kustomization = format!(
        "namespace: {namespace}\nresources: [{docker}/overlays/discovery]\ncomponents: [{docker}/components/identity]\n"
    );
    std::fs::write(here.join("kustomization.yaml"), kustomization).unwrap();
    kubectl.done(&format!("apply -k {}", here.display())).await;
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
async fn what_docker_has_is_applied_twice_and_kubectl_tells_the_truth_about_roles() {
    // The kinds that are installed here are nobody else's.
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
    install(&kubectl, &first).await;
    assert!(may_review(&api, &first).await);
    install(&kubectl, &second).await;
    assert!(may_review(&api, &second).await && may_review(&api, &first).await);
    assert!(!may_review(&api, &mine).await);

    // The resource is known, and stores nothing.
    let kinds = "/apis/ray-relay.dev/v1";
    api.until(kinds, Result::is_ok).await;
    let explained = async {
        loop {
            // What it explains is published a moment later.
            let (done, said) = kubectl.run("explain breakpoints.ray-relay.dev", "").await;
            if done {
                break said;
            }
        }
    };
    let explained = timeout(PATIENCE, explained).await.unwrap();
    let words = explained.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("never stored"), "{explained}");
    let object = format!(
        "{{\"apiVersion\": \"ray-relay.dev/v1\", \"kind\": \"Breakpoint\", \"metadata\": {{\"name\": \"x\", \"namespace\": \"{mine}\"}}}}"
    );
    let (stored, why) = kubectl.run("create -f -", &object).await;
    assert!(!stored && why.contains("is invalid"), "{why}");

    // A binding for all of a namespace, and a role for one RayCluster of it.
    let bound =
        format!("create rolebinding ann -n {mine} --clusterrole=ray-relay-debugger --user=ann");
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
        let said = kubectl.can_i(&format!("{what} --as={who}")).await;
        assert_eq!(said, answer, "{who} {what}");
    }
}
