//! Browsing a list at a prompt: pages, filters and sorting, by lines that the user types.

use super::menu::Menu;
use super::received::RowAnswer;
use super::select::ListSelection;
use crate::listing::select;
use ray_relay_base::wire::json::{list_mut, typed};
use serde_json::Value;

/// Filter, order and page. [`Self::foot`] names the lines that change them.
#[derive(Debug, Default)]
pub struct Browse {
    pub choice: ListSelection,
    /// Rows of a page. `None`: all.
    rows: Option<usize>,
    from: usize,
    /// The owner whose parks come first. `None`: no owner.
    owner: Option<Value>,
}

/// The result of a line.
#[derive(Debug, PartialEq, Eq)]
pub enum BrowseStep {
    /// The view has changed.
    Changed,
    /// The line is invalid, for this reason.
    Refused(String),
    /// The line is no browse command: it picks a row.
    Other,
}

impl Browse {
    /// `rows` is the size of a page, `None` without pages.
    pub fn new(choice: ListSelection, rows: Option<usize>) -> Self {
        Self {
            choice,
            rows: rows.map(|rows| rows.max(1)),
            from: 0,
            owner: None,
        }
    }

    /// Lists the parks of `subject` first, unless another order is chosen; null is an unauthenticated client.
    pub fn owned_by(mut self, subject: Value) -> Self {
        self.owner = Some(subject);
        self
    }

    fn is_own(&self, row: &Value) -> bool {
        let row: RowAnswer<'_> = typed(row);
        let owner = self.owner.as_ref();
        owner.is_some_and(|owner| row.is_park_of(owner))
    }

    /// Adapts to a new terminal size.
    pub fn resize(&mut self, rows: Option<usize>) {
        self.rows = rows.map(|rows| rows.max(1));
    }

    /// Returns the menu for `list`. If the current page no longer exists, moves to the last one.
    pub fn read(&mut self, mut list: Value) -> Menu {
        if let Some(rows) = list_mut(&mut list, "breakpoints") {
            // The sort is stable.
            rows.sort_by_key(|row| !self.is_own(row));
        }
        let menu = Menu::read(&select::arranged(list, &self.choice));
        if let Some(rows) = self.rows {
            let last = menu.len().saturating_sub(1) / rows * rows;
            self.from = self.from.min(last);
        }
        menu
    }

    /// Formats the current page of `menu`, with a footer about the rest.
    pub fn show(&self, menu: &Menu, verbose: bool, columns: Option<usize>) -> String {
        let to = self
            .rows
            .map_or(menu.len(), |rows| (self.from + rows).min(menu.len()));
        menu.render(verbose, columns, self.from.min(to)..to) + &self.foot(menu, to)
    }

    /// Whether `before` and `now` look the same on this page, apart from waiting times.
    pub fn sees_same(&self, now: &Menu, before: &Menu) -> bool {
        let rows = self.rows.unwrap_or(usize::MAX);
        now.offers_as(before, self.from, rows)
    }

    /// Handles a browse command: `/PATTERN`, `sort KEY[,desc]`, and `n` and `p` if there are pages.
    pub fn handle_line(&mut self, line: &str, menu: &Menu) -> BrowseStep {
        let line = line.trim();
        if let Some(pattern) = line.strip_prefix('/') {
            if pattern.trim().is_empty() {
                self.choice.filters.clear();
            } else {
                match pattern.parse() {
                    Ok(filter) => self.choice.filters = vec![filter],
                    Err(error) => return BrowseStep::Refused(error.to_string()),
                }
            }
            self.from = 0;
            return BrowseStep::Changed;
        }
        let mut words = line.split_whitespace();
        if let (Some("sort"), key, None) = (words.next(), words.next(), words.next()) {
            match key.map(str::parse).transpose() {
                Ok(order) => self.choice.order = order,
                Err(error) => return BrowseStep::Refused(error.to_string()),
            }
            self.from = 0;
            return BrowseStep::Changed;
        }
        match (line, self.rows) {
            ("n", Some(rows)) if self.from + rows < menu.len() => self.from += rows,
            ("p", Some(rows)) if self.from > 0 => self.from = self.from.saturating_sub(rows),
            ("n" | "p", Some(rows)) if menu.len() > rows => {
                let end = if line == "n" { "last" } else { "first" };
                return BrowseStep::Refused(format!("this is the {end} page"));
            }
            _ => return BrowseStep::Other,
        }
        BrowseStep::Changed
    }

