//! What tasks print, kept by commands until it is put together with that of others.

use tokio::sync::mpsc;

use ray_relay_debugger::pdb::{Piece, shows_stack};
use ray_relay_ray::ray::look::Frame;

/// How what the relay says of itself begins.
pub const NOTICE: &str = "ray-relay: ";

/// What commands of one task have printed.
#[derive(Debug)]
pub struct KeptOutput {
    pub commands: Vec<Printed>,
    /// Bytes that are kept further.
    room: usize,
    /// The task has been left where it is.
    pub stays: bool,
    /// Whether the task is to say which rank it has.
    pub asks_rank: bool,
    /// What it has said.
    pub rank: Option<u32>,
}

/// What one command has printed.
#[derive(Debug, Default)]
pub struct Printed {
    /// Its answer.
    pub answer: String,
    /// What the program wrote meanwhile.
    pub program: String,
    /// What the relay said meanwhile, of itself.
    pub notes: String,
    /// Bytes for which there was no room.
    pub cut: usize,
    /// The calls that it shows, the innermost first, where it has shown the stack.
    pub stack: Option<Vec<Frame>>,
}

impl KeptOutput {
    /// Keeps at most `room` bytes.
    pub fn new(room: usize) -> Self {
        Self {
            commands: Vec::new(),
            room,
            stays: false,
            asks_rank: false,
            rank: None,
        }
    }

    /// Why the session is over, where the relay has said that.
    pub fn reason(&mut self) -> Option<String> {
        let notes = std::mem::take(&mut self.commands.last_mut()?.notes);
        let notes = notes.trim_end();
        (!notes.is_empty()).then(|| notes.to_owned())
    }

    /// A command begins.
    pub fn begin(&mut self) {
        self.commands.push(Printed::default());
    }

    /// Keeps `piece` as far as there is room.
    pub fn put(&mut self, piece: &Piece) {
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

    /// Awaits `doing`, and keeps what it writes.
    pub async fn of<T>(
        &mut self,
        doing: impl Future<Output = T>,
        pieces: &mut mpsc::Receiver<Piece>,
    ) -> T {
        let put = |piece: &Piece| {
            self.put(piece);
            Ok::<(), std::convert::Infallible>(())
        };
        let Ok(done) = pieces_of(doing, pieces, put).await;
        done
    }

    /// The command was `line`; afterwards the task stood in `calls`.
    pub fn ends(&mut self, line: &str, calls: impl Iterator<Item = (String, u32, String)>) {
        // As bounded as what is printed of it.
        if let Some(last) = self.commands.last_mut()
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
}

/// Awaits `doing`, and hands to `put` what it writes.
pub async fn pieces_of<T, E>(
    doing: impl Future<Output = T>,
    pieces: &mut mpsc::Receiver<Piece>,
    mut put: impl FnMut(&Piece) -> Result<(), E>,
) -> Result<T, E> {
    let mut doing = std::pin::pin!(doing);
    let done = loop {
        tokio::select! {
            biased;
            Some(piece) = pieces.recv() => put(&piece)?,
            done = &mut doing => break done,
        }
    };
    while let Ok(piece) = pieces.try_recv() {
        put(&piece)?;
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_bounded_and_what_was_cut_is_counted() {
        let mut kept = KeptOutput::new(10);
        kept.put(&Piece::Text("before any command".into()));
        for _ in 0..2 {
            kept.begin();
            for piece in [Piece::Text("123é".into()), Piece::Program("abc".into())] {
                kept.put(&piece);
            }
        }
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
