//! A configuration, checked by all parts of the relay that have something to say about it.
//!
//! [`config`] knows no other part, so what it cannot judge by itself is put together
//! here, for `ray-relay serve` and `ray-relay check-config` alike.

use crate::config::{self, Checks, Fault, Problems, Resolved, Sources};
use crate::masking::{BadPattern, check_pattern};
use crate::notice;
use crate::tls::Material;

#[cfg(test)]
mod tests;

/// Resolves `sources`, reading the file that they name, and the files of `[tls]` and `[notice]`. Blocks.
///
/// # Errors
/// All [`Problems`], of all sources.
pub fn resolve(sources: &Sources) -> Result<Resolved, Problems> {
    let checks = Checks {
        pattern,
        tls_files,
        notice_files: notice::check,
    };
    config::resolve(sources, checks)
}

fn pattern(pattern: &str) -> Result<(), &'static str> {
    check_pattern(pattern).map_err(|bad| match bad {
        BadPattern::Unusable(_) => {
            "one of them is no regular expression, or too large; write them in '...', where a backslash needs no escape"
        }
        BadPattern::Empty => "one of them matches the empty text",
    })
}

fn tls_files(tls: &config::Tls) -> Vec<Fault> {
    Material::load(tls).err().unwrap_or_default()
}
