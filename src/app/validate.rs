//! Validates a configuration with all parts of the relay that check it.
//!
//! [`config`] knows no other part. Checks that need one are combined here, for `ray-relay serve` and `ray-relay
//! config check` alike.

use ray_relay_access::tls::Material;
use ray_relay_base::config::{self, Checks, Fault, Problems, Resolved, Sources};
use ray_relay_http::notice;

#[cfg(test)]
mod tests;

/// Resolves `sources`, reading the file that they name, and the files of `[tls]` and `[notice]`. Blocks.
///
/// # Errors
/// All [`Problems`], of all sources.
pub fn resolve(sources: &Sources) -> Result<Resolved, Problems> {
    let checks = Checks {
        tls_files,
        notice_files: notice::check,
    };
    config::resolve(sources, checks)
}

fn tls_files(tls: &config::Tls) -> Vec<Fault> {
    Material::load(tls).err().unwrap_or_default()
}
