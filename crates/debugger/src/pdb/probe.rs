//! Python that runs inside the debugged process for one command, as one `evaluate` request.
//!
//! pdb's answers come from Python itself (`repr`, `pprint`, `linecache`, `inspect`). So they are computed there, in
//! the selected frame, instead of being guessed from a debugger's display values. Nothing stays in the process.
//! `snapshot.py` and `probe.py` are all of its code. Question and answer travel as plain text, the question first, so
//! that a person who records or audits the session can read both.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::renderer;

const SOURCE: &str = concat!(include_str!("snapshot.py"), "\n", include_str!("probe.py"));

/// The expression that answers `ask`, an object with `op`. Its value is a string of ASCII JSON.
pub(super) fn expression(ask: &Value) -> String {
    let renders = matches!(
        ask.get("op").and_then(Value::as_str),
        Some("snapshot" | "open")
    );
    let structure = if renders {
        renderer::source()
    } else {
        String::new()
    };
    // A JSON string is a Python literal too.
    let literal = |text: String| Value::from(text).to_string();
    format!(
        "(lambda ask={}, j=__import__('json'), n={{'g': globals(), 'l': locals(), 'structure': {{}}}}: \
         (n.update(ask=j.loads(ask)), exec({}, n['structure']), exec({}, n), j.dumps(j.loads(j.dumps(n['answer'], ensure_ascii=False).encode('utf-8', 'replace'))))[3])()",
        literal(ask.to_string()),
        literal(structure),
        literal(SOURCE.to_owned()),
    )
}

/// The arguments of an `evaluate` without a frame that interrupts the running [expressions](expression) of the
/// process. Native code continues.
pub fn interrupt() -> Value {
    let expression = expression(&json!({"op": "interrupt"}));
    // debugpy 1.8.0 prints the result of an evaluation without a frame, unless that is `None`.
    json!({"expression": format!("({expression}, None)[1]"), "context": "clipboard"})
}

/// The answer of the probe; the fields depend on the question.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ProbeAnswer {
    pub(super) text: Option<String>,
    /// Characters of the whole text.
    pub(super) total: u64,
    pub(super) failed: bool,
    pub(super) error: Option<String>,
    /// Lines of source, and the number of the first.
    pub(super) lines: Vec<String>,
    pub(super) first: Option<u32>,
    pub(super) file: Option<String>,
    pub(super) rank: Option<u32>,
}

