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
    // What a token is kept as.
    "*token_bytes",
    "*token_str",
    "*token_string",
    "*token_value",
    "*token_list",
    "*token_map",
    "*token_dict",
    "*token_header",
    "*token_by_*",
    "*tokens_by_*",
    "*auth_tokens",
    "*access_tokens",
    "*api_tokens",
    "*refresh_tokens",
    "*session_tokens",
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
    // Not `cookies`, of which a program has many that say nothing.
    "*cookie",
    "*auth_cookie*",
    "*session_cookie*",
    "bearer",
    "dsn",
];

/// Ends of names of environment variables that are hidden unless `defaults` is off, case included: in lower case they are
/// names of half of all programs.
const ENVIRONMENT: &str = "_(?:KEY|KEYS|TOKENS|PASS|PAT|AUTH|CREDS|DSN|SAS|SIG|SIGNATURE|SALT|COOKIE|CERT|LICENSE|WEBHOOK(?:_URL)?)(?:_BASE64|_B64)?";
/// Begins those of Ray's own token.
const RAY: &str = "RAY_AUTH_TOKEN";

/// Types that are hidden unless `defaults` is off.
pub(super) const TYPES: &[&str] = &["SecretStr", "SecretBytes", "*Credentials", "*PrivateKey"];

/// A set of names that are hidden, as one pattern.
#[derive(Debug)]
pub(super) struct Names {
    /// `None`: there is no pattern.
    any: Option<Regex>,
    /// Fits names as they are written.
    environment: Option<Regex>,
    /// As they were given.
    patterns: Vec<String>,
    /// Fits every text with a name that `environment` fits ([`super::candidates`]).
    pub(super) beginning: Option<String>,
}

/// What is in every text with a name of one pattern ([`super::candidates`]).
#[derive(Debug)]
pub(super) struct NamePattern {
    /// Letters of the name in lower case, where these are of ASCII.
    pub(super) piece: String,
    /// Fits such texts.
    pub(super) pattern: String,
}

impl Names {
    /// The names that fit one of `patterns`, in which `*` stands for anything.
    pub(super) fn new(patterns: impl Iterator<Item = String>) -> Self {
        let given: Vec<_> = patterns.collect();
        let patterns: Vec<_> = given
            .iter()
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
            patterns: given,
            beginning: None,
        }
    }

    /// These names, and those of environment variables.
    pub(super) fn with_environment(self) -> Self {
        let whole = format!("^(?:{RAY}.*|[A-Z][A-Z0-9]*(?:_[A-Z][A-Z0-9]*)*{ENVIRONMENT})$");
        Self {
            environment: Regex::new(&whole).or_else(|_| Regex::new("")).ok(),
            beginning: Some(format!("{RAY}|{ENVIRONMENT}{ENDS}")),
            ..self
        }
    }

    /// Whether there are any.
    pub(super) fn some(&self) -> bool {
        self.any.is_some() || self.environment.is_some()
    }

    /// One for each pattern.
    pub(super) fn candidates(&self) -> impl Iterator<Item = NamePattern> {
        self.patterns.iter().map(|pattern| candidate(pattern))
    }

    /// Whether `name` is among them.
    pub(super) fn matches(&self, name: &str) -> bool {
        let fits = |names: &Option<Regex>, name: &str| {
            names.as_ref().is_some_and(|names| names.is_match(name))
        };
        fits(&self.environment, name) || fits(&self.any, &plain(name))
    }
}

/// What is before a name; an escape in the text of a string ends with a letter.
const BEGINS: &str = r"(?:^|[^a-z0-9]|\\[nrt])";
/// What is behind a name.
const ENDS: &str = "(?:[^A-Za-z0-9_]|$)";

/// What is in every text with a name that fits `pattern`, in which `*` stands for anything: its longest piece, with any
/// `_` and `-` in it. No other letters become ones of ASCII in lower case than those here: U+212A, the sign for kelvin, which
/// `(?i)` takes for `k`, and `İ`.
fn candidate(pattern: &str) -> NamePattern {
    let pattern = plain(pattern);
    let pieces = || pattern.split(|c: char| c == '*' || !c.is_ascii());
    let last = pieces().count() - 1;
    let longest = pieces().enumerate().max_by_key(|(_, piece)| piece.len());
    let (at, piece) = longest.unwrap_or_default();
    let letters: Vec<_> = piece
        .chars()
        .map(|c| match c {
            'i' => "[iİ]".to_owned(),
            c => regex::escape(c.encode_utf8(&mut [0; 4])),
        })
        .collect();
    let begins = if at == 0 { BEGINS } else { "" };
    let ends = match at == last {
        true => format!("[_-]*{ENDS}"),
        false => String::new(),
    };
    NamePattern {
        piece: piece.to_owned(),
        pattern: format!("(?i){begins}{}{ends}", letters.join("[_-]*")),
    }
}

/// `apiKey`, `API-KEY` and `api_key` are the same name.
pub(super) fn plain(name: &str) -> String {
    name.chars()
        .filter(|c| !matches!(c, '_' | '-'))
        .flat_map(char::to_lowercase)
        .collect()
}
