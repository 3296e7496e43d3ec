//! Selection: which worker a client gets.
//!
//! Pure: maps the client's attach arguments and one snapshot to an [`AttachAnswer`] or a sentence. The order is that of
//! `docs/editors.md`: `rayRelay`, then an advertised address that the client echoes, then the paused tasks. The relay
//! never dials what a client sends; it only picks from the registry.

use std::sync::Arc;

use super::attach_selector::{AttachSelector, fits, names};
use ray_relay_base::timestamp::Timestamp;
use ray_relay_base::wire::text::shortened;
use ray_relay_ray::ray::registry::{
    AmbiguousPrefix, Breakpoint, BreakpointId, BreakpointIdPrefix, Holder, Snapshot,
};
use ray_relay_session::session::refusal::{SessionRefusal, inventory};

/// How a client can be asked to open further sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChildSessions {
    /// The client answers the reverse request `startDebugging`.
    StartDebugging,
    /// The client handles debugpy's own event `debugpyAttach`.
    DebugpyAttach,
    /// The client cannot open child sessions.
    None,
}

/// The breakpoint that the dialled address names, if any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hint {
    /// The address names no breakpoint.
    None,
    /// A breakpoint that the relay advertised under it.
    Breakpoint(BreakpointId),
    /// The address was advertised before, or looks like it, but for no breakpoint that is known now.
    Stale,
}

/// The answer to an attach request.
#[derive(Debug, Clone, PartialEq)]
pub enum AttachAnswer {
    /// A session with this worker.
    Worker(Arc<Breakpoint>),
    /// A further session with a debugged worker, for its subprocess.
    Subprocess(Arc<Breakpoint>),
    /// The cluster session, which announces every worker that pauses.
    Cluster,
    /// A session with the next worker that pauses and matches the selector.
    Next,
}

/// Completes the prefix of an id in `selector`: in the place of an id, or of a task name that nothing in `seen` has.
/// `seen` is all that the client's principal may see; it is called for such a prefix alone, because it authorises
/// thousands of breakpoints.
///
/// # Errors
/// [`SessionRefusal`]: nothing in `seen` has such an id, or several have.
pub fn completed(
    mut selector: AttachSelector,
    seen: impl FnOnce() -> Arc<Snapshot>,
) -> Result<AttachSelector, SessionRefusal> {
    let several = |why: AmbiguousPrefix| SessionRefusal::Nothing(why.to_string());
    if let Some(begun) = selector.begun.take() {
        let seen = seen();
        let unknown =
            || SessionRefusal::unknown(&format!("has an id that begins with {begun}"), &seen);
        selector.breakpoint = Some(begun.find(&seen).map_err(several)?.ok_or_else(unknown)?);
        return Ok(selector);
    }
    // A running task is no breakpoint, whatever its name begins with.
    if !(selector.next || selector.running)
        && let Some(begun) = selector.task.as_deref().and_then(|task| task.parse().ok())
    {
        let seen = seen();
        let is_name = |b: &Arc<Breakpoint>| names(&selector, b);
        if !seen.live.iter().chain(seen.ended.iter()).any(is_name)
            && let Some(id) = BreakpointIdPrefix::find(&begun, &seen).map_err(several)?
        {
            (selector.breakpoint, selector.task) = (Some(id), None);
        }
    }
    Ok(selector)
}

/// Picks the session that `selector` requests.
///
/// # Errors
/// [`SessionRefusal`], a sentence for the client.
pub fn choose(
    selector: &AttachSelector,
    hint: Hint,
    children: ChildSessions,
    snapshot: &Snapshot,
    now: Timestamp,
) -> Result<AttachAnswer, SessionRefusal> {
    if let Some(cluster) = &selector.cluster
        && !snapshot.clusters.iter().any(|c| *c.name == **cluster)
    {
        let known: Vec<_> = snapshot.clusters.iter().map(|c| &*c.name).collect();
        return Err(SessionRefusal::BadSelector(format!(
            "no cluster is called \"{}\"; known are {}",
            shortened(cluster, 40),
            known.join(", ")
        )));
    }
    if selector.subprocess.is_some() {
        return subprocess(selector, hint, snapshot);
    }
    if selector.next {
        return Ok(AttachAnswer::Next);
    }
    if selector.all {
        return match children {
            ChildSessions::None => Err(SessionRefusal::BadSelector(
                "`rayRelay.all` needs a client that can open several sessions (startDebugging); use `\"next\": true` or a `breakpoint`".into(),
            )),
            _ => Ok(AttachAnswer::Cluster),
        };
    }
    if selector.breakpoint.is_some() || selector.task.is_some() || selector.worker.is_some() {
        return named(selector, snapshot, now);
    }
    match hint {
        Hint::Breakpoint(id) => {
            return named(
                &AttachSelector {
                    breakpoint: Some(id),
                    ..selector.clone()
                },
                snapshot,
                now,
            );
        }
        Hint::Stale => {
            return Err(SessionRefusal::Nothing(format!(
                "the address that this session was started with belongs to a breakpoint that is gone; {}",
                inventory(snapshot)
            )));
        }
        Hint::None => {}
    }
    let mut paused = snapshot.paused().filter(|b| fits(selector, b));
    match (paused.next(), paused.next(), children) {
        (Some(only), None, _) => Ok(AttachAnswer::Worker(only.clone())),
        (_, _, ChildSessions::StartDebugging | ChildSessions::DebugpyAttach) => {
            Ok(AttachAnswer::Cluster)
        }
        (Some(oldest), ..) => Ok(AttachAnswer::Worker(oldest.clone())),
        (None, ..) => Err(none_waits(selector, snapshot, now)),
    }
}

