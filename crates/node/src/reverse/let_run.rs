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
const ANSWERED: Duration = Duration::from_secs(1);

/// How long a thread may take to pause.
const STOPPED: Duration = Duration::from_millis(1500);

/// The time `debugpy.wait_for_client()` needs to notice a client.
const NOTICED: Duration = Duration::from_millis(500);

/// How long the answer to `disconnect` may take.
const LEFT: Duration = Duration::from_secs(2);

/// Bytes of answers that are searched.
const KEPT: usize = 64 * 1024;

/// Resumes the worker at the other end of `stream`, if it is one of these. Takes four seconds at most.
pub(super) async fn let_run(stream: &mut TcpStream) {
    // A worker that is gone needs no answer.
    let _ = said(stream).await;
    let _ = stream.shutdown().await;
}

async fn said(stream: &mut TcpStream) -> std::io::Result<()> {
    stream.write_all(RUN).await?;
    if heard(stream, Some(b"103\t"), ANSWERED).await? {
        heard(stream, Some(b"105\t"), STOPPED).await?;
        return Ok(());
    }
    for command in ["attach", "configurationDone"] {
        stream.write_all(&request(command)).await?;
    }
    heard(stream, None, NOTICED).await?;
    stream.write_all(&request("disconnect")).await?;
    heard(stream, Some(br#""disconnect""#), LEFT).await?;
    Ok(())
}

/// Reads for `patience`, or until `word` is received. Returns whether it was.
async fn heard(
    stream: &mut TcpStream,
    word: Option<&[u8]>,
    patience: Duration,
) -> std::io::Result<bool> {
    let until = Instant::now() + patience;
    let mut heard = Vec::new();
    while heard.len() < KEPT {
        match timeout_at(until, stream.read_buf(&mut heard)).await {
            Err(_) => return Ok(false),
            Ok(read) => {
                if read? == 0 {
                    return Err(std::io::ErrorKind::UnexpectedEof.into());
                }
            }
        }
        if word.is_some_and(|word| memchr::memmem::find(&heard, word).is_some()) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn request(command: &str) -> Vec<u8> {
    frame(&json!({"seq": 1, "type": "request", "command": command, "arguments": {}}))
}
