//! Names of users and credentials in logs, lists and the audit log.

use ray_relay_base::wire::text::is_unseen;

/// Longest `sub`, `jti`, name of a group or pattern, in characters.
pub(super) const MAX_NAME_CHARS: usize = 256;

/// Whether `name` can be shown as it is: not empty, not too long, without control or invisible characters, which
/// could make two different names look alike. A name is refused rather than cleaned: cleaning could make two names
/// equal.
pub fn is_presentable(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 4 * MAX_NAME_CHARS
        && name.trim() == name
        && name.chars().count() <= MAX_NAME_CHARS
        && !name.chars().any(is_unseen)
}
