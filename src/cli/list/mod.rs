//! `ray-relay list`: what waits at a breakpoint, once or as it changes.

mod nodes;
mod pager;
mod view;
mod watch;

use std::io::{self, Write};

use serde_json::Value;

use super::relay_client::RelayClient;
use super::terminal;
use super::{Failure, ListArgs};
use crate::doctor::lists;
use crate::listing::NOTHING_KNOWN;
use crate::listing::row::List;
use crate::listing::select::{Choice, arranged};
use crate::listing::table::{self, Extras};

pub(super) const AFTER_HELP: &str = "\
Examples:
  ray-relay list
  ray-relay list --kube
      a relay in Kubernetes: `ray-relay connect --help` says how it is found
  ray-relay list --watch
      redraws on a terminal; in a pipe, one line for each change
  ray-relay list --sort waiting,desc --filter 'train*' --filter node=10.0.0.7
      a pattern fits the whole of a name, id or other column, text without * a part of it; all filters have to fit
  ray-relay list --json | jq -r '.breakpoints[] | select(.state == \"paused\") | .id'
  ray-relay list --verbose
      also the Ray nodes: each one's agent, its version, how far it is, and since when it is linked or gone
  ray-relay list --watch --json
      one object a line: {\"event\": \"snapshot\", ...}, then {\"event\": \"appeared\", \"breakpoint\": {...}}

Columns to sort by, and to filter as KEY=PATTERN: waiting (to sort by), name, job, node, where, kind, state, holder,
cluster, pid, id, task, worker, gpus. On a terminal a long list is shown a page at a time; in a pipe, and with --json, whole.

WHERE is - where Ray does not say it (2.59 and newer, unless the head has
RAY_DASHBOARD_ENABLE_PROFILING=1) and no debugger has shown it to the relay yet: attaching does,
and so does a look from the relay's page.
HOLDER is who has a debugger attached; - means that yours can. A debugger attaches to one of them
with {\"rayRelay\": {\"breakpoint\": ID}}: `ray-relay launch-config --breakpoint ID` prints that.

Exit codes: 0 done, 69 the relay cannot be reached, 77 it wants a token or the token does not permit it.";

pub(super) async fn run(args: ListArgs) -> Result<(), Failure> {
    let client = RelayClient::new(args.relay)?;
    let choice = Choice {
        order: args.sort,
        filters: args.filter,
    };
    if args.watch {
        return watch::run(&client, args.json, args.ended, choice).await;
    }
    let fitting = client.breakpoints_fitting(args.ended, &choice.filters);
    let mut list = arranged(fitting.await?, &choice);
    let nodes = match args.verbose {
        true => Some(client.nodes().await?),
        false => None,
    };
    if args.json {
        if let Some(mut nodes) = nodes {
            for key in ["nodes", "other_relays"] {
                list[key] = nodes[key].take();
            }
        }
        writeln!(io::stdout().lock(), "{list:#}")?;
        return Ok(());
    }
    let columns = terminal::columns();
    let mut text = page(&list, columns);
    if let Some(nodes) = nodes {
        let (table, beside) = (nodes::table(&nodes, columns), nodes::beside(&nodes));
        text += &format!("\n{table}{beside}");
    }
    pager::write(&text)?;
    Ok(())
}

/// Troubles, then the table or what to do where there is nothing to show.
fn page(list: &Value, columns: Option<usize>) -> String {
    let places = lists::places(list);
    let list = List::read(list);
    let mut text = String::new();
    for trouble in list.troubles() {
        text += &format!("! {trouble}\n");
    }
    let troubled = !text.is_empty();
    if troubled {
        text.push('\n');
    }
    if list.rows.is_empty() {
        // What is not known is not claimed.
        text += match (troubled, list.hidden) {
            (true, 0) => NOTHING_KNOWN,
            (false, 0) => EMPTY,
            (_, _) => "None of those that wait fits.\n",
        };
    } else {
        let table = table::render(&list, &Extras::default(), columns);
        let shows_places = table
            .lines()
            .next()
            .is_some_and(|head| head.contains("WHERE"));
        text += &table;
        // For people: in a pipe each line is a row.
        if columns.is_some() && shows_places && !places.is_empty() {
            text += NO_PLACES;
        }
    }
    if list.hidden > 0 {
        text += &format!("{} more do not fit --filter.\n", list.hidden);
    }
    text
}

/// It fits 80 columns: a line that is cut says nothing.
const NO_PLACES: &str =
    "WHERE is - as the Ray head gives no stacks; `ray-relay doctor` says what helps.\n";

const EMPTY: &str = "\
No task waits at a breakpoint.
Put breakpoint() into a Ray task or actor and run it: it appears here within a second or two.
`ray-relay list --watch` shows it as soon as it stops; `ray-relay launch-config` attaches an editor.
";

#[cfg(test)]
mod tests;
