//! Output of tasks, stored by command until it is merged with that of others.

use tokio::sync::mpsc;

use ray_relay_debugger::pdb::{Piece, shows_stack};
use ray_relay_ray::ray::look::Frame;

/// The prefix of the relay's own notices.
pub const NOTICE: &str = "ray-relay: ";

/// The output of one task's commands.
#[derive(Debug)]
pub struct KeptOutput {
    pub commands: Vec<Printed>,
    /// Bytes that may still be stored.
    room: usize,
    /// Whether the task was detached and stays paused.
    pub stays: bool,
    /// Whether to ask the task for its rank.
    pub asks_rank: bool,
    /// The rank that it reported.
    pub rank: Option<u32>,
}

/// The output of one command.
#[derive(Debug, Default)]
pub struct Printed {
    /// Its answer.
    pub answer: String,
    /// Output of the program during the command.
    pub program: String,
    /// Notices of the relay during the command.
    pub notes: String,
    /// Bytes that exceeded the limit.
    pub cut: usize,
    /// The calls that it lists, innermost first, if it was a stack.
    pub stack: Option<Vec<Frame>>,
}

impl KeptOutput {
    /// Stores at most `room` bytes.
    pub fn new(room: usize) -> Self {
        Self {
            commands: Vec::new(),
            room,
            stays: false,
            asks_rank: false,
            rank: None,
        }
    }

    /// Returns why the session is over, if the relay has sent a notice.
    pub fn reason(&mut self) -> Option<String> {
        let notes = std::mem::take(&mut self.commands.last_mut()?.notes);
        let notes = notes.trim_end();
        (!notes.is_empty()).then(|| notes.to_owned())
    }

    /// Starts a command.
    pub fn begin(&mut self) {
        self.commands.push(Printed::default());
    }

    /// Stores `piece`, up to the limit.
    pub fn put(&mut self, piece: &Piece) {
        let Some(last) = self.commands.last_mut() else {
            return;
        };
        let text = piece.text();
        let stored = text.floor_char_boundary(self.room.min(text.len()));
        match piece {
            Piece::Text(text) if text.starts_with(NOTICE) => {
                last.notes
                    .push_str(&text[NOTICE.len()..stored.max(NOTICE.len())]);
            }
            Piece::Text(_) | Piece::Code(_) => last.answer.push_str(&text[..stored]),
            Piece::Program(_) => last.program.push_str(&text[..stored]),
        }
        self.room -= stored;
        last.cut += text.len() - stored;
    }

    /// Awaits `doing`, and stores its output.
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

    /// Ends the command `line`, after which the task is paused in `calls`.
    pub fn ends(&mut self, line: &str, calls: impl Iterator<Item = (String, u32, String)>) {
        // As bounded as the output for it.
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

/// Awaits `doing`, and passes its output to `put`.
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
    fn stored_output_is_bounded_and_the_loss_counted() {
        let mut output = KeptOutput::new(10);
        output.put(&Piece::Text("before any command".into()));
        for _ in 0..2 {
            output.begin();
            for piece in [Piece::Text("123é".into()), Piece::Program("abc".into())] {
                output.put(&piece);
            }
        }
        let [first, second] = &*output.commands else {
            panic!("{output:?}");
        };
        assert_eq!(
            (&*first.answer, &*first.program, first.cut),
            ("123é", "abc", 0)
        );
        // The bound splits no character.
        assert_eq!(
            (&*second.answer, &*second.program, second.cut),
            ("12", "", 6)
        );
    }
}
