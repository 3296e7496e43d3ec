//! The prompt of Ray's legacy debugger (`RAY_DEBUG=legacy`): which of them the relay reaches, and how one is left.
//!
//! A connection that closes makes the task fail, so `c` is said first, whatever ended the session.

use std::time::Duration;

use bytes::BytesMut;
use hyper::Uri;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tracing::debug;

use crate::config::{Config, is_loopback_host};
use crate::ray::registry::Breakpoint;

/// How long a prompt may take to obey the last `c`: a statement may still be running.
const LET_GO: Duration = Duration::from_secs(600);
/// Why a prompt that listens on a node's loopback address is not reached.
pub(crate) const NOT_EXTERNAL: &str = "this breakpoint can be entered on its own node alone, because that node was started without `--ray-debugger-external`";

/// Whether the relay can dial `breakpoint`: a loopback address means the node's own, which is the relay's only where the
/// head is on the relay's machine.
pub(crate) fn is_within_reach(config: &Config, breakpoint: &Breakpoint) -> bool {
    if !breakpoint.upstream().ip().is_loopback() {
        return true;
    }
    let mut clusters = config.clusters.iter();
    let cluster = clusters.find(|cluster| cluster.name == *breakpoint.cluster);
    let uri: Option<Uri> = cluster.and_then(|cluster| cluster.ray_address.parse().ok());
    uri.is_some_and(|uri| is_loopback_host(uri.host().unwrap_or_default()))
}

/// Says what is left to say and `c`, and closes when the prompt has.
pub(crate) async fn let_go(mut stream: TcpStream, mut pending: BytesMut) {
    pending.extend_from_slice(b"c\n");
    let goodbye = async {
        let (mut from_prompt, mut to_prompt) = stream.split();
        let mut said = [0; 4096];
        loop {
            tokio::select! {
                written = to_prompt.write_buf(&mut pending), if !pending.is_empty() => {
                    written?;
                }
                // Unread output would make of the close a reset, which the task does not survive.
                read = from_prompt.read(&mut said) => {
                    if read? == 0 {
                        return Ok::<_, std::io::Error>(());
                    }
                }
            }
        }
    };
    match timeout(LET_GO, goodbye).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => debug!(%error, "a legacy prompt was let go"),
        Err(_) => {
            tracing::warn!("a legacy prompt did not obey `c` for ten minutes; its task may fail")
        }
    }
}
