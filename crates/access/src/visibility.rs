//! The parts of a program's values that a principal sees.
//!
//! With `debug`, everything: the principal could evaluate it. With `view`, text is hidden unless a policy rule allows
//! it, and none of the program's code runs to render a value. Values are rendered in the worker
//! ([`ray_relay_debugger::pdb`], the hook). A value not known to be rendered so is shown by its type alone. Pure.

use crate::policy::{Pattern, Rights, Scope};
use ray_relay_debugger::pdb::{ComparisonKey, Rendering, Visible};

/// Visible parts of values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Visibility {
    /// Everything, as the program's own `__repr__` writes it.
    Full,
    /// Text too, but none of the program's code runs.
    Text,
    /// Types, lengths, shapes, single numbers and names. Text only of variables whose name matches one of these
    /// patterns.
    Structure(Vec<Pattern>),
}

impl Visibility {
    /// Returns what a principal with `rights` sees.
    pub fn of(rights: &Rights) -> Self {
        let obligations = &rights.obligations;
        match rights.scopes.contains(Scope::Debug) {
            true => Self::Full,
            false if obligations.unmasked => Self::Text,
            false => Self::Structure(obligations.show.clone()),
        }
    }

    /// Whether text is hidden.
    pub fn hides(&self) -> bool {
        matches!(self, Self::Structure(_))
    }

    /// Whether the text of the variable `path` is shown, by its own name or that of a value around it: as of
    /// `self.config['api_key']`.
    pub fn shows(&self, path: &str) -> bool {
        match self {
            Self::Full | Self::Text => true,
            Self::Structure(show) => {
                let shows = |name: &str| show.iter().any(|pattern| pattern.matches(name));
                names(path).map_or_else(|| shows(path), |names| names.into_iter().any(shows))
            }
        }
    }

    /// Returns how the probe of paused tasks renders values, with the key for checksums if they are compared.
    pub fn rendering(&self, key: Option<ComparisonKey>) -> Rendering {
        let (visible, show) = match self {
            Self::Full => (Visible::Full, &[][..]),
            Self::Text => (Visible::Text, &[][..]),
            Self::Structure(show) => (Visible::Structure, &show[..]),
        };
        Rendering {
            visible,
            show: show
                .iter()
                .map(|pattern| pattern.as_str().to_owned())
                .collect(),
            key,
        }
    }
}

/// Returns the names in a `path`, such as `self.config['lr']`; `None`: it is no path.
fn names(path: &str) -> Option<Vec<&str>> {
    let end = path.find(['.', '[']).unwrap_or(path.len());
    let (first, mut rest) = path.split_at(end);
    let mut names = vec![first];
    while !rest.is_empty() {
        if let Some(attribute) = rest.strip_prefix('.') {
            let end = attribute.find(['.', '[']).unwrap_or(attribute.len());
            names.push(&attribute[..end]);
            rest = &attribute[end..];
        } else if let Some(key) = rest.strip_prefix("['") {
            let (name, behind) = key.split_once("']")?;
            names.push(name);
            rest = behind;
        } else {
            let (index, behind) = rest.strip_prefix('[')?.split_once(']')?;
            let digits = index.strip_prefix('-').unwrap_or(index);
            if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
                return None;
            }
            rest = behind;
        }
    }
    names
        .iter()
        .all(|name| is_identifier(name))
        .then_some(names)
}

/// Replaces a text of the program: `str, 24 characters`.
pub fn hidden(text: &str) -> String {
    format!("str, {} characters", text.chars().count())
}

/// Whether `text` is a valid identifier: it names a variable in a source file, so it is not the program's data.
pub fn is_identifier(text: &str) -> bool {
    const MAX_CHARS: usize = 64;
    let mut chars = text.chars();
    chars.next().is_some_and(|c| c.is_alphabetic() || c == '_')
        && chars.clone().count() < MAX_CHARS
        && chars.all(|c| c.is_alphanumeric() || c == '_')
}

/// Returns `name` if it can be the name of a type: `torch.Tensor`, `f.<locals>.Config`.
pub fn type_name(name: &str) -> Option<&str> {
    let is_part = |part: &str| part == "<locals>" || is_identifier(part);
    name.split('.').all(is_part).then_some(name)
}

