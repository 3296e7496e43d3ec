//! The breakpoint list with ETags and compression, for each user.

use std::io::Read as _;

use flate2::read::GzDecoder;
use hyper::header::{ACCEPT_ENCODING, CONTENT_ENCODING, ETAG, IF_NONE_MATCH, VARY};

use super::*;

const LIST: &str = "/relay/v1/breakpoints";

async fn ask(relay: &Relay, path: &str, headers: &[(&str, &str)]) -> Response<Incoming> {
    let mut request = relay.request("GET", path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(answer::empty()).unwrap();
    relay.client().await.send(request).await
}

fn tag(response: &Response<Incoming>) -> String {
    response.headers()[ETAG].to_str().unwrap().to_owned()
}

#[tokio::test]
async fn unchanged_list_is_answered_304() {
    let relay = Relay::start(&[], |_| {}).await;
    relay.registry.insert(breakpoint("aa11"));
    let first = relay.get(LIST).await;
    let etag = tag(&first);
    assert!(etag.starts_with("W/\""), "{etag}");
    assert_eq!(tag(&relay.get(LIST).await), etag);
    let strong = etag.strip_prefix("W/").unwrap();
    for value in [&*etag, strong, &format!("\"x\", {etag}"), "*"] {
        let unchanged = ask(&relay, LIST, &[("if-none-match", value)]).await;
        assert_eq!(unchanged.status(), 304, "{value}");
        assert_eq!(tag(&unchanged), etag);
        assert_eq!(unchanged.headers()["cache-control"], "no-store");
        assert_eq!(text(unchanged).await, "");
    }
    let page = relay.get(&format!("{LIST}?limit=1")).await;
    assert_eq!(tag(&page), etag, "the only page is the whole list");

    relay.registry.insert(breakpoint("bb22"));
    let changed = ask(&relay, LIST, &[(IF_NONE_MATCH.as_str(), &etag)]).await;
    assert_eq!(changed.status(), 200);
    assert_ne!(tag(&changed), etag);
    assert!(text(changed).await.contains("bb22"));
    let page = relay.get(&format!("{LIST}?limit=1")).await;
    assert_ne!(tag(&page), etag, "it has another page behind it");
}

#[tokio::test]
async fn etag_of_another_user_gives_no_304() {
    let (ann, bob) = (
        User::new("ann", "\"list\"", "jobs = [\"01000000\"]"),
        User::new("bob", "\"list\"", "jobs = [\"02000000\"]"),
    );
    let relay = Relay::with_users(&[], &[&ann, &bob]).await;
    relay.registry.insert(breakpoint("aa11"));
    let mut other_breakpoint = breakpoint("bb22");
    other_breakpoint.names_mut().job_id = Some("02000000".to_owned());
    relay.registry.insert(other_breakpoint);
    let list_as = async |user: &str, known: Option<&str>| {
        let mut request = relay
            .request("GET", LIST)
            .header("authorization", bearer(user));
        if let Some(etag) = known {
            request = request.header(IF_NONE_MATCH, etag);
        }
        let request = request.body(answer::empty()).unwrap();
        relay.client().await.send(request).await
    };
    for _ in 0..2 {
        let of_ann = list_as("ann", None).await;
        let etag = tag(&of_ann);
        let list = text(of_ann).await;
        assert!(list.contains("aa11") && !list.contains("bb22"), "{list}");
        let of_bob = list_as("bob", Some(&etag)).await;
        assert_eq!(of_bob.status(), 200, "it is not the list that ann has");
        let list = text(of_bob).await;
        assert!(list.contains("bb22") && !list.contains("aa11"), "{list}");
    }
}

#[tokio::test]
async fn list_is_compressed_on_request() {
    let relay = Relay::start(&[], |_| {}).await;
    let gzip = [(ACCEPT_ENCODING.as_str(), "br, gzip")];
    let small = ask(&relay, LIST, &gzip).await;
    assert!(!small.headers().contains_key(CONTENT_ENCODING));
    assert_eq!(small.headers()[VARY], "accept-encoding");
    for n in 10..60 {
        relay.registry.insert(breakpoint(&format!("aa{n}")));
    }
    let plain = relay.get(LIST).await;
    assert!(!plain.headers().contains_key(CONTENT_ENCODING));
    let plain = json(plain).await;
    for _ in 0..2 {
        let response = ask(&relay, LIST, &gzip).await;
        assert_eq!(response.headers()[CONTENT_ENCODING], "gzip");
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let mut list = String::new();
        GzDecoder::new(&*body).read_to_string(&mut list).unwrap();
        assert!(body.len() < list.len() / 4 && list.ends_with("]}\n"));
        let list: serde_json::Value = serde_json::from_str(&list).unwrap();
        assert_eq!(list["breakpoints"].as_array().unwrap().len(), 50);
        for (row, same) in list["breakpoints"].as_array().unwrap().iter().zip(0..) {
            assert_eq!(row["id"], plain["breakpoints"][same as usize]["id"]);
        }
    }
}
