//! A verdict as text.

use super::report::{Confidence, Kind, Verdict};
use ray_relay_base::wire::text::replaced;

impl Verdict {
    /// Formats the verdict: one sentence, the evidence, and commands that show more.
    pub fn text(&self) -> String {
        let mut text = format!("{}\n", self.summary);
        for line in &self.evidence {
            text += &format!("  {line}\n");
        }
        if !self.next.is_empty() {
            text += "To see more:\n";
        }
        for command in &self.next {
            text += &format!("  {command}\n");
        }
        text
    }

    /// Whether it names what holds others up for long, or for good.
    pub fn hangs(&self) -> bool {
        self.kind == Kind::Hangs
    }

    /// Whether something of the job is known to move.
    pub fn moves(&self) -> bool {
        matches!(self.kind, Kind::Healthy | Kind::Slow | Kind::Differs)
    }

    /// Leaves out the commands that would show more: the job is gone.
    pub fn of_ended(mut self) -> Self {
        self.next.clear();
        self
    }

    /// Returns the first sentence, and the evidence.
    pub fn sentences(&self) -> impl Iterator<Item = &str> {
        [&*self.summary]
            .into_iter()
            .chain(self.evidence.iter().map(|one| &**one))
    }

    /// Makes the texts safe to show: they may come from a relay of another version, or from something else.
    pub fn sanitized(mut self) -> Self {
        let texts = [&mut self.summary].into_iter();
        for text in texts.chain(&mut self.evidence).chain(&mut self.next) {
            *text = replaced(text).into_owned();
        }
        self
    }
}

impl Confidence {
    /// Returns its word in text.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Certain => "certain",
            Self::Likely => "likely",
            Self::Possible => "possible",
        }
    }
}
