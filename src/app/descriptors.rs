//! Open files: raises the limit of this process, and fits the bounds on connections to it.

use rustix::process::{Resource, getrlimit, setrlimit};
use tracing::warn;

use ray_relay_base::config::Config;
use ray_relay_debugger::keeper::Keeper;

/// Descriptors for anything but connections: the log, keys and revocations, polls of heads, recordings, and the
/// runtime.
const RESERVED_DESCRIPTORS: usize = 64;

/// Lower bound of each limit.
const MIN_CONNECTIONS: usize = 4;

/// Raises the limit of open files as far as the system permits, and lowers the bounds of `config` to fit.
/// Unauthenticated clients may take half of `listen.max_connections`. So they never use up the descriptors for
/// authenticated clients, or for reading the revocations.
pub(super) fn fit(config: &mut Config) {
    let raised = raise();
    let Some(there) = getrlimit(Resource::Nofile).current else {
        return;
    };
    let there = usize::try_from(there).unwrap_or(usize::MAX);
    let is_kept = config.listen.keeper.is_some() || Keeper::is_offered();
    if lower(config, there, is_kept) {
        warn!(
            there,
            raised,
            max_connections = config.listen.max_connections,
            max_links = config.connect.max_links,
            max_agents = config.upstream.max_agents,
            "the limit of open files is too low for listen.max_connections, connect.max_links and upstream.max_agents: they are lowered; raise `ulimit -n` (LimitNOFILE=)"
        );
    }
}

/// Raises the limit of open files as far as the system permits. Returns whether it succeeded.
pub(crate) fn raise() -> bool {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).is_ok()
}

/// Lowers the bounds to at most `there` open files, also if connections [are kept](ray_relay_debugger::keeper). Returns
/// whether anything was lowered.
fn lower(config: &mut Config, there: usize, is_kept: bool) -> bool {
    let connections = &mut config.listen.max_connections;
    let (links, agents) = (
        &mut config.connect.max_links,
        &mut config.upstream.max_agents,
    );
    // A connection and its worker need two descriptors, and with the keeper's state three. A link and its target need
    // two as well. A quarter more is for evicted connections, which hold theirs until they are closed.
    let quarters = if is_kept { 13 } else { 9 };
    let of = |connections: usize, links: usize, agents: usize| {
        let twice = connections.saturating_mul(quarters) / 4;
        let twice = twice.saturating_add(links.saturating_mul(2));
        twice
            .saturating_add(agents)
            .saturating_add(RESERVED_DESCRIPTORS)
    };
    if of(*connections, *links, *agents) <= there {
        return false;
    }
    let available = there.saturating_sub(RESERVED_DESCRIPTORS);
    // Half for connections, the rest for links and agents.
    *connections = (*connections).min((available * 2 / quarters).max(MIN_CONNECTIONS));
    *links = (*links).min((available / 8).max(MIN_CONNECTIONS));
    *agents = (*agents).min((available / 4).max(MIN_CONNECTIONS));
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds_for(available: usize) -> (usize, usize, usize) {
        let mut config = Config::default();
        lower(&mut config, available, false);
        let links = config.connect.max_links;
        (
            config.listen.max_connections,
            links,
            config.upstream.max_agents,
        )
    }

    #[test]
    fn connection_bounds_are_lowered_to_fit_descriptors() {
        assert_eq!(bounds_for(1 << 20), (1024, 1024, 4096));
        assert_eq!(bounds_for(256), (42, 24, 48));
        for available in [100, 256, 1024, 4096] {
            let (connections, links, agents) = bounds_for(available);
            let used = connections * 9 / 4 + 2 * links + agents;
            assert!(
                used + RESERVED_DESCRIPTORS <= available,
                "{available}: {used}"
            );
        }
    }
}
