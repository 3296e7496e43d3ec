//! Scopes: the permissions that a rule or a token grants.
//!
//! Scopes on breakpoints ([`Scope`]) and on the relay itself ([`RelayScope`]) are separate types: an administrator of
//! one job must not be mistaken for an administrator of the relay.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// One thing that can be allowed at a place: on what a rule's selector fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub enum Scope {
    /// See breakpoints in lists and events, and what runs. In no other permission.
    List = 1,
    /// Look at what runs, and attach a debugger to look: threads, stack, variables, source. May step, let the task run on, and
    /// keep it stopped in a park. Runs no code of your own.
    View = 1 << 1,
    /// Attach a debugger and do everything but end the process. Runs code. Includes [`Scope::View`].
    Debug = 1 << 2,
    /// The prompt of `nc`, of the page and of legacy breakpoints. Runs code.
    Terminal = 1 << 3,
    /// Read the Ray dashboard and its API, and so the logs of all jobs, with their text.
    DashboardRead = 1 << 4,
    /// Submit and stop jobs, profile workers, and all else that Ray's dashboard and API change. Runs code in the cluster.
    /// Includes [`Scope::DashboardRead`].
    DashboardWrite = 1 << 5,
    /// List and end the sessions of others, and release tasks. With [`Scope::View`]: take over what others have parked. Where
    /// nothing narrows it, also the relay itself: metrics, diagnosis, and revoking what others have.
    PlaceAdmin = 1 << 6,
    /// End a worker process, from a debugger or with `release --force`. In no other permission.
    Terminate = 1 << 7,
    /// Speak for Ray nodes, as an agent (`ray-relay node`) does, and nothing else.
    Node = 1 << 8,
    /// With [`Scope::Debug`]: open a debugger in a task that runs and never called `breakpoint()`. In no other permission.
    Attach = 1 << 9,
}

impl Scope {
    /// All scopes, in the order of the documentation.
    pub const ALL: [Self; 10] = [
        Self::List,
        Self::View,
        Self::Debug,
        Self::Attach,
        Self::Terminal,
        Self::DashboardRead,
        Self::DashboardWrite,
        Self::PlaceAdmin,
        Self::Terminate,
        Self::Node,
    ];

    /// The word in tokens and policies.
    pub fn word(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::View => "view",
            Self::Debug => "debug",
            Self::Attach => "attach",
            Self::Terminal => "terminal",
            Self::DashboardRead => "dashboard:read",
            Self::DashboardWrite => "dashboard:write",
            Self::PlaceAdmin => "admin",
            Self::Terminate => "terminate",
            Self::Node => "node",
        }
    }

    /// Returns the scope with exactly this word.
    pub fn named(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.word() == word)
    }
}

/// One thing that can be allowed on the relay itself. A rule that is narrowed to clusters, jobs, namespaces, tasks or nodes
/// grants none of it.
///
/// ```compile_fail,E0308
/// # use ray_relay::policy::{Access, RelayScope};
/// assert!(!Access::default().may_anywhere(RelayScope::Admin));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RelayScope {
    /// Everything without an owner or a location: metrics, diagnosis, sessions without a breakpoint, revoking others'
    /// credentials.
    Admin,
}

