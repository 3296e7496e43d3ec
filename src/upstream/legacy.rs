//! The prompt of Ray's legacy debugger (`RAY_DEBUG=legacy`): how one is left.
//!
//! A connection that closes makes the task fail, so `c` is said first, whatever ended the session.

use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use tracing::debug;

use super::Stream;

/// How long a prompt may take to obey the last `c`: a statement may still be running.
const LET_GO: Duration = Duration::from_secs(600);
/// Says what is left to say and `c`, and closes when the prompt has.
pub(crate) async fn let_go(mut stream: Stream, mut pending: BytesMut) {
    pending.extend_from_slice(b"c\n");
    let goodbye = async {
        let (mut from_prompt, mut to_prompt) = tokio::io::split(&mut stream);
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
        Ok(Ok(())) => stream.end().await,
        Ok(Err(error)) => debug!(%error, "a legacy prompt was let go"),
        Err(_) => {
            tracing::warn!("a legacy prompt did not obey `c` for ten minutes; its task may fail")
        }
    }
}
