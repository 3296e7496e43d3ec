//! Names of people and credentials, as they go to logs, lists and the audit record.

use ray_relay_base::wire::text::is_unseen;

/// Longest `sub`, `jti`, name of a group or pattern, in characters.
pub(super) const MAX_NAME_CHARS: usize = 256;

/// Whether `name` can be shown as it is: not empty, not too long, no control or invisible characters, with which two
/// different names could look alike. A name is refused rather than cleaned: cleaning could make two of them one.
pub fn is_presentable(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 4 * MAX_NAME_CHARS
        && name.trim() == name
        && name.chars().count() <= MAX_NAME_CHARS
        && !name.chars().any(is_unseen)
}
