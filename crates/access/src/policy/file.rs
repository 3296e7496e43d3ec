//! The policy file: the operator's rules.
//!
//! The authenticator reads it at start and again when it changes ([`PolicyFile::reload`]); `config check` checks it.
//! A file with a fault is not used in part: all of its problems are reported, and no rule applies. Invariants: a file
//! without rules grants nothing; an additional rule never takes a right away.

mod read;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::access::{Access, Rule};
use super::breakpoint_selector::Pattern;
use super::scope::Scope;
use ray_relay_base::config::Problems;
use ray_relay_base::config::units::format_duration;
use ray_relay_base::wire::watched_file::FileVersion;

/// All rules of one file, in its order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Policy {
    grants: Vec<RuleEntry>,
}

/// One `[[rule]]` of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
struct RuleEntry {
    /// The position, such as `policy.toml line 7`.
    position: String,
    /// Patterns of subjects. One entry of each non-empty list has to match. This one and `groups` are never both empty.
    subjects: Vec<Pattern>,
    groups: Vec<Pattern>,
    rule: Arc<Rule>,
}

impl Policy {
    /// Returns the access of a client authenticated as `subject` and a member of `groups`. Empty if no rule applies
    /// to it.
    pub fn access(&self, subject: &str, groups: &[String]) -> Access {
        let rules = self.grants.iter().filter(|g| g.is_for(subject, groups));
        Access::new(rules.map(|grant| Arc::clone(&grant.rule)).collect())
    }

    /// Number of rules.
    pub fn len(&self) -> usize {
        self.grants.len()
    }

    /// Whether the policy has no rule, and so grants nothing.
    pub fn is_empty(&self) -> bool {
        self.grants.is_empty()
    }

    /// Formats one line for each rule, for people: `line 7: group "ml" may list, view and debug in jobs "01*"`.
    pub fn explained(&self) -> Vec<String> {
        self.grants.iter().map(RuleEntry::explained).collect()
    }

    /// Returns the rules as JSON, in the words of the file.
    pub fn to_json(&self) -> Value {
        self.grants.iter().map(RuleEntry::to_json).collect()
    }

    /// Returns sentences about rules that are valid but probably not intended: cluster names that are none of
    /// `clusters`. `others`: further clusters may be discovered, which have a dot in their names.
    pub fn doubts(&self, clusters: &[&str], others: bool) -> Vec<String> {
        let mut doubts = Vec::new();
        for grant in &self.grants {
            for pattern in &grant.rule.selector.clusters {
                let may_be_found = others && pattern.as_str().contains(['.', '*']);
                if !may_be_found && !clusters.iter().any(|name| pattern.matches(name)) {
                    doubts.push(format!(
                        "{}: no cluster is called {:?}; there are {}",
                        grant.position,
                        pattern.as_str(),
                        clusters.join(", ")
                    ));
                }
            }
        }
        doubts
    }
}

impl RuleEntry {
    fn is_for(&self, subject: &str, groups: &[String]) -> bool {
        let fits = |patterns: &[Pattern], name: &str| patterns.iter().any(|p| p.matches(name));
        let subject_fits = self.subjects.is_empty() || fits(&self.subjects, subject);
        let group_fits =
            self.groups.is_empty() || groups.iter().any(|group| fits(&self.groups, group));
        let is_for_somebody = !(self.subjects.is_empty() && self.groups.is_empty());
        is_for_somebody && subject_fits && group_fits
    }

