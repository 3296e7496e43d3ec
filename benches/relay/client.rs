//! A debugger client: opens a session as an editor does, then makes the requests that are measured.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::timeout;

use crate::Result;
use crate::frame::{FrameReader, field, frame, padded};
use crate::worker::BULK_FRAME;

/// Bytes of a measured request.
pub(crate) const REQUEST: usize = 300;
/// Longest wait for anything that is measured.
const PATIENCE: Duration = Duration::from_secs(30);

/// Where a session goes.
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    /// For the relay: Ray's worker id.
    pub(crate) worker: Option<String>,
}

/// An attached debug session.
pub(crate) struct Session {
    answers: FrameReader<OwnedReadHalf>,
    requests: OwnedWriteHalf,
    seq: u64,
}

impl Session {
    /// Connects, attaches and finishes the configuration.
    pub(crate) async fn open(target: Target) -> Result<Self> {
        timeout(PATIENCE, Self::attach(target))
            .await
            .map_err(|_| "no session within the deadline")?
    }

    async fn attach(target: Target) -> Result<Self> {
        let stream = TcpStream::connect(target.address).await?;
        stream.set_nodelay(true)?;
        let (answers, requests) = stream.into_split();
        // Seven digits from the start, so that every request and answer has the same size.
        let mut session = Self {
            answers: FrameReader::new(answers),
            requests,
            seq: 1_000_000,
        };
        session
            .send(r#""command":"initialize","arguments":{"clientID":"bench","adapterID":"debugpy","pathFormat":"path","linesStartAt1":true,"columnsStartAt1":true}"#)
            .await?;
        session.answered("initialize").await?;
        let choice = target
            .worker
            .map(|id| format!(r#","rayRelay":{{"worker":"{id}"}}"#))
            .unwrap_or_default();
        session
            .send(&format!(
                r#""command":"attach","arguments":{{"type":"debugpy","request":"attach","name":"bench","justMyCode":false{choice}}}"#
            ))
            .await?;
        session.event("initialized").await?;
        session.send(r#""command":"configurationDone""#).await?;
        session.answered("attach").await?;
        Ok(session)
    }

    /// One request of [`REQUEST`] bytes and its whole answer.
    pub(crate) async fn round_trip(&mut self) -> Result<()> {
        self.seq += 1;
        let front = format!(
            r#""seq":{},"type":"request","command":"stackTrace","arguments":{{"threadId":1,"startFrame":0,"levels":20}}"#,
            self.seq
        );
        self.requests
            .write_all(&frame(&padded(&front, REQUEST)))
            .await?;
        timeout(PATIENCE, self.answered("stackTrace"))
            .await
            .map_err(|_| "no answer within the deadline")?
    }

    /// Has the worker send `bytes` in frames of [`BULK_FRAME`]; returns once all are here.
    pub(crate) async fn download(&mut self, bytes: usize) -> Result<()> {
        let count = bytes / BULK_FRAME;
        self.send(&format!(
            r#""command":"variables","arguments":{{"frameId":{count}}}"#
        ))
        .await?;
        timeout(PATIENCE, self.answered("variables"))
            .await
            .map_err(|_| "no end of the download within the deadline")?
    }

    /// Sends `bytes` in frames of [`BULK_FRAME`]; returns once the worker has taken all.
    pub(crate) async fn upload(&mut self, bytes: usize) -> Result<()> {
        let load = frame(&padded(
            r#""seq":1000000,"type":"request","command":"evaluate","arguments":{}"#,
            BULK_FRAME,
        ));
        let send = async {
            for _ in 0..bytes / BULK_FRAME {
                self.requests.write_all(&load).await?;
            }
            self.send(r#""command":"threads""#).await?;
            self.answered("threads").await
        };
        timeout(PATIENCE, send)
            .await
            .map_err(|_| "no end of the upload within the deadline")?
    }

    async fn send(&mut self, rest: &str) -> Result<()> {
        self.seq += 1;
        let body = format!(r#"{{"seq":{},"type":"request",{rest}}}"#, self.seq);
        Ok(self.requests.write_all(&frame(&body)).await?)
    }

    /// Reads up to the answer to `command`, which must be a success.
    async fn answered(&mut self, command: &str) -> Result<()> {
        loop {
            let answer = self
                .answers
                .next()
                .await?
                .ok_or("closed before the answer")?;
            if field(answer, "command") == Some(command)
                && field(answer, "type") == Some("response")
            {
                if field(answer, "success") == Some("true") {
                    return Ok(());
                }
                return Err(
                    format!("{command} refused: {}", String::from_utf8_lossy(answer)).into(),
                );
            }
            refused(answer)?;
        }
    }

    async fn event(&mut self, event: &str) -> Result<()> {
        loop {
            let body = self
                .answers
                .next()
                .await?
                .ok_or("closed before the event")?;
            if field(body, "event") == Some(event) {
                return Ok(());
            }
            refused(body)?;
        }
    }
}

/// Whatever else comes, a failure says why.
fn refused(body: &[u8]) -> Result<()> {
    if field(body, "success") == Some("false") {
        return Err(format!("refused: {}", String::from_utf8_lossy(body)).into());
    }
    Ok(())
}
