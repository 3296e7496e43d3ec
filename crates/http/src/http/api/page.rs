//! Pagination of the list by a cursor. Pure.
//!
//! Pages are ordered by first-seen time, which does not change. The whole list begins with breakpoints that no session
//! holds.

use std::sync::Arc;

use crate::http::query;
use ray_relay_access::policy::Pattern;
use ray_relay_base::timestamp::{Timestamp, unix_ms};
use ray_relay_ray::ray::registry::{Breakpoint, BreakpointId, Snapshot};
use ray_relay_view::listing::select::Filter;

/// As many workers as a head reports.
const MAX_PAGE_ROWS: usize = 10_000;

/// Query of the list. The default selects all live breakpoints.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ListQuery {
    /// Whether to append recently ended breakpoints after the last page.
    pub ended: bool,
    limit: Option<usize>,
    after: Option<Cursor>,
    name: Option<Pattern>,
    /// A row must match all filters.
    filters: Vec<Filter>,
}

/// Position at which a page ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cursor {
    id: BreakpointId,
    /// When that row was first seen, in milliseconds since 1970. The row may be gone when the next page is requested.
    first_seen: Option<u64>,
}

/// One page of the list.
pub(super) struct ListPage<'a> {
    pub rows: Vec<&'a Arc<Breakpoint>>,
    /// Number of rows on all pages.
    pub total: usize,
    /// Number of rows that the filters removed; `None`: there is no filter.
    pub hidden: Option<usize>,
    /// Cursor for the next page; `None`: this is the last one.
    pub next: Option<String>,
}

impl ListQuery {
    /// Parses the query of a URL. An error is a sentence for the client.
    pub(super) fn read(pairs: &[(String, String)]) -> Result<Self, String> {
        let mut parsed = Self::default();
        for (name, value) in pairs {
            match (&**name, &**value) {
                ("ended", "1" | "true") => parsed.ended = true,
                ("ended", "0" | "false") => parsed.ended = false,
                ("ended", _) => return Err("ended is 1 or 0".to_owned()),
                ("limit", text) => {
                    let limit = text
                        .parse()
                        .ok()
                        .filter(|limit| (1..=MAX_PAGE_ROWS).contains(limit));
                    let bounds = || format!("limit is a number of rows from 1 to {MAX_PAGE_ROWS}");
                    parsed.limit = Some(limit.ok_or_else(bounds)?);
                }
                ("after", text) => parsed.after = Some(Cursor::read(text)?),
                ("name", "") => {
                    return Err("name is a pattern such as train*, and not empty".to_owned());
                }
                ("name", text) => parsed.name = Some(Pattern::new(text)),
                ("filter", text) => query::take_filter(&mut parsed.filters, text)?,
                _ => {
                    return Err("the parameters of /relay/v1/breakpoints are limit (rows of a page), after (`next` of the page \
                                before), name (a pattern such as train*), filter (as `ray-relay list --filter` takes it, again and \
                                again) and ended=1, which includes those that ended a short while ago".to_owned());
                }
            }
        }
        Ok(parsed)
    }

    /// Returns the matching rows of `list`. An error is a sentence for the client.
    pub(super) fn of<'a>(&self, list: &'a Snapshot) -> Result<ListPage<'a>, String> {
        let position = self.after.map(|cursor| cursor.position(list)).transpose()?;
        let now = Timestamp::now();
        let fitting = list.live.iter().filter(|b| self.fits(b, now));
        let mut fitting: Vec<&Arc<Breakpoint>> = fitting.collect();
        let total = fitting.len();
        let mut hidden = list.live.len() - total;
        if self.limit.is_some() || self.after.is_some() {
            // A client that attaches or detaches between two pages must not make a row disappear.
            fitting.sort_by_key(|b| (b.first_seen, b.id));
        }
        let mut rest = fitting
            .into_iter()
            .filter(|b| position.is_none_or(|position| position.is_before(b)));
        let limit = self.limit.unwrap_or(usize::MAX);
        let mut rows: Vec<&Arc<Breakpoint>> = rest.by_ref().take(limit).collect();
        let more = rest.next().is_some();
        let next = rows.last().filter(|_| more).map(|last| Cursor::of(last));
        if self.ended && !more {
            let before = rows.len();
            rows.extend(list.ended.iter().filter(|b| self.fits(b, now)));
            hidden += list.ended.len() - (rows.len() - before);
        }
        let hidden = (!self.filters.is_empty()).then_some(hidden);
        Ok(ListPage {
            rows,
            total,
            hidden,
            next,
        })
    }

    fn fits(&self, breakpoint: &Breakpoint, now: Timestamp) -> bool {
        self.has_name(breakpoint)
            && self
                .filters
                .iter()
                .all(|filter| filter.fits_breakpoint(breakpoint, now))
    }

    fn has_name(&self, breakpoint: &Breakpoint) -> bool {
        let names = &breakpoint.names;
        self.name.as_ref().is_none_or(|pattern| {
            pattern.matches(&breakpoint.name())
                || [&names.actor_name, &names.task_id]
                    .into_iter()
                    .flatten()
                    .any(|name| pattern.matches(name))
        })
    }
}

impl Cursor {
    fn of(breakpoint: &Breakpoint) -> String {
        format!("{}.{}", breakpoint.id, millis(breakpoint))
    }

    fn read(text: &str) -> Result<Self, String> {
        let (id, first_seen) = match text.split_once('.') {
            Some((id, first_seen)) => (id, first_seen.parse().map(Some)),
            None => (text, Ok(None)),
        };
        match (id.parse(), first_seen) {
            (Ok(id), Ok(first_seen)) => Ok(Self { id, first_seen }),
            _ => Err("after is `next` of the page before, or the id of a breakpoint".to_owned()),
        }
    }

    fn position(self, list: &Snapshot) -> Result<SortPosition, String> {
        let known = list.find(self.id).or_else(|| list.find_ended(self.id));
        match (known, self.first_seen) {
            // A worker that has stopped again since is at a different position.
            (Some(known), first_seen)
                if first_seen.is_none_or(|first_seen| first_seen == millis(known)) =>
            {
                Ok(SortPosition::Steady(known.first_seen, self.id))
            }
            (_, Some(first_seen)) => Ok(SortPosition::Shown(first_seen, self.id)),
            (_, None) => Err(format!(
                "there is no breakpoint {} any more to go on after; begin again without `after`, and go on with `next` of each page",
                self.id
            )),
        }
    }
}

/// A position in the order of the list.
#[derive(Debug, Clone, Copy)]
enum SortPosition {
    Steady(Timestamp, BreakpointId),
    /// The displayed time, in milliseconds since 1970, and the id: enough for a row that is gone.
    Shown(u64, BreakpointId),
}

impl SortPosition {
    fn is_before(self, row: &Breakpoint) -> bool {
        match self {
            Self::Steady(first_seen, id) => (row.first_seen, row.id) > (first_seen, id),
            Self::Shown(first_seen, id) => (millis(row), row.id) > (first_seen, id),
        }
    }
}

fn millis(breakpoint: &Breakpoint) -> u64 {
    unix_ms(breakpoint.first_seen.time)
}
