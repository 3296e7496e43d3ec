//! Filters and sorts the rows of a list.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::str::FromStr;

use serde_json::{Value, json};

use super::job::MeantJob;
use super::json::JsonRow;
use super::row::Row;
use ray_relay_access::policy::Pattern;
use ray_relay_base::timestamp::Timestamp;
use ray_relay_base::wire::json::{list_mut, put, typed_at};
use ray_relay_base::wire::text::replaced;
use ray_relay_ray::ray::registry::{Breakpoint, Reason};

/// A column to sort or filter by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SortKey {
    Waiting,
    Name,
    Job,
    Node,
    Where,
    Kind,
    State,
    Holder,
    Cluster,
    Pid,
    Id,
    Task,
    Worker,
    Gpus,
}

const KEYS: [(&str, SortKey); 14] = [
    ("waiting", SortKey::Waiting),
    ("name", SortKey::Name),
    ("job", SortKey::Job),
    ("node", SortKey::Node),
    ("where", SortKey::Where),
    ("kind", SortKey::Kind),
    ("state", SortKey::State),
    ("holder", SortKey::Holder),
    ("cluster", SortKey::Cluster),
    ("pid", SortKey::Pid),
    ("id", SortKey::Id),
    ("task", SortKey::Task),
    ("worker", SortKey::Worker),
    ("gpus", SortKey::Gpus),
];

/// The text is not a valid order or filter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadChoice {
    /// The list has no such column.
    #[error(
        "there is no column {found}; sort by one of {known}, with `,desc` behind it for the other way round"
    )]
    Key {
        /// The invalid column, cleaned for display.
        found: String,
        /// The valid columns.
        known: String,
    },
    /// The list has no such column to filter by.
    #[error(
        "there is no column {found}; filter by one of {known}, as KEY=PATTERN, or put a * before a text with an equals sign of its own"
    )]
    FilterKey {
        /// The invalid column, cleaned for display.
        found: String,
        /// The valid columns.
        known: String,
    },
    #[error("a filter is a part of a name or id, a pattern such as train*, or KEY=PATTERN")]
    /// An empty filter.
    Empty,
}

/// An order of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Order {
    key: SortKey,
    descending: bool,
}

impl FromStr for Order {
    type Err = BadChoice;

    fn from_str(text: &str) -> Result<Self, BadChoice> {
        let (name, direction) = match text.trim().split_once(',') {
            Some((name, direction)) => (name.trim(), Some(direction.trim())),
            None => (text.trim(), None),
        };
        let descending = match direction {
            None | Some("asc") => false,
            Some("desc") => true,
            Some(_) => return Err(unknown(text)),
        };
        let key = key(name).ok_or_else(|| unknown(name))?;
        Ok(Self { key, descending })
    }
}

fn unknown(found: &str) -> BadChoice {
    let known: Vec<_> = KEYS.iter().map(|(name, _)| *name).collect();
    BadChoice::Key {
        found: replaced(found).into_owned(),
        known: known.join(", "),
    }
}

fn no_filter(found: &str) -> BadChoice {
    let known = KEYS.iter().filter(|(_, key)| *key != SortKey::Waiting);
    let known: Vec<_> = known.map(|(name, _)| *name).collect();
    BadChoice::FilterKey {
        found: replaced(found).into_owned(),
        known: known.join(", "),
    }
}

fn key(name: &str) -> Option<SortKey> {
    let found = KEYS
        .iter()
        .find(|(known, _)| known.eq_ignore_ascii_case(name));
    found.map(|(_, key)| *key)
}

