//! Commands of `ray-relay` that show more than the verdict.

use super::report::Kind;
use super::state::State;
use super::words::Words;

/// Returns the commands that show more.
pub(super) fn next(words: Words<'_>, kind: Kind, blamed: &[usize]) -> Vec<String> {
    let processes = &words.found.job.processes;
    let id = blamed
        .iter()
        .find_map(|at| processes.get(*at)?.breakpoint.as_deref());
    if let Some(id) = id.filter(|id| id.chars().all(|c| c.is_ascii_alphanumeric())) {
        return vec![format!("ray-relay debug {id}")];
    }
    if kind == Kind::Healthy || processes.is_empty() {
        return Vec::new();
    }
    let job = words.found.job;
    let drivers_last = |at: &usize| job.is_driver(*at);
    let (drivers, others): (Vec<usize>, Vec<usize>) = (0..processes.len()).partition(drivers_last);
    let mut of = blamed.iter().copied().chain(others).chain(drivers);
    // A name from a program is part of a command only if a shell reads it as it is.
    let is_plain = |name: &str| {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "_.-<>:".contains(c);
        !name.is_empty() && name.chars().all(is_plain)
    };
    let name = of.find_map(|at| processes.get(at)?.function.as_deref());
    let pattern = name.filter(|name| is_plain(name)).unwrap_or("*");
    // Of what is outside Python, only the frames of C tell more.
    let is_outside = |at: &usize| {
        let state = words.found.positions.get(*at).map(|one| &one.state);
        matches!(
            state,
            Some(
                State::Silent(_)
                    | State::WaitsForFileLock(_)
                    | State::WaitsOutside
                    | State::WaitsForDevice
            )
        )
    };
    let more = match blamed.iter().any(is_outside) {
        true => "--native",
        false => "--objects --all-threads",
    };
    let deep = format!("ray-relay snapshot --running '{pattern}' {more}");
    let again = format!("ray-relay snapshot --running '{pattern}' --watch 5s");
    match kind {
        Kind::Slow => vec![again],
        Kind::Unknown => vec![again, deep],
        Kind::Hangs => vec![deep],
        Kind::Differs | Kind::Healthy => vec![format!("ray-relay snapshot --running '{pattern}'")],
    }
}
