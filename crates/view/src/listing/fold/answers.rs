//! Merges the answers of many to one question: each distinct answer with its members, odd ones first, and statistics
//! of numbers.
//!
//! Pure. An answer is odd if the majority gives another one. Without a majority, a number is odd if it is not finite
//! (`nan`, `inf`) or far from the others. If half or more would be odd, none is.

use std::collections::{BTreeMap, BTreeSet};

use super::noise::without_noise;
use super::number::{by_value, number};

/// Fewest numbers among which one can be an outlier.
const MIN_NUMBERS_FOR_OUTLIERS: usize = 4;

/// An outlier is this many times farther from the median than the median distance.
const OUTLIER_FACTOR: f64 = 10.0;

/// One distinct answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Same {
    pub text: String,
    /// The members that gave it.
    pub members: BTreeSet<usize>,
    pub odd: bool,
}

/// Statistics of numeric answers.
#[derive(Debug, Clone, PartialEq)]
pub struct Figures {
    /// The least finite number, and who gave it.
    pub min: (f64, BTreeSet<usize>),
    pub median: f64,
    pub max: (f64, BTreeSet<usize>),
    /// Members whose number is not finite.
    pub(crate) not_finite: BTreeSet<usize>,
}

/// All answers to one question.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Answers {
    /// Odd ones first, then those with the fewest members, then in the order of their members.
    pub same: Vec<Same>,
    /// Present if all answers are numbers, and not all are equal.
    pub figures: Option<Figures>,
}

impl Answers {
    /// Returns the odd members.
    pub fn odd(&self) -> BTreeSet<usize> {
        let odd = self.same.iter().filter(|same| same.odd);
        odd.flat_map(|same| &same.members).copied().collect()
    }

    /// Clears all marks.
    pub(super) fn clear_odd(&mut self) {
        self.same.iter_mut().for_each(|same| same.odd = false);
    }

    /// Whether all answers are equal.
    pub fn agree(&self) -> bool {
        self.same.len() <= 1
    }

    /// Whether all answers are distinct.
    pub(crate) fn all_differ(&self) -> bool {
        self.same.len() > 1 && self.same.iter().all(|same| same.members.len() == 1)
    }

    fn size(&self) -> usize {
        self.same.iter().map(|same| same.members.len()).sum()
    }
}

/// Merges the answers of members. Numbers are compared by value, other texts without [`noise`](super::noise). Of several
/// spellings the one of the first member is kept.
pub fn fold<'a>(answers: impl IntoIterator<Item = (usize, &'a str)>) -> Answers {
    let mut by_content: BTreeMap<String, BTreeMap<usize, &'a str>> = BTreeMap::new();
    for (member, text) in answers {
        let content = by_value(&without_noise(text)).into_owned();
        by_content.entry(content).or_default().insert(member, text);
    }
    let same = by_content.into_values().map(|texts| Same {
        text: texts
            .first_key_value()
            .map_or_else(String::new, |(_, text)| without_noise(text).into_owned()),
        members: texts.into_keys().collect(),
        odd: false,
    });
    let mut all = Answers {
        same: same.collect(),
        figures: None,
    };
    let numbers: Option<Vec<f64>> = all.same.iter().map(|same| number(&same.text)).collect();
    if let Some(numbers) = numbers.filter(|_| !all.agree()) {
        all.figures = figures(&all.same, &numbers);
    }
    let size = all.size();
    let odd: BTreeSet<usize> = match all.same.iter().position(|s| 2 * s.members.len() > size) {
        Some(most) => (0..all.same.len()).filter(|at| *at != most).collect(),
        None => outliers(&all),
    };
    let count: usize = odd.iter().map(|at| all.same[*at].members.len()).sum();
    if 2 * count < size {
        for at in odd {
            all.same[at].odd = true;
        }
    }
    let key = |same: &Same| (!same.odd, same.members.len(), same.members.first().copied());
    all.same.sort_by_key(key);
    all
}

