//! The relays, agents, disks and credentials of a campaign, and their known state.

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
use super::seat::{ResumeCause, Seat};
use super::session::Way;
use crate::cuts::cable::Cables;
use crate::support::agent::Agent;
use crate::support::connect::Connect;
use crate::support::issuer::Issuer;
use crate::support::keeper::Keeper;
use crate::support::namespaces::{Cluster, RELAY_IP};
use crate::support::relay::{PORT, Relay};
use crate::support::{eventually, say};

/// The users with tasks, who may only debug.
pub(super) const USERS: [&str; 2] = ["ada", "bob"];

/// The administrator, who may take over and release parks.
pub(super) const ADMIN: &str = "root";

/// The users who may connect through `ray-relay connect`.
pub(super) const WITH_CONNECT: [&str; 3] = [USERS[0], USERS[1], ADMIN];

/// The name of the agents' credential.
const AGENTS: &str = "agents";

/// Users and their scopes.
const USER_SCOPES: [(&str, &str); 4] = [
    ("ada", "list,debug,terminal"),
    ("bob", "list,debug,terminal"),
    (ADMIN, "list,debug,terminal,admin"),
    (AGENTS, "node"),
];

/// Users whose permissions may be narrowed for a while.
pub(super) const NARROWED: [&str; 3] = ["ada", "bob", AGENTS];

/// The first port at the client by which `ray-relay connect` serves.
const FIRST_LOCAL_PORT: u16 = 7000;

/// The nodes that have agents and tasks.
pub(super) const NODES: [&str; 2] = ["head", "w1"];

/// The process that holds the debuggers after a relay has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refuge {
    /// Agents on the nodes, of two relays side by side.
    Agents,
    /// A `ray-relay keeper` next to a single relay.
    Keeper,
}

/// The command lines of what answers for a head.
const DASHBOARD: &str = "(.*/dashboard/dashboard.py|ray-dashboard-).*";

/// How long a relay may take to find a new keeper.
const KEEPER_TIMEOUT: Duration = Duration::from_secs(30);

/// Tasks of each user on each node.
const SEATS: usize = 1;

