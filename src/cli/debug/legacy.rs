//! A breakpoint of Ray's legacy debugger: its own prompt, through the relay's terminal.
//!
//! Plain lines on the one port: `enter ID` first, a token where one is asked for, then the prompt itself. The relay
//! follows the session into other tasks and has the task run on where this connection ends.

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::input::Typed;
use super::{DebugArgs, Error, Terminal, dial};
use crate::cli::relay_client::RelayError;

/// What the relay and pdb end a question with.
const QUESTIONS: [&str; 4] = ["(Pdb) ", "(com) ", TOKEN, ">>> "];

/// The question for it.
const TOKEN: &str = "token: ";

/// One session from the first line to the end of the connection.
pub(super) async fn enter(
    args: &DebugArgs,
    terminal: &mut Terminal,
    id: &str,
) -> Result<(), Error> {
    let mut token = args
        .relay
        .token
        .token(&args.relay.relay)
        .map_err(RelayError::from)?;
    let stream = dial(&args.relay).await?;
    let (mut from_relay, mut to_relay) = tokio::io::split(stream);
    let mut bytes = Vec::with_capacity(4096);
    let mut text = Text::default();
    let mut closed = false;
    let mut sent = send(&mut to_relay, &format!("enter {id}\n")).await;
    while sent {
        bytes.clear();
        tokio::select! {
            read = from_relay.read_buf(&mut bytes) => {
                if !matches!(read, Ok(1..)) {
                    break;
                }
                let (shown, question) = text.take(&bytes);
                match question {
                    Some(question) => {
                        terminal.input.say(&shown)?;
                        // A second question means that it was refused.
                        let token = token.take().filter(|_| question == TOKEN);
                        match token {
                            Some(token) => sent = send(&mut to_relay, &format!("{}\n", *token)).await,
                            // Not into the history.
                            None => terminal.input.ask(question, question != TOKEN),
                        }
                    }
                    None => terminal.input.say(&shown)?,
                }
            }
            typed = terminal.input.next(), if !closed => match typed {
                Typed::Line(line) => sent = send(&mut to_relay, &format!("{line}\n")).await,
                // The relay clears nothing: what was typed was never sent.
                Typed::Interrupt => terminal.input.ask("(Pdb) ", true),
                Typed::End => {
                    terminal.input.say("\n")?;
                    closed = true;
                    let _ = to_relay.shutdown().await;
                }
            },
            _ = terminal.interrupted.recv() => {
                terminal.input.say("\n")?;
                return Ok(());
            }
        }
    }
    terminal.input.say(&text.rest())?;
    terminal.over().await?;
    Ok(())
}

async fn send<W: AsyncWriteExt + Unpin>(to: &mut W, line: &str) -> bool {
    let sent = async {
        to.write_all(line.as_bytes()).await?;
        to.flush().await
    };
    sent.await.is_ok()
}

/// What comes, in whole characters and lines.
#[derive(Debug, Default)]
struct Text {
    /// What has not been shown.
    held: Vec<u8>,
}

impl Text {
    /// What can be shown now, and the question that waits for an answer.
    fn take(&mut self, bytes: &[u8]) -> (String, Option<&'static str>) {
        self.held.extend_from_slice(bytes);
        let whole = match std::str::from_utf8(&self.held) {
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            Ok(_) | Err(_) => self.held.len(),
        };
        let rest = self.held.split_off(whole);
        let text = clean(&String::from_utf8_lossy(&self.held));
        self.held = rest;
        let line = text.rfind('\n').map_or(0, |at| at + 1);
        let last = &text[line..];
        if let Some(question) = QUESTIONS.into_iter().find(|question| last == *question) {
            return (text[..line].to_owned(), Some(question));
        }
        // Half a question becomes one with what comes next.
        if !last.is_empty() && QUESTIONS.iter().any(|question| question.starts_with(last)) {
            self.held.splice(0..0, last.bytes());
            return (text[..line].to_owned(), None);
        }
        (text, None)
    }

    fn rest(&mut self) -> String {
        clean(&String::from_utf8_lossy(&std::mem::take(&mut self.held)))
    }
}

/// Without anything that drives a terminal; line feeds and tabs stay.
fn clean(text: &str) -> String {
    let text = text.replace("\r\n", "\n");
    let shown = |c: char| match c {
        '\n' | '\t' => c.to_string(),
        '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
            c.escape_unicode().to_string()
        }
        c if c.is_control() => format!("\\x{:02x}", u32::from(c)),
        c => c.to_string(),
    };
    text.chars().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_told_from_output_and_a_character_is_not_cut() {
        let mut text = Text::default();
        let all = "größe\r\n\u{1b}[2J(Pdb) x\r\n(Pdb) ".as_bytes();
        assert_eq!(text.take(&all[..3]), ("gr".to_owned(), None));
        let (shown, question) = text.take(&all[3..]);
        assert_eq!(shown, "öße\n\\x1b[2J(Pdb) x\n");
        assert_eq!(question, Some("(Pdb) "));
        assert_eq!(text.take(b"(Pd"), (String::new(), None));
        assert_eq!(text.take(b"b) "), (String::new(), Some("(Pdb) ")));
    }
}