impl Order {
    /// Compares `one` with `other`. The sort is stable.
    pub fn compare(self, one: &Row, other: &Row) -> Ordering {
        let order = match self.key {
            // The shortest wait comes first, as with all numbers.
            SortKey::Waiting => one.waiting.cmp(&other.waiting),
            // Numbers by value, unknown ones first.
            SortKey::Pid => one.pid.parse::<u32>().ok().cmp(&other.pid.parse().ok()),
            SortKey::Gpus => one.gpus.total_cmp(&other.gpus),
            key => key
                .text(one)
                .to_lowercase()
                .cmp(&key.text(other).to_lowercase()),
        };
        match self.descending {
            true => order.reverse(),
            false => order,
        }
    }
}

impl SortKey {
    fn text(self, row: &Row) -> &str {
        match self {
            // A filter on seconds would match different rows at each refresh.
            Self::Waiting => "",
            Self::Name => &row.task,
            Self::Job => &row.job,
            Self::Node => &row.node,
            Self::Where => &row.location,
            Self::Kind => &row.kind,
            Self::State => &row.state,
            Self::Holder => &row.holder,
            Self::Cluster => &row.cluster,
            Self::Pid => &row.pid,
            Self::Id => &row.id,
            Self::Task => &row.task_id,
            Self::Worker => &row.worker,
            Self::Gpus => &row.holds,
        }
    }

    /// Returns the [`Self::text`] of the row of `breakpoint` at `now`, if possible without building that row.
    fn text_of(self, breakpoint: &Breakpoint, now: Timestamp) -> Cow<'_, str> {
        let names = &breakpoint.names;
        let known = |text: Option<&str>| match text {
            None | Some("") => Cow::Borrowed("-"),
            Some(text) => Cow::Owned(replaced(text).into_owned()),
        };
        let whole = || Row::read(&json!(JsonRow::new(breakpoint, now)));
        match self {
            Self::Node => breakpoint.node_ip.to_string().into(),
            Self::State => breakpoint.state.word().into(),
            Self::Cluster => replaced(&breakpoint.cluster),
            Self::Id => breakpoint.id.to_string().into(),
            Self::Job => known(names.job()),
            Self::Task => known(names.task_id.as_deref()),
            Self::Pid if breakpoint.pid > 0 => breakpoint.pid.to_string().into(),
            Self::Where if breakpoint.location.is_none() => "-".into(),
            Self::Holder if breakpoint.is_paused() => "-".into(),
            Self::Gpus if names.resources.is_none() => "-".into(),
            Self::Name
                if names.name.is_some()
                    && names.actor_name.is_none()
                    && names.rank.is_none()
                    && breakpoint.reason != Reason::PostMortem =>
            {
                known(names.name.as_deref())
            }
            // Rarely requested, or for few rows.
            key => key.text(&whole()).to_owned().into(),
        }
    }
}

/// Selects rows: by a part of their text, a pattern for the whole of it (`train*`), or either in one column
/// (`node=10.0.0.7`). Case-insensitive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    key: Option<SortKey>,
    pattern: Pattern,
    written: String,
}

impl FromStr for Filter {
    type Err = BadChoice;

    fn from_str(text: &str) -> Result<Self, BadChoice> {
        let text = text.trim();
        let is_word = |name: &str| name.chars().all(|c| c.is_ascii_alphabetic() || c == '_');
        let column = text.split_once('=').map(|(name, rest)| (name.trim(), rest));
        let (key, pattern_text) = match column {
            Some((name, rest)) if is_word(name) => {
                let key = key(name).filter(|key| *key != SortKey::Waiting);
                (Some(key.ok_or_else(|| no_filter(name))?), rest.trim())
            }
            // A name may contain an equals sign.
            _ => (None, text),
        };
        if pattern_text.is_empty() {
            return Err(BadChoice::Empty);
        }
        let mut pattern = pattern_text.to_lowercase();
        if !pattern.contains('*') {
            pattern = format!("*{pattern}*");
        }
        Ok(Self {
            key,
            pattern: Pattern::new(pattern),
            written: text.to_owned(),
        })
    }
}

impl std::fmt::Display for Filter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&replaced(&self.written))
    }
}

