//! Destination of the output of commands.

use std::io::{self, Write};

use ray_relay_debugger::pdb::Piece;
use ray_relay_ray::ray::registry::SERVE_NOTE;
use ray_relay_view::group::kept::{KeptOutput, NOTICE};

/// See the module.
pub(in crate::cli) enum Screen {
    /// Discarded, except for a warning that the paused task may be killed.
    None,
    /// Only the relay's own notices, to standard error.
    Notices,
    /// Standard output, immediately.
    Now,
    /// Collected by command, for combining several tasks.
    Kept(KeptOutput),
}

impl Screen {
    /// Whether to ask the task for its rank.
    pub(in crate::cli) fn asks_rank(&self) -> bool {
        matches!(self, Self::Kept(output) if output.asks_rank)
    }

    /// Sets the rank of the task.
    pub(in crate::cli) fn has_rank(&mut self, rank: Option<u32>) {
        if let Self::Kept(output) = self {
            output.rank = rank;
        }
    }

    /// Begins a command.
    pub(in crate::cli) fn begin(&mut self) {
        if let Self::Kept(output) = self {
            output.begin();
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
            Self::Kept(output) => output.put(piece),
        }
        Ok(())
    }

    /// Ends the command `line`, after which the task was paused in `calls`.
    pub(in crate::cli) fn ends(
        &mut self,
        line: &str,
        calls: impl Iterator<Item = (String, u32, String)>,
    ) {
        if let Self::Kept(output) = self {
            output.ends(line, calls);
        }
    }

    pub(in crate::cli) fn flush(&self) -> io::Result<()> {
        match self {
            Self::Now => io::stdout().lock().flush(),
            Self::None | Self::Notices | Self::Kept(_) => Ok(()),
        }
    }

    /// Reports that the task stays parked, with the sentence `text`.
    pub(in crate::cli) fn stays(&mut self, text: &str) -> io::Result<()> {
        match self {
            Self::Now => writeln!(io::stderr(), "ray-relay: {text}"),
            Self::None | Self::Notices => Ok(()),
            Self::Kept(output) => {
                output.stays = true;
                Ok(())
            }
        }
    }
}
