//! Groups the members that run the same by location, the smallest set first, to find those at a different location.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::location::Location;
use super::member::Member;
use super::who::Names;

/// The members of one group at one location.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Spot {
    pub(super) members: BTreeSet<usize>,
    pub(super) location: Location,
}

/// A group with the locations of its inspected members, the smallest set first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    pub(super) name: String,
    pub(super) spots: Vec<Spot>,
}

/// Groups `members` by location, the largest groups first.
pub fn of(members: &[Member]) -> Vec<Group> {
    let names = Names::new(members.iter().map(|member| &member.who));
    in_groups(&names, members)
}

fn in_groups(names: &Names<'_>, members: &[Member]) -> Vec<Group> {
    let groups = names.groups().iter().map(|(name, all)| {
        let mut spots: BTreeMap<Location, BTreeSet<usize>> = BTreeMap::new();
        for at in all {
            if let Some(location) = members[*at].location() {
                spots.entry(location).or_default().insert(*at);
            }
        }
        let spots = spots.into_iter();
        let mut spots: Vec<Spot> = spots
            .map(|(location, members)| Spot { members, location })
            .collect();
        // The sort is stable: sets of equal size stay in the order of their locations.
        spots.sort_by_key(|spot| spot.members.len());
        Group {
            name: (*name).to_owned(),
            spots,
        }
    });
    let mut groups: Vec<Group> = groups.filter(|group| !group.spots.is_empty()).collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.size()));
    groups
}

impl Group {
    pub(super) fn size(&self) -> usize {
        self.spots.iter().map(|spot| spot.members.len()).sum()
    }

    /// Returns the minority locations, if a majority is at one location.
    pub(super) fn odd(&self) -> Option<(&[Spot], &Spot)> {
        let (most, odd) = self.spots.split_last()?;
        let is_most = 2 * most.members.len() > self.size();
        (is_most && !odd.is_empty()).then_some((odd, most))
    }
}

/// Returns the groups as JSON: `[{"group", "places": [{"tasks": "3", "count", "waits_in", "at", "odd"}]}]`.
pub fn json(members: &[Member]) -> Value {
    let names = Names::new(members.iter().map(|member| &member.who));
    let groups = in_groups(&names, members);
    let groups = groups.iter().map(|group| {
        let odd = group.odd().map_or(0, |(odd, _)| odd.len());
        let spots = group.spots.iter().enumerate().map(|(at, spot)| {
            json!({
                "tasks": names.in_words(&group.name, &spot.members), "count": spot.members.len(),
                "waits_in": spot.location.waits, "at": spot.location.at, "odd": at < odd,
            })
        });
        json!({ "group": group.name, "places": spots.collect::<Vec<_>>() })
    });
    groups.collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::text::tests::member;
    use super::*;

    fn of_functions(functions: &[u8]) -> Vec<Member> {
        let members = functions.iter().enumerate();
        members
            .map(|(rank, function)| member("train", rank, &[(&format!("f{function}"), "a.py", 1)]))
            .collect()
    }

    #[test]
    fn rank_at_a_different_location_comes_first() {
        let members = of_functions(&[1, 1, 1, 2, 1, 1, 1, 1]);
        let groups = of(&members);
        let (odd, majority) = groups[0].odd().unwrap_or((&[], &groups[0].spots[0]));
        assert_eq!((odd.len(), odd[0].members.len()), (1, 1));
        assert_eq!(majority.members.len(), 7);
        let rows = json(&members);
        assert_eq!(rows[0]["places"][0]["tasks"], "rank 3");
        assert_eq!(rows[0]["places"][0]["odd"], true);
        assert_eq!(rows[0]["places"][1]["tasks"], "ranks 0-2,4-7");
        assert_eq!(rows[0]["places"][1]["odd"], false);
        // With a single location none is odd, nor without a majority.
        assert_eq!(of(&of_functions(&[1, 1]))[0].odd(), None);
        assert_eq!(of(&of_functions(&[1, 1, 2, 2]))[0].odd(), None);
    }

    proptest! {
        #[test]
        fn every_rank_has_one_location_and_fewest_come_first(functions in proptest::collection::vec(0u8..4, 1..30)) {
            let groups = of(&of_functions(&functions));
            prop_assert_eq!(groups.len(), 1);
            let spots = &groups[0].spots;
            prop_assert!(spots.windows(2).all(|two| two[0].members.len() <= two[1].members.len()));
            let mut all: Vec<usize> = spots.iter().flat_map(|spot| &spot.members).copied().collect();
            all.sort_unstable();
            prop_assert_eq!(all, (0..functions.len()).collect::<Vec<_>>());
            for spot in spots {
                let functions_here: BTreeSet<u8> = spot.members.iter().map(|index| functions[*index]).collect();
                prop_assert_eq!(functions_here.len(), 1);
            }
        }
    }
}
