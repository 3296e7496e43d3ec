//! Several relays behind one name, as in Kubernetes.

use std::collections::{BTreeMap, BTreeSet};

use ray_relay::app::Running;
use tokio::io::copy_bidirectional;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::*;

/// A load balancer without affinity: each connection reaches the next of the relays that are there.
struct Balancer {
    address: SocketAddr,
    there: watch::Sender<Vec<SocketAddr>>,
    _tasks: JoinSet<()>,
}

impl Balancer {
    async fn of(relays: Vec<SocketAddr>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let there = watch::Sender::new(relays);
        let known = there.subscribe();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut ways = JoinSet::new();
            for turn in 0.. {
                let (mut client, _) = listener.accept().await.unwrap();
                let relay = {
                    let known = known.borrow();
                    known[turn % known.len()]
                };
                ways.spawn(async move {
                    let _ = copy_bidirectional(&mut client, &mut dial(relay).await).await;
                });
            }
        });
        Self {
            address,
            there,
            _tasks: tasks,
        }
    }
}

#[tokio::test]
async fn connect_stays_with_one_relay_of_several_until_it_ends() {
    let keys = Keys::new();
    let named = |name: &'static str| {
        start(|config| {
            config.auth.keys = vec![keys.public()];
            config.clusters[0].name = name.to_owned();
        })
    };
    let mut relays = BTreeMap::from([("east", named("east").await), ("west", named("west").await)]);
    let balancer = Balancer::of(relays.values().map(Running::local_addr).collect()).await;
    let url = format!("http://{}", balancer.address);
    let mut connect = Connect::start(url, &keys.token(|_| {})).await;
    connect.event("connected").await;
    let home = answering(&connect).await;
    let removed = relays.remove(home).unwrap();
    let (other, remaining) = relays.pop_first().unwrap();
    balancer.there.send_replace(vec![remaining.local_addr()]);
    removed.drain().await;
    assert_eq!(answering(&connect).await, other);
    drop(connect);
    remaining.drain().await;
}

/// Returns which relay answers each connection.
async fn answering(connect: &Connect) -> &'static str {
    let mut answered = BTreeSet::new();
    for _ in 0..8 {
        let list = connect.get("/relay/v1/breakpoints", "").await;
        let is_of = |name: &&str| list.contains(&format!("\"{name}\""));
        answered.extend(["east", "west"].into_iter().filter(is_of));
    }
    assert_eq!(answered.len(), 1, "{answered:?}");
    answered.pop_first().unwrap()
}
