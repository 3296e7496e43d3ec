//! A campaign of random faults in relays, agents, links, disks and credentials. No task resumes unrequested, every task stays
//! attachable, and no user reaches a task that another one holds.
//!
//! Users attach, inspect, step, disconnect, park, run commands and resume tasks, at two relays with agents on real nodes or at
//! one relay with a keeper. It lasts two minutes with `RAY_RELAY_LONG` (continuous integration), thirty seconds otherwise, or
//! `RAY_RELAY_CAMPAIGN=SECONDS`. A third of the tasks stop in the legacy debugger. Each run prints its seed;
//! `RAY_RELAY_CAMPAIGN_SEED=N` repeats its choices. `RAY_RELAY_CAMPAIGN_TELLS=1` prints what each user does.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use self::fault::Fault;
use self::field::{Field, Refuge};
use self::person::Person;
use crate::support::namespaces::Cluster;
use crate::support::ray::NEWEST;
use crate::support::shared::EXTERNAL;
use crate::support::{say, skip};

mod disk;
mod fault;
mod field;
mod person;
mod seat;
mod session;

/// The time between two faults, in milliseconds.
const FAULT_INTERVAL_MS: std::ops::Range<u64> = 500..4000;

fn setting(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name}={value}")))
}

#[test]
fn no_fault_resumes_or_bricks_a_task() {
    campaign(Refuge::Agents);
}

#[test]
fn no_fault_with_a_keeper_resumes_or_bricks_a_task() {
    campaign(Refuge::Keeper);
}

fn campaign(refuge: Refuge) {
    let long = std::env::var_os("RAY_RELAY_LONG").is_some();
    let seconds = setting("RAY_RELAY_CAMPAIGN").unwrap_or(if long { 120 } else { 30 });
    let seed = setting("RAY_RELAY_CAMPAIGN_SEED").unwrap_or_else(rand::random);
    let Some(cluster) = Cluster::up(NEWEST, 1, &EXTERNAL) else {
        return;
    };
    let tool = cluster
        .on_network_of("client", "nft")
        .arg("--version")
        .output();
    if !tool.is_ok_and(|shown| shown.status.success()) {
        skip("nft is missing, which cuts; apt install nftables");
        return;
    }
    say(format_args!(
        "campaign ({refuge:?}): {seconds} s, RAY_RELAY_CAMPAIGN_SEED={seed}"
    ));
    let mut chance = StdRng::seed_from_u64(seed);
    let field = Field::new(&cluster, refuge);
    let mut faults = 0;
    std::thread::scope(|scope| {
        for (index, seat) in field.seats.iter().enumerate() {
            let chance = StdRng::seed_from_u64(seed ^ (index as u64 + 1));
            let person = Person::new(&field, seat, chance);
            scope.spawn(move || person.live());
        }
        // The users stop in any case.
        let _over = field.end_when_dropped();
        field.all_are_seated();
        let until = Instant::now() + Duration::from_secs(seconds);
        while Instant::now() < until && !field.over.load(Ordering::Relaxed) {
            let fault = Fault::by_chance(refuge, &mut chance);
            say(format_args!("campaign: {fault}"));
            fault.happen(&field);
            faults += 1;
            std::thread::sleep(Duration::from_millis(
                chance.random_range(FAULT_INTERVAL_MS),
            ));
        }
        field.is_quiet();
    });
    let refusals = field.refusals();
    say(format_args!("campaign: {faults} faults; {refusals}"));
    field.judge();
}
