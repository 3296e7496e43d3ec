//! Where the output of commands goes.

use std::io::{self, Write};

use ray_relay_debugger::pdb::Piece;
use ray_relay_ray::ray::registry::SERVE_NOTE;
use ray_relay_view::group::kept::{KeptOutput, NOTICE};

/// See the module.
pub(in crate::cli) enum Screen {
    /// Nowhere, but for what ends a task that is paused.
    None,
    /// What the relay says of itself goes to standard error, and nothing else.
    Notices,
    /// To standard output, as it comes.
    Now,
    /// Kept by its commands, for who puts those of several together.
    Kept(KeptOutput),
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
            kept.begin();
        }
    }

    pub(in crate::cli) fn put(&mut self, piece: &Piece) -> io::Result<()> {
        match self {
            Self::None => {
                if let Piece::Text(text) = piece
                    && text.contains(SERVE_NOTE)
                {
                    io::stderr().write_all(text.as_bytes())?;
                }
            }
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
        if let Self::Kept(kept) = self {
            kept.ends(line, calls);
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
