//! A debugger client: opens a session as an editor does, then makes the requests that are measured.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, split};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::Result;
use crate::stand_in::RECORDED;
use crate::stand_in::frame::{FrameReader, field, frame, padded};

/// Bytes of a measured request.
pub(crate) const REQUEST_BYTES: usize = 300;
/// Longest wait for anything that is measured.
pub(crate) const MEASURE_TIMEOUT: Duration = Duration::from_secs(60);

/// The body of a request of so many bytes, which the worker does not answer.
pub(crate) type Upload = fn(usize) -> String;

/// A value in one long string.
pub(crate) const SET: Upload = |size| {
    padded(
        r#""seq":1000000,"type":"request","command":"setVariable","arguments":{}"#,
        size,
    )
};

/// Many small values, as an editor's extension sends a table.
pub(crate) const EDIT: Upload = |size| {
    let front =
        r#"{"seq":1000000,"type":"request","command":"setVariable","arguments":{},"rows":["#;
    let row = r#"{"name":"loss","at":[1,2.5,null],"step":{"of":"epoch","n":12}}"#;
    let rows = vec![row; (size - front.len() - 1) / (row.len() + 1)].join(",");
    let space = size - front.len() - rows.len() - 2;
    format!("{front}{rows}{}]}}", " ".repeat(space))
};

/// An expression of many lines, which the relay parses.
pub(crate) const ASK: Upload = |size| {
    let front = r#"{"seq":1000000,"type":"request","command":"evaluate","arguments":{"context":"repl","expression":""#;
    let line = r#"x = f(\"loss\", {'a': 1})\n"#;
    let lines = line.repeat((size - front.len() - 3) / line.len());
    let space = size - front.len() - lines.len() - 3;
    format!(r#"{front}{lines}"}}{}}}"#, " ".repeat(space))
};

/// The requests of round trips.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Asked {
    /// A stack as debugpy writes it.
    Stack,
    /// One whose frames have a field that debugpy does not write.
    OddStack,
    /// Those of an editor at a stop, in turn: a stack, its scopes, and their variables.
    Stop,
}

