//! A verdict as text.

use std::time::{Duration, UNIX_EPOCH};

use serde_json::json;

use super::report::{Confidence, Judged, Kept, Kind, NOTHING_KNOWN, NOTHING_RUNS, Verdict};
use crate::listing::received::troubles;
use ray_relay_base::wire::human_time::utc;
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

    /// Whether nothing is known to hang, and something moves.
    pub fn is_healthy(&self) -> bool {
        self.kind == Kind::Healthy
    }

    /// Whether nothing is known to hang, and the values of a process differ from those of others.
    pub fn differs(&self) -> bool {
        self.kind == Kind::Differs
    }

    /// Whether a process is among those that hold others up, and not only a task that waits for a node.
    pub fn names_process(&self) -> bool {
        self.culprits.iter().any(|one| one.group.is_some())
    }

    /// Says that nothing is known if nothing was inspected: a head has not answered.
    pub fn of_silent_head(mut self) -> Self {
        if self.summary == NOTHING_RUNS {
            NOTHING_KNOWN.clone_into(&mut self.summary);
        }
        self
    }

    /// Whether nothing was inspected because a head has not answered.
    pub fn is_of_silent_head(&self) -> bool {
        self.summary == NOTHING_KNOWN
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

    /// Makes the texts of [`Self::text`] safe to print: they may come from a relay of another version, or from something
    /// else.
    pub fn sanitized(mut self) -> Self {
        let texts = [&mut self.summary].into_iter();
        for text in texts.chain(&mut self.evidence).chain(&mut self.next) {
            *text = replaced(text).into_owned();
        }
        self
    }
}

impl Judged {
    /// Formats the verdict, behind the troubles of clusters and a sentence that says when it was found if that is not now.
    pub fn text(&self) -> String {
        let troubles = troubles(&json!({ "clusters": self.clusters }));
        let kept = self.kept.as_ref().map_or(String::new(), Kept::text);
        troubles + &kept + &self.verdict.text()
    }
}

impl Kept {
    fn text(&self) -> String {
        let moment = |seconds: f64| {
            let time = UNIX_EPOCH.checked_add(Duration::try_from_secs_f64(seconds).ok()?)?;
            Some(utc(time).format("%Y-%m-%d %H:%M:%S UTC").to_string())
        };
        let [first, last] =
            [self.first, self.last].map(|at| moment(at).unwrap_or_else(|| "?".to_owned()));
        let name = self.submission_id.as_ref().unwrap_or(&self.job_id);
        let (name, cluster) = (replaced(name), replaced(&self.cluster));
        let runs = match self.ended {
            true => "does not run now",
            false => "may still run: its head does not answer",
        };
        format!(
            "Job {name} on {cluster} {runs}. The relay saw it hang from {first} to {last}, and kept its first verdict:\n"
        )
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
