//! What the prompt writes, on standard output: source code in colours where that is a terminal.

use std::io::{self, IsTerminal, Write};

use super::python;
use crate::pdb::Piece;
use crate::telemetry::logging::colours;

/// Longest line that is coloured, in bytes.
const LONGEST: usize = 1000;

/// The standard output of the session.
pub(super) struct Screen {
    colours: bool,
}

impl Screen {
    pub(super) fn open() -> Self {
        Self {
            colours: colours(io::stdout().is_terminal()),
        }
    }

    /// The text of `piece` as it is to be written.
    pub(super) fn render(&self, piece: &Piece) -> String {
        match piece {
            Piece::Code(line) if self.colours && line.len() <= LONGEST => python::coloured(line),
            piece => piece.text().to_owned(),
        }
    }

    pub(super) fn print(&self, piece: &Piece) -> io::Result<()> {
        let text = self.render(piece);
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn colours_change_nothing_but_colours() {
        let screen = Screen { colours: true };
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
        let pipe = Screen { colours: false };
        assert_eq!(
            pipe.render(&Piece::Code("def f(): pass".into())),
            "def f(): pass"
        );
    }
}
