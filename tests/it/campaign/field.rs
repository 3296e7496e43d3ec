//! Relays, agents, disks and credentials of a campaign, and what is known of them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, RwLock};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use super::disk::Disk;
use super::seat::{Excuse, Seat};
use super::session::Way;
use crate::cuts::cable::Cables;
use crate::support::agent::Agent;
use crate::support::connect::Connect;
use crate::support::issuer::Issuer;
use crate::support::keeper::Keeper;
use crate::support::namespaces::{Cluster, RELAY_IP};
use crate::support::relay::{PORT, Relay};
use crate::support::{eventually, say};

/// Who has tasks, and may do no more than to debug them.
pub(super) const PEOPLE: [&str; 2] = ["ada", "bob"];

/// Who may take over and release what others have parked.
pub(super) const ADMIN: &str = "root";

/// Who comes through `ray-relay connect`, or not.
pub(super) const WITH_CONNECT: [&str; 3] = [PEOPLE[0], PEOPLE[1], ADMIN];

/// Who speaks for the nodes.
const AGENTS: &str = "agents";

/// Whoever is known to relays, and what they may do.
const KNOWN: [(&str, &str); 4] = [
    ("ada", "list,debug,terminal"),
    ("bob", "list,debug,terminal"),
    (ADMIN, "list,debug,terminal,admin"),
    (AGENTS, "node"),
];

/// Who may lose what the policy allows, for a while.
pub(super) const NARROWED: [&str; 3] = ["ada", "bob", AGENTS];

/// The first port at the client by which `ray-relay connect` serves.
const LOCAL: u16 = 7000;

/// The nodes that have agents and tasks.
pub(super) const NODES: [&str; 2] = ["head", "w1"];

/// What has the tasks' debuggers when a relay is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refuge {
    /// Agents on the nodes, of two relays side by side.
    Agents,
    /// A `ray-relay keeper` beside a single relay.
    Keeper,
}

/// The command lines of what answers for a head.
const DASHBOARD: &str = "(.*/dashboard/dashboard.py|ray-dashboard-).*";

/// How long a relay may take to find a keeper that comes.
const KEEPER_FOUND: Duration = Duration::from_secs(30);

/// Tasks of each person on each node.
const SEATS: usize = 1;

/// One address, and the processes that have served it.
struct Served {
    now: Option<Relay>,
    /// Those that another has taken over from.
    before: Vec<Relay>,
    disk: Disk,
    config: String,
}

pub(super) struct Field<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) cables: Cables<'a>,
    pub(super) seats: Vec<Seat>,
    pub(super) refuge: Refuge,
    issuer: Issuer,
    relays: Vec<Mutex<Served>>,
    agents: Mutex<BTreeMap<&'static str, Agent>>,
    keeper: Mutex<Option<Keeper>>,
    /// Held while somebody attaches there, and against that while the agent is ended.
    attaching: BTreeMap<&'static str, RwLock<()>>,
    tokens: Mutex<BTreeMap<&'static str, String>>,
    /// Those of each person and relay.
    connects: Mutex<BTreeMap<(&'static str, usize), Connect>>,
    told: Mutex<BTreeMap<String, u32>>,
    began: Instant,
    /// Whether each thing is said as it happens.
    is_told: bool,
    quiet: AtomicBool,
    /// Something is wrong, or all is done.
    pub(super) over: AtomicBool,
}

impl Refuge {
    pub(super) fn relays(self) -> usize {
        match self {
            Self::Agents => 2,
            Self::Keeper => 1,
        }
    }

    /// How relays reach workers.
    fn path(self) -> &'static str {
        match self {
            Self::Agents => "agent",
            Self::Keeper => "direct",
        }
    }
}

