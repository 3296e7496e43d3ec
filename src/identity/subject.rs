//! Names of people and credentials, as they go to logs, lists and the audit record.

use super::claims::LONGEST_NAME;

/// Whether `name` can be shown as it is: not empty, not too long, no control or invisible characters, with which two
/// different names could look alike. A name is refused rather than cleaned: cleaning could make two of them one.
pub(crate) fn is_presentable(name: &str) -> bool {
    let unseen = |c: char| {
        c.is_control()
            || matches!(c,
                '\u{00ad}' | '\u{061c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
    };
    !name.is_empty()
        && name.len() <= 4 * LONGEST_NAME
        && name.trim() == name
        && name.chars().count() <= LONGEST_NAME
        && !name.chars().any(unseen)
}
