//! Shows a long table page by page on a terminal.

use std::io::{self, BufRead, IsTerminal, Write};

use crate::cli::terminal;

/// Moves up one line, to its start, and clears it: the next page replaces the prompt.
const ERASE_LINE: &str = "\u{1b}[1A\r\u{1b}[K";

/// Writes `text`: at once to a pipe, if it fits, or if standard input is no terminal.
pub(super) fn write(text: &str) -> io::Result<()> {
    let lines = terminal::size().map(|(_, lines)| lines);
    let lines = lines.filter(|_| io::stdin().is_terminal());
    pages(
        text,
        lines,
        &mut io::stdin().lock(),
        &mut io::stdout().lock(),
    )
}

/// Writes `text` to `out`, and waits for Enter on `typed` after each page of `lines`. Each page begins with the title
/// line.
fn pages(
    text: &str,
    lines: Option<usize>,
    typed: &mut impl BufRead,
    out: &mut impl Write,
) -> io::Result<()> {
    let all: Vec<&str> = text.lines().collect();
    let room = match lines {
        // The last line is for the question.
        Some(lines) if all.len() >= lines => lines.saturating_sub(1).max(2),
        _ => {
            out.write_all(text.as_bytes())?;
            return out.flush();
        }
    };
    let titles = all.iter().position(|line| line.starts_with("ID  "));
    let mut at = 0;
    while at < all.len() {
        let mut page = Vec::with_capacity(room);
        if at > 0 {
            page.extend(titles.map(|titles| all[titles]));
        }
        let rows = room.saturating_sub(page.len()).max(1);
        page.extend(all.iter().skip(at).take(rows));
        at += rows;
        for line in page {
            writeln!(out, "{line}")?;
        }
        if at >= all.len() {
            break;
        }
        let remaining = all.len() - at;
        write!(
            out,
            "-- {remaining} more: Enter shows the next page, q ends, --filter shows fewer --"
        )?;
        out.flush()?;
        let mut line = String::new();
        // End of input quits as well.
        if typed.read_line(&mut line)? == 0 || line.trim().eq_ignore_ascii_case("q") {
            break;
        }
        write!(out, "{ERASE_LINE}")?;
    }
    out.flush()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn paged(rows: usize, lines: Option<usize>, input: &str) -> String {
        let rows: String = (0..rows).map(|i| format!("{i:08}  step\n")).collect();
        let text = format!("! old\n\nID        TASK\n{rows}");
        let mut out = Vec::new();
        pages(&text, lines, &mut input.as_bytes(), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn short_or_piped_list_is_printed_at_once() {
        for (rows, lines) in [(10_000, None), (5, Some(24)), (20, Some(24))] {
            let text = paged(rows, lines, "");
            assert_eq!(text.lines().count(), rows + 3);
            assert!(!text.contains("more"), "{text}");
        }
    }

    #[test]
    fn long_list_pauses_after_each_page() {
        let text = paged(100, Some(24), "\n\nq\n");
        let pages: Vec<&str> = text.split(ERASE_LINE).collect();
        assert_eq!(pages.len(), 3);
        for (number, page) in pages.iter().enumerate() {
            assert_eq!(page.lines().count(), 24, "{page}");
            assert!(
                page.contains("ID        TASK") && page.contains("Enter shows"),
                "{number}: {page}"
            );
        }
        assert!(
            pages[1].contains("00000020") && pages[2].contains("00000042"),
            "{text}"
        );
        assert!(pages[2].contains("-- 36 more"), "{}", pages[2]);
        // Paging stops at the end of the list or of the input.
        assert!(paged(100, Some(24), &"\n".repeat(10)).ends_with("00000099  step\n"));
        assert!(!paged(100, Some(24), "").contains("00000030"));
    }
}
