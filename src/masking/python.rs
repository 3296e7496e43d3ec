//! Python literals and JSON in a text: its tokens, and what a string says.
//!
//! Pure, one pass. It reads what `repr` writes, and passes over everything else: no text is one that it cannot read.

use std::ops::Range;

use super::literal::is_quote;
use super::text::MASKED;

/// One token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) kind: TokenKind,
    pub(super) span: Range<usize>,
}

/// What a token is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TokenKind {
    /// A string or bytes, with its content between the quotes.
    String(Range<usize>),
    /// A name, a number, or several with dots or hyphens among them.
    Word,
    /// `(`, `[`, `{`, or the `<` of `<Keys.USER: 'ada'>`.
    Open(u8),
    /// `)`, `]`, `}` or `>`.
    Close(u8),
    Comma,
    /// `:` or `=`.
    Is,
    /// Anything else.
    Other,
}

/// The tokens of a text, without its white space.
#[derive(Debug)]
pub(super) struct Tokens<'t> {
    text: &'t str,
    at: usize,
    /// Up to where neither of the two quotes closes a string any more, so that none is looked for twice.
    unclosed: [usize; 2],
}

impl<'t> Tokens<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self {
            text,
            at: 0,
            unclosed: [0; 2],
        }
    }

    /// The content of the string whose quote is at `quote`, on one line.
    fn string(&mut self, quote: usize) -> Option<Range<usize>> {
        let bytes = self.text.as_bytes();
        let mark = *bytes.get(quote).filter(|b| is_quote(char::from(**b)))?;
        let unclosed = &mut self.unclosed[usize::from(mark == b'"')];
        if quote < *unclosed {
            return None;
        }
        let mut at = quote + 1;
        while let Some(byte) = bytes.get(at).filter(|b| **b != b'\n') {
            match byte {
                b'\\' => at += 1,
                byte if *byte == mark => return Some(quote + 1..at),
                _ => {}
            }
            at += 1;
        }
        *unclosed = at;
        None
    }

    fn next_char(&self, at: usize) -> Option<char> {
        self.text.get(at..)?.chars().next()
    }
}

impl Iterator for Tokens<'_> {
    type Item = Token;

    fn next(&mut self) -> Option<Token> {
        let blank = |c: &char| c.is_whitespace();
        while let Some(c) = self.next_char(self.at).filter(blank) {
            self.at += c.len_utf8();
        }
        let start = self.at;
        let c = self.next_char(start)?;
        let next = self.next_char(start + c.len_utf8());
        let mut end = start + c.len_utf8();
        let kind = match c {
            '\'' | '"' => match self.string(start) {
                Some(content) => {
                    end = content.end + 1;
                    TokenKind::String(content)
                }
                None => TokenKind::Other,
            },
            c if in_word(c) => {
                let word = &self.text[start..];
                end = start + word.find(|c| !in_word(c)).unwrap_or(word.len());
                match is_prefix(&self.text[start..end])
                    .then(|| self.string(end))
                    .flatten()
                {
                    Some(content) => {
                        end = content.end + 1;
                        TokenKind::String(content)
                    }
                    None => {
                        // An apostrophe opens nothing.
                        end += usize::from(self.next_char(end) == Some('\''));
                        TokenKind::Word
                    }
                }
            }
            '(' | '[' | '{' => TokenKind::Open(c as u8),
            '<' if next.is_some_and(|n| n.is_ascii_alphabetic() || n == '_') => {
                TokenKind::Open(b'<')
            }
            ')' | ']' | '}' => TokenKind::Close(c as u8),
            '>' if !self.text[..start].ends_with(['-', '=']) => TokenKind::Close(b'>'),
            ',' => TokenKind::Comma,
            ':' | '=' => TokenKind::Is,
            '\\' => {
                end += next.map_or(0, char::len_utf8);
                TokenKind::Other
            }
            _ => {
                if self.text[start..].starts_with(MASKED) {
                    end = start + MASKED.len();
                }
                TokenKind::Other
            }
        };
        self.at = end;
        Some(Token {
            kind,
            span: start..end,
        })
    }
}

/// Whether `text` is the name of something, and nothing more: what a key or a column is called.
pub(super) fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(in_word)
}

/// What the string literal `text` says, where it is one and has no escapes.
pub(super) fn content(text: &str) -> Option<&str> {
    let mut tokens = Tokens::new(text);
    let first = tokens.next()?;
    match (first.kind, tokens.next()) {
        (TokenKind::String(content), None) => Some(&text[content]),
        _ => None,
    }
}

fn in_word(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.')
}

fn is_prefix(word: &str) -> bool {
    word.len() <= 2
        && word
            .bytes()
            .all(|b| matches!(b.to_ascii_lowercase(), b'b' | b'r' | b'f' | b'u'))
}

/// The text that a string literal stands for, and where in the literal each part of it is.
#[derive(Debug)]
pub(super) struct Unescaped {
    pub(super) text: String,
    /// For each escape: where what it stands for begins and ends, and the literal's part.
    escapes: Vec<[Range<usize>; 2]>,
}

impl Unescaped {
    /// Reads the content of a literal. All but the escapes of Python and JSON stays as it is.
    pub(super) fn of(literal: &str) -> Self {
        let mut read = Self {
            text: String::with_capacity(literal.len()),
            escapes: Vec::new(),
        };
        let mut at = 0;
        while let Some(slash) = literal[at..].find('\\').map(|n| at + n) {
            read.text.push_str(&literal[at..slash]);
            at = slash + 1;
            if let Some((c, length)) = escaped(&literal[at..]) {
                let begin = read.text.len();
                at += length;
                read.text.push(c);
                read.escapes.push([begin..read.text.len(), slash..at]);
            } else {
                read.text.push('\\');
            }
        }
        read.text.push_str(&literal[at..]);
        read
    }

    /// Where in the literal `span` of the text is.
    pub(super) fn in_literal(&self, span: Range<usize>) -> Range<usize> {
        let place = |at: usize, is_end: bool| {
            let before = self.escapes.partition_point(|[text, _]| text.start < at);
            let escape = before.checked_sub(1).and_then(|n| self.escapes.get(n));
            match escape {
                None => at,
                Some([text, literal]) if at < text.end => match is_end {
                    true => literal.end,
                    false => literal.start,
                },
                Some([text, literal]) => literal.end + (at - text.end),
            }
        };
        place(span.start, false)..place(span.end, true)
    }
}

/// What the escape behind a backslash stands for, and how long it is.
fn escaped(rest: &str) -> Option<(char, usize)> {
    let first = rest.chars().next()?;
    let plain = match first {
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        '\\' | '\'' | '"' | '/' => first,
        _ => {
            let digits = match first {
                'x' => 2,
                'u' => 4,
                'U' => 8,
                _ => return None,
            };
            let code = u32::from_str_radix(rest.get(1..=digits)?, 16).ok()?;
            return Some((char::from_u32(code)?, 1 + digits));
        }
    };
    Some((plain, 1))
}
