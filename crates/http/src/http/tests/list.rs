//! The list that a client has already, compressed lists, and whose list is whose.

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
    let known = tag(&first);
    assert!(known.starts_with("W/\""), "{known}");
    assert_eq!(tag(&relay.get(LIST).await), known);
    let strong = known.strip_prefix("W/").unwrap();
    for given in [&*known, strong, &format!("\"x\", {known}"), "*"] {
        let unchanged = ask(&relay, LIST, &[("if-none-match", given)]).await;
        assert_eq!(unchanged.status(), 304, "{given}");
        assert_eq!(tag(&unchanged), known);
        assert_eq!(unchanged.headers()["cache-control"], "no-store");
        assert_eq!(text(unchanged).await, "");
    }
    let page = relay.get(&format!("{LIST}?limit=1")).await;
    assert_eq!(tag(&page), known, "the only page is the whole list");

    relay.registry.insert(breakpoint("bb22"));
    let changed = ask(&relay, LIST, &[(IF_NONE_MATCH.as_str(), &known)]).await;
    assert_eq!(changed.status(), 200);
    assert_ne!(tag(&changed), known);
    assert!(text(changed).await.contains("bb22"));
    let page = relay.get(&format!("{LIST}?limit=1")).await;
    assert_ne!(tag(&page), known, "it has another page behind it");
}

#[tokio::test]
async fn etag_of_another_user_gives_no_304() {
    let (ann, bob) = (
        Person::new("ann", "\"list\"", "jobs = [\"01000000\"]"),
        Person::new("bob", "\"list\"", "jobs = [\"02000000\"]"),
    );
    let relay = Relay::guarded(&[], &[&ann, &bob]).await;
    relay.registry.insert(breakpoint("aa11"));
    let mut theirs = breakpoint("bb22");
    theirs.names_mut().job_id = Some("02000000".to_owned());
    relay.registry.insert(theirs);
    let ask = async |who: &str, known: Option<&str>| {
        let mut request = relay
            .request("GET", LIST)
            .header("authorization", bearer(who));
        if let Some(known) = known {
            request = request.header(IF_NONE_MATCH, known);
        }
        let request = request.body(answer::empty()).unwrap();
        relay.client().await.send(request).await
    };
    for _ in 0..2 {
        let of_ann = ask("ann", None).await;
        let known = tag(&of_ann);
        let told = text(of_ann).await;
        assert!(told.contains("aa11") && !told.contains("bb22"), "{told}");
        let of_bob = ask("bob", Some(&known)).await;
        assert_eq!(of_bob.status(), 200, "it is not the list that ann has");
        let told = text(of_bob).await;
        assert!(told.contains("bb22") && !told.contains("aa11"), "{told}");
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
