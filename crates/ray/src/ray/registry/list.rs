//! The ordered live breakpoints, as a persistent value: two versions of the list share all parts but those that
//! differ.
//!
//! Every claim, release and name creates a new version, which costs one part and a pointer for each of the others,
//! however many breakpoints there are.

use std::sync::Arc;

use crate::ray::registry::breakpoint::{Breakpoint, BreakpointId};
use ray_relay_base::timestamp::Timestamp;

/// Most rows per part: about as many as a list of 10,000 has parts.
const MAX_PART_ROWS: usize = 128;

/// Some rows, with their ids in an array: a search touches no other breakpoint, and compares several ids per step.
#[derive(Debug, Clone, Default, PartialEq)]
struct Part {
    ids: Vec<u64>,
    rows: Vec<Arc<Breakpoint>>,
}

impl Part {
    fn insert(&mut self, at: usize, row: Arc<Breakpoint>) {
        self.ids.insert(at, row.id.bits());
        self.rows.insert(at, row);
    }

    fn split_off(&mut self, at: usize) -> Self {
        Self {
            ids: self.ids.split_off(at),
            rows: self.rows.split_off(at),
        }
    }

    fn find(&self, id: u64) -> Option<&Arc<Breakpoint>> {
        if !self.ids.contains(&id) {
            return None;
        }
        let at = self.ids.iter().position(|own| *own == id)?;
        self.rows.get(at)
    }
}

/// An ordered list of breakpoints. Cheap to clone.
#[derive(Clone, Default, PartialEq)]
pub struct List {
    /// None of them is empty.
    parts: Vec<Arc<Part>>,
    len: usize,
}

impl List {
    /// The number of rows.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether both are the same version; compares no rows.
    pub fn is(&self, other: &Self) -> bool {
        let parts = self.parts.iter().zip(&other.parts);
        self.parts.len() == other.parts.len() && parts.into_iter().all(|(a, b)| Arc::ptr_eq(a, b))
    }

    /// The rows from the first to the last.
    pub fn iter(&self) -> Iter<'_> {
        Iter {
            parts: self.parts.iter(),
            front: [].iter(),
            back: [].iter(),
        }
    }

    /// The first row.
    pub fn first(&self) -> Option<&Arc<Breakpoint>> {
        self.iter().next()
    }

    /// The first row of the breakpoint `id`.
    pub fn find(&self, id: BreakpointId) -> Option<&Arc<Breakpoint>> {
        let id = id.bits();
        self.parts.iter().find_map(|part| part.find(id))
    }

    /// Inserts `breakpoint` by [`Breakpoint::order`], which the rows of the list must be in.
    pub(super) fn insert(&mut self, breakpoint: Arc<Breakpoint>) {
        let at = self.part_of(&breakpoint);
        // Behind all others: into the last part.
        let at = at.min(self.parts.len().saturating_sub(1));
        if self.parts.is_empty() {
            self.parts.push(Arc::default());
        }
        let is_last = at + 1 == self.parts.len();
        let part = Arc::make_mut(&mut self.parts[at]);
        let before = part
            .rows
            .partition_point(|row| sort_key(row) < sort_key(&breakpoint));
        part.insert(before, breakpoint);
        self.len += 1;
        if part.rows.len() > MAX_PART_ROWS {
            // New rows come at the end, and leave full parts behind.
            let full = is_last && before == MAX_PART_ROWS;
            let rest = part.split_off(if full {
                MAX_PART_ROWS
            } else {
                MAX_PART_ROWS / 2
            });
            self.parts.insert(at + 1, Arc::new(rest));
        }
    }

    /// Removes `breakpoint`, as it was inserted, from a list in that order. Returns whether it was there.
    pub(super) fn remove(&mut self, breakpoint: &Breakpoint) -> bool {
        let at = self.part_of(breakpoint);
        let Some(part) = self.parts.get_mut(at) else {
            return false;
        };
        let found = part
            .rows
            .binary_search_by(|row| sort_key(row).cmp(&sort_key(breakpoint)));
        let Ok(row) = found else {
            return false;
        };
        let part = Arc::make_mut(part);
        part.ids.remove(row);
        part.rows.remove(row);
        self.len -= 1;
        if part.rows.is_empty() {
            self.parts.remove(at);
        }
        true
    }

    /// The first part that does not end before the position of `breakpoint`.
    fn part_of(&self, breakpoint: &Breakpoint) -> usize {
        let key = sort_key(breakpoint);
        self.parts.partition_point(|part| {
            let last = part.rows.last();
            last.is_some_and(|row| sort_key(row) < key)
        })
    }
}

/// Sort key of a breakpoint. Two with the same id by chance are distinct.
type SortKey<'a> = ((bool, Timestamp, BreakpointId), &'a str, &'a str);

fn sort_key(breakpoint: &Breakpoint) -> SortKey<'_> {
    (breakpoint.order(), &breakpoint.cluster, breakpoint.key())
}

