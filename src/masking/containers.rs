//! Names inside of what `repr` writes: pairs, dictionaries, calls and `<…>`.
//!
//! Pure, one pass over the tokens ([`super::python`]) with a stack of what is open. A name can stand in other places
//! than in front of its value: as the first of a pair, within a key of several parts, as an argument of a command, or as
//! what an object says that it is called (`{'name': 'API_KEY', 'value': 'x'}`, `<ContextVar name='api_key' default='x'>`).

use std::ops::Range;

use super::command::Arguments;
use super::names::{Names, plain};
use super::python::{Token, TokenKind, Tokens, is_name};
use super::text;

/// Deepest that is looked into. What is deeper has the rules that need no stack.
const DEEPEST: usize = 128;
/// Most values of one object that wait for its name.
const MOST_WAITING: usize = 16;

/// What debugpy writes in the place of what is nested too deep: `{(...): 'x'}`. A key of which the names are not seen may have
/// any.
pub(super) const LEFT_OUT: &str = r"\(\.\.\.\)|\[\.\.\.\]|\{\.\.\.\}";

/// Keys under which something says what it is called.
const NAMES: &[&str] = &[
    "name",
    "key",
    "header",
    "field",
    "var",
    "variable",
    "option",
    "param",
    "parameter",
    "setting",
    "k",
];
/// Keys under which such a thing has its value.
const VALUES: &[&str] = &[
    "value",
    "val",
    "v",
    "default",
    "oldvalue",
    "newvalue",
    "stringvalue",
    "rawvalue",
    "content",
    "data",
];

/// Whether `key` is one under which something says what it is called.
pub(super) fn is_for_names(key: &str) -> bool {
    NAMES.contains(&plain(key).as_str())
}

/// Whether `key` is one under which something that is called otherwise has its value.
pub(super) fn is_for_values(key: &str) -> bool {
    VALUES.contains(&plain(key).as_str())
}

/// Adds to `hidden` what is to be hidden in `text` by the names in it; gives the content of each string to `string`.
pub(super) fn spans(
    text: &str,
    names: &Names,
    hidden: &mut Vec<Range<usize>>,
    mut string: impl FnMut(Range<usize>),
) {
    let mut walk = ContainerWalk {
        text,
        names,
        hidden,
        open: Vec::new(),
        deeper: 0,
    };
    for token in Tokens::new(text) {
        if let TokenKind::String(content) = &token.kind {
            string(content.clone());
        }
        walk.token(&token);
    }
    // A text that was cut closes nothing.
    while walk.close() {}
}

/// One element of what is open: up to the next comma, or in `<…>` the next word.
#[derive(Debug, Default)]
struct Element {
    span: Option<Range<usize>>,
    tokens: usize,
    /// The content of its string, where it is nothing else.
    string: Option<Range<usize>>,
    /// What it has in front of `:` or `=`.
    key: Option<ContainerKey>,
    /// Whether something within says that it is hidden.
    names_hidden: bool,
}

#[derive(Debug)]
struct ContainerKey {
    hidden: bool,
    for_names: bool,
    for_values: bool,
}

/// A bracket that is open.
#[derive(Debug)]
struct Bracket {
    opened_by: u8,
    element: Element,
    arguments: Arguments,
    /// The element before was a hidden name.
    named: bool,
    /// It says that it is called by a hidden name.
    names_hidden: bool,
    values: Vec<Range<usize>>,
    /// A string within is a hidden name.
    mentions_hidden: bool,
}

struct ContainerWalk<'t> {
    text: &'t str,
    names: &'t Names,
    hidden: &'t mut Vec<Range<usize>>,
    open: Vec<Bracket>,
    /// Brackets beyond the deepest.
    deeper: usize,
}

