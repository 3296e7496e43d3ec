//! The memory that a configuration may need, and the memory available.

use super::resolver::Resolver;
use super::settings::Config;
use super::units::format_size;
use crate::memory::{self, Needed};

/// The memory that the relay divides, and its origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryBudget {
    /// Memory available to the process, in bytes.
    pub there: usize,
    /// Whether the figure is known, from `listen.memory` or from the system; otherwise it is a default.
    pub is_known: bool,
    /// Memory in use while no client does anything: the process, and idle connections.
    needed: Needed,
}

impl Config {
    /// The memory of a relay with this configuration.
    pub fn memory(&self) -> MemoryBudget {
        let known = self.listen.memory.or_else(memory::limit);
        let places = [
            self.listen.max_connections,
            self.connect.max_links,
            self.upstream.max_agents,
        ];
        let places = places.into_iter().fold(0, usize::saturating_add);
        MemoryBudget {
            there: known.unwrap_or(memory::DEFAULT_MEMORY_BYTES),
            is_known: known.is_some(),
            needed: memory::needed(places),
        }
    }
}

impl MemoryBudget {
    /// Memory to divide among the users of the relay, in bytes.
    pub fn divided(&self) -> usize {
        self.needed.shared_part(self.there)
    }

    /// The budget in one sentence, for the log and `config check`.
    pub fn sentence(&self) -> String {
        let Self { there, needed, .. } = self;
        let whose = match self.is_known {
            true => "may have",
            false => "takes itself to have, as nothing limits it",
        };
        let whole = memory::Memory::new(self.divided());
        format!(
            "of the {} that the relay {whose}, idle connections may take up to {}; one person may use up to {} at a time, which bounds every message and list",
            in_whole_mib(*there),
            in_whole_mib(needed.idle),
            in_whole_mib(whole.owner_limit()),
        )
    }
}

/// Formats `bytes` as whole MiB.
fn in_whole_mib(bytes: usize) -> String {
    format_size(bytes >> 20 << 20)
}

impl Resolver {
    /// Checks that the available memory is enough.
    pub(super) fn check_memory(&mut self, config: &Config) {
        let memory = config.memory();
        let least = memory.needed.least();
        if memory.is_known && memory.there < least {
            let key = match config.listen.memory {
                Some(_) => "listen.memory",
                None => "the memory limit of this process's cgroup",
            };
            self.problem(
                key,
                &in_whole_mib(memory.there),
                &format!("at least {}", in_whole_mib(least + (1 << 20))),
                "more, or fewer places: listen.max_connections, connect.max_links and upstream.max_agents",
            );
        }
    }
}