fn named(
    selector: &AttachSelector,
    snapshot: &Snapshot,
    now: Timestamp,
) -> Result<AttachAnswer, SessionRefusal> {
    let fitting = || snapshot.live.iter().filter(|b| fits(selector, b));
    let free = fitting().find(|b| b.is_paused());
    // A named breakpoint is tried even if it is offered to no other client.
    if let Some(free) = free.or_else(|| fitting().find(|b| b.is_free())) {
        return Ok(AttachAnswer::Worker(free.clone()));
    }
    if let Some((held, holder)) = fitting().find_map(|b| b.holder().map(|holder| (b, holder))) {
        return Err(SessionRefusal::in_use(held, holder, now));
    }
    if let Some(ended) = snapshot.ended.iter().find(|b| fits(selector, b)) {
        return Err(SessionRefusal::ended(ended, now));
    }
    if let Some(legacy) = snapshot.live.iter().find(|b| names(selector, b)) {
        return Err(SessionRefusal::Nothing(format!(
            "{} stopped in Ray's legacy debugger, which is a pdb prompt and no debugger for an editor: enter it with `ray-relay debug {}` or `nc`",
            legacy.title(),
            legacy.id
        )));
    }
    let what = match (&selector.breakpoint, &selector.task, &selector.worker) {
        (Some(id), ..) => format!("has the id {id}"),
        (_, Some(task), _) => format!("runs \"{}\"", shortened(task, 60)),
        (_, _, Some(worker)) => format!("has an id that begins with {}", shortened(worker, 60)),
        _ => "fits".to_owned(),
    };
    Err(SessionRefusal::unknown(&what, snapshot))
}

fn subprocess(
    selector: &AttachSelector,
    hint: Hint,
    snapshot: &Snapshot,
) -> Result<AttachAnswer, SessionRefusal> {
    let selector = match (selector.breakpoint, hint) {
        (None, Hint::Breakpoint(id)) => AttachSelector {
            breakpoint: Some(id),
            ..selector.clone()
        },
        _ => selector.clone(),
    };
    let fitting = || snapshot.live.iter().filter(|b| fits(&selector, b));
    let mut held = fitting().filter(|b| b.holder().is_some_and(Holder::is_here));
    match (held.next(), held.next()) {
        (Some(only), None) => Ok(AttachAnswer::Subprocess(only.clone())),
        (Some(_), Some(_)) => Err(SessionRefusal::Nothing(
            "several workers are being debugged, and this subprocess session does not say which one it belongs to (rayRelay.breakpoint)".into(),
        )),
        (None, _) if fitting().any(|b| b.holder().is_some()) => Err(SessionRefusal::Nothing(
            "the session that this subprocess belongs to is at another relay: have the address lead each client to one relay (`sessionAffinity: ClientIP` of a Kubernetes Service)".into(),
        )),
        (None, _) => Err(SessionRefusal::Nothing("the session that this subprocess belongs to has ended".into())),
    }
}

fn none_waits(selector: &AttachSelector, snapshot: &Snapshot, now: Timestamp) -> SessionRefusal {
    if let Some((held, holder)) = snapshot
        .live
        .iter()
        .filter(|b| fits(selector, b))
        .find_map(|b| b.holder().map(|h| (b, h)))
    {
        return SessionRefusal::in_use(held, holder, now);
    }
    let mut unreachable = snapshot.live.iter().filter(|b| fits(selector, b));
    if let Some((gone, why)) = unreachable.find_map(|b| Some((b, b.unreachable()?))) {
        return SessionRefusal::Nothing(format!(
            "nothing waits at a breakpoint but {}, and {why}; `ray-relay release --force {}` ends its worker through Ray, and \"rayRelay\": {{\"breakpoint\": \"{}\"}} tries the port anew",
            gone.title(),
            gone.id,
            gone.id
        ));
    }
    let trouble = snapshot.clusters.iter().find_map(|c| c.trouble.as_deref());
    SessionRefusal::Nothing(match trouble {
        Some(trouble) => format!("nothing is known to wait at a breakpoint, and the list may be old: {trouble}"),
        None => "nothing waits at a breakpoint now; start the job and attach again, or set \"rayRelay\": {\"next\": true} to wait for the next one".into(),
    })
}

#[cfg(test)]
mod tests;
