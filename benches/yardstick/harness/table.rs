//! Rows of figures, and what is made of them: medians, and medians of what a round's contestants are to each other.

use std::collections::BTreeMap;

use crate::harness::contest::Contestant;

/// The unit of a printed figure: `scale` converts from the base unit (seconds, bytes, bytes or messages a second).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unit {
    pub(crate) scale: f64,
    pub(crate) name: &'static str,
}

impl Unit {
    pub(crate) const MICROSECONDS: Self = Self::new(1e6, "us");
    pub(crate) const MILLISECONDS: Self = Self::new(1e3, "ms");
    pub(crate) const SECONDS: Self = Self::new(1.0, "s");
    pub(crate) const A_SECOND: Self = Self::new(1.0, "/s");
    pub(crate) const THOUSANDS_A_SECOND: Self = Self::new(1e-3, "k/s");
    pub(crate) const MIB_A_SECOND: Self = Self::new(1.0 / MIB, "MiB/s");
    pub(crate) const SECONDS_A_GIB: Self = Self::new(1024.0 * MIB, "s/GiB");
    pub(crate) const KIB: Self = Self::new(1.0 / 1024.0, "KiB");
    pub(crate) const MIB: Self = Self::new(1.0 / MIB, "MiB");
    pub(crate) const PERCENT: Self = Self::new(100.0, "%");

    const fn new(scale: f64, name: &'static str) -> Self {
        Self { scale, name }
    }
}

const MIB: f64 = 1_048_576.0;

/// The goal of a row.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Goal {
    /// This many times the contestant's, or less.
    AtMost(f64, Contestant),
    /// This many times the contestant's, or more.
    AtLeast(f64, Contestant),
    /// At most this much above the contestant's figure, in the base unit.
    Above(f64, Contestant),
    /// At most this much, in the base unit.
    Within(f64),
}

/// How the relay's figure compares with another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compared {
    /// As a multiple.
    Ratio,
    /// As a difference.
    Difference,
}

#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) unit: Unit,
    pub(crate) compared: Compared,
    /// All of them are to be met.
    pub(crate) goals: Vec<Goal>,
    /// The contestants with figures.
    pub(crate) contestants: &'static [Contestant],
    /// Of each contestant, one for each round.
    figures: BTreeMap<Contestant, Vec<f64>>,
}

impl Row {
    pub(crate) fn new(name: impl Into<String>, unit: Unit) -> Self {
        Self {
            name: name.into(),
            unit,
            compared: Compared::Ratio,
            goals: Vec::new(),
            contestants: &[],
            figures: BTreeMap::new(),
        }
    }

    pub(crate) fn difference(self) -> Self {
        let compared = Compared::Difference;
        Self { compared, ..self }
    }

    pub(crate) fn goal(mut self, goal: Goal) -> Self {
        self.goals.push(goal);
        self
    }

    pub(crate) fn figures(&self, contestant: Contestant) -> &[f64] {
        self.figures.get(&contestant).map_or(&[], Vec::as_slice)
    }

    /// Over all rounds.
    pub(crate) fn median(&self, contestant: Contestant) -> Option<f64> {
        median(self.figures(contestant).to_vec())
    }

    /// The relay's figure to the other's within a round, so that both met the same machine: the median over all rounds.
    pub(crate) fn to(&self, other: Contestant) -> Option<f64> {
        let relay = self.figures(Contestant::Relay);
        let pairs = relay.iter().zip(self.figures(other));
        median(match self.compared {
            Compared::Ratio => pairs.map(|(own, other)| own / other).collect(),
            Compared::Difference => pairs.map(|(own, other)| own - other).collect(),
        })
    }

    /// Whether its goals are met; `None` where there is none, or no figure for one.
    pub(crate) fn meets(&self) -> Option<bool> {
        let met = |goal: &Goal| {
            Some(match *goal {
                Goal::AtMost(bound, other) | Goal::Above(bound, other) => self.to(other)? <= bound,
                Goal::AtLeast(times, other) => self.to(other)? >= times,
                Goal::Within(bound) => self.median(Contestant::Relay)? <= bound,
            })
        };
        let met: Option<Vec<bool>> = self.goals.iter().map(met).collect();
        met.filter(|met| !met.is_empty())
            .map(|met| met.iter().all(|met| *met))
    }
}

#[derive(Debug, Default)]
pub(crate) struct Table {
    pub(crate) rows: Vec<Row>,
    /// The seconds of each family.
    pub(crate) times: Vec<(&'static str, f64)>,
}

impl Table {
    /// Takes the rows of a family; returns the place of the first.
    pub(crate) fn add(&mut self, rows: Vec<Row>, contestants: &'static [Contestant]) -> usize {
        let first = self.rows.len();
        let row = |row| Row { contestants, ..row };
        self.rows.extend(rows.into_iter().map(row));
        first
    }

    /// Takes what a round gave, for the rows from `first` on.
    pub(crate) fn record(&mut self, first: usize, contestant: Contestant, figures: &[f64]) {
        for (row, figure) in self.rows[first..].iter_mut().zip(figures) {
            row.figures.entry(contestant).or_default().push(*figure);
        }
    }

    pub(crate) fn record_time(&mut self, family: &'static str, seconds: f64) {
        match self.times.last_mut() {
            Some((last, sum)) if *last == family => *sum += seconds,
            _ => self.times.push((family, seconds)),
        }
    }
}

/// Of those values that are numbers.
pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.retain(|value| value.is_finite());
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => None,
        n if n % 2 == 1 => Some(values[n / 2]),
        n => Some((values[n / 2 - 1] + values[n / 2]) / 2.0),
    }
}

/// The value that `percent` of `values` do not exceed; NaN of none.
pub(crate) fn percentile(values: &mut [f64], percent: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    let place = (values.len() * percent / 100).min(values.len().saturating_sub(1));
    values.get(place).copied().unwrap_or(f64::NAN)
}
