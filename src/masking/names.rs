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

/// Names of environment variables that are hidden unless `defaults` is off, case included: in lower case they are names of
/// half of all programs.
pub(super) const ENVIRONMENT: &str = r"^(?:RAY_AUTH_TOKEN.*|(?:[A-Z][A-Z0-9]*_)+(?:KEY|KEYS|TOKENS|PASS|PAT|AUTH|CREDS|DSN|SAS|SIG|SIGNATURE|SALT|COOKIE|CERT|LICENSE|WEBHOOK(?:_URL)?)(?:_BASE64|_B64)?)$";

/// Types that are hidden unless `defaults` is off.
pub(super) const TYPES: &[&str] = &["SecretStr", "SecretBytes", "*Credentials", "*PrivateKey"];

/// A set of names that are hidden, as one pattern.
#[derive(Debug)]
pub(super) struct Names {
    /// `None`: there is no pattern.
    any: Option<Regex>,
    /// Fits names as they are written.
    environment: Option<Regex>,
}

impl Names {
    /// The names that fit one of `patterns`, in which `*` stands for anything.
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
            environment: None,
        }
    }

    /// These names, and those that fit `pattern`.
    pub(super) fn with_environment(self, pattern: Option<&str>) -> Self {
        Self {
            environment: pattern.and_then(|p| Regex::new(p).or_else(|_| Regex::new("")).ok()),
            ..self
        }
    }

    /// Whether `name` is among them.
    pub(super) fn matches(&self, name: &str) -> bool {
        let fits = |names: &Option<Regex>, name: &str| {
            names.as_ref().is_some_and(|names| names.is_match(name))
        };
        fits(&self.environment, name) || fits(&self.any, &plain(name))
    }
}

/// `apiKey`, `API-KEY` and `api_key` are the same name.
fn plain(name: &str) -> String {
    name.chars()
        .filter(|c| !matches!(c, '_' | '-'))
        .flat_map(char::to_lowercase)
        .collect()
}
