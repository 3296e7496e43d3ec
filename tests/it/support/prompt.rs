//! The pdb prompt on a real debugpy of this machine, without a relay between.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ray_relay_debugger::pdb::{After, Options, Piece, Prompt, PromptEnd};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// The deadline of one line at the prompt.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// A program that waits for a debugger; killed when dropped.
pub(crate) struct Debugged {
    pub(crate) child: Child,
    pub(crate) port: u16,
}

impl Debugged {
    pub(crate) fn start(python: &Path, program: &Path) -> Self {
        let mut child = Command::new(python)
            .arg(program)
            .env("RAY_RELAY_TEST_DEBUGPY", "1")
            .env("PYDEVD_DISABLE_FILE_VALIDATION", "1")
            .env("PYTHONUNBUFFERED", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let port = lines
            .find_map(|line| line.ok()?.trim().parse().ok())
            .unwrap();
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, port }
    }
}

impl Drop for Debugged {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A prompt, and everything that it has written.
pub(crate) struct Session {
    pub(crate) prompt: Prompt<TcpStream>,
    pieces: mpsc::Receiver<Piece>,
    pub(crate) transcript: String,
    pub(crate) ended: Option<PromptEnd>,
}

impl Session {
    pub(crate) async fn open(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let (sender, mut pieces) = mpsc::channel(8);
        let mut transcript = String::new();
        let options = Options::default();
        let opening = Prompt::open(stream, &options, sender);
        let (prompt, after) = collect(opening, &mut pieces, &mut transcript)
            .await
            .unwrap();
        assert_eq!(after, After::Prompt);
        Self {
            prompt,
            pieces,
            transcript,
            ended: None,
        }
    }

    /// Returns the output of `line`.
    pub(crate) async fn answer(&mut self, line: &str) -> String {
        let before = self.transcript.len() + self.prompt.text().len();
        self.line(line).await;
        self.transcript[before..].to_owned()
    }

    pub(crate) async fn line(&mut self, line: &str) {
        self.transcript += self.prompt.text();
        match collect(
            self.prompt.line(line),
            &mut self.pieces,
            &mut self.transcript,
        )
        .await
        {
            After::Prompt => {}
            After::Ended(end) => self.ended = Some(end),
        }
    }
}

async fn collect<T>(
    doing: impl Future<Output = T>,
    pieces: &mut mpsc::Receiver<Piece>,
    transcript: &mut String,
) -> T {
    let mut doing = Box::pin(doing);
    let done = timeout(TEST_TIMEOUT, async {
        loop {
            tokio::select! {
                biased;
                Some(piece) = pieces.recv() => *transcript += piece.text(),
                done = &mut doing => break done,
            }
        }
    })
    .await
    .unwrap_or_else(|_| panic!("not within {} s:\n{transcript}", TEST_TIMEOUT.as_secs()));
    while let Ok(piece) = pieces.try_recv() {
        *transcript += piece.text();
    }
    done
}