/// One address, and the processes that have served it.
struct Served {
    now: Option<Relay>,
    /// The processes that a new one has replaced.
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
    /// Read-locked during an attach there, write-locked while the agent is ended.
    attaching: BTreeMap<&'static str, RwLock<()>>,
    tokens: Mutex<BTreeMap<&'static str, String>>,
    /// The `connect` processes of each user and relay.
    connects: Mutex<BTreeMap<(&'static str, usize), Connect>>,
    refusals: Mutex<BTreeMap<String, u32>>,
    began: Instant,
    /// Whether each event is printed as it happens.
    is_verbose: bool,
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

    /// Returns how relays reach workers.
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
            .flat_map(|node| USERS.map(|user| (user, node)));
        let seats = seats
            .enumerate()
            .map(|(number, (user, node))| Seat::new(number, user, node));
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
            refusals: Mutex::default(),
            began: Instant::now(),
            is_verbose: std::env::var_os("RAY_RELAY_CAMPAIGN_TELLS").is_some(),
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
        for user in WITH_CONNECT {
            field.issue(user);
            (0..refuge.relays()).for_each(|relay| field.replace_connect(user, relay));
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

    /// Calls `with` with that relay, if it runs.
    pub(super) fn relay<T>(&self, relay: usize, with: impl FnOnce(&mut Relay) -> T) -> T {
        with(self.relays[relay].lock().unwrap().now.as_mut().unwrap())
    }

    /// Records that the relay has ended without a successor.
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

    /// Kills the agent of that node while no client attaches through it, and starts another.
    ///
    /// Not during an attach: like every client of debugpy that is killed then, it could leave a debugger that accepts no
    /// client any more.
    pub(super) fn replace_agent(&self, node: &'static str) {
        let attaching = self.attaching[node].write().unwrap();
        std::thread::sleep(Duration::from_secs(1));
        for seat in self.seats.iter().filter(|seat| seat.node == node) {
            seat.lose_debugger(ResumeCause::Agent);
        }
        drop(self.agents.lock().unwrap().remove(node));
        self.start_agent(node);
        drop(attaching);
    }

    // ---- the keeper

    /// The keeper is killed, where there is one, and another one comes. What sessions there are is with no keeper then.
    pub(super) fn replace_keeper(&self) {
        let mut keeper = self.keeper.lock().unwrap();
        // Sessions that begin before the relay finds the new keeper are not kept either.
        let attaching = self.attaching.values();
        let attaching: Vec<_> = attaching.map(|lock| lock.write().unwrap()).collect();
        for seat in &self.seats {
            seat.lose_debugger(ResumeCause::Keeper);
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
            eventually("a relay with a keeper", KEEPER_TIMEOUT, || {
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

    /// Sends `signal` to the processes that answer for the head.
    pub(super) fn signal_dashboard(&self, signal: &str) {
        for pid in self.cluster.processes("head", DASHBOARD) {
            self.cluster.signal("head", pid, signal);
        }
    }

    // ---- people

    fn issue(&self, user: &'static str) {
        let (_, scopes) = USER_SCOPES.iter().find(|(name, _)| *name == user).unwrap();
        let token = self.issuer.mint(user, &["--scope", scopes]);
        self.issuer.write(&format!("{user}.token"), &token);
        self.tokens.lock().unwrap().insert(user, token);
    }

    /// From now on the policy allows everybody what they may, but `lost` nothing.
    pub(super) fn permit(&self, lost: Option<&str>) {
        let mut policy = String::new();
        for (user, scopes) in USER_SCOPES.iter().filter(|(user, _)| Some(*user) != lost) {
            let scopes: Vec<_> = scopes.split(',').collect();
            let _ = writeln!(
                policy,
                "[[rule]]\nsubjects = [{user:?}]\nscopes = {scopes:?}"
            );
        }
        let new = self.issuer.write("policy.new", &policy);
        std::fs::rename(new, self.path("policy.toml")).unwrap();
    }

    /// A user's route to a relay: a direct connection, or `ray-relay connect`.
    pub(super) fn way(&self, user: &'static str, relay: usize, connects: bool) -> Way {
        match connects {
            true => Way {
                to: Self::local(user, relay),
                token: None,
            },
            false => Way {
                to: Self::address(relay),
                token: Some(self.token(user)),
            },
        }
    }

    fn local(user: &str, relay: usize) -> SocketAddr {
        let user = USER_SCOPES.iter().position(|(name, _)| *name == user);
        (
            [127, 0, 0, 1],
            FIRST_LOCAL_PORT + (user.unwrap() * 2 + relay) as u16,
        )
            .into()
    }

    /// Kills the user's `ray-relay connect` to that relay, if there is one, and starts another.
    pub(super) fn replace_connect(&self, user: &'static str, relay: usize) {
        let mut connects = self.connects.lock().unwrap();
        drop(connects.remove(&(user, relay)));
        let local = Self::local(user, relay);
        let mut command = self.cluster.exec("client", env!("CARGO_BIN_EXE_ray-relay"));
        command
            .args(["connect", &format!("http://{}", Self::address(relay))])
            .args(["--listen", &local.to_string(), "--insecure-send-token"])
            .args(["--token-file", &self.issuer.path(&format!("{user}.token"))])
            .stdout(Stdio::null());
        let connect = Connect::start(self.cluster, command, local);
        connects.insert((user, relay), connect);
    }

    pub(super) fn signal_connect(&self, user: &'static str, relay: usize, signal: Signal) {
        self.connects.lock().unwrap()[&(user, relay)].signal(signal);
    }

    pub(super) fn token(&self, user: &str) -> String {
        self.tokens.lock().unwrap()[user].clone()
    }

    /// Revokes the user's token, and mints a new one.
    pub(super) fn revoke(&self, user: &'static str) {
        let old = self.token(user);
        self.issue(user);
        for seat in self
            .seats
            .iter()
            .filter(|seat| seat.holders().contains(&user))
        {
            seat.may_resume(ResumeCause::Revoked);
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
            let max_wait = Duration::from_secs(3);
            let answer = self.cluster.get_with("client", &url, max_wait, &settings);
            let (200, body) = answer.ok()? else {
                return None;
            };
            let list: Value = serde_json::from_slice(&body).ok()?;
            let rows = list["breakpoints"].as_array()?;
            rows.iter().find(|row| row["name"] == name).cloned()
        })
    }

    /// Reports an event of that seat.
    pub(super) fn report(&self, seat: &Seat, what: &str) {
        if self.is_verbose {
            let since = self.began.elapsed().as_secs_f64();
            say(format_args!("{since:6.1} {}: {what}", seat.task()));
        }
    }

    /// Counts a refusal.
    pub(super) fn note(&self, what: &str) {
        let mut refusals = self.refusals.lock().unwrap();
        *refusals.entry(what.to_owned()).or_default() += 1;
    }

    /// Returns how often users received which refusal.
    pub(super) fn refusals(&self) -> String {
        let mut text = String::from("people were told, or did:");
        for (what, times) in &*self.refusals.lock().unwrap() {
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

    /// The faults are over: the users finish.
    pub(super) fn is_quiet(&self) {
        self.quiet.store(true, Ordering::Relaxed);
    }

    pub(super) fn must_finish(&self) -> bool {
        self.quiet.load(Ordering::Relaxed)
    }

    /// Ends the campaign when its owner panics.
    pub(super) fn end_when_dropped(&self) -> impl Drop {
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

    /// Checks that no relay panicked, and that the audit logs are intact.
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
            let stdout = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success(), "{stdout}{output:?}");
        }
    }
}
