//! Expands `ray.rank`, `ray.local_rank` and `ray.world_size` in conditions and log messages of breakpoints, so that one
//! breakpoint can be for one rank.
//!
//! Pure. Ray's own module has no such names. A word becomes the number if the relay knows it, else an expression that
//! asks the process's modules or environment. Quoted text stays unchanged.

use std::borrow::Cow;

use serde_json::Value;

use ray_relay_base::wire::json::{list_mut, put};
use ray_relay_ray::ray::registry::Names;

/// Name after `ray.`, environment variable, and torch function of each word.
const WORDS: [(&str, &str, Option<&str>); 3] = [
    ("rank", "RANK", Some("get_rank")),
    ("local_rank", "LOCAL_RANK", None),
    ("world_size", "WORLD_SIZE", Some("get_world_size")),
];

/// Replaces the words in the `arguments` of a request that sets breakpoints. Returns whether the process is asked for a
/// rank that is not known here.
pub(super) fn put_into(arguments: &mut Value, names: &Names) -> bool {
    let mut asks = false;
    let Some(breakpoints) = list_mut(arguments, "breakpoints") else {
        return asks;
    };
    for breakpoint in breakpoints {
        for (key, is_log) in [("condition", false), ("logMessage", true)] {
            let Some(text) = breakpoint.get(key).and_then(Value::as_str) else {
                continue;
            };
            if let Cow::Owned(expanded) = expanded(text, is_log, names) {
                asks |= !names.rank_is_certain && expanded.contains("'RANK'");
                put(breakpoint, key, expanded);
            }
        }
    }
    asks
}

/// Expands the words in `text`; of a log message only the parts in braces are Python.
fn expanded<'a>(text: &'a str, is_log: bool, names: &Names) -> Cow<'a, str> {
    let mut out = String::new();
    let (mut quote, mut braces, mut at, mut copied) = (None, 0u32, 0, 0);
    while let Some(c) = text[at..].chars().next() {
        let next = at + c.len_utf8();
        match (c, quote) {
            ('\\', Some(_)) => {
                at = next + text[next..].chars().next().map_or(0, char::len_utf8);
                continue;
            }
            (c, Some(open)) if c == open => quote = None,
            (_, Some(_)) => {}
            ('\'' | '"', None) if !is_log || braces > 0 => quote = Some(c),
            ('{', None) => braces += 1,
            ('}', None) => braces = braces.saturating_sub(1),
            ('r', None) if !is_log || braces > 0 => {
                if let Some((word, end)) = word_at(text, at) {
                    out += &text[copied..at];
                    out += &value(word, names);
                    (at, copied) = (end, end);
                    continue;
                }
            }
            _ => {}
        }
        at = next;
    }
    match copied {
        0 => Cow::Borrowed(text),
        _ => Cow::Owned(out + &text[copied..]),
    }
}

/// The word `at` this offset of `text`, and its end.
fn word_at(text: &str, at: usize) -> Option<(usize, usize)> {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    let before = text[..at].trim_end().chars().next_back();
    if text[..at].ends_with(part) || before == Some('.') {
        return None;
    }
    let name = text[at..].strip_prefix("ray.")?;
    let end = name.find(|c| !part(c)).unwrap_or(name.len());
    let word = WORDS.iter().position(|(word, ..)| *word == &name[..end])?;
    Some((word, at + "ray.".len() + end))
}

fn value(word: usize, names: &Names) -> String {
    // A rank from a name is a guess: the process takes precedence.
    let by_name = names.rank.filter(|_| word == 0 && !names.rank_is_certain);
    let certain = names.rank.filter(|_| names.rank_is_certain);
    let known = [certain, names.local_rank, names.world_size][word];
    let (_, variable, function) = WORDS[word];
    let or_else = by_name.map_or_else(|| "-1".to_owned(), |rank| rank.to_string());
    let environment = format!("int(__import__('os').environ.get('{variable}', {or_else}))");
    match (known, function) {
        (Some(number), _) => number.to_string(),
        (None, None) => environment,
        (None, Some(function)) => format!(
            "(lambda d: d.{function}() if d and d.is_initialized() else {environment})(__import__('sys').modules.get('torch.distributed'))"
        ),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;
    use ray_relay_debugger::pdb::testing::printed;

    fn ranked(rank: Option<u32>) -> Names {
        Names {
            rank,
            rank_is_certain: rank.is_some(),
            world_size: Some(8),
            ..Names::default()
        }
    }

    #[test]
    fn rank_words_are_expanded_only_in_python_code() {
        for (text, expected) in [
            ("ray.rank == 3", "3 == 3"),
            ("x and ray.rank<ray.world_size", "x and 3<8"),
            ("(ray.rank)", "(3)"),
            ("'é' + str(ray.rank)", "'é' + str(3)"),
        ] {
            assert_eq!(expanded(text, false, &ranked(Some(3))), expected);
        }
        for text in [
            "array.rank == 3",
            "x.ray.rank == 3",
            "ray.ranks",
            "ray.rank_of(3)",
            "'ray.rank' in x",
            r#""it\"s ray.rank""#,
            "ray.get(x)",
        ] {
            assert_eq!(expanded(text, false, &ranked(Some(3))), text);
        }
        let logged = "ray.rank is {ray.rank}, {'ray.rank'}";
        let expected = "ray.rank is {3}, {'ray.rank'}";
        assert_eq!(expanded(logged, true, &ranked(Some(3))), expected);
    }

    #[test]
    fn unknown_rank_is_read_from_the_process() {
        let mut arguments =
            json!({"breakpoints": [{"line": 3, "condition": "ray.rank == 5"}, {"line": 4}]});
        assert!(put_into(&mut arguments, &ranked(None)));
        assert_eq!(arguments["breakpoints"][1], json!({"line": 4}));
        let condition = arguments["breakpoints"][0]["condition"].as_str().unwrap();
        let torch = "import sys, types\nd = sys.modules['torch.distributed'] = types.ModuleType('d')\n\
                     d.is_initialized, d.get_rank = lambda: True, lambda: 5\n";
        for (before, expected) in [
            ("", "False"),
            ("import os\nos.environ['RANK'] = '5'\n", "True"),
            (torch, "True"),
        ] {
            let program = format!("{before}print({condition})");
            let Some(output) = printed(&program) else {
                return;
            };
            assert_eq!(
                String::from_utf8_lossy(&output).trim(),
                expected,
                "{program}"
            );
        }
    }

    proptest::proptest! {
        #[test]
        fn any_rank_expression_is_read_without_panic(text in "[ray.nk_{}'\"\\\\é ]{0,30}", is_log: bool) {
            let _ = expanded(&text, is_log, &ranked(Some(1)));
        }
    }
}