/// Returns the indexes in `all` of answers whose number is not finite, or an outlier.
fn outliers(all: &Answers) -> BTreeSet<usize> {
    let Some(figures) = &all.figures else {
        return BTreeSet::new();
    };
    let mut distances: Vec<f64> = Vec::new();
    for same in &all.same {
        let distance = number(&same.text).map(|number| (number - figures.median).abs());
        let distance = distance.filter(|distance| distance.is_finite());
        distances.extend(
            distance
                .iter()
                .flat_map(|one| std::iter::repeat_n(*one, same.members.len())),
        );
    }
    distances.sort_by(f64::total_cmp);
    let median_distance = median(&distances);
    let is_outlier = |same: &Same| match number(&same.text) {
        Some(number) if number.is_finite() => {
            distances.len() >= MIN_NUMBERS_FOR_OUTLIERS
                && median_distance > 0.0
                && (number - figures.median).abs() > OUTLIER_FACTOR * median_distance
        }
        _ => true,
    };
    (0..all.same.len())
        .filter(|at| is_outlier(&all.same[*at]))
        .collect()
}

/// Computes statistics of `numbers`, which belong to `same`.
fn figures(same: &[Same], numbers: &[f64]) -> Option<Figures> {
    let mut finite = Vec::new();
    let mut not_finite = BTreeSet::new();
    for (same, number) in same.iter().zip(numbers) {
        match number.is_finite() {
            true => finite.extend(std::iter::repeat_n(*number, same.members.len())),
            false => not_finite.extend(&same.members),
        }
    }
    finite.sort_by(f64::total_cmp);
    let who = |value: f64| {
        let all = same
            .iter()
            .zip(numbers)
            .filter(|(_, number)| **number == value);
        all.flat_map(|(same, _)| &same.members).copied().collect()
    };
    let (min, max) = (*finite.first()?, *finite.last()?);
    Some(Figures {
        min: (min, who(min)),
        median: median(&finite),
        max: (max, who(max)),
        not_finite,
    })
}

