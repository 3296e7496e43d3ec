//! Prefixes of ids, for people, who type only as much as distinguishes an id from the others.

use std::fmt;
use std::str::FromStr;

use super::{BreakpointId, Snapshot};

/// Shortest prefix: fewer characters are rather a typo, or the beginning of a name.
const MIN_PREFIX_CHARS: usize = 3;

/// Candidates to name.
const MAX_CANDIDATES: usize = 5;

/// A prefix of ids of breakpoints, in lower-case letters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BreakpointIdPrefix(String);

/// The text is not a prefix of an id.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a breakpoint id is {} characters of 0-9 and a-z without i, l, o, u, or at least its first {MIN_PREFIX_CHARS}",
    BreakpointId::LEN
)]
pub struct BadPrefix;

/// Several ids have this prefix; `Display` lists them.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the ids of {count} tasks begin with {prefix}; give more of it: {named}")]
pub struct AmbiguousPrefix {
    prefix: String,
    count: usize,
    named: String,
}

impl BreakpointIdPrefix {
    /// Whether `id` has this prefix.
    pub fn begins(&self, id: &str) -> bool {
        id.starts_with(&self.0)
    }

    /// The one of `ids` with this prefix; each has a title for messages. `None`: there is none.
    ///
    /// # Errors
    /// [`AmbiguousPrefix`].
    pub fn only<I: fmt::Display>(
        &self,
        ids: impl Iterator<Item = (I, String)>,
    ) -> Result<Option<I>, AmbiguousPrefix> {
        let mut begun = ids.filter(|(id, _)| self.begins(&id.to_string()));
        let Some(first) = begun.next() else {
            return Ok(None);
        };
        let mut all = vec![first];
        let mut count = 1;
        for one in begun {
            count += 1;
            if all.len() < MAX_CANDIDATES {
                all.push(one);
            }
        }
        match count {
            1 => Ok(all.pop().map(|(id, _)| id)),
            _ => {
                let named = all.iter().map(|(id, title)| format!("{id} ({title})"));
                let more = count - all.len();
                let more = (more > 0).then(|| format!("{more} more"));
                let named: Vec<String> = named.chain(more).collect();
                Err(AmbiguousPrefix {
                    prefix: self.0.clone(),
                    count,
                    named: named.join(", "),
                })
            }
        }
    }

    /// The breakpoint of `list` whose id has this prefix: a live one, otherwise one that has ended.
    ///
    /// # Errors
    /// [`AmbiguousPrefix`], which names entries of `list` only.
    pub fn find(&self, list: &Snapshot) -> Result<Option<BreakpointId>, AmbiguousPrefix> {
        let live = self.only(list.live.iter().map(|b| (b.id, b.title())))?;
        match live {
            Some(id) => Ok(Some(id)),
            None => self.only(list.ended.iter().map(|b| (b.id, b.title()))),
        }
    }
}

impl fmt::Display for BreakpointIdPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for BreakpointIdPrefix {
    type Err = BadPrefix;

    fn from_str(text: &str) -> Result<Self, BadPrefix> {
        let text = text.to_ascii_lowercase();
        // Padding to the length of an id shows whether the characters are valid.
        let whole = text.is_ascii() && (MIN_PREFIX_CHARS..=BreakpointId::LEN).contains(&text.len());
        let padded = format!("{text:0<width$}", width = BreakpointId::LEN);
        match whole && padded.parse::<BreakpointId>().is_ok() {
            true => Ok(Self(text)),
            false => Err(BadPrefix),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn id_prefix_matches_one_none_or_several() {
        let ids = ["3kfz0q8m", "3kfa0000", "7c000000"];
        let match_id = |text: &str| {
            let prefix: BreakpointIdPrefix = text.parse().unwrap();
            let found = prefix.only(ids.iter().map(|id| (id, "step".to_owned())));
            found.map(|id| id.map(ToString::to_string))
        };
        assert_eq!(match_id("3kfz").unwrap().as_deref(), Some("3kfz0q8m"));
        assert_eq!(match_id("7C0").unwrap().as_deref(), Some("7c000000"));
        assert_eq!(match_id("3kfz0q8m").unwrap().as_deref(), Some("3kfz0q8m"));
        assert_eq!(match_id("zzz").unwrap(), None);
        let ambiguous = match_id("3kf").unwrap_err().to_string();
        assert!(
            ambiguous.ends_with("3kfz0q8m (step), 3kfa0000 (step)"),
            "{ambiguous}"
        );
        for text in ["", "3k", "3kfz0q8m0", "ilo", "ü00", "3-k"] {
            assert_eq!(text.parse::<BreakpointIdPrefix>(), Err(BadPrefix), "{text}");
        }
    }
}
