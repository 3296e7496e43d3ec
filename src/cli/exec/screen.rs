//! Where the output of commands goes.

use std::io::{self, Write};

use crate::pdb::{Piece, shows_stack};
use crate::ray::look::Frame;

/// How what the relay says of itself begins.
const NOTICE: &str = "ray-relay: ";

/// See the module.
pub(in crate::cli) enum Screen {
    /// Nowhere.
    None,
    /// What the relay says of itself goes to standard error, and nothing else.
    Notices,
    /// To standard output, as it comes.
    Now,
    /// Kept by its commands, for who puts those of several together.
    Kept(Kept),
}

/// What commands of one task have printed.
#[derive(Debug)]
pub(in crate::cli) struct Kept {
    pub(in crate::cli) commands: Vec<Printed>,
    /// Bytes that are kept further.
    room: usize,
    /// The task has been left where it is.
    pub(in crate::cli) stays: bool,
    /// Whether the task is to say which rank it has.
    pub(in crate::cli) asks_rank: bool,
    /// What it has said.
    pub(in crate::cli) rank: Option<u32>,
}

/// What one command has printed.
#[derive(Debug, Default)]
pub(in crate::cli) struct Printed {
    /// Its answer.
    pub(in crate::cli) answer: String,
    /// What the program wrote meanwhile.
    pub(in crate::cli) program: String,
    /// What the relay said meanwhile, of itself.
    pub(in crate::cli) notes: String,
    /// Bytes for which there was no room.
    pub(in crate::cli) cut: usize,
    /// The calls that it shows, the innermost first, where it has shown the stack.
    pub(in crate::cli) stack: Option<Vec<Frame>>,
}

impl Kept {
    /// Keeps at most `room` bytes.
    pub(in crate::cli) fn new(room: usize) -> Self {
        Self {
            commands: Vec::new(),
            room,
            stays: false,
            asks_rank: false,
            rank: None,
        }
    }

    /// Why the session is over, where the relay has said that.
    pub(in crate::cli) fn reason(&mut self) -> Option<String> {
        let notes = std::mem::take(&mut self.commands.last_mut()?.notes);
        let notes = notes.trim_end();
        (!notes.is_empty()).then(|| notes.to_owned())
    }

    fn put(&mut self, piece: &Piece) {
        let Some(last) = self.commands.last_mut() else {
            return;
        };
        let text = piece.text();
        let taken = text.floor_char_boundary(self.room.min(text.len()));
        match piece {
            Piece::Text(text) if text.starts_with(NOTICE) => {
                last.notes
                    .push_str(&text[NOTICE.len()..taken.max(NOTICE.len())]);
            }
            Piece::Text(_) | Piece::Code(_) => last.answer.push_str(&text[..taken]),
            Piece::Program(_) => last.program.push_str(&text[..taken]),
        }
        self.room -= taken;
        last.cut += text.len() - taken;
    }
}

impl Screen {
    /// Whether the task is to say which rank it has.
    pub(in crate::cli) fn asks_rank(&self) -> bool {
        matches!(self, Self::Kept(kept) if kept.asks_rank)
    }

    /// The task has that rank.
    pub(in crate::cli) fn has_rank(&mut self, rank: Option<u32>) {
        if let Self::Kept(kept) = self {
            kept.rank = rank;
        }
    }

    /// A command begins.
    pub(in crate::cli) fn begin(&mut self) {
        if let Self::Kept(kept) = self {
            kept.commands.push(Printed::default());
        }
    }

    pub(in crate::cli) fn put(&mut self, piece: &Piece) -> io::Result<()> {
        match self {
            Self::None => {}
            Self::Notices => {
                if let Piece::Text(text) = piece
                    && text.starts_with(NOTICE)
                {
                    io::stderr().write_all(text.as_bytes())?;
                }
            }
            Self::Now => io::stdout().lock().write_all(piece.text().as_bytes())?,
            Self::Kept(kept) => kept.put(piece),
        }
        Ok(())
    }

    /// The command was `line`; afterwards the task stood in `calls`.
    pub(in crate::cli) fn ends(
        &mut self,
        line: &str,
        calls: impl Iterator<Item = (String, u32, String)>,
    ) {
        let Self::Kept(Kept { commands, .. }) = self else {
            return;
        };
        // As bounded as what is printed of it.
        if let Some(last) = commands.last_mut()
            && last.cut == 0
            && shows_stack(line)
        {
            let frame = |(file, line, function)| Frame {
                file,
                line,
                function,
                locals: None,
                locals_cut: 0,
            };
            last.stack = Some(calls.map(frame).collect());
        }
    }

    pub(in crate::cli) fn flush(&self) -> io::Result<()> {
        match self {
            Self::Now => io::stdout().lock().flush(),
            Self::None | Self::Notices | Self::Kept(_) => Ok(()),
        }
    }

    /// The task stays where it is, as `text` says.
    pub(in crate::cli) fn stays(&mut self, text: &str) -> io::Result<()> {
        match self {
            Self::Now => writeln!(io::stderr(), "ray-relay: {text}"),
            Self::None | Self::Notices => Ok(()),
            Self::Kept(kept) => {
                kept.stays = true;
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_bounded_and_what_was_cut_is_counted() {
        let mut kept = Kept::new(10);
        kept.put(&Piece::Text("before any command".into()));
        let mut screen = Screen::Kept(kept);
        for _ in 0..2 {
            screen.begin();
            for piece in [Piece::Text("123é".into()), Piece::Program("abc".into())] {
                assert!(screen.put(&piece).is_ok());
            }
        }
        let Screen::Kept(kept) = screen else {
            return;
        };
        let [first, second] = &*kept.commands else {
            panic!("{kept:?}");
        };
        assert_eq!(
            (&*first.answer, &*first.program, first.cut),
            ("123é", "abc", 0)
        );
        // No character is cut in two.
        assert_eq!(
            (&*second.answer, &*second.program, second.cut),
            ("12", "", 6)
        );
    }
}
