//! A verdict as text and as JSON.

use serde_json::{Value, json};

use super::report::{Confidence, Culprit, DifferenceRow, Kind, Verdict, WaitingRow};

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

    /// Returns the verdict as JSON.
    pub fn json(&self) -> Value {
        let culprits = self.culprits.iter().map(Culprit::json);
        let waiting = self.waiting.iter().map(WaitingRow::json);
        let differences = self.differences.iter().map(DifferenceRow::json);
        json!({
            "verdict": self.kind.word(), "confidence": self.confidence.word(), "summary": self.summary,
            "culprits": culprits.collect::<Vec<_>>(), "evidence": self.evidence,
            "waiting": waiting.collect::<Vec<_>>(), "differences": differences.collect::<Vec<_>>(),
            "next": self.next,
        })
    }
}

impl Kind {
    /// Returns its word in JSON.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Hangs => "hangs",
            Self::Slow => "slow",
            Self::Differs => "differs",
            Self::Healthy => "healthy",
            Self::Unknown => "unknown",
        }
    }
}

impl Confidence {
    /// Returns its word in text and in JSON.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Certain => "certain",
            Self::Likely => "likely",
            Self::Possible => "possible",
        }
    }
}

impl Culprit {
    fn json(&self) -> Value {
        json!({
            "group": self.group, "tasks": self.tasks, "worker_id": self.worker_id, "pid": self.pid,
            "node_ip": self.node_ip, "at": self.at, "reason": self.reason,
            "still_seconds": self.still.map(|still| still.as_secs_f64()),
        })
    }
}

impl WaitingRow {
    fn json(&self) -> Value {
        json!({
            "group": self.group, "tasks": self.tasks, "waits_in": self.waits_in, "at": self.at, "for": self.target,
            "collective": self.collective,
        })
    }
}

impl DifferenceRow {
    fn json(&self) -> Value {
        json!({
            "group": self.group, "name": self.name, "frame": self.frame, "tasks": self.tasks, "value": self.value,
            "others": self.others,
        })
    }
}
