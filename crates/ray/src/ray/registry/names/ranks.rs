//! Derives the rank of a worker, from the variables that Ray starts it with, or from a name. Pure.

use crate::ray::registry::rows::RuntimeEnv;

/// The rank of a process and the size of its group, from the variables that Ray starts it with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct WorldRank {
    pub(super) rank: Option<u32>,
    pub(super) local_rank: Option<u32>,
    pub(super) world_size: Option<u32>,
}

impl WorldRank {
    /// Ranks outside of their world are ignored.
    pub(super) fn of(environment: &RuntimeEnv) -> Self {
        let Some(variables) = &environment.env_vars else {
            return Self::default();
        };
        let world_size = number(&variables.world_size);
        let within = |rank: &u32| world_size.is_none_or(|size| *rank < size);
        Self {
            rank: number(&variables.rank).filter(within),
            local_rank: number(&variables.local_rank).filter(within),
            world_size,
        }
    }
}

/// Parses the number of `rank=3`, `rank 3`, `rank_3`, `Rank:3` anywhere in `text`.
pub(super) fn rank_in(text: &str) -> Option<u32> {
    let lower = text.to_ascii_lowercase();
    lower.match_indices("rank").find_map(|(at, word)| {
        // `frank 3` is a name.
        let before = lower[..at].chars().next_back();
        if before.is_some_and(char::is_alphanumeric) {
            return None;
        }
        let rest = lower[at + word.len()..].trim_start_matches([' ', '=', ':', '_', '-', '#']);
        number(
            &rest[..rest
                .find(|c: char| !c.is_ascii_digit())
                .unwrap_or(rest.len())],
        )
    })
}

/// Parses the number at the end of `worker-3`, `worker_3`, `worker 3`.
pub(super) fn trailing_index(name: &str) -> Option<u32> {
    let digits = name.len() - name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    let (stem, index) = name.split_at(name.len() - digits);
    number(index).filter(|_| stem.len() > 1 && stem.ends_with(['-', '_', ' ', ':', '#', '/']))
}

/// More than five digits are a date or an id, not an index.
fn number(digits: &str) -> Option<u32> {
    if digits.len() > 5 {
        None
    } else {
        digits.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_come_from_names() {
        for (text, rank) in [
            ("train_rank=3", Some(3)),
            ("rank 12 of 16", Some(12)),
            ("Rank:0", Some(0)),
            ("world_rank_5", Some(5)),
            ("frank 3", None),
            ("rank", None),
            ("ranks=4", None),
            ("rank=20240101", None),
        ] {
            assert_eq!(rank_in(text), rank, "{text}");
        }
        for (text, index) in [
            ("worker-3", Some(3)),
            ("worker_12", Some(12)),
            ("worker3", None),
            ("-3", None),
            ("w-20240101", None),
        ] {
            assert_eq!(trailing_index(text), index, "{text}");
        }
    }
}