impl Filter {
    /// As it was written.
    pub fn written(&self) -> &str {
        &self.written
    }

    /// Whether `row` matches.
    pub fn fits(&self, row: &Row) -> bool {
        let job_names: Vec<&str> = row.job_names.iter().map(String::as_str).collect();
        self.fits_where(|key| key.text(row).into(), &job_names)
    }

    /// Whether the row of `breakpoint` at `now` matches, without building it.
    pub fn fits_breakpoint(&self, breakpoint: &Breakpoint, now: Timestamp) -> bool {
        let names = &breakpoint.names;
        let job_names = [&names.job_id, &names.train_run].into_iter().flatten();
        let job_names: Vec<&str> = job_names.map(String::as_str).collect();
        self.fits_where(|key| key.text_of(breakpoint, now), &job_names)
    }

    fn fits_where<'a>(&self, text: impl Fn(SortKey) -> Cow<'a, str>, job_names: &[&str]) -> bool {
        let fits = |text: &str| self.pattern.matches(&text.to_lowercase());
        // A job is found by each of its names.
        let is_of_job = || job_names.iter().any(|name| fits(name));
        let matches = |key: SortKey| fits(&text(key)) || key == SortKey::Job && is_of_job();
        match self.key {
            Some(key) => matches(key),
            None => KEYS
                .iter()
                .any(|(_, key)| *key != SortKey::Waiting && matches(*key)),
        }
    }
}

/// Order and filters of one list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListSelection {
    pub order: Option<Order>,
    /// All of them have to match.
    pub filters: Vec<Filter>,
    /// Only this job.
    pub job: Option<MeantJob>,
}

impl ListSelection {
    /// Whether rows are neither filtered nor sorted.
    fn is_none(&self) -> bool {
        self.order.is_none() && self.filters.is_empty() && self.job.is_none()
    }

    /// Whether `row` is shown.
    pub fn fits(&self, row: &Row) -> bool {
        self.is_of_job(row) && self.filters.iter().all(|filter| filter.fits(row))
    }

    fn is_of_job(&self, row: &Row) -> bool {
        let job = self.job.as_ref();
        job.is_none_or(|job| job.has_id(&row.cluster, row.job_id.as_deref()))
    }

    /// Returns the indexes of the shown rows, in order.
    pub fn of(&self, rows: &[Row]) -> Vec<usize> {
        let mut places: Vec<usize> = (0..rows.len()).filter(|at| self.fits(&rows[*at])).collect();
        if let Some(order) = self.order {
            places.sort_by(|one, other| order.compare(&rows[*one], &rows[*other]));
        }
        places
    }
}

