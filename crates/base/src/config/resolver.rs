//! Reads the sections of the configuration, key by key, from the entries of the sources.

use std::collections::HashMap;

use super::kind::ValueKind;
use super::problem::{Problem, Wrong};
use super::raw::RawEntry;

/// The key as written in the file: a key that is a Rust keyword is declared as `r#for`.
pub(super) const fn key(declared: &'static str) -> &'static str {
    match declared.as_bytes() {
        [b'r', b'#', ..] => declared.split_at(2).1,
        _ => declared,
    }
}

/// A section of the file.
pub(super) trait Section {
    /// Name of the section in the file, such as `listen` of `[listen]`.
    const NAME: &'static str;
    /// Known keys, in the order of the table.
    const KEYS: &'static [&'static str];

    /// Sets every key that a source gives, and leaves the others unchanged.
    fn read(&mut self, resolver: &mut Resolver);
}

/// One effective value, for `config check` to show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// Section of the file; `cluster` for those of a cluster.
    pub section: &'static str,
    /// Key in that section.
    pub key: &'static str,
    /// The value in TOML's notation.
    pub value: String,
    /// `default`, or the source of the value.
    pub origin: String,
}

/// Reads the tables from the sources, and keeps every problem.
pub(super) struct Resolver {
    /// The entries for each key, that of the highest precedence last.
    pub(super) entries: HashMap<(&'static str, &'static str), Vec<RawEntry>>,
    pub(super) problems: Vec<Problem>,
    pub(super) settings: Vec<Setting>,
}

impl Resolver {
    /// Reads `section.key` from every source that sets it; the last one wins.
    pub(super) fn key<T: 'static>(
        &mut self,
        section: &'static str,
        key: &'static str,
        slot: &mut T,
        kind: &ValueKind<T>,
    ) {
        let entries = self.entries.get(&(section, key)).cloned();
        let mut origin = None;
        for entry in entries.unwrap_or_default() {
            match kind.read(&entry.value) {
                Ok(value) => {
                    *slot = value;
                    origin = Some(match entry.label.contains('.') {
                        true => entry.place,
                        false => entry.label,
                    });
                }
                Err(Wrong { expected, hint }) => self.problems.push(Problem {
                    key: entry.label,
                    place: entry.place,
                    found: kind.found(&entry.value),
                    expected,
                    hint,
                }),
            }
        }
        if let Some(value) = kind.display(slot, origin.is_some()) {
            self.settings.push(Setting {
                section,
                key,
                value,
                origin: origin.unwrap_or_else(|| "default".to_owned()),
            });
        }
    }

    /// Whether any source sets the key, valid or not.
    pub(super) fn is_given(&self, section: &'static str, key: &'static str) -> bool {
        self.entries.contains_key(&(section, key))
    }

    /// The shown setting of a key that was read.
    pub(super) fn setting(&mut self, section: &str, key: &str) -> Option<&mut Setting> {
        self.settings
            .iter_mut()
            .find(|setting| setting.section == section && setting.key == key)
    }

    /// Adds a problem of `section.key` in relation to other keys, located where the value was given, or as a default
    /// that does not fit.
    pub(super) fn problem(&mut self, key: &str, found: &str, expected: &str, hint: &str) {
        let (section, name) = key.split_once('.').unwrap_or_default();
        let setting = self.setting(section, name);
        let place = setting.map_or("default", |setting| setting.origin.as_str());
        let place = place.to_owned();
        self.problems.push(Problem {
            key: key.to_owned(),
            place,
            found: found.to_owned(),
            expected: expected.to_owned(),
            hint: Some(hint.to_owned()),
        });
    }
}
