//! What the prompt writes, on standard output: source code in colours where that is a terminal.

use std::io::{self, IsTerminal, Write};

use syntect::parsing::{ParseState, ScopeStack, SyntaxReference, SyntaxSet};

use crate::pdb::Piece;
use crate::telemetry::logging::colours;

/// Longest line that is coloured, in bytes.
const LONGEST: usize = 1000;

/// Scopes of Python's grammar and the terminal's own colours for them, which fit light and dark backgrounds.
const COLOURS: [(&str, &str); 9] = [
    ("comment", "\u{1b}[2m"),
    ("string", "\u{1b}[32m"),
    ("constant", "\u{1b}[36m"),
    ("keyword.operator.logical", "\u{1b}[35m"),
    ("keyword.operator", ""),
    ("keyword", "\u{1b}[35m"),
    ("storage", "\u{1b}[35m"),
    ("entity.name", "\u{1b}[34m"),
    ("support", "\u{1b}[34m"),
];

/// Standard output.
pub(super) struct Screen {
    colours: bool,
    syntaxes: Option<SyntaxSet>,
}

impl Screen {
    pub(super) fn open() -> Self {
        Self {
            colours: colours(io::stdout().is_terminal()),
            syntaxes: None,
        }
    }

    /// The text of `piece` as it is to be written.
    pub(super) fn render(&mut self, piece: &Piece) -> String {
        match piece {
            Piece::Code(line) if self.colours && line.len() <= LONGEST => self.coloured(line),
            piece => piece.text().to_owned(),
        }
    }

    pub(super) fn print(&mut self, piece: &Piece) -> io::Result<()> {
        let text = self.render(piece);
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()
    }

    fn coloured(&mut self, line: &str) -> String {
        // Read when it is first needed: it takes some milliseconds.
        let set = self
            .syntaxes
            .get_or_insert_with(SyntaxSet::load_defaults_newlines);
        match set.find_syntax_by_extension("py") {
            Some(python) => colour(line, python, set).unwrap_or_else(|| line.to_owned()),
            None => line.to_owned(),
        }
    }
}

/// `line` in colours, each line for itself: a listing may begin anywhere.
fn colour(line: &str, python: &SyntaxReference, set: &SyntaxSet) -> Option<String> {
    let whole = format!("{line}\n");
    let changes = ParseState::new(python).parse_line(&whole, set).ok()?;
    let mut stack = ScopeStack::new();
    let mut text = String::new();
    let mut from = 0;
    let ends = changes.iter().map(|(at, _)| *at).chain([line.len()]);
    let changes = changes.iter().map(|(_, change)| Some(change)).chain([None]);
    for (to, change) in ends.zip(changes) {
        let to = to.min(line.len());
        let part = line.get(from..to)?;
        if !part.is_empty() {
            let on = wanted(&stack);
            let off = if on.is_empty() { "" } else { "\u{1b}[0m" };
            text += &format!("{on}{part}{off}");
        }
        from = to;
        if let Some(change) = change {
            stack.apply(change).ok()?;
        }
    }
    Some(text)
}

fn wanted(stack: &ScopeStack) -> &'static str {
    let scopes = stack
        .as_slice()
        .iter()
        .rev()
        .map(|scope| scope.build_string());
    scopes
        .filter_map(|scope| COLOURS.iter().find(|(prefix, _)| scope.starts_with(prefix)))
        .map(|(_, colour)| *colour)
        .next()
        .unwrap_or_default()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn colours_change_nothing_but_colours() {
        let mut screen = Screen {
            colours: true,
            syntaxes: None,
        };
        for line in [
            "def f(x, *, y=1):  # größe",
            "    return 'ü' if x else 3.5",
            "",
            "\tif True: pass",
            "'''open",
        ] {
            let coloured = screen.render(&Piece::Code(line.into()));
            let mut plain = coloured.clone();
            for code in [
                "\u{1b}[2m",
                "\u{1b}[32m",
                "\u{1b}[34m",
                "\u{1b}[35m",
                "\u{1b}[36m",
                "\u{1b}[0m",
            ] {
                plain = plain.replace(code, "");
            }
            assert_eq!(plain, line);
            assert_eq!(coloured.contains('\u{1b}'), !line.is_empty(), "{line}");
        }
        let mut pipe = Screen {
            colours: false,
            syntaxes: None,
        };
        assert_eq!(
            pipe.render(&Piece::Code("def f(): pass".into())),
            "def f(): pass"
        );
    }
}
