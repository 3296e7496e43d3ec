//! A breakpoint of Ray's legacy debugger: its own prompt, through the relay's terminal.
//!
//! Plain lines on the one port: first `enter ID`, a token if requested, then the prompt itself. The relay follows the
//! session into other tasks. If this connection is lost, it keeps the task at the prompt for a while. A client that
//! quits sends `c`.

use std::io;
use std::sync::LazyLock;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::input::Typed;
use super::{DebugArgs, Terminal, dial};
use crate::cli::failure::Failure;
use ray_relay_base::wire::text::escaped;
use ray_relay_debugger::pdb::{COMMANDS_PROMPT, PROMPT};
use ray_relay_http::lineproto::{Enter, TOKEN_NEEDED, TOKEN_QUESTION as TOKEN};

/// Endings of questions of the relay and of pdb.
const QUESTIONS: [&str; 4] = [PROMPT, COMMANDS_PROMPT, TOKEN, ">>> "];

/// Answer to `enter ID` of a relay that requires a token: it asks before it has read that line, and again after it.
static TOKEN_CHALLENGE: LazyLock<Vec<u8>> =
    LazyLock::new(|| [TOKEN_NEEDED, TOKEN, TOKEN].concat().into_bytes());

/// Runs one session, from the first line until the connection ends.
pub(super) async fn enter(
    args: &DebugArgs,
    terminal: &mut Terminal,
    id: &str,
) -> Result<(), Failure> {
    let token = args.relay.shown_token().await?;
    let enter = Enter {
        id: id.to_owned(),
        take_over: args.take_over,
    };
    let stream = dial(&args.relay).await?;
    let (mut from_relay, mut to_relay) = tokio::io::split(stream);
    let introduced = tokio::select! {
        introduced = introduce(&mut from_relay, &mut to_relay, &enter, token.as_ref().map(|token| &***token)) => introduced,
        _ = terminal.interrupted.recv() => return Ok(terminal.input.print("\n")?),
    };
    let mut text = Text::default();
    let mut closed = false;
    let mut last_question = "";
    let mut sent = introduced.is_ok();
    let mut bytes = introduced.unwrap_or_default();
    while sent {
        if !bytes.is_empty() {
            let (output, question) = text.take(&bytes);
            terminal.input.print(&output)?;
            if let Some(question) = question {
                last_question = question;
                // A token must not enter the history.
                terminal.input.ask(question, question != TOKEN);
            }
            bytes.clear();
        }
        tokio::select! {
            read = from_relay.read_buf(&mut bytes) => {
                if !matches!(read, Ok(1..)) {
                    break;
                }
            }
            typed = terminal.input.next(), if !closed => match typed {
                Typed::Line(line) => sent = send(&mut to_relay, &format!("{line}\n")).await,
                // Nothing to clear: the line was never sent.
                Typed::Interrupt => terminal.input.ask(PROMPT, true),
                Typed::End => {
                    terminal.input.print("\n")?;
                    closed = true;
                    if last_question == PROMPT {
                        // Without it the relay would treat the client as lost.
                        let _ = send(&mut to_relay, "c\n").await;
                    }
                    let _ = to_relay.shutdown().await;
                }
            },
            _ = terminal.interrupted.recv() => {
                terminal.input.print("\n")?;
                return Ok(());
            }
        }
    }
    terminal.input.print(&text.rest())?;
    terminal.over().await?;
    Ok(())
}

/// Sends `enter`, and `token` if the relay requires one. The relay asks for it in its very first bytes, so no worker
/// can. Returns the other bytes received; if there is no token to answer with, that includes the question.
async fn introduce<R, W>(
    from: &mut R,
    to: &mut W,
    enter: &Enter,
    token: Option<&str>,
) -> io::Result<Vec<u8>>
where
    R: AsyncReadExt + Unpin,
    W: AsyncWriteExt + Unpin,
{
    write(to, &format!("{enter}\n")).await?;
    let mut received = Vec::with_capacity(4096);
    while TOKEN_CHALLENGE.starts_with(&received) && received.len() < TOKEN_CHALLENGE.len() {
        if from.read_buf(&mut received).await? == 0 {
            break;
        }
    }
    if received.starts_with(&TOKEN_CHALLENGE) {
        let answered = match token {
            Some(token) => {
                write(to, &format!("{token}\n")).await?;
                TOKEN_CHALLENGE.len()
            }
            None => TOKEN_CHALLENGE.len() - TOKEN.len(),
        };
        received.drain(..answered);
    }
    Ok(received)
}

