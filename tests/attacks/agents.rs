//! One node credential cannot lock others out: neither by links that never identify themselves, nor by links for a node
//! that does not exist.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use ray_relay_base::wire::tunnel::messages::{
    Announce, FromAgent, FromRelay, Hex, PROTOCOL, written,
};
use ray_relay_base::wire::tunnel::{LINK_PATH, LINK_PROTOCOL, link_config};
use serde_json::json;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::{WebSocketStream, client_async_with_config};

use super::head;
use super::relay::*;
use super::shipped::Shipped;

/// Links that are opened: as many as there may be agents.
const MAX_LINKS_TRIED: usize = 4096;

const CONCURRENT_LINKS: usize = 64;

/// How often another agent may have to retry. A free slot is available at once.
const MAX_ATTEMPTS: usize = 3;

type Link = WebSocketStream<TcpStream>;

/// A link that the relay has greeted, and what it is to repeat; `None`: it is refused.
async fn greeted(relay: &Relay, from: IpAddr, token: &str) -> Option<(Link, Hex<16>)> {
    let stream = relay.dial(from).await.ok()?;
    let url = format!("ws://{}{LINK_PATH}", relay.address);
    let mut request = url.into_client_request().unwrap();
    let headers = request.headers_mut();
    headers.insert("authorization", format!("Bearer {token}").parse().unwrap());
    headers.insert("sec-websocket-protocol", LINK_PROTOCOL.parse().unwrap());
    let opening = client_async_with_config(request, stream, Some(link_config()));
    let (mut link, _) = timeout(TEST_TIMEOUT, opening).await.ok()?.ok()?;
    match receive(&mut link).await? {
        FromRelay::Hello { nonce, .. } => Some((link, nonce)),
        other => panic!("{other:?}"),
    }
}

/// The next that the relay says; a ping is no word.
async fn receive(link: &mut Link) -> Option<FromRelay> {
    let message = async {
        loop {
            match link.next().await?.ok()? {
                Message::Text(text) => return serde_json::from_str(&text).ok(),
                Message::Ping(_) => {}
                _ => return None,
            }
        }
    };
    timeout(TEST_TIMEOUT, message).await.ok()?
}

/// Announces itself as the agent of `node_id`.
async fn announce(link: &mut Link, nonce: Hex<16>, node_id: &str) -> bool {
    let announce = FromAgent::Announce(Announce {
        protocol: PROTOCOL,
        version: "0.1.0".into(),
        nonce,
        instance: Hex([7; 16]),
        node_id: Some(node_id.into()),
        addresses: vec![LOCALHOST],
        hostname: "box".into(),
        architecture: "x86_64".into(),
        pid: 7,
        sees_processes: true,
        reverse_ports: None,
        keeps: true,
        keeps_prompts: true,
        keeps_subprocesses: true,
        inspects: true,
        arms: true,
    });
    link.send(Message::text(written(&announce))).await.is_ok()
}

/// An agent of the node that there is, which tries again until it is linked, as agents do; after how many times.
async fn linked(relay: &Relay, token: &str) -> (Link, usize) {
    let linking = async {
        for tries in 1.. {
            if let Some((mut link, nonce)) = greeted(relay, LOCALHOST, token).await
                && announce(&mut link, nonce, head::NODE).await
                && let Some(FromRelay::Welcome { .. }) = receive(&mut link).await
            {
                return (link, tries);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        unreachable!()
    };
    timeout(TEST_TIMEOUT, linking).await.expect("it is linked")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_node_credential_locks_out_no_agent_or_user() {
    // The node has a worker, but no agent.
    let shipped = Shipped::start(&[("default", head::start_with(&[1]).await)]).await;
    let relay = Arc::clone(&shipped.relay);
    let token = relay.token_with(&json!({"sub": "greedy", "scope": "node"}));
    let (opened, over) = (
        Arc::new(AtomicUsize::new(0)),
        Arc::new(AtomicBool::new(false)),
    );
    let mut lanes = JoinSet::new();
    for lane in 0..CONCURRENT_LINKS {
        let (relay, token) = (Arc::clone(&relay), token.clone());
        let (opened, over) = (Arc::clone(&opened), Arc::clone(&over));
        lanes.spawn(async move {
            let from = match lane % 4 {
                0 => LOCALHOST,
                _ => everywhere()[lane],
            };
            let mut held = Vec::new();
            // Keeps accepted links open, and retries closed or refused ones.
            while !over.load(Ordering::Relaxed) {
                if let Some((mut link, nonce)) = greeted(&relay, from, &token).await {
                    if lane % 2 == 0 {
                        announce(&mut link, nonce, &"f".repeat(56)).await;
                    }
                    held.push(link);
                }
                opened.fetch_add(1, Ordering::Relaxed);
                if held.len() > MAX_LINKS_TRIED / CONCURRENT_LINKS {
                    held.remove(0);
                }
                // Hundreds a second: saturating the machine would not test the relay.
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        });
    }
    shipped.somebody("as links are opened").await;
    let other = relay.token_with(&json!({"sub": "another", "scope": "node"}));
    let (_link, tries) = linked(&relay, &other).await;
    eprintln!("another agent was linked by the {tries}. try");
    assert!(tries <= MAX_ATTEMPTS, "{tries}");
    let all = async {
        while opened.load(Ordering::Relaxed) < MAX_LINKS_TRIED {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(6 * TEST_TIMEOUT, all)
        .await
        .expect("all are opened");
    shipped.somebody("4,096 links").await;
    let once_more = relay.token_with(&json!({"sub": "a third", "scope": "node"}));
    let (_link, tries) = linked(&relay, &once_more).await;
    eprintln!("and one more by the {tries}. try");
    assert!(tries <= MAX_ATTEMPTS, "{tries}");
    over.store(true, Ordering::Relaxed);
    lanes.abort_all();
    while lanes.join_next().await.is_some() {}
}
