//! The agents of a large cluster: what their links cost a relay that has nothing else to do.

use std::time::{Duration, Instant};

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_tungstenite::client_async;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

use crate::Result;
use crate::harness::client::{Target, connected};
use crate::harness::contest::{Contestant, Family};
use crate::harness::scene::{Plan, Scene};
use crate::harness::table::{Row, Unit};
use crate::harness::yard::Yard;
use crate::stand_in::{Size, node_id};

/// How long the idle agents are observed.
const OBSERVATION: Duration = Duration::from_secs(10);

pub(super) struct Agents;

impl Agents {
    fn count(yard: &Yard) -> usize {
        yard.size(1_000, 20)
    }
}

impl Family for Agents {
    type Open = Scene;

    const ONCE: bool = true;

    const CONTESTANTS: &[Contestant] = &Contestant::RELAYS;

    fn rows(&self, yard: &Yard) -> Vec<Row> {
        let count = Self::count(yard);
        vec![
            Row::new(format!("{count} agents link at once"), Unit::SECONDS),
            Row::new("  CPU of each", Unit::MICROSECONDS),
            Row::new("  memory of each", Unit::KIB),
            Row::new("  idle CPU", Unit::PERCENT),
            Row::new("  idle CPU without them", Unit::PERCENT),
        ]
    }

    async fn open(&self, yard: &Yard, contestant: Contestant) -> Result<Scene> {
        let count = Self::count(yard);
        let mut plan = Plan::new(Size {
            workers: 1,
            nodes: count,
            ..Size::default()
        });
        plan.tls = true;
        plan.connections = count + 1;
        Scene::open(yard, contestant, &plan).await
    }

    async fn round(&self, yard: &Yard, scene: &mut Scene) -> Result<Vec<f64>> {
        let watched = yard.size(OBSERVATION, OBSERVATION / 20);
        let idle = async || -> Result<f64> {
            let (start, before) = (Instant::now(), scene.cpu()?);
            sleep(watched).await;
            Ok((scene.cpu()? - before) / start.elapsed().as_secs_f64())
        };
        let without = idle().await?;
        let (memory, cpu, start) = (scene.memory()?, scene.cpu()?, Instant::now());
        let count = Self::count(yard);
        let target = scene.target(0)?;
        let mut links = JoinSet::new();
        for index in 1..=count {
            let target = target.clone();
            links.spawn(async move {
                let node = node_id(index);
                // A relay has room for some hundred strangers at a time: who is given up comes again, as an agent does.
                for attempt in 0.. {
                    if link(&target, &node).await? {
                        break;
                    }
                    let jitter = (500 + index as u64 % 500) << u32::min(attempt, 4);
                    sleep(Duration::from_millis(jitter)).await;
                }
                Result::Ok(())
            });
        }
        scene.until_nodes_are_linked(count).await?;
        let elapsed = start.elapsed().as_secs_f64();
        let cpu = scene.cpu()? - cpu;
        sleep(watched / 5).await;
        let memory = scene.memory()? - memory;
        let with = idle().await?;
        if let Some(ended) = links.try_join_next() {
            ended??;
            return Err("an agent has ended".into());
        }
        let count = count as f64;
        Ok(vec![elapsed, cpu / count, memory / count, with, without])
    }
}

/// One agent: announces `node`, and says that it is there for as long as it is asked. Returns whether it was linked.
async fn link(target: &Target, node: &str) -> Result<bool> {
    let mut request = "wss://localhost/relay/v1/nodes/link".into_client_request()?;
    let protocol = "ray-relay-node.v1".parse()?;
    request
        .headers_mut()
        .insert("sec-websocket-protocol", protocol);
    let Ok((answers, requests)) = connected(target).await else {
        return Ok(false);
    };
    let stream = tokio::io::join(answers, requests);
    let Ok((mut socket, _)) = client_async(request, stream).await else {
        return Ok(false);
    };
    let mut linked = false;
    while let Some(Ok(message)) = socket.next().await {
        let Message::Text(text) = message else {
            continue;
        };
        let message: Value = serde_json::from_str(&text)?;
        match message["type"].as_str() {
            Some("hello") => {
                let announce = json!({
                    "type": "announce",
                    "protocol": 1,
                    "version": "bench",
                    "nonce": message["nonce"],
                    "instance": &node[node.len() - 32..],
                    "node_id": node,
                    "addresses": ["127.0.0.1"],
                    "hostname": node,
                    "architecture": "x86_64",
                    "pid": 1,
                    "sees_processes": true,
                });
                socket.send(Message::text(announce.to_string())).await?;
            }
            Some("refused") => return Err(text.to_string().into()),
            Some("welcome") => linked = true,
            _ => {}
        }
    }
    Ok(linked)
}