/// Parses the process's answer, the `result` of the `evaluate` response.
pub(super) fn answer<T: DeserializeOwned>(result: &str) -> Option<T> {
    let quote = result.chars().next().filter(|c| matches!(c, '\'' | '"'));
    // Without a frame the debugger returns the text itself, otherwise a Python string literal.
    let Some(quote) = quote else {
        return serde_json::from_str(result).ok();
    };
    let quoted = result.strip_prefix(quote)?.strip_suffix(quote)?;
    let mut text = String::with_capacity(quoted.len());
    let mut chars = quoted.chars();
    while let Some(c) = chars.next() {
        match c {
            // In printable ASCII nothing else is escaped.
            '\\' => text.push(chars.next().filter(|c| matches!(c, '\\' | '\'' | '"'))?),
            c => text.push(c),
        }
    }
    serde_json::from_str(&text).ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::pdb::testing::printed;

    #[test]
    fn probe_request_is_readable_in_the_expression() {
        assert!(SOURCE.is_ascii());
        let expression = expression(&serde_json::json!({"op": "p", "text": "password"}));
        assert!(expression.starts_with(r#"(lambda ask="{\"op\":\"p\",\"text\":\"password\"}""#));
        assert!(!expression.contains('\n'));
    }

    /// Returns the output of `p` for `value` after `before`, in a separate process.
    fn digest(before: &str, value: &str) -> Option<String> {
        let request = serde_json::json!({"op": "p", "text": value, "limit": 1000, "digest": true});
        let program = format!("{before}\nprint({})\n", super::expression(&request));
        let stdout = printed(&program)?;
        let response = serde_json::from_slice::<Value>(&stdout).unwrap();
        Some(response["text"].as_str().unwrap().trim_end().to_owned())
    }

    #[test]
    fn array_is_digested_by_its_metadata() {
        // A stand-in for numpy with the attributes that the probe reads.
        let numpy = r#"
import sys, types
class ndarray:
    def __init__(self, *all): self.all, self.size = all, len(all)
    shape = property(lambda self: (self.size // 2, 2))
    dtype = type("dtype", (), {"kind": "f", "__str__": lambda self: "float32"})()
    def ravel(self): return self
    def view(self, _): return types.SimpleNamespace(data=bytes(int(x) % 256 for x in self.all if x == x))
    def __repr__(self): return "its elements"
class Own(ndarray): pass
np = types.ModuleType("numpy")
np.ndarray, np.uint8, np.float16 = ndarray, "uint8", "float16"
np.isfinite = lambda a: [x == x for x in a.all]
np.count_nonzero = sum
np.ascontiguousarray = lambda a: a
np.linalg = types.SimpleNamespace(norm=lambda a: sum(x * x for x in a.all) ** 0.5)
sys.modules["numpy"] = np
"#;
        let cases = [
            (
                "ndarray(*[2.0] * 16)",
                "array (8, 2) float32, finite, norm 8, checksum ",
            ),
            (
                "ndarray(float('nan'), *[2.0] * 15)",
                "array (8, 2) float32, not finite: 1 of 16, norm nan, checksum ",
            ),
            // A subclass may run user code, so only its metadata are read.
            ("Own(*[2.0] * 16)", "array (8, 2) float32"),
            ("ndarray(*'x' * 16)", "array (8, 2) float32"),
            ("ndarray(1.0, 2.0)", "its elements"),
            ("[0] * 3", "[0, 0, 0]"),
        ];
        for (value, expected) in cases {
            let Some(response) = digest(numpy, value) else {
                return;
            };
            let is_prefix = expected.ends_with("checksum ");
            assert!(
                response == expected
                    || is_prefix
                        && response.starts_with(expected)
                        && response.len() == expected.len() + 8,
                "{value}: {response}"
            );
        }
        assert_ne!(
            digest(numpy, "ndarray(*[2.0] * 16)"),
            digest(numpy, "ndarray(*[3.0] + [2.0] * 15)")
        );
        // The probe must not import a library.
        let loaded = digest(
            "import sys",
            "[i for i in [[0] * 20] if 'numpy' in sys.modules]",
        );
        assert_eq!(loaded.as_deref(), Some("[]"));
    }

    #[test]
    fn process_facts_are_read_without_user_code() {
        let request = serde_json::json!({"op": "snapshot", "limit": 20, "names": 50, "frames": 5, "locals": true, "process": true,
            "around": 0, "room": 1000});
        // A task that waits in Ray's breakpoint.
        let program = format!(
            "import os, sys, random, threading, types\n\
             os.environ.update(OMP_NUM_THREADS='8', RAY_JOB='x', LONG='y' * 30)\n\
             own = sys.modules['own'] = types.ModuleType('own')\n\
             own.__version__ = '1.2'\n\
             code = compile('def set_trace(): print(eval(ask))', '/x/ray/util/debugpy.py', 'exec')\n\
             there = {{'ask': {}}}\n\
             exec(code, there)\n\
             there['set_trace']()\n",
            Value::from(super::expression(&request))
        );
        let Some(stdout) = printed(&program) else {
            return;
        };
        let response: Value = serde_json::from_slice(&stdout).unwrap();
        let process = &response["threads"][1];
        assert_eq!(process["process"], true, "{response}");
        let locals_of = |kind: usize| &process["frames"][kind]["locals"];
        assert_eq!(
            (&locals_of(0)["OMP_NUM_THREADS"], &locals_of(0)["LONG"]),
            (&"8".into(), &format!("{}...", "y".repeat(20)).into())
        );
        assert!(locals_of(0).get("RAY_JOB").is_none(), "{response}");
        assert_eq!(locals_of(1)["own"], "1.2");
        assert!(
            locals_of(2)["random"]
                .as_str()
                .unwrap()
                .starts_with("checksum "),
            "{response}"
        );
    }

    #[test]
    fn rank_comes_from_loaded_libraries_or_environment() {
        let request = super::expression(&serde_json::json!({"op": "ranks"}));
        let environment =
            "import os, sys, types\nos.environ.update(RANK='3', LOCAL_RANK='1', WORLD_SIZE='8')";
        let torch = "d = sys.modules['torch.distributed'] = types.ModuleType('torch.distributed')\n\
            d.is_initialized, d.get_rank, d.get_world_size = lambda: up, lambda: 5, lambda: 16";
        let jax = "sys.modules['jax._src.distributed'] = types.SimpleNamespace(\
            global_state=types.SimpleNamespace(client=1, process_id=0, num_processes=2))";
        let train = "c = types.SimpleNamespace(get_world_rank=lambda: 2, get_local_rank=lambda: 0, get_world_size=lambda: 4)\n\
            sys.modules['ray.train'] = types.SimpleNamespace(get_context=lambda: c)";
        let cases = [
            ("os.environ.clear()", r#"{}"#),
            ("os.environ.update(RANK='x')", r#"{}"#),
            ("", r#"{"rank":3,"local_rank":1,"world_size":8}"#),
            (
                &format!("{torch}\nup = False"),
                r#"{"rank":3,"local_rank":1,"world_size":8}"#,
            ),
            (
                &format!("{torch}\nup = True"),
                r#"{"rank":5,"local_rank":1,"world_size":16}"#,
            ),
            (jax, r#"{"rank":0,"world_size":2}"#),
            (
                &format!("{torch}\nup = True\n{train}"),
                r#"{"rank":2,"local_rank":0,"world_size":4}"#,
            ),
        ];
        for (before, expected) in cases {
            let program = format!("{environment}\n{before}\nprint({request})\n");
            let Some(stdout) = printed(&program) else {
                return;
            };
            let response: Value = serde_json::from_slice(&stdout).unwrap();
            let expected: Value = serde_json::from_str(expected).unwrap();
            assert_eq!(response, expected, "{before}");
        }
    }

    #[test]
    fn interrupt_stops_the_evaluation_and_not_the_task() {
        // pydevd evaluates in the stopped main thread or in another thread.
        let program = r#"
import sys, threading, time
import os
source = """
def internal_evaluate_expression_json(expression):
    try:
        eval(compile(expression, '<string>', 'exec'), {})
    except BaseException as error:
        return type(error).__name__
    return 'done'
"""
there = {}
exec(compile(source, '/x/pydevd_bundle/pydevd_comm.py', 'exec'), there)
evaluate = there['internal_evaluate_expression_json']

def interrupt():
    time.sleep(0.2)
    eval(INTERRUPT)

def in_main(expression):
    other = threading.Thread(target=interrupt)
    other.start()
    ended = evaluate(expression)
    other.join()
    return ended

def in_other(expression):
    ended = []
    other = threading.Thread(target=lambda: ended.append(evaluate(expression)))
    other.start()
    interrupt()
    other.join()
    return ended[0]

catches = 'import time\ntry:\n while True: pass\nexcept KeyboardInterrupt: pass\nwhile True: time.sleep(1000)'
ended = [in_main(e) for e in ('while True: pass', 'import time; time.sleep(1000)', catches)]
ended.append(in_other('while True: pass'))
# What ends by itself meanwhile, and what runs behind it, hears nothing.
ended.append(in_main('import time; time.sleep(0.2)') in ('done', 'KeyboardInterrupt'))
for _ in range(1000): time.sleep(0.0001)
# A thread that a debugger traces goes on.
sys.settrace(lambda *_: None)
(lambda: 1)()
sys.settrace(None)
print(ended)
"#;
        let interrupt = interrupt();
        let interrupt = interrupt["expression"].as_str().unwrap();
        let interrupt = Value::from(interrupt).to_string();
        let Some(stdout) = printed(&program.replace("INTERRUPT", &interrupt)) else {
            return;
        };
        assert_eq!(
            String::from_utf8(stdout).unwrap().trim_end(),
            "['KeyboardInterrupt', 'KeyboardInterrupt', 'KeyboardInterrupt', 'KeyboardInterrupt', True]"
        );
    }

    #[test]
    fn only_a_valid_answer_is_parsed() {
        let expected = serde_json::json!({"a": "it's \"x\"\\"});
        for valid in [
            r#"'{"a": "it\'s \\"x\\"\\\\"}'"#,
            r#"{"a": "it's \"x\"\\"}"#,
        ] {
            assert_eq!(answer::<Value>(valid).as_ref(), Some(&expected), "{valid}");
        }
        for invalid in ["", "'", "None", "'!'", r"'\n'", r"'\", "'{}'x"] {
            assert_eq!(answer::<Value>(invalid), None, "{invalid}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_answer_is_parsed_without_panic(text in ".{0,60}") {
            let _ = answer::<Value>(&text);
        }
    }
}
