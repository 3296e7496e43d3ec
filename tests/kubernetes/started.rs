//! The API server itself: what the other tests take for granted.

use hyper::StatusCode;
use serde_json::json;
use tokio::time::timeout;

use crate::api::{Answer, Api, service_account};
use crate::server::{Server, TEST_TIMEOUT};

/// `answer` is that one may not.
fn is_forbidden(answer: &Answer) -> bool {
    matches!(answer, Err(StatusCode::FORBIDDEN))
}

#[tokio::test]
async fn kubernetes_role_grants_exactly_its_permissions() {
    let Some(server) = Server::shared().await else {
        return;
    };
    let api = server.api().await;
    let namespace = api.namespace().await;
    api.make_ray_cluster(&namespace, "train", 8265).await;
    api.set_status(&namespace, "train", "train-head-svc", true)
        .await;
    let path = format!("/apis/ray.io/v1/namespaces/{namespace}/rayclusters");

    // A user with a certificate.
    server.certificates.client("ann", "ann", "people");
    let ann = Api::new(&server.kubeconfig("ann")).await;
    assert!(is_forbidden(&ann.get(&path).await));
    let rules = [("ray.io", "rayclusters", "", "list")];
    api.make_role(Some(&namespace), "viewer", &rules).await;
    let subject = json!({"kind": "Group", "name": "people"});
    let binding = api
        .bind(Some(&namespace), ("Role", "viewer"), subject)
        .await;
    let list = ann.until(&path, Result::is_ok).await;
    let head = &list["items"][0]["status"]["head"];
    assert_eq!(head["serviceName"], "train-head-svc");
    api.delete(&binding).await.unwrap();
    ann.until(&path, is_forbidden).await;

    // A ServiceAccount, by a token that says for whom it is.
    api.make_service_account(&namespace, "debugger").await;
    let token = api.token(&namespace, "debugger", Some("ray-relay")).await;
    let review = json!({"spec": {"token": token, "audiences": ["ray-relay"]}});
    let path = "/apis/authentication.k8s.io/v1/tokenreviews";
    let review = api.post(path, &review).await.unwrap();
    let name = format!("system:serviceaccount:{namespace}:debugger");
    assert_eq!(review["status"]["user"]["username"], name);
    let attributes = json!({"group": "ray-relay.dev", "resource": "breakpoints", "verb": "debug", "namespace": namespace,
        "name": "train"});
    let review = json!({"spec": {"user": name, "resourceAttributes": attributes}});
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let before = api.post(path, &review).await.unwrap();
    assert_eq!(before["status"]["allowed"], false);
    let rules = [("ray-relay.dev", "breakpoints", "train", "debug")];
    api.make_role(None, "ray-debugger", &rules).await;
    let subject = service_account(&namespace, "debugger");
    api.bind(Some(&namespace), ("ClusterRole", "ray-debugger"), subject)
        .await;
    let allowed = async || api.post(path, &review).await.unwrap()["status"]["allowed"] == true;
    let until_allowed = async { while !allowed().await {} };
    timeout(TEST_TIMEOUT, until_allowed).await.unwrap();
}
