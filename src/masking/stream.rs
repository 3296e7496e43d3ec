//! The rules applied to text that comes in pieces: a terminal's output.
//!
//! Pure; the owner of the stream calls [`MaskedStream::push`] for what came and [`MaskedStream::quiet`] when nothing
//! has come for a moment, so that a prompt without a line's end is seen.

use std::sync::Arc;

use super::{MASKED, Masking, boundary};

/// Longest unfinished line, and longest key of several lines, that is held back.
const MAX_HELD: usize = 16 * 1024;
/// What of a longer line stays, in case a secret is cut there.
const OVERLAP: usize = 1024;

const KEY_BEGINS: &str = "-----BEGIN ";
const KEY_ENDS: &str = "-----END ";

/// The masking of one direction of one terminal.
#[derive(Debug)]
pub struct MaskedStream {
    rules: Arc<Masking>,
    held: String,
    /// A key was hidden and its end has not come.
    in_key: bool,
}

impl MaskedStream {
    /// A stream that `rules` hold for.
    pub fn new(rules: Arc<Masking>) -> Self {
        Self {
            rules,
            held: String::new(),
            in_key: false,
        }
    }

    /// What may be shown now that `text` has come: whole lines.
    pub fn push(&mut self, text: &str) -> String {
        self.held.push_str(text);
        if self.in_key {
            let Some(rest) = self.after_key() else {
                return String::new();
            };
            self.held = rest;
        }
        if let Some(key) = self.unfinished_key() {
            if self.held.len() - key <= MAX_HELD {
                return self.release(key);
            }
            let shown = self.release(key);
            self.held.clear();
            self.in_key = true;
            return shown + MASKED;
        }
        let lines = self.held.rfind('\n').map_or(0, |at| at + 1);
        if self.held.len() - lines > MAX_HELD {
            let at = boundary(&self.held, self.held.len() - OVERLAP);
            return self.release(at);
        }
        self.release(lines)
    }

    /// What is held back, now that nothing has come for a moment or the stream has ended.
    pub fn quiet(&mut self) -> String {
        match self.in_key || self.unfinished_key().is_some() {
            true => String::new(),
            false => self.release(self.held.len()),
        }
    }

    fn release(&mut self, at: usize) -> String {
        let rest = self.held.split_off(at);
        let shown = std::mem::replace(&mut self.held, rest);
        self.rules.text(&shown).into_owned()
    }

    /// Where a private key begins that has no end yet.
    fn unfinished_key(&self) -> Option<usize> {
        let at = self.held.rfind(KEY_BEGINS)?;
        let begun = &self.held[at..];
        let line = begun.lines().next().unwrap_or(begun);
        (line.contains("PRIVATE KEY") && !begun.contains(KEY_ENDS)).then_some(at)
    }

    /// Within a key: what is behind its end. Keeps no more than could be part of that.
    fn after_key(&mut self) -> Option<String> {
        let Some(end) = self.held.find(KEY_ENDS) else {
            let keep = self.held.len().saturating_sub(KEY_ENDS.len());
            self.held = self.held.split_off(boundary(&self.held, keep));
            return None;
        };
        let line = self.held[end..].find('\n')?;
        self.in_key = false;
        Some(self.held.split_off(end + line))
    }
}
