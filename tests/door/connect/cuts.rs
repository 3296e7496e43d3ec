//! Cuts of the network between the command and the relay: no client sees one, unless the relay is unreachable for too
//! long.

use std::sync::Arc;

use tokio::io::{AsyncReadExt, copy_bidirectional};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::*;

/// The network between the command and the relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Network {
    Up,
    /// Everything is reset.
    Down,
    /// The connection stalls silently.
    Silent,
}

/// A way to the relay that can be cut.
struct Way {
    address: SocketAddr,
    network: watch::Sender<Network>,
    _tasks: JoinSet<()>,
}

impl Way {
    async fn to(relay: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let network = watch::Sender::new(Network::Up);
        let mut tasks = JoinSet::new();
        let watched = network.subscribe();
        tasks.spawn(async move {
            let mut ways = JoinSet::new();
            loop {
                let (mut client, _) = listener.accept().await.unwrap();
                let mut network = watched.clone();
                ways.spawn(async move {
                    if *network.borrow_and_update() == Network::Down {
                        return;
                    }
                    let mut relay = dial(relay).await;
                    tokio::select! {
                        _ = copy_bidirectional(&mut client, &mut relay) => {}
                        _ = network.changed() => {}
                    }
                    // Bytes in flight are lost, even if the network recovers.
                    if *network.borrow() == Network::Silent {
                        sleep(Duration::from_secs(60)).await;
                    }
                });
            }
        });
        Self {
            address,
            network,
            _tasks: tasks,
        }
    }

    async fn cut(&self, how: Network, lasts: Duration) {
        self.network.send_replace(how);
        sleep(lasts).await;
        self.network.send_replace(Network::Up);
    }
}

fn megabytes() -> Vec<u8> {
    (0..10_000_000u64)
        .map(|at| (at.wrapping_mul(2_654_435_761) >> 9) as u8)
        .collect()
}

/// A head that answers everything with [`megabytes`].
async fn large_head() -> SocketAddr {
    let head = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = head.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = head.accept().await.unwrap();
            tokio::spawn(async move {
                let mut request = vec![0; 4096];
                let read = stream.read(&mut request).await.unwrap_or(0);
                if request[..read].starts_with(b"GET /logs/") {
                    let length = megabytes().len();
                    let head = format!(
                        "HTTP/1.1 200 OK\r\ncontent-type: application/octet-stream\r\ncontent-length: {length}\r\n\r\n"
                    );
                    let _ = stream.write_all(head.as_bytes()).await;
                    let _ = stream.write_all(&megabytes()).await;
                }
            });
        }
    });
    address
}

#[tokio::test]
async fn connect_hides_cuts_without_losing_bytes() {
    let keys = Keys::new();
    let head = large_head().await;
    let relay = start(|config| {
        config.auth.keys = vec![keys.public()];
        config.clusters[0].ray_address = format!("http://{head}");
    })
    .await;
    let way = Arc::new(Way::to(relay.local_addr()).await);
    let url = format!("http://{}", way.address);
    let mut connect = Connect::start(url, &keys.token(|_| {})).await;
    connect.event("connected").await;
    let (mut dap, answer) = attach(dial(connect.address).await, &json!({"all": true})).await;
    assert_eq!(answer["event"], "initialized", "{answer}");

    let mut stream = dial(connect.address).await;
    let request = format!(
        "GET /logs/big HTTP/1.1\r\nHost: {}\r\n\r\n",
        connect.address
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut all = Vec::new();
    let cutting = tokio::spawn({
        let way = Arc::clone(&way);
        async move {
            for (how, lasts) in [
                (Network::Down, 0),
                (Network::Silent, 50),
                (Network::Down, 1500),
            ] {
                way.cut(how, Duration::from_millis(lasts)).await;
                sleep(Duration::from_millis(300)).await;
            }
        }
    });
    let expected = megabytes();
    let reading = async {
        let mut piece = vec![0; 100_000];
        while !all.ends_with(&expected[expected.len() - 1000..]) {
            let read = stream.read(&mut piece).await.unwrap();
            assert_ne!(read, 0, "an end after {} bytes", all.len());
            all.extend_from_slice(&piece[..read]);
            // The transfer lasts as long as the cuts.
            sleep(Duration::from_millis(15)).await;
        }
    };
    timeout(Duration::from_secs(90), reading)
        .await
        .expect("in time");
    cutting.await.unwrap();
    assert!(all.ends_with(&expected), "{} bytes", all.len());

    // Each question is answered once.
    for at in 3..6 {
        way.cut(Network::Down, Duration::from_millis(200)).await;
        answers(&mut dap, at).await;
    }
    drop((dap, stream));
    drop(connect);
    relay.drain().await;
}

#[tokio::test]
async fn connect_ends_a_session_that_the_relay_lost_and_opens_new_ones() {
    let keys = Keys::new();
    let relay = start(|config| {
        config.auth.keys = vec![keys.public()];
        config.connect.resume = Duration::from_millis(300);
    })
    .await;
    let way = Way::to(relay.local_addr()).await;
    let url = format!("http://{}", way.address);
    let mut connect = Connect::start(url, &keys.token(|_| {})).await;
    connect.event("connected").await;
    let (mut dap, _) = attach(dial(connect.address).await, &json!({"all": true})).await;
    way.cut(Network::Down, Duration::from_millis(1500)).await;
    let event = connect.event("gone").await;
    assert!(
        event["why"]
            .as_str()
            .unwrap()
            .contains("no longer holds it"),
        "{event}"
    );
    let ended = async { while dap.read().await.is_ok() {} };
    timeout(TEST_TIMEOUT, ended)
        .await
        .expect("the editor is told");
    let list = connect.get("/relay/v1/breakpoints", "").await;
    assert!(list.starts_with("HTTP/1.1 200"), "{list}");
    relay.drain().await;
}
