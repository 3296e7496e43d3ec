//! Numbers as ranges: `0-2,4-7`.

use std::collections::BTreeSet;

/// `numbers` as `0-2,4-7`.
pub(super) fn ranges(numbers: &BTreeSet<u32>) -> String {
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

    fn read(text: &str) -> BTreeSet<u32> {
        let number = |text: &str| text.parse::<u32>().unwrap_or_default();
        let parts = text.split(',').filter(|part| !part.is_empty());
        let ranges = parts.map(|part| part.split_once('-').unwrap_or((part, part)));
        ranges
            .flat_map(|(first, last)| number(first)..=number(last))
            .collect()
    }

    #[test]
    fn neighbours_are_a_range() {
        let of = |numbers: &[u32]| ranges(&numbers.iter().copied().collect());
        assert_eq!(of(&[0, 1, 2, 4, 5, 6, 7]), "0-2,4-7");
        assert_eq!(of(&[3]), "3");
        assert_eq!(of(&[3, 4]), "3,4");
        assert_eq!(of(&[]), "");
        assert_eq!(
            of(&[u32::MAX - 2, u32::MAX - 1, u32::MAX]),
            "4294967293-4294967295"
        );
    }

    proptest! {
        #[test]
        fn what_is_written_is_what_it_was(numbers in proptest::collection::btree_set(0u32..200, 0..80)) {
            prop_assert_eq!(read(&ranges(&numbers)), numbers);
        }
    }
}
