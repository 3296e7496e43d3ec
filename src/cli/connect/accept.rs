//! Connections to the local port: each goes to the relay over a link of its own.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, split};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::editor_notices::EditorNotices;
use super::lines::RelayLinks;
use crate::cli::editor_link::EditorLink;
use ray_relay_base::wire::resumed::LinkedStream;
use ray_relay_base::wire::tunnel::join::pass;

/// Pause after a system error, such as running out of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Maximum number of connections; more wait in the kernel's queue.
const MAX_CONNECTIONS: usize = 512;

/// How long a client may keep a connection open after the relay has ended it.
const LINGER_PERIOD: Duration = Duration::from_secs(10);

/// Start of every DAP message.
const CONTENT_LENGTH: &[u8] = b"Content-Length:";

/// Accepts connections. Dropping it ends them.
pub(super) async fn run(listener: &TcpListener, links: &Arc<RelayLinks>) -> Infallible {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if connections.len() < MAX_CONNECTIONS => match accepted {
                Ok((client, _)) => {
                    connections.spawn(serve(Arc::clone(links), client));
                }
                Err(_) => sleep(ACCEPT_PAUSE).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(links: Arc<RelayLinks>, client: TcpStream) {
    // Editors send many small messages.
    let _ = client.set_nodelay(true);
    let Some(stream) = links.take().await else {
        return;
    };
    let _counted = links.printer().connection();
    // The relay reports either end.
    let _ = passed(client, stream, links.notices()).await;
}

/// Relays both directions. If the client closes its half, the relay may still answer; if the relay closes its half, the
/// connection is over.
async fn passed(
    mut client: TcpStream,
    mut relay: LinkedStream,
    notices: &EditorNotices,
) -> io::Result<()> {
    let (mut first, mut early) = ([0; CONTENT_LENGTH.len()], [0; 1024]);
    tokio::select! {
        peeked = client.peek(&mut first) => {
            let peeked = peeked?;
            if peeked > 0 && CONTENT_LENGTH.starts_with(&first[..peeked]) {
                let is_local = client.peer_addr()?.ip().is_loopback();
                let link = EditorLink::new(client, relay, is_local, LINGER_PERIOD);
                return Box::pin(link.run(|_| {}, notices.lines())).await;
            }
        }
        // The relay greets clients that wait for that.
        read = relay.read(&mut early) => client.write_all(&early[..read?]).await?,
    }
    let (from_client, to_client) = client.into_split();
    let (from_relay, to_relay) = split(relay);
    let count = AtomicU64::new(0);
    let mut up = Box::pin(pass(from_client, to_relay, &count));
    let mut down = Box::pin(pass(from_relay, to_client, &count));
    tokio::select! {
        down = &mut down => {
            down?;
            timeout(LINGER_PERIOD, up).await.unwrap_or(Ok(()))
        }
        up = &mut up => {
            up?;
            down.await
        }
    }
}