/// Keeps the order of the iterator.
impl FromIterator<Arc<Breakpoint>> for List {
    fn from_iter<I: IntoIterator<Item = Arc<Breakpoint>>>(rows: I) -> Self {
        let mut rows = rows.into_iter();
        let mut list = Self::default();
        loop {
            let rows: Vec<_> = rows.by_ref().take(MAX_PART_ROWS).collect();
            if rows.is_empty() {
                return list;
            }
            list.len += rows.len();
            let ids = rows.iter().map(|row| row.id.bits()).collect();
            list.parts.push(Arc::new(Part { ids, rows }));
        }
    }
}

#[cfg(any(test, feature = "testing"))]
#[allow(clippy::unwrap_used)]
impl std::ops::Index<usize> for List {
    type Output = Arc<Breakpoint>;

    fn index(&self, at: usize) -> &Arc<Breakpoint> {
        self.iter().nth(at).unwrap()
    }
}

impl std::fmt::Debug for List {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self).finish()
    }
}

/// Iterator over the rows of a [`List`].
#[derive(Debug, Clone)]
pub struct Iter<'a> {
    parts: std::slice::Iter<'a, Arc<Part>>,
    front: std::slice::Iter<'a, Arc<Breakpoint>>,
    back: std::slice::Iter<'a, Arc<Breakpoint>>,
}

impl<'a> Iterator for Iter<'a> {
    type Item = &'a Arc<Breakpoint>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(row) = self.front.next() {
                return Some(row);
            }
            match self.parts.next() {
                Some(part) => self.front = part.rows.iter(),
                None => return self.back.next(),
            }
        }
    }
}

impl DoubleEndedIterator for Iter<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(row) = self.back.next_back() {
                return Some(row);
            }
            match self.parts.next_back() {
                Some(part) => self.back = part.rows.iter(),
                None => return self.front.next_back(),
            }
        }
    }
}

impl<'a> IntoIterator for &'a List {
    type Item = &'a Arc<Breakpoint>;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ray::testing::paused;
    use ray_relay_base::timestamp::testing::at;

    fn breakpoint(first_seen: u64, n: u8) -> Arc<Breakpoint> {
        let mut breakpoint = paused("square", n);
        breakpoint.first_seen = at(first_seen);
        Arc::new(breakpoint)
    }

    fn expected(rows: &[Arc<Breakpoint>]) -> Vec<Arc<Breakpoint>> {
        let mut rows = rows.to_vec();
        rows.sort_by(|a, b| sort_key(a).cmp(&sort_key(b)));
        rows
    }

    fn rows(list: &List) -> Vec<Arc<Breakpoint>> {
        list.iter().cloned().collect()
    }

    proptest! {
        #[test]
        fn list_equals_a_sorted_model_and_versions_stay_intact(
            steps in proptest::collection::vec((any::<bool>(), 0u64..40, any::<u8>()), 1..700),
        ) {
            let (mut list, mut model) = (List::default(), Vec::<Arc<Breakpoint>>::new());
            let mut versions = Vec::new();
            for (step, (remove, first_seen, n)) in steps.into_iter().enumerate() {
                let row = breakpoint(first_seen, n);
                let index = model.iter().position(|other| sort_key(other) == sort_key(&row));
                match index {
                    Some(index) if remove => {
                        model.remove(index);
                        prop_assert!(list.remove(&row));
                    }
                    Some(_) => {}
                    None if remove && step % 3 != 0 => prop_assert!(!list.remove(&row)),
                    None => {
                        model.push(Arc::clone(&row));
                        list.insert(row);
                    }
                }
                prop_assert_eq!(list.len(), model.len());
                prop_assert!(list.parts.iter().all(|part| (1..=MAX_PART_ROWS).contains(&part.rows.len())));
                if step % 64 == 0 {
                    versions.push((list.clone(), expected(&model)));
                }
            }
            versions.push((list, expected(&model)));
            for (list, expected) in versions {
                prop_assert_eq!(&rows(&list), &expected);
                let reversed: Vec<_> = list.iter().rev().cloned().collect();
                prop_assert!(reversed.iter().eq(expected.iter().rev()));
                for (index, row) in expected.iter().enumerate() {
                    prop_assert_eq!(&list[index], row);
                    let first = expected.iter().find(|other| other.id == row.id);
                    prop_assert_eq!(list.find(row.id), first);
                }
            }
        }
    }

    #[test]
    fn change_shares_unchanged_parts_between_versions() {
        let all: List = (0..255).map(|n| breakpoint(u64::from(n), n)).collect();
        let mut without = all.clone();
        assert!(without.remove(&breakpoint(200, 200)));
        let shared = |(a, b): (&Arc<Part>, &Arc<Part>)| Arc::ptr_eq(a, b);
        let shared_parts = all.parts.iter().zip(&without.parts).filter(|p| shared(*p));
        assert_eq!(
            (shared_parts.count(), all.len(), without.len()),
            (1, 255, 254)
        );
    }

    #[test]
    fn double_ended_iteration_meets_in_the_middle() {
        let list: List = (0..255).map(|n| breakpoint(u64::from(n), n)).collect();
        let (mut iter, mut count) = (list.iter(), 0);
        while iter.next().is_some() {
            count += 1 + usize::from(iter.next_back().is_some());
        }
        assert_eq!(count, 255);
        assert!(iter.next_back().is_none());
    }
}
