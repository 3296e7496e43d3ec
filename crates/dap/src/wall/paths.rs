//! Which paths name files of the editor's own machine.

/// Whether an editor that opens `path` opens a file of its own machine: not an address, not a device, and not a file on
/// a host in the path. Editors normalise `.`, `..` and doubled separators first, and on Windows `\\` is a separator
/// too.
pub(super) fn names_file(path: &str) -> bool {
    let separators = ['/', '\\'];
    let rooted = path.strip_prefix(separators);
    let mut rest = rooted.unwrap_or(path);
    let shared = rest.strip_prefix(separators).filter(|_| rooted.is_some());
    if let Some(shared) = shared {
        let (host, share) = shared.split_once(separators).unwrap_or((shared, ""));
        // Windows' names for the files of its Linux.
        if !["wsl$", "wsl.localhost"].contains(&&*host.to_ascii_lowercase()) {
            return false;
        }
        rest = share;
    }
    let mut depth = 0_usize;
    let parts = rest.trim_end_matches(separators).split(separators);
    for (at, part) in parts.enumerate() {
        let is_drive = at == 0
            && rooted.is_none()
            && matches!(part.as_bytes(), [letter, b':'] if letter.is_ascii_alphabetic());
        match part {
            ".." if shared.is_some() && depth == 0 => return false,
            ".." => depth = depth.saturating_sub(1),
            // A normalised `/.//host/share` may begin with two separators.
            "" if depth == 0 && at > 0 => return false,
            "" | "." => {}
            // Behind a drive two separators may begin a host, as at the root.
            _ if is_drive => {}
            // A host (`/ssh:host:`), a scheme, a stream of a file; Windows' devices; a host in another syntax of Emacs.
            _ if part.contains(':') => return false,
            "?" | "??" => return false,
            _ if depth == 0 && part.starts_with('[') => return false,
            _ => depth += 1,
        }
    }
    !path.contains(char::is_control)
}
