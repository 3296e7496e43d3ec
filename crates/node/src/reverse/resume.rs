//! Resumes a worker whose debugger will not answer it.
//!
//! `pydevd_pycharm.settrace` and `debugpy.connect` wait for the first message of a debugger, and go on waiting if
//! their connection ends before it. These messages free them, with pydevd-pycharm 263 and debugpy 1.8.22:
//!
//! - pydevd's `101` (run) ends both calls. pydevd-pycharm answers it with `103`. With `suspend=True` its thread
//!   pauses next, sends `105`, and resumes when the connection ends.
//! - debugpy does not answer it. A `debugpy.wait_for_client()` waits for `attach` and `configurationDone`, and
//!   notices neither if `disconnect` follows directly.

use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use ray_relay_base::wire::dap::codec::frame;

/// pydevd's own protocol: run.
const RUN: &[u8] = b"101\t1\t\n";

/// How long the answer to `101` may take.
const RUN_ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a thread may take to pause.
const PAUSE_TIMEOUT: Duration = Duration::from_millis(1500);

/// The time `debugpy.wait_for_client()` needs to notice a client.
const ATTACH_SETTLE_TIME: Duration = Duration::from_millis(500);

/// How long the answer to `disconnect` may take.
const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Bytes of answers that are searched.
const MAX_ANSWER_BYTES: usize = 64 * 1024;

/// Resumes the worker at the other end of `stream`, if it is one of these. Takes four seconds at most.
pub(super) async fn resume_worker(stream: &mut TcpStream) {
    // A worker that is gone needs no answer.
    let _ = send_resume_sequence(stream).await;
    let _ = stream.shutdown().await;
}

async fn send_resume_sequence(stream: &mut TcpStream) -> std::io::Result<()> {
    stream.write_all(RUN).await?;
    if read_until(stream, Some(b"103\t"), RUN_ANSWER_TIMEOUT).await? {
        read_until(stream, Some(b"105\t"), PAUSE_TIMEOUT).await?;
        return Ok(());
    }
    for command in ["attach", "configurationDone"] {
        stream.write_all(&request(command)).await?;
    }
    read_until(stream, None, ATTACH_SETTLE_TIME).await?;
    stream.write_all(&request("disconnect")).await?;
    read_until(stream, Some(br#""disconnect""#), DISCONNECT_TIMEOUT).await?;
    Ok(())
}

/// Reads for `patience`, or until `marker` is received. Returns whether it was.
async fn read_until(
    stream: &mut TcpStream,
    marker: Option<&[u8]>,
    patience: Duration,
) -> std::io::Result<bool> {
    let until = Instant::now() + patience;
    let mut received = Vec::new();
    while received.len() < MAX_ANSWER_BYTES {
        match timeout_at(until, stream.read_buf(&mut received)).await {
            Err(_) => return Ok(false),
            Ok(read) => {
                if read? == 0 {
                    return Err(std::io::ErrorKind::UnexpectedEof.into());
                }
            }
        }
        if marker.is_some_and(|marker| memchr::memmem::find(&received, marker).is_some()) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn request(command: &str) -> Vec<u8> {
    frame(&json!({"seq": 1, "type": "request", "command": command, "arguments": {}}))
}
