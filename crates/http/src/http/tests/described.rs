//! Descriptions of jobs and applications reach the head unchanged, or are refused.

use serde_json::{Value, json};

use super::*;

#[tokio::test]
async fn job_is_marked_with_its_submitter_and_bounded() {
    let ann = User::new("ann", "\"dashboard:write\"", "");
    let (address, _head) = head(|request: Request<Incoming>| async move {
        let whole = request.into_body().collect().await.unwrap().to_bytes();
        ok(whole)
    })
    .await;
    let relay = Relay::with_users(&[("default", address)], &[&ann]).await;
    let send = async |body: Vec<u8>| {
        let request = relay
            .request("POST", "/api/jobs/")
            .header("authorization", bearer("ann"));
        let request = request.body(answer::full(body)).unwrap();
        relay.client().await.send(request).await
    };
    let job = json!({"entrypoint": "a", "entrypoint_num_cpus": 1.5, "metadata": {"team": "b"}});
    let received: Value =
        serde_json::from_str(&text(send(job.to_string().into()).await).await).unwrap();
    let mut marked = job;
    marked["metadata"]["ray_relay_submitter"] = "ann".into();
    assert_eq!(received, marked);
    let oversized = send(vec![b' '; 5 << 20]).await;
    assert_eq!(oversized.status(), 413);
}

/// Ray accepts each of these, and would run something else than the audit log shows.
#[tokio::test]
async fn unreadable_job_never_reaches_the_head() {
    let ann = User::new("ann", "\"dashboard:write\"", "");
    let head = UncontactedHead::new().await;
    let relay = Relay::with_users(&[("default", head.address)], &[&ann]).await;
    let send = async |method: &str, path: &str, headers: &[(&str, &str)], body: Vec<u8>| {
        let request = relay.request(method, path);
        let request = request.header("authorization", bearer("ann"));
        let request = headers.iter().fold(request, |request, (name, value)| {
            request.header(*name, *value)
        });
        let request = request.body(answer::full(body)).unwrap();
        let refused = relay.client().await.send(request).await;
        assert_eq!(refused.status(), 400, "{method} {path} {headers:?}");
        let sentence = text(refused).await;
        assert!(
            sentence.contains("send one JSON object in UTF-8"),
            "{sentence}"
        );
    };
    let wide: Vec<u8> = "{\"entrypoint\": \"id\"}"
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    let utf16 = [("content-type", "application/json; charset=utf-16")];
    let gzip = [("content-encoding", "gzip")];
    for path in [
        "/api/jobs/",
        "//api/%6aobs",
        "/relay/clusters/default/api/jobs/",
    ] {
        for text in [
            "\"\\ud800\"",
            "NaN",
            "1e400",
            &format!("{}{}", "[".repeat(200), "]".repeat(200)),
        ] {
            let job = format!("{{\"entrypoint\": \"id\", \"n\": {text}}}");
            send("POST", path, &[], job.into()).await;
        }
        send("POST", path, &utf16, wide.clone()).await;
        send("POST", path, &gzip, b"{\"entrypoint\": \"id\"}".to_vec()).await;
    }
    let path = "/api/serve/applications/";
    send(
        "PUT",
        path,
        &[],
        b"{\"applications\": [{\"name\": NaN}]}".to_vec(),
    )
    .await;
    send("PUT", path, &gzip, b"{\"applications\": []}".to_vec()).await;
    assert!(relay.audit.take().is_empty(), "nothing was done");
    head.expect_uncontacted().await;
}