impl Asked {
    /// Command and arguments of the request of this number.
    fn request(self, seq: u64) -> (&'static str, String) {
        let stack = |kind: &str| {
            let arguments =
                format!(r#"{{"threadId":1,"startFrame":0,"levels":20,"kind":"{kind}"}}"#);
            ("stackTrace", arguments)
        };
        let index = seq as usize % RECORDED.len();
        match self {
            Self::Stack => stack("plain"),
            Self::OddStack => stack("odd"),
            Self::Stop => {
                let command = field(RECORDED[index].as_bytes(), "command").unwrap_or_default();
                (command, format!(r#"{{"recorded":{index}}}"#))
            }
        }
    }
}

/// The address of a session.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    /// For the relay: Ray's worker id.
    pub(crate) worker: Option<String>,
    /// For the relay, where it wants one.
    pub(crate) token: Option<String>,
    /// With what it is encrypted, where it is.
    pub(crate) tls: Option<TlsConnector>,
}

type Answers = Box<dyn AsyncRead + Send + Unpin>;
type Requests = Box<dyn AsyncWrite + Send + Unpin>;

/// A connection to `target`.
pub(crate) async fn connected(target: &Target) -> Result<(Answers, Requests)> {
    let stream = TcpStream::connect(target.address).await?;
    stream.set_nodelay(true)?;
    let Some(connector) = &target.tls else {
        let (answers, requests) = stream.into_split();
        return Ok((Box::new(answers), Box::new(requests)));
    };
    let name = ServerName::try_from("localhost")?;
    let (answers, requests) = split(connector.connect(name, stream).await?);
    Ok((Box::new(answers), Box::new(requests)))
}

/// An attached debug session.
pub(crate) struct Session {
    answers: FrameReader<Answers>,
    requests: Requests,
    seq: u64,
}

impl Session {
    /// Connects, attaches and finishes the configuration.
    pub(crate) async fn open(target: &Target) -> Result<Self> {
        let (answers, requests) = connected(target).await?;
        let mut session = Self {
            answers: FrameReader::new(answers),
            requests,
            // Seven digits from the start, so that every request and answer has the same size.
            seq: 1_000_000,
        };
        timeout(MEASURE_TIMEOUT, session.come_up(target))
            .await
            .map_err(|_| "no session within the deadline")??;
        Ok(session)
    }

    async fn come_up(&mut self, target: &Target) -> Result<()> {
        self.send(r#""command":"initialize","arguments":{"clientID":"bench","adapterID":"debugpy","pathFormat":"path","linesStartAt1":true,"columnsStartAt1":true}"#)
            .await?;
        self.answered("initialize").await?;
        let token = target.token.as_ref();
        let token = token.map_or_else(String::new, |token| format!(r#","token":"{token}""#));
        let choice = target.worker.as_ref().map_or_else(String::new, |id| {
            format!(r#","rayRelay":{{"worker":"{id}"{token}}}"#)
        });
        self.send(&format!(
            r#""command":"attach","arguments":{{"type":"debugpy","request":"attach","name":"bench","justMyCode":false{choice}}}"#
        ))
        .await?;
        self.event("initialized").await?;
        self.send(r#""command":"configurationDone""#).await?;
        self.answered("attach").await
    }

    /// One request of [`REQUEST_BYTES`] bytes and its whole answer.
    pub(crate) async fn round_trip(&mut self, asked: Asked) -> Result<()> {
        self.seq += 1;
        let (command, arguments) = asked.request(self.seq);
        let front = format!(
            r#""seq":{},"type":"request","command":"{command}","arguments":{arguments}"#,
            self.seq
        );
        self.requests
            .write_all(&frame(&padded(&front, REQUEST_BYTES)))
            .await?;
        self.requests.flush().await?;
        timeout(MEASURE_TIMEOUT, self.answered(command))
            .await
            .map_err(|_| "no answer within the deadline")?
    }

    /// The seconds that each round trip takes of those that are begun in `time`, which is at least one.
    pub(crate) async fn trips(&mut self, asked: Asked, time: Duration) -> Result<Vec<f64>> {
        let begin = Instant::now();
        let mut trips = Vec::new();
        while trips.is_empty() || begin.elapsed() < time {
            let start = Instant::now();
            self.round_trip(asked).await?;
            trips.push(start.elapsed().as_secs_f64());
        }
        Ok(trips)
    }

    /// Has the worker send `bytes` in frames whose body has `size` bytes; returns once all are here. Who may only look
    /// may ask for modules too.
    pub(crate) async fn download(&mut self, bytes: usize, size: usize) -> Result<()> {
        let count = bytes / size;
        self.send(&format!(
            r#""command":"modules","arguments":{{"startModule":{size},"moduleCount":{count}}}"#
        ))
        .await?;
        timeout(MEASURE_TIMEOUT, self.answered("modules"))
            .await
            .map_err(|_| "no end of the download within the deadline")?
    }

    /// Sends `bytes` in such frames, each a request that is `upload`; returns once the worker has taken all.
    pub(crate) async fn upload(&mut self, bytes: usize, size: usize, upload: Upload) -> Result<()> {
        let load = frame(&upload(size));
        let send = async {
            for _ in 0..bytes / size {
                self.requests.write_all(&load).await?;
            }
            self.send(r#""command":"threads""#).await?;
            self.answered("threads").await
        };
        timeout(MEASURE_TIMEOUT, send)
            .await
            .map_err(|_| "no end of the upload within the deadline")?
    }

    /// Resumes the task, and disconnects.
    pub(crate) async fn leave(mut self) -> Result<()> {
        self.send(r#""command":"disconnect","arguments":{}"#)
            .await?;
        timeout(MEASURE_TIMEOUT, self.answered("disconnect"))
            .await
            .map_err(|_| "no goodbye within the deadline")?
    }

    async fn send(&mut self, rest: &str) -> Result<()> {
        self.seq += 1;
        let body = format!(r#"{{"seq":{},"type":"request",{rest}}}"#, self.seq);
        self.requests.write_all(&frame(&body)).await?;
        Ok(self.requests.flush().await?)
    }

    /// Reads up to the answer to `command`, which must be a success.
    async fn answered(&mut self, command: &str) -> Result<()> {
        self.until(|body| {
            field(body, "command") == Some(command) && field(body, "type") == Some("response")
        })
        .await
    }

    async fn event(&mut self, event: &str) -> Result<()> {
        self.until(|body| field(body, "event") == Some(event)).await
    }

    /// Reads until an expected message arrives; a failed response is an error.
    async fn until(&mut self, is_expected: impl Fn(&[u8]) -> bool) -> Result<()> {
        loop {
            let body = self.answers.next().await?;
            let body = body.ok_or("closed before the answer")?;
            if field(body, "success") == Some("false") {
                return Err(format!("refused: {}", String::from_utf8_lossy(body)).into());
            }
            if is_expected(body) {
                return Ok(());
            }
        }
    }
}