impl<'a> Field<'a> {
    pub(super) fn new(cluster: &'a Cluster, refuge: Refuge) -> Self {
        let issuer = Issuer::new();
        let ticket_key = issuer.path("tickets");
        issuer.token(&["keygen", "--algorithm", "HS256", &ticket_key]);
        std::fs::create_dir(issuer.path("past")).unwrap();
        let cables = Cables::lay(cluster);
        let keeper = match refuge {
            Refuge::Agents => String::new(),
            Refuge::Keeper => format!("keeper = {:?}\n", issuer.path("keeper")),
        };
        let served = |index| {
            let disk = Disk::new();
            let config = issuer.write(
                &format!("relay{index}.toml"),
                &format!(
                    "[upstream]\npath = {:?}\n[park]\nfor = \"1h\"\n\
                     [listen]\nkeepalive = \"3s\"\ndrain_timeout = \"1s\"\n{keeper}\
                     [auth]\nkeys = [{:?}]\nticket_key_file = {:?}\nrevocations_file = {:?}\npolicy_file = {:?}\n\
                     [audit]\nsink = \"file\"\nfile = {:?}\n",
                    refuge.path(),
                    issuer.path("relay.pub"),
                    format!("{ticket_key}/relay.key"),
                    issuer.path("revoked"),
                    issuer.path("policy.toml"),
                    disk.log(),
                ),
            );
            Mutex::new(Served {
                now: None,
                before: Vec::new(),
                disk,
                config,
            })
        };
        let relays = (0..refuge.relays()).map(served).collect();
        let token = issuer.mint(AGENTS, &["--scope", "node", "--node", "*"]);
        issuer.write("agent.token", &token);
        let seats = (0..SEATS)
            .flat_map(|_| NODES)
            .flat_map(|node| PEOPLE.map(|person| (person, node)));
        let seats = seats
            .enumerate()
            .map(|(number, (person, node))| Seat::new(number, person, node));
        let field = Self {
            cluster,
            cables,
            seats: seats.collect(),
            relays,
            refuge,
            agents: Mutex::default(),
            keeper: Mutex::default(),
            attaching: NODES.map(|node| (node, RwLock::default())).into(),
            tokens: Mutex::default(),
            connects: Mutex::default(),
            told: Mutex::default(),
            began: Instant::now(),
            is_told: std::env::var_os("RAY_RELAY_CAMPAIGN_TELLS").is_some(),
            quiet: AtomicBool::new(false),
            over: AtomicBool::new(false),
            issuer,
        };
        field.permit(None);
        if refuge == Refuge::Keeper {
            field.replace_keeper();
        }
        for relay in 0..refuge.relays() {
            field.start(relay);
        }
        if refuge == Refuge::Agents {
            NODES.iter().for_each(|node| field.start_agent(node));
        }
        for person in WITH_CONNECT {
            field.issue(person);
            (0..refuge.relays()).for_each(|relay| field.replace_connect(person, relay));
        }
        field
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.issuer.path(name).into()
    }

    // ---- relays

    pub(super) fn address(relay: usize) -> SocketAddr {
        (RELAY_IP, PORT + relay as u16).into()
    }

    /// Starts that relay; where one runs, the new one takes over from it.
    pub(super) fn start(&self, relay: usize) {
        let mut served = self.relays[relay].lock().unwrap();
        let port = PORT + relay as u16;
        let new = Relay::guarded_at(self.cluster, port, &["--config", &served.config]);
        let old = served.now.replace(new);
        served.before.extend(old);
    }

    /// What `with` does to that relay, which runs.
    pub(super) fn relay<T>(&self, relay: usize, with: impl FnOnce(&mut Relay) -> T) -> T {
        with(self.relays[relay].lock().unwrap().now.as_mut().unwrap())
    }

    /// That relay has ended: nobody takes over from it.
    pub(super) fn ended(&self, relay: usize) {
        let mut served = self.relays[relay].lock().unwrap();
        let ended = served.now.take();
        served.before.extend(ended);
    }

    pub(super) fn fill_disk(&self, relay: usize) {
        self.relays[relay].lock().unwrap().disk.fill();
    }

    pub(super) fn clear_disk(&self, relay: usize) {
        self.relays[relay].lock().unwrap().disk.clear();
    }

    // ---- agents

    fn start_agent(&self, node: &'static str) {
        let token = format!("--token-file={}", self.issuer.path("agent.token"));
        let url = |relay| format!("http://{}", Self::address(relay));
        let other = format!("--relay={}", url(1));
        let arguments = ["--allow-plaintext", &other, &token];
        let agent = Agent::dialling(self.cluster, node, &url(0), &arguments);
        self.agents.lock().unwrap().insert(node, agent);
    }