    fn foot(&self, menu: &Menu, to: usize) -> String {
        let mut text = String::new();
        let own = menu.values().iter().position(|row| self.is_own(row));
        if let Some(own) = own {
            text += &format!("Number {own} is yours and parked: enter {own} to go on with it.\n");
        }
        if self.rows.is_some_and(|rows| menu.len() > rows) {
            let (from, all) = (self.from, menu.len());
            text += &format!(
                "{from} to {} of {all}: n and p turn the page, /PATTERN filters, `sort KEY` or `sort KEY,desc` sorts.\n",
                to.saturating_sub(1)
            );
        }
        if menu.hidden() > 0 {
            let filters = self.choice.filters.iter().map(ToString::to_string);
            let filters: Vec<String> = filters.collect();
            text += &format!(
                "{} more do not match {}; / shows them.\n",
                menu.hidden(),
                filters.join(" and ")
            );
        }
        text
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    fn list(count: usize) -> Value {
        let rows: Vec<Value> = (0..count)
            .map(|i| {
                let name = if i % 10 == 0 { "load" } else { "step" };
                json!({"id": format!("{i:08}"), "name": format!("{name}-{i}"), "waiting_seconds": 1000.0 - i as f64})
            })
            .collect();
        json!({"breakpoints": rows, "total": count})
    }

    /// Returns the ids on the page, in order.
    fn ids(text: &str) -> Vec<usize> {
        let rows = text.lines().filter(|line| {
            line.starts_with(|c: char| c.is_ascii_digit()) && !line.contains(" of ")
        });
        rows.filter_map(|row| row.split_whitespace().nth(1)?.parse().ok())
            .collect()
    }

    #[test]
    fn ten_thousand_rows_are_paginated() {
        let mut browse = Browse::new(ListSelection::default(), Some(20));
        let menu = browse.read(list(10_000));
        let text = browse.show(&menu, false, Some(100));
        assert_eq!(ids(&text), (0..20).collect::<Vec<_>>());
        let footer = "0 to 19 of 10000: n and p turn the page";
        assert!(text.contains(footer), "{text}");
        let first = BrowseStep::Refused("this is the first page".to_owned());
        assert_eq!(browse.handle_line("p", &menu), first);
        assert_eq!(browse.handle_line(" n ", &menu), BrowseStep::Changed);
        let text = browse.show(&menu, false, Some(100));
        assert_eq!(ids(&text), (20..40).collect::<Vec<_>>());
        // The first column is the number to type.
        let row = text.lines().find(|line| line.contains("00000033")).unwrap();
        let index = row.split_whitespace().next().unwrap();
        assert_eq!(menu.pick(index).unwrap(), "00000033");
        // If the page no longer exists, the last one is shown.
        let menu = browse.read(list(15));
        assert_eq!(ids(&browse.show(&menu, false, None)).len(), 15);
    }

    #[test]
    fn own_parks_come_first() {
        let mut list = list(4);
        for (n, state, subject) in [
            (1, "parked", "bob"),
            (2, "attached", "ann"),
            (3, "parked", "ann"),
        ] {
            list["breakpoints"][n]["state"] = state.into();
            list["breakpoints"][n]["holder"] = json!({"subject": subject});
        }
        let mut browse = Browse::new(ListSelection::default(), None).owned_by("ann".into());
        let menu = browse.read(list.clone());
        let text = browse.show(&menu, false, None);
        assert_eq!(ids(&text), [3, 0, 1, 2]);
        assert!(
            text.ends_with("Number 0 is yours and parked: enter 0 to go on with it.\n"),
            "{text}"
        );
        // Without authentication no parked session is listed first.
        let mut anonymous = Browse::new(ListSelection::default(), None).owned_by(Value::Null);
        let menu = anonymous.read(list);
        assert_eq!(ids(&anonymous.show(&menu, false, None)), [0, 1, 2, 3]);
    }

    #[test]
    fn slash_filters_and_sort_orders() {
        let mut browse = Browse::new(ListSelection::default(), Some(20));
        let menu = browse.read(list(100));
        assert_eq!(browse.handle_line("/load*", &menu), BrowseStep::Changed);
        let menu = browse.read(list(100));
        let text = browse.show(&menu, false, None);
        assert_eq!(ids(&text), (0..10).map(|i| i * 10).collect::<Vec<_>>());
        let footer = "90 more do not match load*; / shows them.";
        assert!(text.contains(footer), "{text}");
        assert_eq!(
            browse.handle_line("sort waiting", &menu),
            BrowseStep::Changed
        );
        let menu = browse.read(list(100));
        assert_eq!(ids(&browse.show(&menu, false, None))[0], 90);
        assert_eq!(browse.handle_line("/", &menu), BrowseStep::Changed);
        let menu = browse.read(list(100));
        assert_eq!(ids(&browse.show(&menu, false, None))[0], 99);
        assert_eq!(browse.handle_line("sort", &menu), BrowseStep::Changed);
        assert!(
            matches!(browse.handle_line("sort colour", &menu), BrowseStep::Refused(reason) if reason.contains("sort by one of"))
        );
        assert!(matches!(
            browse.handle_line("/state=", &menu),
            BrowseStep::Refused(_)
        ));
        // Without a match the page says so, and how to clear the filter.
        browse.handle_line("/nosuch", &menu);
        let menu = browse.read(list(100));
        let text = browse.show(&menu, false, None);
        assert_eq!(
            text,
            "No waiting task matches.\n100 more do not match nosuch; / shows them.\n"
        );
    }

    #[test]
    fn other_input_is_a_selection() {
        let mut browse = Browse::new(ListSelection::default(), Some(20));
        let menu = browse.read(list(3));
        for line in ["0", "n", "p", "step-1", "sort of task", "00000001"] {
            assert_eq!(browse.handle_line(line, &menu), BrowseStep::Other, "{line}");
        }
        let mut unpaged = Browse::new(ListSelection::default(), None);
        let menu = unpaged.read(list(1000));
        assert_eq!(ids(&unpaged.show(&menu, false, None)).len(), 1000);
        assert_eq!(unpaged.handle_line("n", &menu), BrowseStep::Other);
    }

    #[test]
    fn only_visible_page_changes_count() {
        let mut browse = Browse::new(ListSelection::default(), Some(20));
        let before = browse.read(list(1000));
        let now = browse.read(list(999));
        assert!(browse.sees_same(&now, &before));
        let now = browse.read(list(10));
        assert!(!browse.sees_same(&now, &before));
    }
}