impl RelayScope {
    /// The word in tokens and policies: that of the scope that has to be granted without narrowing.
    pub fn word(self) -> &'static str {
        self.granted().word()
    }

    /// Returns the scope that has to be granted everywhere.
    pub fn granted(self) -> Scope {
        match self {
            Self::Admin => Scope::PlaceAdmin,
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// A set of scopes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Scopes(u16);

impl Scopes {
    /// The empty set.
    pub const NONE: Self = Self(0);

    /// The scopes of every client while authentication is off: all but those that no other scope includes, which are
    /// ending a worker process and opening a debugger in a running task.
    pub const USUAL: Self = Self(0x17f);

    /// Returns these scopes with `scope` and the ones that it includes.
    pub fn with(self, scope: Scope) -> Self {
        let included = match scope {
            Scope::Debug => Scope::View as u16,
            Scope::DashboardWrite => Scope::DashboardRead as u16,
            _ => 0,
        };
        Self(self.0 | scope as u16 | included)
    }

    /// Whether `scope` is in the set.
    pub fn contains(self, scope: Scope) -> bool {
        self.0 & scope as u16 != 0
    }

    /// Whether a worker process may be ended. That needs its own permission, or the one to debug if the relay's
    /// operator allows that for everyone (`by_debug`, which is `dap.allow_terminate`).
    pub fn may_end_worker(self, by_debug: bool) -> bool {
        self.contains(Scope::Terminate) || by_debug && self.contains(Scope::Debug)
    }

    /// Whether a debugger may be opened in a running task without a breakpoint. That needs the permission to debug,
    /// and either a permission of its own or the operator's setting for everyone (`by_debug`, which is
    /// `dap.allow_attach`).
    pub fn may_open_debugger(self, by_debug: bool) -> bool {
        self.contains(Scope::Debug) && (self.contains(Scope::Attach) || by_debug)
    }

    /// Returns the scopes that are in either set.
    pub(crate) fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the scopes that are in both sets.
    pub(crate) fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Whether the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Iterates over the set, in the order of [`Scope::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Scope> {
        Scope::ALL.into_iter().filter(move |s| self.contains(*s))
    }
}

impl fmt::Display for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<_> = self.iter().map(Scope::word).collect();
        f.write_str(&words.join(","))
    }
}

/// Serialized as their words.
impl Serialize for Scopes {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

/// Deserialized from their words, all of which have to be known.
impl<'de> Deserialize<'de> for Scopes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let words = String::deserialize(from)?;
        words.parse().map_err(de::Error::custom)
    }
}

/// A word that is no scope.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no scope; scopes are list, view, debug, attach, terminal, dashboard:read, dashboard:write, admin, terminate and node"
)]
pub struct BadScope(pub String);

impl FromStr for Scopes {
    type Err = BadScope;

    /// Parses words separated by commas or spaces (RFC 8693 section 4.2 has spaces).
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let words = text.split([',', ' ']).filter(|word| !word.is_empty());
        words.into_iter().try_fold(Self::NONE, |scopes, word| {
            let unknown = || BadScope(word.chars().take(40).collect());
            let known = Scope::named(word).ok_or_else(unknown)?;
            Ok(scopes.with(known))
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn scopes_parse_in_both_spellings() {
        let scopes: Scopes = "list,debug dashboard:write".parse().unwrap();
        let all = "list,view,debug,dashboard:read,dashboard:write";
        assert_eq!(scopes.to_string(), all);
        assert!(!scopes.contains(Scope::Terminate));
        assert!("".parse::<Scopes>().unwrap().is_empty());
        let wrong = "list,root".parse::<Scopes>();
        assert_eq!(wrong, Err(BadScope("root".to_owned())));
    }

    #[test]
    fn usual_scopes_exclude_terminate_and_attach() {
        let required = [Scope::Terminate, Scope::Attach];
        let all = Scope::ALL
            .into_iter()
            .filter(|scope| !required.contains(scope))
            .fold(Scopes::NONE, Scopes::with);
        assert_eq!(all, Scopes::USUAL);
        for scope in required {
            assert!(!all.contains(scope));
        }
    }

    #[test]
    fn ending_a_worker_needs_terminate() {
        let may_end_worker = |scopes_text: &str, by_debug: bool| {
            let scopes: Scopes = scopes_text.parse().unwrap();
            scopes.may_end_worker(by_debug)
        };
        assert!(
            may_end_worker("terminate", false)
                && may_end_worker("terminate", true)
                && may_end_worker("debug", true)
        );
        for (scopes_text, by_debug) in [
            ("debug", false),
            (
                "list,view,debug,attach,terminal,dashboard:write,admin,node",
                false,
            ),
            ("list,view,attach,terminal,dashboard:write,admin,node", true),
            ("", true),
        ] {
            assert!(!may_end_worker(scopes_text, by_debug), "{scopes_text}");
        }
    }

    #[test]
    fn opening_a_debugger_needs_attach_and_debug() {
        let may_end_worker = |scopes_text: &str, by_debug: bool| {
            let scopes: Scopes = scopes_text.parse().unwrap();
            scopes.may_open_debugger(by_debug)
        };
        assert!(may_end_worker("debug,attach", false) && may_end_worker("debug", true));
        for (scopes_text, by_debug) in [
            ("debug", false),
            ("list,view,debug,terminal,admin,terminate", false),
            ("attach", false),
            ("attach,view", true),
        ] {
            assert!(!may_end_worker(scopes_text, by_debug), "{scopes_text}");
        }
    }
}