/// Returns the median of `sorted`, 0 if it is empty.
fn median(sorted: &[f64]) -> f64 {
    let half = sorted.len() / 2;
    match (
        sorted.get(half),
        half.checked_sub(1).and_then(|before| sorted.get(before)),
    ) {
        (Some(one), Some(before)) if sorted.len().is_multiple_of(2) => f64::midpoint(*before, *one),
        (Some(one), _) => *one,
        (None, _) => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fold_answers(answers: &[&str]) -> Answers {
        fold(answers.iter().copied().enumerate())
    }

    /// Returns the texts with their members, `!` before the odd ones.
    fn described(answers: &[&str]) -> Vec<String> {
        let described = |same: &Same| {
            let mark = if same.odd { "!" } else { "" };
            format!("{mark}{} {:?}", same.text, same.members)
        };
        fold_answers(answers).same.iter().map(described).collect()
    }

    #[test]
    fn equal_answers_are_folded_and_the_minority_is_odd() {
        assert_eq!(described(&["a", "a", "b", "a"]), ["!b {2}", "a {0, 1, 3}"]);
        assert_eq!(described(&["a", "a"]), ["a {0, 1}"]);
        // Without a majority, no answer is odd.
        assert_eq!(described(&["a", "b"]), ["a {0}", "b {1}"]);
        assert_eq!(described(&["b", "b", "a", "a"]), ["b {0, 1}", "a {2, 3}"]);
        let objects = ["<M object at 0x7f01>", "<M object at 0x7f02>"];
        assert_eq!(described(&objects), ["<M object at 0x…> {0, 1}"]);
    }

    #[test]
    fn spelling_of_a_number_makes_nobody_odd() {
        assert_eq!(described(&["1.0", "1", "1.0000"]), ["1.0 {0, 1, 2}"]);
        assert_eq!(
            described(&["nan", "nan", "0.5", "nan"]),
            ["!0.5 {2}", "nan {0, 1, 3}"]
        );
    }

    #[test]
    fn distant_number_is_odd() {
        let losses = ["0.69", "0.70", "0.68", "17.5", "0.71", "nan", "0.69"];
        let all = fold_answers(&losses);
        assert_eq!(all.odd(), [3, 5].into());
        let statistics = all
            .figures
            .as_ref()
            .map(|statistics| (statistics.min.clone(), statistics.max.clone()));
        assert_eq!(statistics, Some(((0.68, [2].into()), (17.5, [3].into()))));
        let statistics = all.figures.as_ref();
        assert_eq!(
            statistics.map(|f| (f.median, f.not_finite.clone())),
            Some((0.695, [5].into()))
        );
        // Each rank differs by definition.
        assert_eq!(
            fold_answers(&["0", "1", "2", "3", "4", "5", "6", "7"]).odd(),
            BTreeSet::new()
        );
        assert!(fold_answers(&["0", "1"]).all_differ());
        // Equal values need no summary, and values other than numbers have none.
        for without_statistics in [
            &["1", "1"][..],
            &["1", "x"],
            &["True", "False"],
            &["'1'", "2"],
            &["nan", "inf"],
        ] {
            assert_eq!(
                fold_answers(without_statistics).figures,
                None,
                "{without_statistics:?}"
            );
        }
    }

    fn texts() -> impl Strategy<Value = Vec<String>> {
        let text = prop_oneof![
            Just("nan".to_owned()),
            (0u8..4).prop_map(|n| n.to_string()),
            (0u32..1000).prop_map(|n| format!("{}.5", n)),
            "[ab]".prop_map(String::from),
            "[ -~]{0,8}".prop_map(String::from),
        ];
        proptest::collection::vec(text, 0..40)
    }

    proptest! {
        #[test]
        fn every_member_is_in_exactly_one_answer(texts in texts()) {
            let all = fold(texts.iter().map(String::as_str).enumerate());
            let mut members = BTreeSet::new();
            for same in &all.same {
                for member in &same.members {
                    prop_assert!(members.insert(*member));
                    let plain = without_noise(&texts[*member]);
                    prop_assert_eq!(by_value(&plain), by_value(&same.text));
                }
            }
            prop_assert_eq!(members.len(), texts.len());
            let distinct: BTreeSet<_> = all.same.iter().map(|same| &same.text).collect();
            prop_assert_eq!(distinct.len(), all.same.len());
        }

        #[test]
        fn odd_answers_are_a_minority_and_come_first(texts in texts()) {
            let all = fold(texts.iter().map(String::as_str).enumerate());
            prop_assert!(all.odd().is_empty() || 2 * all.odd().len() < texts.len());
            prop_assert!(all.same.is_sorted_by_key(|same| !same.odd));
        }

        #[test]
        fn order_of_answers_does_not_matter(texts in texts(), rotation in 0usize..40) {
            let mut answers: Vec<_> = texts.iter().map(String::as_str).enumerate().collect();
            let all = fold(answers.clone());
            answers.rotate_left(rotation % texts.len().max(1));
            answers.reverse();
            prop_assert_eq!(format!("{all:?}"), format!("{:?}", fold(answers)));
        }

        #[test]
        fn statistics_bound_all_numbers(texts in texts()) {
            let all = fold(texts.iter().map(String::as_str).enumerate());
            if let Some(statistics) = &all.figures {
                prop_assert!(statistics.min.0 <= statistics.median && statistics.median <= statistics.max.0);
                for text in &texts {
                    let number = number(text);
                    prop_assert!(number.is_some());
                    let finite = number.filter(|number| number.is_finite());
                    prop_assert!(finite.is_none_or(|number| (statistics.min.0..=statistics.max.0).contains(&number)));
                }
            }
        }
    }
}
