//! `ray-relay diff`: differences between the frames of paused tasks that run the same code.

use std::collections::{BTreeMap, HashMap};

use clap::Args;
use clap_complete::ArgValueCompleter;
use serde::Deserialize;
use serde_json::{Value, json};

use super::completions;
use super::failure::{Exit, Failure};
use super::members::{MembersArgs, Purpose, complete};
use super::relay_args::RelayArgs;
use super::relay_client::{RelayClient, patiently};
use super::terminal::print;
use super::worker_session::WorkerSessionError as SessionError;
use ray_relay_base::wire::text::replaced;
use ray_relay_view::group::members::MeantTasks;
use ray_relay_view::listing::fold::answer_text;
use ray_relay_view::listing::fold::compared::Compared;
use ray_relay_view::listing::fold::differences::{NO_THREAD, TaskStack};

pub(super) const AFTER_HELP: &str = "\
Examples:
  ray-relay diff
      what is different about rank 3?
  ray-relay diff 'Trainer*' --ranks 0-7
  ray-relay diff --job 01000000 --json
      {\"members\": [{\"group\", \"number\", \"breakpoint\": {...}, \"error\"}], \"groups\": [{\"group\", \"odd\": [PLACE, ...], \"odd_in\", \"alike\", \"differences\": [{\"what\": \"place\"|\"callers\"|\"exception\"|\"line\"|\"variable\", \"name\", \"frame\", \"answers\": [{\"who\", \"members\", \"text\", \"odd\"}], \"figures\"}], \"not_compared\": [...], \"noise\": [...], \"same\": [{\"what\", \"name\", \"frame\", \"who\", \"members\", \"text\"}]}], \"stacks\": [{\"function\", \"file\", \"line\", \"who\", \"members\", \"odd\", \"calls\": [...]}]}

Tasks of one function or actor class are a group. Where no group has two, all are compared. `diff` compares where they are paused, the calls that led there, and the variables of each frame that several tasks share. If a variable differs, its attributes are compared by path, such as self.trainer.optim.lr. `diff` also compares the variables of the program's modules. Of each process it compares the environment, package versions and states of random numbers. Numbers are compared by value, arrays and tensors by checksums. Equal values, values that differ in every process (pids, times) and values that cannot be compared are only counted. Differences of the odd rank come first, and values that differ on every rank come last. Tasks are numbered by rank: from RANK of the runtime environment, or from names. A task whose rank is not known is named by its pid.

It needs the permission `view`. Paused tasks stay exactly as they were, as for `ray-relay snapshot`, and without `debug` the text of values is hidden. With `debug`, variables are shown by their own __repr__. Attributes never use it. --no-locals runs no code of the program and compares only stacks. Each look is on record as a session of its own.

Exit codes: 0 done, whether anything differs or not, 1 not all could be looked at, 69 the relay or the tasks' debuggers cannot be reached, 77 refused, 66 there is no such task or job. If a filter matches nothing, the exit code is 0.";

/// `diff`
#[derive(Debug, Args)]
pub struct DiffArgs {
    /// Paused tasks by id or name, or a pattern such as 'train*'; without it all
    #[arg(add = ArgValueCompleter::new(completions::tasks), value_name = "PATTERN")]
    pub target: Option<String>,
    /// Which of those.
    #[command(flatten)]
    pub members: MembersArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Only the stacks: no code of the program runs
    #[arg(long)]
    pub no_locals: bool,
    /// Longest value, in characters
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub limit: u32,
    /// How the relay is reached.
    #[command(flatten)]
    pub relay: RelayArgs,
}

/// The relay's snapshots of the tasks, by their ids.
#[derive(Default, Deserialize)]
struct Answer {
    looks: HashMap<String, Look>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Look {
    Seen { threads: Value },
    Failed { error: String, status: u16 },
}

pub(super) async fn run(args: DiffArgs) -> Result<(), Failure> {
    let client = RelayClient::new(args.relay.clone())?;
    let target = args.target.as_deref();
    let Some(members) = args.members.of(&client, target, Purpose::Compare).await? else {
        if args.json {
            let none = json!({"members": [], "groups": [], "stacks": []});
            print(&format!("{none:#}\n"))?;
        }
        return Ok(());
    };
    let locals = !args.no_locals;
    let payload = json!({"ids": members.ids(), "locals": locals, "process": locals, "limit": args.limit, "looks": true});
    let mut answer = match patiently(async || client.compare(&payload).await).await {
        Ok(answer) => Answer::deserialize(answer).unwrap_or_default(),
        Err(why) => return Err(SessionError::of_refusal(why)?.into()),
    };
    let (mut positions, mut silent) = (BTreeMap::new(), BTreeMap::new());
    for (at, id) in members.ids().into_iter().enumerate() {
        let why = match answer.looks.remove(id) {
            Some(Look::Seen { threads }) => match TaskStack::read(&threads) {
                Some(position) => {
                    positions.insert(at, position);
                    continue;
                }
                None => SessionError::Failed(NO_THREAD.to_owned()),
            },
            Some(Look::Failed { error, status }) => SessionError::of_status(status, error),
            None => SessionError::NotFound("no such task waits any more".to_owned()),
        };
        silent.insert(at, why);
    }
    let compared = Compared::new(members.names(), &positions);
    let errors: BTreeMap<usize, String> = silent
        .iter()
        .map(|(at, why)| (*at, replaced(&why.to_string()).into_owned()))
        .collect();
    match args.json {
        true => print(&format!("{:#}\n", members.compared(&compared, &errors)))?,
        false => print(&text(&members, &compared, &errors))?,
    }
    let done = match silent.into_values().next_back() {
        None => Ok(()),
        // Already printed.
        Some(why) if positions.is_empty() => Err(Failure::reported(Failure::from(why).code())),
        Some(_) => Err(Failure::reported(Exit::Failed as u8)),
    };
    complete(members.unnamed, done)
}

fn text(members: &MeantTasks, compared: &Compared<'_>, errors: &BTreeMap<usize, String>) -> String {
    let mut text = members.legend() + &compared.text();
    let errors = errors.iter().map(|(at, why)| (*at, &**why));
    let silent = answer_text::silent(&members.names(), errors);
    if !silent.is_empty() {
        text += &format!("\n{silent}");
    }
    text
}