/// Returns the name of a thread or an asyncio task if Python has assigned it, otherwise a replacement.
pub fn thread_name(name: &str) -> String {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let is_own = |name: &str| {
        let (of, target) = name.split_once(" (").map_or((name, None), |(of, target)| {
            (of, Some(target.strip_suffix(')').unwrap_or_default()))
        });
        let numbered = [
            "Thread-",
            "Dummy-",
            "Task-",
            "Timer-",
            "asyncio_",
            "ThreadPoolExecutor-",
        ];
        let number = numbered.iter().find_map(|prefix| of.strip_prefix(prefix));
        number.is_some_and(|number| number.split('_').all(is_number))
            && target.is_none_or(is_identifier)
    };
    // The names that the hook and the probe give to the exceptions of a group.
    let of_group = || {
        let (number, all) = name.strip_prefix("exception ")?.split_once(" of ")?;
        (is_number(number) && is_number(all)).then_some(())
    };
    match name {
        name if of_group().is_some() => name.to_owned(),
        "" | "MainThread" | "cause" | "ray-relay" | "the process" => name.to_owned(),
        name if is_own(name) => name.to_owned(),
        name => hidden(name),
    }
}

/// Filters a value of which only the text of an external program (py-spy) is known: single numbers, `None`, and the
/// types of objects remain.
pub fn written(value: &str) -> String {
    const MAX_DIGITS: usize = 20;
    let is_number =
        value.len() <= MAX_DIGITS && (value.parse::<i64>().is_ok() || value.parse::<f64>().is_ok());
    let object = || {
        let (name, _) = value.strip_prefix('<')?.split_once(" at 0x")?;
        type_name(name).map(|name| format!("<{name}>"))
    };
    match value {
        "True" | "False" | "None" => value.to_owned(),
        _ if is_number => value.to_owned(),
        _ => object().unwrap_or_else(|| format!("{} characters", value.chars().count())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_shows_an_attribute_as_it_does_a_variable() {
        let pattern = |text: &str| Pattern::new(text);
        let visible = Visibility::Structure(vec![pattern("api_key"), pattern("shard*")]);
        for path in [
            "api_key",
            "self.api_key",
            "self.config['api_key']",
            "self.shards[3].url",
            "shard_1['a'][0]",
        ] {
            assert!(visible.shows(path), "{path}");
        }
        for path in [
            "self.key",
            "self.api_key_2",
            "self['x.api_key']",
            "self['a b'].api_key",
            "self['a\\'].api_key",
            "self[‹str, 3 characters›].api_key",
            "",
        ] {
            assert!(!visible.shows(path), "{path}");
        }
    }

    #[test]
    fn only_known_non_text_values_are_unmasked() {
        for (value, shown) in [
            ("3", "3"),
            ("-0.5", "-0.5"),
            ("nan", "nan"),
            ("True", "True"),
            ("None", "None"),
            ("<torch.Tensor at 0x7f00>", "<torch.Tensor>"),
            ("<my secret at 0x7f00>", "21 characters"),
            ("\"hunter2\"", "9 characters"),
            ("[104, 117]", "10 characters"),
            ("104117110116101114501041171101161011", "36 characters"),
        ] {
            assert_eq!(written(value), shown, "{value}");
        }
        for (name, shown) in [
            ("MainThread", "MainThread"),
            ("Thread-3 (loop)", "Thread-3 (loop)"),
            ("ThreadPoolExecutor-0_1", "ThreadPoolExecutor-0_1"),
            ("Task-12", "Task-12"),
            ("exception 1 of 2", "exception 1 of 2"),
            ("exception 1 of x", "str, 16 characters"),
            ("Thread-3 (a b)", "str, 14 characters"),
            ("hunter2", "str, 7 characters"),
            ("Task-hunter2", "str, 12 characters"),
        ] {
            assert_eq!(thread_name(name), shown, "{name}");
        }
        assert_eq!(type_name("a.f.<locals>.B"), Some("a.f.<locals>.B"));
        assert_eq!(type_name("hunter2 x"), None);
        assert_eq!(hidden("größe"), "str, 5 characters");
        assert!(is_identifier("loss_1") && !is_identifier("1x") && !is_identifier("a-b"));
        assert!(!is_identifier(&"x".repeat(65)) && !is_identifier(""));
    }
}
