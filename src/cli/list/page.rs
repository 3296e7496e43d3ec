//! The list as a page of text.

use serde_json::Value;

use ray_relay_view::doctor::lists;
use ray_relay_view::listing::NOTHING_KNOWN;
use ray_relay_view::listing::grouped;
use ray_relay_view::listing::row::List;
use ray_relay_view::listing::table::{self, Extras};

/// Troubles, then the table, or what to do if it is empty.
pub(super) fn page(list: &Value, columns: Option<usize>) -> String {
    of(list, List::read(list), columns)
}

/// The same with equal rows folded into one, if the output is a terminal with `columns`.
pub(super) fn folded(list: &Value, columns: Option<usize>) -> String {
    let mut parsed = List::read(list);
    let (rows, is_any) = match columns {
        Some(_) => grouped::rows(list),
        None => (Vec::new(), false),
    };
    if !is_any {
        return of(list, parsed, columns);
    }
    parsed.rows = rows;
    of(list, parsed, columns) + SEVERAL
}

fn of(list: &Value, parsed: List, columns: Option<usize>) -> String {
    let places = lists::places(list);
    let list = parsed;
    let mut text = String::new();
    for trouble in list.troubles() {
        text += &format!("! {trouble}\n");
    }
    let troubled = !text.is_empty();
    if troubled {
        text.push('\n');
    }
    if list.rows.is_empty() {
        // With unknown clusters, the list does not claim to be empty.
        text += match (troubled, list.hidden) {
            (true, 0) => NOTHING_KNOWN,
            (false, 0) => EMPTY,
            (_, _) => "No waiting task matches.\n",
        };
    } else {
        let table = table::render(&list, &Extras::default(), columns);
        let shows_places = table
            .lines()
            .next()
            .is_some_and(|head| head.contains("WHERE"));
        text += &table;
        // On a terminal only: in a pipe each line is a row.
        if columns.is_some() && shows_places && !places.is_empty() {
            text += NO_PLACES;
        }
    }
    if list.hidden > 0 {
        text += &format!("{} more do not match --filter.\n", list.hidden);
    }
    text
}

/// Fits 80 columns: a line that is cut says nothing.
const NO_PLACES: &str =
    "WHERE is -: the Ray head gives no stacks; `ray-relay doctor` says what helps.\n";

const SEVERAL: &str =
    "`7 of 8` stands for several alike: --flat lists each, `ray-relay diff` compares.\n";

const EMPTY: &str = "\
No task waits at a breakpoint.
Put breakpoint() into a Ray task or actor and run it: it appears here within a second or two.
`ray-relay list --watch` shows it as soon as it stops; `ray-relay launch-config` attaches an editor.
";
