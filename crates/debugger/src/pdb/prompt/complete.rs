//! Completion with Tab.

use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;

use super::Prompt;
use super::answers::Completions;
use super::request::REQUEST_TIMEOUT;
use crate::pdb::commands::COMMANDS;
use ray_relay_base::wire::dap::names::Command;
use ray_relay_base::wire::json::into_typed;
use ray_relay_base::wire::text::escaped;

impl<S: AsyncRead + AsyncWrite + Unpin> Prompt<S> {
    /// Completions for `line` up to the byte `at`: their start, and the candidates.
    pub async fn complete(&mut self, line: &str, at: usize) -> (usize, Vec<String>) {
        let before = line.get(..at).unwrap_or(line);
        let begins = before
            .rfind(|c: char| !(c.is_alphanumeric() || c == '_' || c == '.'))
            .map_or(0, |found| {
                found + before[found..].chars().next().map_or(1, char::len_utf8)
            });
        let text = &before[begins..];
        let mut found: Vec<String> = Vec::new();
        if begins == 0 {
            let names = COMMANDS.iter().map(|(names, _)| names[0]);
            found.extend(
                names
                    .filter(|name| name.starts_with(text))
                    .map(str::to_owned),
            );
        }
        let part = text.rfind('.').map_or(0, |dot| dot + 1);
        if let Some(frame) = self.stack.get(self.current)
            && !text.is_empty()
        {
            let ask =
                json!({"frameId": frame.id, "text": text, "column": text.chars().count() + 1});
            if let Ok(Ok(body)) =
                timeout(REQUEST_TIMEOUT / 15, self.ask(Command::Completions, ask)).await
            {
                let Completions { targets } = into_typed(body);
                let labels = targets.into_iter().map(|target| target.label).take(500);
                let fits = labels.filter(|label| label.starts_with(&text[part..]));
                found.extend(fits.map(|label| escaped(&format!("{}{label}", &text[..part]))));
            }
        }
        found.sort();
        found.dedup();
        (begins, found)
    }
}