    fn explained(&self) -> String {
        let mut who: Vec<String> = Vec::new();
        for (word, patterns) in [("subject", &self.subjects), ("group", &self.groups)] {
            if !patterns.is_empty() {
                who.push(format!("{word} {}", quoted(patterns)));
            }
        }
        let scopes: Vec<&str> = self.rule.scopes.iter().map(Scope::word).collect();
        let mut text = format!(
            "{}: {} may {}",
            self.position,
            who.join(" and "),
            scopes.join(", ")
        );
        let selector = self.rule.selector.lists();
        for (word, patterns) in selector.iter().filter(|(_, p)| !p.is_empty()) {
            text += &format!("; {word} {}", quoted(patterns));
        }
        if selector.iter().all(|(_, patterns)| patterns.is_empty()) {
            text += "; everywhere";
        } else if self.rule.scopes.contains(Scope::PlaceAdmin) {
            text += "; `admin` of what is there, not of the relay";
        }
        let obligations = &self.rule.obligations;
        if obligations.unmasked {
            text += "; text of values is shown";
        }
        if !obligations.show.is_empty() {
            text += &format!("; the text of {} is shown", quoted(&obligations.show));
        }
        if obligations.record {
            text += "; sessions are recorded";
        }
        for (word, limit) in [
            ("a session", obligations.session_limit),
            ("idle", obligations.idle_limit),
        ] {
            if let Some(limit) = limit {
                text += &format!("; {word} for at most {}", format_duration(limit));
            }
        }
        match obligations.park {
            Some(Duration::ZERO) => text += "; a session whose connection is lost ends",
            Some(park) => {
                text += &format!(
                    "; kept for {} when the connection is lost",
                    format_duration(park)
                );
            }
            None => {}
        }
        if let Some(most) = obligations.park_max {
            text += &format!("; parked for at most {}", format_duration(most));
        }
        if obligations.together {
            text += "; the others of a job stop with a task";
        }
        text
    }

    fn to_json(&self) -> Value {
        let texts = |patterns: &[Pattern]| -> Value {
            patterns.iter().map(|p| Value::from(p.as_str())).collect()
        };
        let scopes: Vec<&str> = self.rule.scopes.iter().map(Scope::word).collect();
        let obligations = &self.rule.obligations;
        let mut rule = json!({
            "place": self.position,
            "subjects": texts(&self.subjects),
            "groups": texts(&self.groups),
            "scopes": scopes,
            "unmasked": obligations.unmasked,
            "show": texts(&obligations.show),
            "record": obligations.record,
            "session_limit": obligations.session_limit.map(format_duration),
            "idle_limit": obligations.idle_limit.map(format_duration),
            "park": obligations.park.map(format_duration),
            "park_max": obligations.park_max.map(format_duration),
            "group": obligations.together.then_some("job"),
        });
        for (word, patterns) in self.rule.selector.lists() {
            rule[word] = texts(patterns);
        }
        rule
    }
}

fn quoted(patterns: &[Pattern]) -> String {
    let quoted: Vec<_> = patterns
        .iter()
        .map(|p| format!("{:?}", p.as_str()))
        .collect();
    quoted.join(" or ")
}

/// A policy file that may change while the relay runs.
#[derive(Debug)]
pub struct PolicyFile {
    path: PathBuf,
    /// `None` if there is no file.
    version: Option<FileVersion>,
    policy: Arc<Policy>,
}

impl PolicyFile {
    /// Reads `path`.
    ///
    /// # Errors
    /// As [`Policy::load`].
    pub fn open(path: PathBuf) -> Result<Self, Problems> {
        // The version first: a change while the file is read causes another read.
        let version = FileVersion::at(&path);
        let policy = Arc::new(Policy::load(&path)?);
        Ok(Self {
            path,
            version,
            policy,
        })
    }

    /// Returns the rules in force.
    pub fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    /// Reads the file again if it has changed: one `stat`, cheap enough for every second. Returns whether the rules
    /// differ. Blocks on the file system.
    ///
    /// # Errors
    /// All [`Problems`] of the new content, once for each content. The old rules stay in force until it is mended, so
    /// that a typo does not end all sessions. To take rights away at once, leave the file without rules.
    pub fn reload(&mut self) -> Result<bool, Problems> {
        let version = FileVersion::at(&self.path);
        if version == self.version {
            return Ok(false);
        }
        self.version = version;
        let policy = Policy::load(&self.path)?;
        let is_new = policy != *self.policy;
        self.policy = Arc::new(policy);
        Ok(is_new)
    }
}

#[cfg(test)]
mod tests;