impl ContainerWalk<'_> {
    fn token(&mut self, token: &Token) {
        match token.kind {
            TokenKind::Open(bracket) => {
                if self.deeper > 0 || self.open.len() == DEEPEST {
                    self.deeper += 1;
                    return;
                }
                self.add(token);
                self.open.push(Bracket {
                    opened_by: bracket,
                    element: Element::default(),
                    arguments: Arguments::default(),
                    named: false,
                    names_hidden: false,
                    values: Vec::new(),
                    mentions_hidden: false,
                });
            }
            TokenKind::Close(_) if self.deeper > 0 => self.deeper -= 1,
            TokenKind::Close(bracket) => self.close_with(bracket, token),
            _ if self.deeper > 0 => {}
            TokenKind::Comma => match self.open.last() {
                Some(inner) if inner.opened_by != b'<' => self.finish(),
                _ => self.add(token),
            },
            TokenKind::Is => self.is(token),
            TokenKind::Word if self.begins_in_angle() => {
                self.finish();
                self.add(token);
            }
            TokenKind::Word | TokenKind::String(_) | TokenKind::Other => self.add(token),
        }
    }

    /// Whether a word begins an element of `<…>`, which has no commas.
    fn begins_in_angle(&self) -> bool {
        self.open.last().is_some_and(|inner| {
            let waits = inner.element.key.is_some() && inner.element.span.is_none();
            inner.opened_by == b'<' && !waits
        })
    }

    fn add(&mut self, token: &Token) {
        let Some(inner) = self.open.last_mut() else {
            return;
        };
        let element = &mut inner.element;
        element.tokens += 1;
        element.string = None;
        if let TokenKind::String(content) = &token.kind {
            inner.mentions_hidden |= self.names.matches(&self.text[content.clone()]);
            element.string = (element.tokens == 1).then(|| content.clone());
        }
        let start = element.span.as_ref().map_or(token.span.start, |s| s.start);
        element.span = Some(start..token.span.end);
    }

    /// What was read of the element is a key, where it has none yet.
    fn is(&mut self, token: &Token) {
        let (text, names) = (self.text, self.names);
        let Some(inner) = self.open.last_mut() else {
            return;
        };
        let element = &mut inner.element;
        if element.key.is_some() {
            // Of a slice, an annotation, or `==`.
            if element.span.is_some() {
                self.add(token);
            }
            return;
        }
        let read = std::mem::take(element);
        let key = match read.string {
            Some(content) => &text[content],
            None => read.span.map_or("", |span| &text[span]),
        };
        let last = text::identifiers(key).last().unwrap_or_default();
        let is_left_out = ["(...)", "[...]", "{...}"]
            .iter()
            .any(|left_out| key.contains(left_out));
        element.key = Some(ContainerKey {
            hidden: read.names_hidden || names.matches(last) || is_left_out && names.some(),
            for_names: is_for_names(key),
            for_values: is_for_values(key),
        });
    }

    /// The element is over.
    fn finish(&mut self) {
        let Some(inner) = self.open.last_mut() else {
            return;
        };
        let element = std::mem::take(&mut inner.element);
        let named = std::mem::take(&mut inner.named);
        let Some(span) = element.span else {
            return;
        };
        let string = element
            .string
            .map(|content| (content.start, &self.text[content]));
        if let Some(key) = element.key {
            if key.hidden || named {
                self.hidden.push(span);
            } else if key.for_names {
                let says = string.map_or(&self.text[span], |(_, content)| content);
                inner.names_hidden |= says_hidden(says, self.names) || element.names_hidden;
            } else if key.for_values && inner.values.len() < MOST_WAITING {
                inner.values.push(span);
            }
            return;
        }
        if named {
            self.hidden.push(span);
            return;
        }
        let Some((start, content)) = string else {
            inner.arguments.pass();
            return;
        };
        if is_name(content) && self.names.matches(content) {
            inner.named = true;
        } else if let Some(from) = inner.arguments.word(content, self.names) {
            // A whole element loses its quotes as well, as other values do.
            let end = start + content.len();
            self.hidden
                .push(if from == 0 { span } else { start + from..end });
        }
    }

    /// Closes what is open furthest inside.
    fn close(&mut self) -> bool {
        self.finish();
        let Some(closed) = self.open.pop() else {
            return false;
        };
        if closed.names_hidden {
            self.hidden.extend(closed.values);
        }
        if let Some(outer) = self.open.last_mut() {
            outer.element.names_hidden |= match closed.opened_by {
                b'<' => closed.names_hidden,
                b'(' => closed.mentions_hidden,
                _ => false,
            };
        }
        true
    }

    fn close_with(&mut self, bracket: u8, token: &Token) {
        if bracket != b'>' {
            // What looked like `<…>` was none.
            while self
                .open
                .last()
                .is_some_and(|inner| inner.opened_by == b'<')
            {
                self.close();
            }
        }
        let opens = match bracket {
            b')' => b'(',
            b']' => b'[',
            b'}' => b'{',
            _ => b'<',
        };
        if self
            .open
            .last()
            .is_some_and(|inner| inner.opened_by == opens)
        {
            self.close();
        }
        self.add(token);
    }
}

/// Whether one of the names in `text`, by which something says what it is called, is hidden.
pub(super) fn says_hidden(text: &str, names: &Names) -> bool {
    /// Longer ones say more than a name.
    const LONGEST: usize = 256;
    text.len() <= LONGEST && text::identifiers(text).any(|name| names.matches(name))
}
