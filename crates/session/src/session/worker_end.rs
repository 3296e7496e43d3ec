//! Messages about the end of a worker for its client: the same in an editor, at a prompt and in a refusal.

use super::permit::Attached;
use crate::agents::Agents;
use ray_relay_ray::ray::registry::{Breakpoint, BreakpointId, Kind, Snapshot};

/// The end of a worker with Ray's reason.
pub struct WorkerEnd {
    /// The reason, as a sentence for users.
    pub sentence: String,
    /// Whether it was meant to end: no reason for alarm.
    pub intended: bool,
}

impl WorkerEnd {
    /// For the worker of `breakpoint`, which is gone for the reason `why`; `list` is the current one.
    pub fn explained(list: &Snapshot, breakpoint: &Breakpoint, why: &str) -> Self {
        let title = breakpoint.title();
        let intended = was_intended(list, breakpoint.id);
        let sentence = match intended {
            true => format!("{title} has ended: {why}"),
            false => format!("{title} is gone: {why}"),
        };
        Self { sentence, intended }
    }
}

/// Whether the worker is gone, and was meant to end.
pub fn was_intended(list: &Snapshot, id: BreakpointId) -> bool {
    let ended = list.find_ended(id);
    ended.is_some_and(|breakpoint| breakpoint.state.is_finished())
}

/// For a session that the debugger ended and Ray has not explained: Ray notices a killed or isolated node only after
/// ten seconds or more.
pub fn unexplained(breakpoint: &Breakpoint) -> String {
    format!(
        "the debugger of {} on node {} ended the session, and Ray does not say why yet: `ray-relay list --ended` tells when it does",
        breakpoint.title(),
        breakpoint.node_ip
    )
}

/// For a session whose connection to `worker` broke: says so if the agent's link is gone too. Takes half a second if
/// the route has an agent.
pub async fn agent_lost(agents: &Agents, worker: &Attached) -> Option<String> {
    let breakpoint = worker.breakpoint();
    let why = agents.lost(&breakpoint.cluster, worker.route()?).await?;
    Some(without_agent(breakpoint, &why))
}

/// It is not known here whether the agent was killed, or isolated and detaches from the worker in order.
fn without_agent(breakpoint: &Breakpoint, why: &str) -> String {
    let then = match breakpoint.kind {
        Kind::Debugpy => {
            "if its node lives, the task runs on, and `ray-relay list` has it when it stops again"
        }
        Kind::Pdb => {
            "the task runs on if the agent could still detach, and fails if the agent was killed"
        }
    };
    format!(
        "this session with {} is over, because the agent of its node is gone ({why}); {then}",
        breakpoint.title()
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use ray_relay_base::timestamp::Timestamp;
    use ray_relay_ray::ray::registry::State;

    #[test]
    fn intended_end_has_its_own_sentence() {
        for (intended, reason, sentence) in [
            (true, "its job is over", "has ended: its job is over"),
            (false, "it was killed", "is gone: it was killed"),
        ] {
            let mut breakpoint = ray_relay_ray::ray::testing::paused("step", 1);
            breakpoint.state = State::Died {
                at: Timestamp::now(),
                why: reason.into(),
                intended,
            };
            let list = Snapshot {
                ended: [Arc::new(breakpoint.clone())].into(),
                ..Snapshot::default()
            };
            let end = WorkerEnd::explained(&list, &breakpoint, reason);
            assert_eq!(end.sentence, format!("{} {sentence}", breakpoint.title()));
            assert_eq!(end.intended, intended);
        }
    }
}
