//! Chunked response bodies.

use futures_util::stream;
use http_body_util::StreamBody;
use hyper::body::Frame;

use super::*;

#[tokio::test]
async fn long_chunked_list_arrives_completely() {
    let row = r#"{"ip": "10.88.0.10", "debugger_port": 38645}"#;
    let rows = [row; 2000].join(", ");
    let chunks = [format!("[{rows}, "), format!("{rows}, "), format!("{row}]")];
    let (address, _head) = head(move |_| {
        let frames = chunks.clone().map(|chunk| Ok(Frame::data(chunk.into())));
        let list = Response::new(StreamBody::new(stream::iter(frames)).boxed_unsync());
        async move { with(list, &[("content-type", "application/json")]) }
    })
    .await;
    let relay = Relay::start(&[("default", address)], |_| {}).await;
    let list = text(relay.get("/api/v0/workers").await).await;
    let list: Vec<serde_json::Value> = serde_json::from_str(&list).unwrap();
    assert_eq!(list.len(), 4001);
}