/// Filters and sorts the rows of `list`, the relay's answer (`/relay/v1/breakpoints`). Adds the number of filtered
/// rows (`hidden`), including those that the relay has left out, but not those of other jobs than the selected one.
pub fn arranged(mut list: Value, choice: &ListSelection) -> Value {
    if choice.is_none() {
        return list;
    }
    let Some(all) = list_mut(&mut list, "breakpoints").map(std::mem::take) else {
        return list;
    };
    let rows: Vec<Row> = all.iter().map(Row::read).collect();
    let mut all: Vec<Option<Value>> = all.into_iter().map(Some).collect();
    let places = choice.of(&rows);
    let chosen: Vec<Value> = places.iter().filter_map(|at| all[*at].take()).collect();
    let left_out = typed_at::<u64>(&list, "hidden");
    let of_job = rows.iter().filter(|row| choice.is_of_job(row)).count();
    let hidden = left_out + (of_job - chosen.len()) as u64;
    put(&mut list, "hidden", hidden);
    put(&mut list, "breakpoints", chosen);
    list
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn rows() -> Vec<Row> {
        let rows = json!([
            {"id": "0123abcd", "name": "train", "rank": 3, "node_ip": "10.0.0.1", "pid": 900, "waiting_seconds": 61.0, "state": "paused", "job_id": "01000000"},
            {"id": "1123abcd", "name": "load", "node_ip": "10.0.0.2", "pid": 1200, "waiting_seconds": 3.0, "state": "attached", "holder": {"client": "VS Code", "peer": "10.0.0.9:5000"}},
            {"id": "2123abcd", "name": "Trainer.step", "node_ip": "10.0.0.2", "pid": 17, "waiting_seconds": 30.0, "state": "paused", "kind": "pdb"},
        ]);
        rows.as_array().unwrap().iter().map(Row::read).collect()
    }

    fn selected(order: Option<&str>, filters: &[&str]) -> Vec<usize> {
        let selection = ListSelection {
            order: order.map(|order| order.parse().unwrap()),
            filters: filters
                .iter()
                .map(|filter| filter.parse().unwrap())
                .collect(),
            job: None,
        };
        selection.of(&rows())
    }

    #[test]
    fn rows_are_sorted_by_column_meaning() {
        assert_eq!(selected(None, &[]), [0, 1, 2]);
        assert_eq!(selected(Some("waiting"), &[]), [1, 2, 0]);
        assert_eq!(selected(Some("waiting,desc"), &[]), [0, 2, 1]);
        assert_eq!(selected(Some("NAME"), &[]), [1, 0, 2]);
        assert_eq!(selected(Some("pid"), &[]), [2, 0, 1]);
        // Equal rows keep their order, in both directions.
        assert_eq!(selected(Some("node"), &[]), [0, 1, 2]);
        assert_eq!(selected(Some("node,desc"), &[]), [1, 2, 0]);
    }

    #[test]
    fn filter_matches_text_pattern_or_column() {
        assert_eq!(selected(None, &["train"]), [0, 2]);
        assert_eq!(selected(None, &["train*"]), [0, 2]);
        assert_eq!(selected(None, &["*step"]), [2]);
        assert_eq!(selected(None, &["10.0.0.2"]), [1, 2]);
        assert_eq!(selected(None, &["node=10.0.0.2", "state=paused"]), [2]);
        assert_eq!(selected(None, &["kind=pdb"]), [2]);
        assert_eq!(selected(None, &["code"]), [1]);
        assert_eq!(selected(None, &["rank 3"]), [0]);
        assert!(selected(None, &["train", "load"]).is_empty());
        // The text contains another equals sign.
        assert!(selected(None, &["*rank=3*"]).is_empty());
    }

    #[test]
    fn invalid_filter_or_order_lists_the_choices() {
        let error = "colour".parse::<Order>().unwrap_err().to_string();
        assert!(error.contains("no column colour"), "{error}");
        assert!(error.contains("waiting, name, job"), "{error}");
        assert!("name,down".parse::<Order>().is_err());
        for text in ["colour=red", "waiting=3", "rank=3", "=x"] {
            let error = text.parse::<Filter>().unwrap_err().to_string();
            assert!(
                error.contains("filter by one of name, job, node"),
                "{error}"
            );
        }
        for text in ["", " ", "node="] {
            assert_eq!(text.parse::<Filter>(), Err(BadChoice::Empty), "{text}");
        }
    }

    proptest! {
        #[test]
        fn sorting_keeps_all_rows_and_filters_only_remove(key in 0..KEYS.len(), desc: bool, text in "[a-z0-9.* =]{0,6}") {
            let order = format!("{}{}", KEYS[key].0, if desc { ",desc" } else { "" });
            let mut all = ListSelection { order: Some(order.parse().unwrap()), ..ListSelection::default() };
            let mut sorted = all.of(&rows());
            if let Ok(filter) = text.parse::<Filter>() {
                all.filters.push(filter);
                let filtered = all.of(&rows());
                prop_assert!(filtered.iter().all(|index| sorted.contains(index)));
            }
            sorted.sort();
            prop_assert_eq!(sorted, [0, 1, 2]);
        }
    }
}
