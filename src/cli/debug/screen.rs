//! Writes the prompt's output to standard output: source code in colours if that is a terminal.

use std::io::{self, IsTerminal};

use super::python;
use crate::cli::terminal::print;
use ray_relay_access::telemetry::logging::colours;
use ray_relay_debugger::pdb::Piece;

/// Maximum length of a line that is coloured, in bytes.
const MAX_COLOURED_BYTES: usize = 1000;

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

    /// The text of `piece` for output.
    pub(super) fn render(&self, piece: &Piece) -> String {
        match piece {
            Piece::Code(line) if self.colours && line.len() <= MAX_COLOURED_BYTES => {
                python::coloured(line)
            }
            piece => piece.text().to_owned(),
        }
    }

    pub(super) fn print(&self, piece: &Piece) -> io::Result<()> {
        print(&self.render(piece))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn colours_keep_the_text() {
        let screen = Screen { colours: true };
        for line in [
            "def f(x, *, y=1):  # größe",
            "    return 'ü' if x else 3.5",
            "",
            "\tif True: pass",
            "'''open",
        ] {
            let coloured = screen.render(&Piece::Code(line.into()));
            let codes = [2, 32, 34, 35, 36, 0].map(|code| format!("\u{1b}[{code}m"));
            let without = |text: String, code: &String| text.replace(code, "");
            let plain = codes.iter().fold(coloured.clone(), without);
            assert_eq!(plain, line);
            assert_eq!(coloured.contains('\u{1b}'), !line.is_empty(), "{line}");
        }
        let pipe = Screen { colours: false };
        let line = "def f(): pass";
        assert_eq!(pipe.render(&Piece::Code(line.into())), line);
    }
}
