//! The terminal of a command.

use std::io::{self, IsTerminal, Write};

/// Writes `text` to standard output, and flushes.
pub(super) fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Columns and lines of standard output; `None` if it is no terminal.
pub(super) fn size() -> Option<(usize, usize)> {
    if !io::stdout().is_terminal() {
        return None;
    }
    let size = terminal_size::terminal_size_of(io::stdout());
    Some(size.map_or((80, 24), |(columns, lines)| {
        (columns.0.max(1).into(), lines.0.max(2).into())
    }))
}

/// Columns of standard output; `None` if it is no terminal.
pub(super) fn columns() -> Option<usize> {
    size().map(|(columns, _)| columns)
}
