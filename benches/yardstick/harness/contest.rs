//! Contestants, and the rounds in which they take turns.

use std::time::Instant;

use crate::Result;
use crate::harness::process;
use crate::harness::table::{Row, Table};
use crate::harness::yard::Yard;

/// A measured program. Each has its own cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Contestant {
    /// The relay of this build.
    Relay,
    /// Another build of it.
    Base,
    HaProxy,
    /// `ssh -L`, to an OpenSSH server next to the workers.
    Ssh,
    /// A direct connection.
    Direct,
}

impl Contestant {
    /// For families without a tunnel.
    pub(crate) const USUAL: [Self; 4] = [Self::Relay, Self::Base, Self::HaProxy, Self::Direct];
    /// For families that need a local process on the client's side.
    pub(crate) const TUNNELS: [Self; 5] = [
        Self::Relay,
        Self::Base,
        Self::HaProxy,
        Self::Ssh,
        Self::Direct,
    ];
    /// For features that only relays have.
    pub(crate) const RELAYS: [Self; 2] = [Self::Relay, Self::Base];
    /// For costs of a process.
    pub(crate) const PROXIES: [Self; 3] = [Self::Relay, Self::Base, Self::HaProxy];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Relay => "relay",
            Self::Base => "base",
            Self::HaProxy => "haproxy",
            Self::Ssh => "ssh",
            Self::Direct => "direct",
        }
    }

    pub(crate) fn is_relay(self) -> bool {
        matches!(self, Self::Relay | Self::Base)
    }

    fn because(self, error: &dyn std::error::Error) -> String {
        format!("{}: {error}", self.name())
    }
}

/// Rows of the table that are measured together.
pub(crate) trait Family {
    /// The state that a contestant keeps between rounds.
    type Open;

    /// Whether one round says all that there is to say, as of memory.
    const ONCE: bool = false;

    const CONTESTANTS: &'static [Contestant] = &Contestant::USUAL;

    /// Whether contestants are on one core, and everything else on another.
    fn pinned(&self) -> bool {
        false
    }

    /// Its rows, in the order of a round's figures.
    fn rows(&self, yard: &Yard) -> Vec<Row>;

    /// Starts what is needed for `contestant`.
    async fn open(&self, yard: &Yard, contestant: Contestant) -> Result<Self::Open>;

    /// One figure for each row, in its base unit; NaN where there is none.
    async fn round(&self, yard: &Yard, open: &mut Self::Open) -> Result<Vec<f64>>;
}

/// The measured contestants and their results.
pub(crate) struct Contest<'a> {
    pub(crate) yard: &'a Yard,
    /// The families that are asked for; none: all of them.
    pub(crate) only: &'a [String],
    pub(crate) table: Table,
    /// The number of families that failed.
    pub(crate) failed: usize,
}

impl Contest<'_> {
    /// Measures `family`, where its `name` is asked for. What fails is said at once, and does not keep the rest from being
    /// measured.
    pub(crate) async fn hold<F: Family>(&mut self, name: &'static str, family: F) {
        if !self.only.is_empty() && self.only.iter().all(|word| word != name) {
            return;
        }
        let started = Instant::now();
        // Some are large.
        let result = Box::pin(self.rounds(&family)).await;
        let elapsed = started.elapsed().as_secs_f64();
        self.table.record_time(name, elapsed);
        match result {
            Ok(()) => eprintln!("{name}: {elapsed:.1} s"),
            Err(error) => {
                self.failed += 1;
                eprintln!("{name}: {error}");
            }
        }
    }

    /// Has the contestants take turns, round by round, so that a slow moment of the machine meets all of them.
    async fn rounds<F: Family>(&mut self, family: &F) -> Result<()> {
        let yard = self.yard;
        process::stay_off_the_core(family.pinned())?;
        let first = self.table.add(family.rows(yard), F::CONTESTANTS);
        let mut open = Vec::new();
        for contestant in F::CONTESTANTS.iter().copied().filter(|c| yard.has(*c)) {
            let opened = family.open(yard, contestant).await;
            open.push((
                contestant,
                opened.map_err(|error| contestant.because(&*error))?,
            ));
        }
        let (rounds, settling) = match F::ONCE || yard.short {
            true => (1, 0),
            // The first one is not counted: until then buffers, windows and clocks have settled.
            false => (yard.rounds, 1),
        };
        for round in 0..settling + rounds {
            for turn in 0..open.len() {
                // Every other round runs in reverse, so that no contestant always follows the same one.
                let turn = if round % 2 == 0 {
                    turn
                } else {
                    open.len() - 1 - turn
                };
                let turn = (turn + round / 2) % open.len();
                let (contestant, open) = &mut open[turn];
                let figures = family.round(yard, open).await;
                let figures = figures.map_err(|error| contestant.because(&*error))?;
                if round >= settling {
                    self.table.record(first, *contestant, &figures);
                }
            }
        }
        Ok(())
    }
}
