//! From an accepted connection to the protocol that serves it: detect, then route or refuse.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tracing::debug;

use super::Arrival;
use super::detect::{Detection, ENOUGH, detect};
use super::prefixed::Prefixed;
use crate::session::Context;
use crate::telemetry::metrics::{Protocol, RefusalKind};
use crate::{dap, http, tcp};

/// How long a refused connection may take to read the answer and close.
const REFUSAL_LINGER: Duration = Duration::from_secs(2);

/// TLS alert record, fatal, `handshake_failure` (RFC 8446 section 6): what a server says that will not do TLS with you.
const TLS_ALERT: &[u8] = &[0x15, 0x03, 0x01, 0x00, 0x02, 0x02, 0x28];

const TERMINAL_ANSWER: &[u8] = b"ray-relay: terminal sessions are not enabled in this version.\r\n\
    Here you can: attach a debugger (VS Code: `ray-relay launch-config vscode`), run `ray-relay list`,\r\n\
    or open the Ray dashboard at this address with http://.\r\n";

const UNKNOWN_ANSWER: &[u8] =
    b"ray-relay: these bytes are neither HTTP nor the debug adapter protocol.\r\n";

/// What came first, and all of it.
struct First {
    detection: Detection,
    bytes: BytesMut,
}

/// Serves one connection to its end.
pub(super) async fn serve(context: Arc<Context>, mut stream: TcpStream, arrival: Arrival) {
    let peer = arrival.peer;
    let listen = &context.config.listen;
    let started = Instant::now();
    let silent_at = started + listen.silence.min(listen.handshake_timeout);
    let first = match read_first(&mut stream, silent_at).await {
        Ok(Some(first)) => first,
        Ok(None) => return,
        Err(error) => {
            debug!(%error, %peer, "connection broke before its first bytes");
            return;
        }
    };
    context.metrics.connection(protocol(first.detection));
    if first.detection == Detection::Dap
        && let Err(error) = tcp::bound_silence(&stream)
    {
        debug!(%error, %peer, "cannot bound how long a client may be silent");
    }
    let replayed = Prefixed::new(first.bytes.freeze(), stream);
    match first.detection {
        Detection::Http => {
            let drain = context.shutdown.drain.clone();
            tokio::select! {
                () = http::serve_connection(replayed, arrival, context.http.clone(), drain) => {}
                () = context.shutdown.abort.cancelled() => {}
            }
        }
        Detection::Dap => {
            let session = context.sessions.open(peer);
            dap::serve(&context, session, replayed, arrival).await;
        }
        Detection::Tls => unsupported(&context, replayed, TLS_ALERT).await,
        Detection::Terminal => unsupported(&context, replayed, TERMINAL_ANSWER).await,
        Detection::Unknown => unsupported(&context, replayed, UNKNOWN_ANSWER).await,
    }
}

fn protocol(detection: Detection) -> Protocol {
    match detection {
        Detection::Http => Protocol::Http,
        Detection::Dap => Protocol::Dap,
        Detection::Tls => Protocol::Tls,
        Detection::Terminal => Protocol::Terminal,
        Detection::Unknown => Protocol::Unknown,
    }
}

async fn unsupported<S: AsyncRead + AsyncWrite + Unpin>(
    context: &Context,
    stream: S,
    answer: &[u8],
) {
    context.metrics.refused(RefusalKind::Unsupported);
    refuse(stream, answer).await;
}

/// Reads until the protocol is known; a peer that has not shown one by `silent_at` is a person at a
/// terminal. `None`: it closed without a word.
async fn read_first<S: AsyncRead + Unpin>(
    stream: &mut S,
    silent_at: Instant,
) -> io::Result<Option<First>> {
    let mut bytes = BytesMut::with_capacity(ENOUGH);
    loop {
        let Ok(read) = timeout_at(silent_at, stream.read_buf(&mut bytes)).await else {
            return Ok(Some(First {
                detection: Detection::Terminal,
                bytes,
            }));
        };
        if read? == 0 {
            let detection = detect(&bytes).unwrap_or(Detection::Unknown);
            return Ok((!bytes.is_empty()).then_some(First { detection, bytes }));
        }
        if let Some(detection) = detect(&bytes) {
            return Ok(Some(First { detection, bytes }));
        }
        bytes.reserve(ENOUGH);
    }
}

/// Says `answer`, then closes so that it arrives: what the peer still sends is read and dropped for a moment.
async fn refuse<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, answer: &[u8]) {
    let told = async {
        stream.write_all(answer).await?;
        stream.shutdown().await?;
        let mut sink = [0; 1024];
        while stream.read(&mut sink).await? > 0 {}
        io::Result::Ok(())
    };
    let _ = timeout_at(Instant::now() + REFUSAL_LINGER, told).await;
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tokio::io::duplex;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn silence_is_a_person_after_the_deadline_and_not_before() {
        let (mut near, _far) = duplex(64);
        let started = Instant::now();
        let first = read_first(&mut near, started + Duration::from_secs(2))
            .await
            .unwrap()
            .unwrap();
        assert_eq!(first.detection, Detection::Terminal);
        assert_eq!(started.elapsed(), Duration::from_secs(2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_protocol_that_comes_byte_by_byte_is_recognised_and_nothing_is_lost() {
        let (mut near, mut far) = duplex(64);
        let writer = tokio::spawn(async move {
            for byte in b"Content-" {
                far.write_all(&[*byte]).await.unwrap();
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            far
        });
        let first = read_first(&mut near, Instant::now() + Duration::from_secs(2))
            .await
            .unwrap()
            .unwrap();
        assert_eq!(first.detection, Detection::Dap);
        assert_eq!(&first.bytes[..], b"Content-");
        writer.await.unwrap();
    }

    #[tokio::test]
    async fn a_refused_peer_reads_the_whole_answer_though_it_never_stops_talking() {
        let (near, mut far) = duplex(64);
        let refusing = tokio::spawn(refuse(near, TERMINAL_ANSWER));
        let mut answer = Vec::new();
        far.read_to_end(&mut answer).await.unwrap();
        assert_eq!(answer, TERMINAL_ANSWER);
        drop(far);
        refusing.await.unwrap();
    }
}
