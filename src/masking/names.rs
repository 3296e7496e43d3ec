//! Rules by the name of a variable or a type.

use regex::Regex;

/// Names that are hidden unless `defaults` is off. `*` stands for anything; `_`, `-` and case do not count.
pub(super) const NAMES: &[&str] = &[
    "*password*",
    "*passwd*",
    "*passphrase*",
    "*pwd",
    "*secret*",
    // Not `tokens` and `tokenizer`, which are what half of all training code is about.
    "*token",
    "*api_key*",
    "*access_key*",
    "*account_key*",
    "*private_key*",
    "*signing_key*",
    "*encryption_key*",
    "*credential*",
    "*connection_string*",
    "authorization",
    "*auth_header*",
    "cookie",
    "set_cookie",
    "bearer",
    "dsn",
];

/// Types that are hidden unless `defaults` is off.
pub(super) const TYPES: &[&str] = &["SecretStr", "SecretBytes", "*Credentials", "*PrivateKey"];

/// A set of names.
#[derive(Debug)]
pub(super) struct Names {
    /// `None`: there is no pattern.
    any: Option<Regex>,
}

impl Names {
    /// Of `patterns`, in which `*` stands for anything.
    pub(super) fn new(patterns: impl Iterator<Item = String>) -> Self {
        let patterns: Vec<_> = patterns
            .map(|pattern| {
                let parts: Vec<_> = pattern.split('*').map(plain).collect();
                let parts: Vec<_> = parts.iter().map(|part| regex::escape(part)).collect();
                parts.join(".*")
            })
            .collect();
        let any = format!("(?s)^(?:{})$", patterns.join("|"));
        Self {
            // Made of escaped text alone, so it is a pattern; were it none, everything is hidden rather than nothing.
            any: (!patterns.is_empty())
                .then(|| Regex::new(&any).or_else(|_| Regex::new("")).ok())
                .flatten(),
        }
    }

    /// Whether `name` is among them.
    pub(super) fn matches(&self, name: &str) -> bool {
        self.any
            .as_ref()
            .is_some_and(|any| any.is_match(&plain(name)))
    }
}

/// `apiKey`, `API-KEY` and `api_key` are the same name.
fn plain(name: &str) -> String {
    name.chars()
        .filter(|c| !matches!(c, '_' | '-'))
        .flat_map(char::to_lowercase)
        .collect()
}
