//! Numbers as ranges: `0-2,4-7`.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// A set of numbers, as [`ranges`] writes them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ranks(Vec<RangeInclusive<u32>>);

/// The text contains no valid ranges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("ranks are numbers and ranges of them, such as 0-7,9")]
pub struct BadRanks;

impl FromStr for Ranks {
    type Err = BadRanks;

    fn from_str(text: &str) -> Result<Self, BadRanks> {
        let number = |text: &str| text.trim().parse::<u32>().map_err(|_| BadRanks);
        let range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let range = number(first)?..=number(last)?;
            (!range.is_empty()).then_some(range).ok_or(BadRanks)
        };
        Ok(Self(text.split(',').map(range).collect::<Result<_, _>>()?))
    }
}

impl Ranks {
    /// Its numbers, in the order of the text; `None` if there are more than `max`.
    pub fn numbers(&self, max: usize) -> Option<Vec<u32>> {
        let numbers: Vec<u32> = self.0.iter().cloned().flatten().take(max + 1).collect();
        (numbers.len() <= max).then_some(numbers)
    }

    /// Whether `number` is in the set.
    pub fn contains(&self, number: u32) -> bool {
        self.0.iter().any(|range| range.contains(&number))
    }
}

/// Formats `numbers` as `0-2,4-7`.
pub(in crate::listing) fn ranges(numbers: &BTreeSet<u32>) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(*number) => *last = *number,
            _ => ranges.push((*number, *number)),
        }
    }
    let written = ranges.iter().map(|(first, last)| match last - first {
        0 => first.to_string(),
        1 => format!("{first},{last}"),
        _ => format!("{first}-{last}"),
    });
    written.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn consecutive_ranks_form_a_range() {
        let ranges_of = |numbers: &[u32]| ranges(&numbers.iter().copied().collect());
        assert_eq!(ranges_of(&[0, 1, 2, 4, 5, 6, 7]), "0-2,4-7");
        assert_eq!(ranges_of(&[3]), "3");
        assert_eq!(ranges_of(&[3, 4]), "3,4");
        assert_eq!(ranges_of(&[]), "");
        assert_eq!(
            ranges_of(&[u32::MAX - 2, u32::MAX - 1, u32::MAX]),
            "4294967293-4294967295"
        );
    }

    #[test]
    fn invalid_ranks_are_refused() {
        for text in ["", "a", "3-", "-3", "7-3", "1,,2", "0..7"] {
            assert_eq!(text.parse::<Ranks>(), Err(BadRanks), "{text}");
        }
    }

    proptest! {
        #[test]
        fn formatted_ranks_are_parsed_back(numbers in proptest::collection::btree_set(0u32..200, 1..80)) {
            let read: Ranks = ranges(&numbers).parse().unwrap_or(Ranks(Vec::new()));
            let read: BTreeSet<u32> = (0..200).filter(|number| read.contains(*number)).collect();
            prop_assert_eq!(read, numbers);
        }
    }
}