    /// The agent of that node is killed while nobody attaches through it, and another one comes.
    ///
    /// One that is killed within moments of an attach can leave a debugger that takes nobody any more, as every client of
    /// debugpy that is killed then can; so those moments are left out.
    pub(super) fn replace_agent(&self, node: &'static str) {
        let attaching = self.attaching[node].write().unwrap();
        std::thread::sleep(Duration::from_secs(1));
        for seat in self.seats.iter().filter(|seat| seat.node == node) {
            seat.lose_debugger(Excuse::Agent);
        }
        drop(self.agents.lock().unwrap().remove(node));
        self.start_agent(node);
        drop(attaching);
    }

    // ---- the keeper

    /// The keeper is killed, where there is one, and another one comes. What sessions there are is with no keeper then.
    pub(super) fn replace_keeper(&self) {
        let mut keeper = self.keeper.lock().unwrap();
        // What is attached to before the relay knows the new one is with none either.
        let attaching = self.attaching.values();
        let attaching: Vec<_> = attaching.map(|lock| lock.write().unwrap()).collect();
        for seat in &self.seats {
            seat.lose_debugger(Excuse::Keeper);
        }
        let returns = || {
            let served = self.relays[0].lock().unwrap();
            let log = served.now.as_ref()?.log();
            Some(log.matches("a keeper is there again").count())
        };
        let before = returns();
        drop(keeper.take());
        *keeper = Some(Keeper::start(self.cluster, &self.path("keeper")));
        if before.is_some() {
            eventually("a relay with a keeper", KEEPER_FOUND, || {
                (returns() > before).then_some(())
            });
        }
        drop(attaching);
    }

    /// The keeper, where there is one.
    pub(super) fn signal_keeper(&self, signal: Signal) {
        let keeper = self.keeper.lock().unwrap();
        keeper.as_ref().unwrap().signal(signal);
    }

    /// Runs `attach` while no agent of `node` is ended.
    pub(super) fn attaching<T>(&self, node: &str, attach: impl FnOnce() -> T) -> T {
        let _attaching = self.attaching[node].read().unwrap();
        attach()
    }

    // ---- the head

    /// What answers for the head.
    pub(super) fn signal_dashboard(&self, signal: &str) {
        for pid in self.cluster.processes("head", DASHBOARD) {
            self.cluster.signal("head", pid, signal);
        }
    }

    // ---- people

    fn issue(&self, person: &'static str) {
        let (_, scopes) = KNOWN.iter().find(|(name, _)| *name == person).unwrap();
        let token = self.issuer.mint(person, &["--scope", scopes]);
        self.issuer.write(&format!("{person}.token"), &token);
        self.tokens.lock().unwrap().insert(person, token);
    }

    /// From now on the policy allows everybody what they may, but `lost` nothing.
    pub(super) fn permit(&self, lost: Option<&str>) {
        let mut policy = String::new();
        for (person, scopes) in KNOWN.iter().filter(|(person, _)| Some(*person) != lost) {
            let scopes: Vec<_> = scopes.split(',').collect();
            let _ = writeln!(
                policy,
                "[[rule]]\nsubjects = [{person:?}]\nscopes = {scopes:?}"
            );
        }
        let new = self.issuer.write("policy.new", &policy);
        std::fs::rename(new, self.path("policy.toml")).unwrap();
    }

    /// A person's way to a relay: a connection of one's own, or `ray-relay connect`.
    pub(super) fn way(&self, person: &'static str, relay: usize, connects: bool) -> Way {
        match connects {
            true => Way {
                to: Self::local(person, relay),
                token: None,
            },
            false => Way {
                to: Self::address(relay),
                token: Some(self.token(person)),
            },
        }
    }

    fn local(person: &str, relay: usize) -> SocketAddr {
        let person = KNOWN.iter().position(|(name, _)| *name == person);
        ([127, 0, 0, 1], LOCAL + (person.unwrap() * 2 + relay) as u16).into()
    }

    /// That person's `ray-relay connect` to that relay is killed, where there is one, and another one comes.
    pub(super) fn replace_connect(&self, person: &'static str, relay: usize) {
        let mut connects = self.connects.lock().unwrap();
        drop(connects.remove(&(person, relay)));
        let local = Self::local(person, relay);
        let mut command = self.cluster.exec("client", env!("CARGO_BIN_EXE_ray-relay"));
        command
            .args(["connect", &format!("http://{}", Self::address(relay))])
            .args(["--listen", &local.to_string(), "--insecure-send-token"])
            .args([
                "--token-file",
                &self.issuer.path(&format!("{person}.token")),
            ])
            .stdout(Stdio::null());
        let connect = Connect::start(self.cluster, command, local);
        connects.insert((person, relay), connect);
    }

