//! `[masking]`

/// What of values is hidden in debug sessions and terminals.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Masking {
    /// `enabled`, default false: also for those who may run code. For all others it is always on.
    pub enabled: bool,
    /// `defaults`, default true: the built-in rules for names, types and values as well.
    pub defaults: bool,
    /// `names`: further names of variables, `*` stands for anything.
    pub names: Vec<String>,
    /// `types`: further names of types, `*` stands for anything.
    pub types: Vec<String>,
    /// `values`: further regular expressions, of which group 1 is hidden where there is one.
    pub values: Vec<String>,
    /// `email`, default false: e-mail addresses too.
    pub email: bool,
    /// `max_value`, default 64 KiB: longest value of a variable that is shown, in bytes.
    pub max_value: usize,
}

impl Default for Masking {
    fn default() -> Self {
        Self {
            enabled: false,
            defaults: true,
            names: Vec::new(),
            types: Vec::new(),
            values: Vec::new(),
            email: false,
            max_value: 64 << 10,
        }
    }
}