async fn send<W: AsyncWriteExt + Unpin>(to: &mut W, line: &str) -> bool {
    write(to, line).await.is_ok()
}

async fn write<W: AsyncWriteExt + Unpin>(to: &mut W, line: &str) -> io::Result<()> {
    to.write_all(line.as_bytes()).await?;
    to.flush().await
}

/// Splits output into whole characters and lines.
#[derive(Debug, Default)]
struct Text {
    /// Bytes not shown yet.
    held: Vec<u8>,
}

impl Text {
    /// Returns the text to show now, and the question that waits for an answer.
    fn take(&mut self, bytes: &[u8]) -> (String, Option<&'static str>) {
        self.held.extend_from_slice(bytes);
        let rest = self
            .held
            .split_off(self.held.len() - unfinished(&self.held));
        let text = escaped(&String::from_utf8_lossy(&self.held));
        self.held = rest;
        let line = text.rfind('\n').map_or(0, |at| at + 1);
        let last = &text[line..];
        if let Some(question) = QUESTIONS.into_iter().find(|question| last == *question) {
            return (text[..line].to_owned(), Some(question));
        }
        // A partial question may become complete with the next bytes.
        if !last.is_empty() && QUESTIONS.iter().any(|question| question.starts_with(last)) {
            self.held.splice(0..0, last.bytes());
            return (text[..line].to_owned(), None);
        }
        (text, None)
    }

    fn rest(&mut self) -> String {
        escaped(&String::from_utf8_lossy(&std::mem::take(&mut self.held)))
    }
}

