//! Audit log of the lines typed in a session.

use serde_json::Map;

use ray_relay_access::audit::Unavailable;
use ray_relay_access::recording::{CaptureTee, Direction};
use ray_relay_session::session::audit::SessionAudit;

/// Records the lines typed in a session.
pub(in crate::lineproto) struct Log<'a> {
    /// `None`: another session audits the lines.
    audit: Option<SessionAudit<'a>>,
    capture: CaptureTee,
}

impl<'a> Log<'a> {
    pub(in crate::lineproto) fn new(audit: SessionAudit<'a>, capture: CaptureTee) -> Self {
        Self {
            audit: Some(audit),
            capture,
        }
    }

    /// For a prompt whose lines are audited by another of the relay's sessions.
    pub(in crate::lineproto) fn of_another() -> Self {
        Self {
            audit: None,
            capture: CaptureTee::default(),
        }
    }

    /// Records `line`. Must be called before the line is executed.
    pub(in crate::lineproto) async fn command(&self, line: &str) -> Result<(), Unavailable> {
        let typed = format!("{}\n", line.trim_end_matches(['\r', '\n']));
        let captured = self.capture.take(Direction::Up, typed.as_bytes());
        captured.map_err(|why| Unavailable(why.to_string()))?;
        let Some(audit) = self.audit.as_ref().filter(|audit| audit.wants_commands()) else {
            return Ok(());
        };
        if line.trim().is_empty() {
            return Ok(());
        }
        let mut details = Map::new();
        details.insert("protocol".into(), "terminal".into());
        details.insert("command".into(), line.trim().into());
        audit.command(details).await
    }
}
