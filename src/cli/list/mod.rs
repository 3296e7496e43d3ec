//! `ray-relay list`: the tasks that wait at a breakpoint, once or continuously.

mod failed;
mod nodes;
mod page;
mod pager;
mod view;
mod watch;

use std::io::{self, Write};

use serde_json::Value;

use super::job;
use super::relay_client::RelayClient;
use super::tasks::{self, TasksArgs};
use super::terminal;
use super::{Failure, ListArgs};
use ray_relay_base::wire::json;
use ray_relay_base::wire::text::replaced;
use ray_relay_view::listing::job::MeantJob;
use ray_relay_view::listing::row::List;
use ray_relay_view::listing::select::{ListSelection, arranged};

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
  ray-relay list --running
      what runs and waits at no breakpoint: `ray-relay tasks --help`
  ray-relay list --failed
      what raised an exception, where and when; `ray-relay snapshot ID` shows stack and variables
  ray-relay list --watch --json
      one object a line: {\"event\": \"snapshot\", ...}, then {\"event\": \"appeared\", \"breakpoint\": {...}}

Columns to sort by, and to filter as KEY=PATTERN: waiting (to sort by), name, job, node, where, kind, state, holder, cluster, pid, id, task, worker, gpus. On a terminal a long list is shown a page at a time; in a pipe, and with --json, whole.

WHERE is - where Ray does not say it (2.56 and newer, unless the head has
RAY_DASHBOARD_ENABLE_PROFILING=1) and no debugger has shown it to the relay yet. Attaching does, and so does a look from the relay's page.

On a terminal, five or more free tasks of a group at the same place are one line, with `7 of 8` in place of an id. --flat lists each. A group is the tasks of one function or actor class.

--failed needs the hook in the worker (`ray-relay hook --help`) and an agent on its node. The relay's configuration has to keep failures ([post_mortem]); `ray-relay doctor` says where that does not work. The agents keep them in memory, for a limited time.

HOLDER is who has a debugger attached; - means that yours can. A debugger attaches to one of them with {\"rayRelay\": {\"breakpoint\": ID}}: `ray-relay launch-config --breakpoint ID` prints that.

Exit codes: 0 done, 66 there is no such job, 69 the relay cannot be reached, 77 it wants a token or the token does not permit it.";

pub(super) async fn run(args: ListArgs) -> Result<(), Failure> {
    if args.running {
        return tasks::run(TasksArgs::from(args)).await;
    }
    if args.failed {
        return failed::run(args).await;
    }
    let client = RelayClient::new(args.relay)?;
    let choice = ListSelection {
        order: args.sort,
        filters: args.filter,
        job: job::requested(&client, args.job.as_deref()).await?,
    };
    if args.watch {
        let how = view::How {
            json: args.json,
            flat: args.flat,
        };
        return watch::run(&client, how, args.ended, choice).await;
    }
    // The relay would count what a filter leaves out of other jobs as well.
    let list = match choice.job {
        Some(_) => client.breakpoints(args.ended).await?,
        None => {
            client
                .breakpoints_fitting(args.ended, &choice.filters)
                .await?
        }
    };
    let mut list = arranged(list, &choice);
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
    let is_empty = json::list(&list, "breakpoints").is_empty();
    let mut text = match args.flat {
        _ if is_empty && choice.filters.is_empty() && choice.job.is_some() => {
            nothing_of(&list, choice.job.as_ref())
        }
        true => page::page(&list, columns),
        false => page::folded(&list, columns),
    };
    if let Some(nodes) = nodes {
        let (table, footer) = (nodes::table(&nodes, columns), nodes::footer(&nodes));
        text += &format!("\n{table}{footer}");
    }
    pager::write(&text)?;
    Ok(())
}

/// Reports that no task of `job` is paused, and why the list may be incomplete.
fn nothing_of(list: &Value, job: Option<&MeantJob>) -> String {
    let troubles = List::read(list).troubles();
    let troubles: String = troubles.iter().map(|one| format!("! {one}\n")).collect();
    let job = replaced(job.map_or("", MeantJob::name)).into_owned();
    format!(
        "{troubles}Job {job} has no paused task; `ray-relay tasks --job {job}` shows its running tasks.\n"
    )
}

#[cfg(test)]
mod tests;