/// Number of bytes at the end that depend on the following ones: an incomplete character, or a carriage return.
fn unfinished(bytes: &[u8]) -> usize {
    let last = bytes
        .utf8_chunks()
        .last()
        .map_or(&[][..], |chunk| chunk.invalid());
    match std::str::from_utf8(last) {
        Err(error) if error.error_len().is_none() => last.len(),
        Ok(_) | Err(_) => usize::from(bytes.ends_with(b"\r")),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::net::SocketAddr;
    use std::time::Duration;

    use tokio::io::DuplexStream;

    use super::*;
    use ray_relay_access::audit::testing::spied;
    use ray_relay_access::connection::ConnectionInfo;
    use ray_relay_access::connection::summary::Summary;
    use ray_relay_access::identity::testing::{authenticator, token_of};
    use ray_relay_base::config::Config;
    use ray_relay_session::context::Context;

    fn enter_request() -> Enter {
        Enter {
            id: "3kfz0q8m".to_owned(),
            take_over: false,
        }
    }

    /// Introduces the client with `token`. Returns the received bytes and the result of `relay`.
    async fn introduce_with<F>(
        token: Option<&str>,
        relay: impl FnOnce(DuplexStream) -> F,
    ) -> (String, String)
    where
        F: Future<Output = String> + Send + 'static,
    {
        let (client_end, server_end) = tokio::io::duplex(1 << 12);
        let sent = tokio::spawn(relay(server_end));
        let (mut from, mut to) = tokio::io::split(client_end);
        let received = introduce(&mut from, &mut to, &enter_request(), token)
            .await
            .unwrap();
        drop((from, to));
        (String::from_utf8(received).unwrap(), sent.await.unwrap())
    }

    /// Writes `pieces`, and returns the bytes that the client has sent.
    async fn play_server(mut stream: DuplexStream, pieces: Vec<&'static str>) -> String {
        for piece in pieces {
            let _ = stream.write_all(piece.as_bytes()).await;
            tokio::task::yield_now().await;
        }
        let mut sent = String::new();
        let _ = stream.read_to_string(&mut sent).await;
        sent
    }

    #[tokio::test]
    async fn token_is_sent_to_the_relay_only() {
        let challenge = std::str::from_utf8(&TOKEN_CHALLENGE).unwrap();
        let (first, second) = challenge.split_at(42);
        for pieces in [
            vec![challenge],
            vec![first, second],
            vec!["ray-relay: a", &challenge[12..]],
        ] {
            let (received, sent) =
                introduce_with(Some("t0k"), |stream| play_server(stream, pieces)).await;
            assert_eq!((&*received, &*sent), ("", "enter 3kfz0q8m\nt0k\n"));
        }
        // A worker may print a similar prompt behind a relay without authentication.
        for prompt in [
            "token: ",
            "ray-relay: tasks that wait at a breakpoint\n\ntoken: ",
            "\ntoken: ",
        ] {
            let (received, sent) =
                introduce_with(Some("t0k"), |stream| play_server(stream, vec![prompt])).await;
            assert_eq!((&*received, &*sent), (prompt, "enter 3kfz0q8m\n"));
        }
        let (received, _) =
            introduce_with(None, |stream| play_server(stream, vec![challenge])).await;
        assert_eq!(received, TOKEN);
    }

    #[tokio::test]
    async fn challenge_of_the_relay_matches_the_client() {
        let (audit, _audit_log) = spied(true);
        let auth = authenticator("[[rule]]\nsubjects = [\"*\"]\nscopes = [\"list\"]\n");
        let token = token_of("ann");
        let context = Context::offline(Config::default(), auth, audit);
        let peer = SocketAddr::from(([127, 0, 0, 1], 1));
        let (client_end, server_end) = tokio::io::duplex(1 << 12);
        let served = tokio::spawn(async move {
            let session = context.sessions.table.open(&Summary::new(peer));
            ray_relay_http::lineproto::serve(
                &context,
                session,
                server_end,
                ConnectionInfo::plain(peer),
            )
            .await;
        });
        let (mut from, mut to) = tokio::io::split(client_end);
        let timeout_limit = Duration::from_secs(10);
        let enter = enter_request();
        let introduction = introduce(&mut from, &mut to, &enter, Some(&token));
        let mut received = tokio::time::timeout(timeout_limit, introduction)
            .await
            .unwrap()
            .unwrap();
        tokio::time::timeout(timeout_limit, from.read_to_end(&mut received))
            .await
            .unwrap()
            .unwrap();
        let received = String::from_utf8(received).unwrap();
        assert!(
            received.contains("3kfz0q8m") && !received.contains("token"),
            "{received}"
        );
        drop((from, to));
        served.await.unwrap();
    }

    proptest::proptest! {
        #[test]
        fn output_is_the_same_at_any_split(text in "([a-z(]|\\r|\\n|ö|🎉|\u{202e}|\u{7}){0,30}", broken in proptest::collection::vec(0u8.., 0..6), cut in 0usize..80) {
            let bytes = [text.as_bytes(), &broken, b"."].concat();
            let cut = cut.min(bytes.len());
            let mut pieces = Text::default();
            let output = pieces.take(&bytes[..cut]).0 + &pieces.take(&bytes[cut..]).0 + &pieces.rest();
            proptest::prop_assert_eq!(output, escaped(&String::from_utf8_lossy(&bytes)));
        }
    }

    #[test]
    fn prompt_differs_from_output_and_characters_stay_whole() {
        let mut text = Text::default();
        let all = "größe\r\n\u{1b}[2J(Pdb) x\r\n(Pdb) ".as_bytes();
        assert_eq!(text.take(&all[..3]), ("gr".to_owned(), None));
        let (output, question) = text.take(&all[3..]);
        assert_eq!(output, "öße\n\\x1b[2J(Pdb) x\n");
        assert_eq!(question, Some("(Pdb) "));
        assert_eq!(text.take(b"(Pd"), (String::new(), None));
        assert_eq!(text.take(b"b) "), (String::new(), Some("(Pdb) ")));
    }
}