    pub(super) fn signal_connect(&self, person: &'static str, relay: usize, signal: Signal) {
        self.connects.lock().unwrap()[&(person, relay)].signal(signal);
    }

    pub(super) fn token(&self, person: &str) -> String {
        self.tokens.lock().unwrap()[person].clone()
    }

    /// That person's token is revoked, and there is a new one.
    pub(super) fn revoke(&self, person: &'static str) {
        let old = self.token(person);
        self.issue(person);
        for seat in self
            .seats
            .iter()
            .filter(|seat| seat.holders().contains(&person))
        {
            seat.may_run(Excuse::Revoked);
        }
        let file = self.issuer.path("revoked");
        let mut command = Command::new(env!("CARGO_BIN_EXE_ray-relay"));
        command.args(["token", "revoke", "--token", "-", "--file", &file]);
        let mut revoking = command.stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = revoking.stdin.take().unwrap();
        std::io::Write::write_all(&mut stdin, old.as_bytes()).unwrap();
        drop(stdin);
        assert!(revoking.wait().unwrap().success());
    }

    /// The row of that name at whatever relay answers.
    pub(super) fn row_named(&self, name: &str) -> Option<Value> {
        let settings = [("RAY_RELAY_TOKEN", self.token(ADMIN))];
        (0..self.refuge.relays()).find_map(|relay| {
            let url = format!("http://{}/relay/v1/breakpoints", Self::address(relay));
            let patience = Duration::from_secs(3);
            let answer = self.cluster.get_with("client", &url, patience, &settings);
            let (200, body) = answer.ok()? else {
                return None;
            };
            let list: Value = serde_json::from_slice(&body).ok()?;
            let rows = list["breakpoints"].as_array()?;
            rows.iter().find(|row| row["name"] == name).cloned()
        })
    }

    /// Says what happens at that seat, where one looks for what went wrong.
    pub(super) fn tell(&self, seat: &Seat, what: &str) {
        if self.is_told {
            let since = self.began.elapsed().as_secs_f64();
            say(format_args!("{since:6.1} {}: {what}", seat.task()));
        }
    }

    /// Notes what somebody was told.
    pub(super) fn note(&self, what: &str) {
        let mut told = self.told.lock().unwrap();
        *told.entry(what.to_owned()).or_default() += 1;
    }

    /// How often people were told what.
    pub(super) fn told(&self) -> String {
        let mut text = String::from("people were told, or did:");
        for (what, times) in &*self.told.lock().unwrap() {
            let _ = write!(text, "\n  {times:4} {what}");
        }
        text
    }

    /// Waits until everybody has a task.
    pub(super) fn all_are_seated(&self) {
        let all = || self.seats.iter().all(Seat::is_taken);
        while !all() && !self.over.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    // ---- the end

    /// There are no more faults: people finish.
    pub(super) fn is_quiet(&self) {
        self.quiet.store(true, Ordering::Relaxed);
    }

    pub(super) fn must_finish(&self) -> bool {
        self.quiet.load(Ordering::Relaxed)
    }

    /// Ends everything where whoever has this panics.
    pub(super) fn over_at_the_end(&self) -> impl Drop {
        struct Over<'f>(&'f AtomicBool);
        impl Drop for Over<'_> {
            fn drop(&mut self) {
                if std::thread::panicking() {
                    self.0.store(true, Ordering::Relaxed);
                }
            }
        }
        Over(&self.over)
    }

    /// No relay panicked, and each record is as it was written.
    pub(super) fn judge(&self) {
        for served in &self.relays {
            let served = served.lock().unwrap();
            for relay in served.now.iter().chain(&served.before) {
                let log = relay.log();
                assert!(!log.contains("panicked"), "{log}");
            }
            let mut verify = Command::new(env!("CARGO_BIN_EXE_ray-relay"));
            verify.args(["audit", "verify"]).arg(served.disk.log());
            let output = verify.output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success(), "{said}{output:?}");
        }
    }
}
