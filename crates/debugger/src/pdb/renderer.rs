//! Renders values without their text, and compares them by checksums: Python that the hook and the probe share.
//!
//! The renderer is part of the hook, which has to be one file; the probe takes it from there. `structure.py` adds the
//! parts for paused tasks.

const HOOK: &str = include_str!("../../../../src/python/ray_relay/__init__.py");
const STRUCTURE: &str = include_str!("structure.py");
const BEGIN: &str = "# <structure>";
const END: &str = "# </structure>";

/// Returns the Python source of the renderer (`_Values`) and the checksums (`_Digests`), which runs none of the
/// program's code.
pub(super) fn source() -> String {
    let shared = HOOK
        .split_once(BEGIN)
        .and_then(|(_, rest)| rest.split_once(END));
    let shared = shared.map_or("", |(shared, _)| shared);
    format!("{BEGIN}{shared}\n{STRUCTURE}\n")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::pdb::testing::{PLANTED, printed};

    const TEST: &str = include_str!("structure_test.py");

    #[test]
    fn renderer_masks_secrets_and_runs_no_user_code() {
        assert!(source().is_ascii() && source().len() > BEGIN.len() + STRUCTURE.len() + 1000);
        let snapshot = Value::from(include_str!("snapshot.py")).to_string();
        let program = format!("{}{PLANTED}\nSNAPSHOT = {snapshot}\n{TEST}", source());
        let Some(printed) = printed(&program) else {
            return;
        };
        let result: Value = serde_json::from_slice(&printed).unwrap();
        assert!(result["tried"].as_u64().unwrap() > 5000, "{result}");
        for unexpected in ["leaked", "called", "same", "differ"] {
            assert_eq!(result[unexpected], json!([]), "{unexpected}: {result}");
        }
        let text = |name: &str| result["texts"][name].as_str().unwrap().to_owned();
        for (name, value) in [
            ("text", "str, 19 characters"),
            ("data", "bytes, 3 bytes"),
            ("loss", "0.25"),
            ("flag", "True"),
            ("red", "Color.RED"),
            ("many", "list, 19 items"),
            ("named", "{'lr': 0.1, ‹str, 6 characters›: 2}"),
            ("plain", "Plain(rank=3, name=‹str, 1 characters›)"),
            ("big", "int, 100 bits"),
            ("str, 3 characters", "1"),
        ] {
            assert_eq!(text(name), value, "{name}");
        }
    }
}
