//! `docs/reference.md` has what the tables in the code have.
//!
//! Each part of the page between `<!-- table: NAME -->` and `<!-- end -->` is made here. Sentences are the documentation of the
//! items that they describe, so a page that is wrong is mended at its source.
#![allow(clippy::unwrap_used)]

use std::fmt::Write;
use std::path::Path;

use ray_relay_access::audit::EntryKind;
use ray_relay_access::policy::Scope;
use ray_relay_access::telemetry;
use ray_relay_base::config::explain::explained;
use ray_relay_base::timestamp::Timestamp;
use ray_relay_http::http;
use ray_relay_session::session::state::SessionState;

const REFERENCE_PAGE: &str = "docs/reference.md";
const LIST_SOURCE: &str = "src/listing/json.rs";
const RUNNING_SOURCE: &str = "src/listing/running.rs";
const UPDATE_COMMAND: &str = "INSTA_UPDATE=always cargo test --locked --test fast reference";

/// The file `path`, which in whichever crate it is begins with `src/`.
fn read(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let crates = std::fs::read_dir(root.join("crates")).unwrap();
    let crates = crates.map(|member| member.unwrap().path());
    let mut found = std::iter::once(root.to_path_buf()).chain(crates);
    let found = found.find_map(|member| std::fs::read_to_string(member.join(path)).ok());
    found.unwrap_or_else(|| panic!("{path} is in no crate"))
}

/// The names in the first block of `source` that begins with `opening`, each with its documentation.
fn documented(source: &str, opening: &str) -> Vec<(String, String)> {
    let at = source.find(opening);
    let at = at.unwrap_or_else(|| panic!("{opening:?} is gone"));
    let line = &source[source[..at].rfind('\n').map_or(0, |end| end + 1)..];
    let indent = line.len() - line.trim_start_matches(' ').len();
    let (mut found, mut text) = (Vec::new(), Vec::new());
    for line in source[at..].lines().skip(1) {
        let inner = line.trim_start();
        let depth = line.len() - inner.len();
        if inner == "}" && depth == indent {
            return found;
        }
        if depth != indent + 4 {
            continue;
        }
        if let Some(comment) = inner.strip_prefix("///") {
            text.push(comment.trim().to_owned());
        } else if !inner.starts_with(['#', '}', '/']) {
            let name = inner.trim_start_matches("r#");
            let name = name
                .split(|c: char| !c.is_alphanumeric() && c != '_')
                .next();
            found.push((name.unwrap().to_owned(), plain(&text.join(" "))));
            text.clear();
        }
    }
    panic!("the block {opening:?} has no end");
}

/// Documentation without links to code: [`Item`]s are words.
fn plain(text: &str) -> String {
    text.replace("[`", "`").replace("`]", "`")
}

/// The documentation of `name` among `documented`.
fn of<'a>(documented: &'a [(String, String)], name: &str) -> &'a str {
    let found = documented.iter().find(|(own, _)| own == name);
    let (_, text) = found.unwrap_or_else(|| panic!("{name} has no documentation"));
    assert!(!text.is_empty(), "{name} has no documentation");
    text
}

fn table<const N: usize>(head: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let mut text = format!("| {} |\n|{}\n", head.join(" | "), "---|".repeat(N));
    for row in rows {
        let row = row.map(|cell| cell.replace('|', "\\|"));
        writeln!(text, "| {} |", row.join(" | ")).unwrap();
    }
    text
}

fn code(text: &str) -> String {
    format!("`{text}`")
}

fn permissions() -> String {
    let source = documented(&read("src/policy/scope.rs"), "pub enum Scope {");
    let rows = Scope::ALL.map(|scope| {
        let text = of(&source, &format!("{scope:?}")).to_owned();
        let named = |text: String, scope: Scope| {
            text.replace(&format!("`Scope::{scope:?}`"), &code(scope.word()))
        };
        [code(scope.word()), Scope::ALL.into_iter().fold(text, named)]
    });
    table(["permission", "allows"], rows)
}

fn session_states() -> String {
    let source = documented(&read("src/session/state.rs"), "pub enum SessionState {");
    let rows = source.iter().map(|(name, text)| {
        let state = SessionState::ALL
            .iter()
            .find(|state| format!("{state:?}") == *name);
        let word = serde_json::to_value(state.unwrap()).unwrap();
        [code(word.as_str().unwrap()), text.clone()]
    });
    table(["state", "meaning"], rows)
}

fn breakpoint_states() -> String {
    let path = "src/ray/registry/breakpoint.rs";
    let source = documented(&read(path), "pub enum State {");
    let rows = source
        .iter()
        .map(|(name, text)| [code(&name.to_lowercase()), text.clone()]);
    table(["state", "meaning"], rows)
}

fn events() -> String {
    let source = documented(&read("src/ray/registry/change.rs"), "pub enum Change {");
    let rows = source
        .iter()
        .map(|(name, text)| [code(&name.to_lowercase()), text.clone()]);
    table(["event", "meaning"], rows)
}

fn actions() -> String {
    let source = documented(&read("src/audit/entry.rs"), "pub enum EntryKind {");
    let rows = EntryKind::ALL.map(|action| {
        let text = of(&source, &format!("{action:?}")).to_owned();
        [code(action.word()), text]
    });
    table(["`action`", "meaning"], rows)
}

/// A `words!` or `labels!` block: each value with its documentation.
fn values(path: &str, name: &str) -> Vec<(String, String)> {
    let source = read(path);
    let opening = format!("    {name} {{");
    let block = source.find(&opening).unwrap();
    let texts = documented(&source, &opening);
    texts
        .into_iter()
        .map(|(variant, text)| {
            let at = source[block..].find(&format!(" {variant} = \"")).unwrap() + block;
            let word = source[at..].split('"').nth(1).unwrap();
            (word.to_owned(), text)
        })
        .collect()
}

fn notices() -> String {
    let path = "src/config/settings/notice.rs";
    let events = values(path, "pub enum NoticeEvent").into_iter();
    let events = events.map(|(word, text)| [code(&word), text]);
    let events = table(["`on`", "meaning"], events);
    let placeholders = values(path, "pub enum Placeholder").into_iter();
    let placeholders = placeholders.map(|(word, text)| [format!("`{{{word}}}`"), text]);
    format!(
        "{events}\n{}",
        table(["in `text`", "stands for"], placeholders)
    )
}

fn exit_codes() -> String {
    let source = read("src/cli/failure.rs");
    let texts = documented(&source, "pub(super) enum Exit {");
    let rows = texts.iter().map(|(name, text)| {
        let at = source.find(&format!("    {name} = ")).unwrap();
        let number = source[at..].split(['=', ',']).nth(1).unwrap().trim();
        [number.to_owned(), text.clone()]
    });
    let done = ["0".to_owned(), "Done.".to_owned()];
    table(["code", "meaning"], [done].into_iter().chain(rows))
}

/// The fields of a struct as they are in JSON: each with what it holds, whether it can be missing, and its documentation.
fn fields(path: &str, name: &str) -> Vec<[String; 3]> {
    let source = read(path);
    let opening = ["<'a> {", " {"]
        .map(|end| format!("struct {name}{end}"))
        .into_iter()
        .find(|opening| source.contains(opening));
    let opening = opening.unwrap_or_else(|| panic!("{path} has no struct {name}"));
    let (_, block) = source.split_once(&opening).unwrap();
    let (block, _) = block.split_once("\n}\n").unwrap();
    let (mut rows, mut text, mut attributes) = (Vec::new(), Vec::new(), String::new());
    for line in block.lines().map(str::trim) {
        if let Some(comment) = line.strip_prefix("///") {
            text.push(comment.trim().to_owned());
        } else if line.starts_with("#[") {
            attributes += line;
        } else if let Some((name, kind)) = line.split_once(": ") {
            let name = name.rsplit(' ').next().unwrap();
            let (text, attributes) = (
                std::mem::take(&mut text).join(" "),
                std::mem::take(&mut attributes),
            );
            if attributes.contains("flatten") || attributes.contains("serde(skip)") {
                continue;
            }
            assert!(
                !attributes.contains("rename"),
                "{name} of {path} is renamed"
            );
            assert!(!text.is_empty(), "{name} of {path} has no documentation");
            let can_miss = attributes.contains("skip_serializing_if");
            let kind = kind.trim_end_matches(',');
            rows.push([code(name), value(kind, can_miss), plain(&text)]);
        }
    }
    rows
}

/// Returns the JSON type of a field.
fn value(kind: &str, can_miss: bool) -> String {
    let (inner, is_option) = match kind.strip_prefix("Option<") {
        Some(inner) => (inner.strip_suffix('>').unwrap(), true),
        None => (kind, false),
    };
    let word = match inner
        .trim_start_matches("&'a ")
        .trim_start_matches("&'static ")
    {
        "u32" | "u64" | "usize" | "f64" | "u16" => "number",
        "bool" => "true or false",
        "Timestamp" => "seconds since 1970",
        "Location" => "`{\"file\", \"line\", \"function\"}`",
        "Resources" | "Value" => "object",
        "ArmedSummary" => "`{\"jobs\", \"lines\", \"hits\"}`",
        "Holder" => "[holder](#the-holder)",
        kind if kind.starts_with("Vec<") => "list",
        "str" | "String" | "Arc<str>" | "IpAddr" | "std::net::IpAddr" | "SocketAddr"
        | "BreakpointId" | "Kind" | "Reason" | "RequestId" | "SessionState" | "Replica" => "text",
        other => panic!("what is {other} in JSON?"),
    };
    match (is_option, can_miss) {
        (_, true) => format!("{word}, or not there"),
        (true, false) => format!("{word}, or `null`"),
        (false, false) => word.to_owned(),
    }
}

fn json(rows: impl IntoIterator<Item = [String; 3]>) -> String {
    table(["field", "holds", "meaning"], rows)
}

fn metrics() -> String {
    let rows = telemetry::metrics::described().unwrap();
    table(["metric", "type", "labels", "meaning"], rows)
}

fn labels() -> String {
    let path = "src/telemetry/labels.rs";
    let source = read(path);
    let mut rows = Vec::new();
    for block in source.split("\nlabels! {\n").skip(1) {
        let mut lines = block.lines().map(str::trim);
        let docs: Vec<_> = lines
            .by_ref()
            .take_while(|line| line.starts_with("///"))
            .collect();
        let docs: Vec<_> = docs
            .iter()
            .map(|doc| doc.trim_start_matches("///").trim())
            .collect();
        let name = block
            .lines()
            .map(str::trim)
            .find_map(|line| line.strip_suffix(" {"));
        let values = values(path, name.unwrap());
        let values: Vec<_> = values.iter().map(|(word, _)| code(word)).collect();
        rows.push([plain(&docs.join(" ")), values.join(", ")]);
    }
    table(["label", "values"], rows)
}

fn configuration() -> String {
    let mut text = String::new();
    let mut section = String::new();
    let mut source = Vec::new();
    let mut rows: Vec<[String; 3]> = Vec::new();
    let head = ["key", "default", "meaning"];
    let mut flush = |section: &str, rows: &mut Vec<[String; 3]>| {
        if !rows.is_empty() {
            write!(text, "\n### {section}\n\n{}", table(head, rows.drain(..))).unwrap();
        }
    };
    for one in explained() {
        let (own, key) = one.key.split_once('.').unwrap();
        if own != section {
            flush(&section, &mut rows);
            section = own.to_owned();
            let path = format!("src/config/settings/{own}.rs");
            let file = read(&path);
            let name = format!(" = \"{own}\"");
            let mut lines = file.lines();
            let opening = lines.find(|line| line.contains("struct ") && line.contains(&name));
            source = documented(&file, opening.unwrap());
        }
        let default = one.default.map_or_else(|| "none".to_owned(), code);
        rows.push([code(key), default, of(&source, key).to_owned()]);
    }
    flush(&section, &mut rows);
    text.trim_start().to_owned()
}

/// The page, with what the code says between the markers.
fn written_anew(page: &str) -> String {
    let mut text = String::new();
    let mut rest = page;
    while let Some((before, behind)) = rest.split_once("<!-- table: ") {
        let (name, behind) = behind.split_once(" -->").unwrap();
        let (_, behind) = behind.split_once("<!-- end -->").unwrap();
        let table = match name {
            "routes" => table(
                ["path", "method", "needs", "what it is for"],
                http::described(),
            ),
            "permissions" => permissions(),
            "session states" => session_states(),
            "breakpoint states" => breakpoint_states(),
            "events" => events(),
            "actions" => actions(),
            "notices" => notices(),
            "list" => json(fields(LIST_SOURCE, "ListEnd")),
            "clusters" => json(fields(LIST_SOURCE, "ClusterRow")),
            "breakpoints" => json(fields(LIST_SOURCE, "JsonRow")),
            "holder" => json(fields("src/hold/row.rs", "Holder")),
            "tasks" => json(fields(RUNNING_SOURCE, "RunningRow")),
            "failed tasks" => json(fields(RUNNING_SOURCE, "FailedRow")),
            "sessions" => json(fields("src/session/table.rs", "SessionRow")),
            "exit codes" => exit_codes(),
            "metrics" => metrics(),
            "labels" => labels(),
            "configuration" => configuration(),
            other => panic!("there is no table {other:?}"),
        };
        write!(
            text,
            "{before}<!-- table: {name} -->\n\n{table}\n<!-- end -->"
        )
        .unwrap();
        rest = behind;
    }
    text + rest
}

#[test]
fn reference_matches_the_code() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(REFERENCE_PAGE);
    let page = read(REFERENCE_PAGE);
    let new = written_anew(&page);
    if page == new {
        return;
    }
    if std::env::var("INSTA_UPDATE").is_ok_and(|value| value == "always") {
        std::fs::write(path, new).unwrap();
        return;
    }
    let differs = |a: &str, b: &str| {
        let known: std::collections::BTreeSet<&str> = b.lines().collect();
        let lines = a.lines().filter(|line| !known.contains(line));
        lines.map(|line| format!("\n  {line}")).collect::<String>()
    };
    panic!(
        "{REFERENCE_PAGE} is not what the code says. `{UPDATE_COMMAND}` writes it anew.\nThe code says:{}\nThe page says:{}",
        differs(&new, &page),
        differs(&page, &new)
    );
}

#[test]
fn every_table_is_in_the_reference() {
    let page = read(REFERENCE_PAGE);
    for name in [
        "routes",
        "permissions",
        "session states",
        "breakpoint states",
        "events",
        "actions",
        "notices",
        "list",
        "clusters",
        "breakpoints",
        "holder",
        "tasks",
        "failed tasks",
        "sessions",
        "exit codes",
        "metrics",
        "labels",
        "configuration",
    ] {
        let marker = format!("<!-- table: {name} -->");
        assert!(page.contains(&marker), "{REFERENCE_PAGE} has no {marker}");
    }
}

/// The tables of JSON are made from source: this is what comes out of it.
#[test]
fn a_row_has_the_fields_of_the_reference() {
    let row = ray_relay_ray::ray::testing::paused("square", 1);
    let row = serde_json::json!(ray_relay_view::listing::json::JsonRow::new(
        &row,
        Timestamp::now()
    ));
    let row = row.as_object().unwrap();
    let documented = fields(LIST_SOURCE, "JsonRow");
    let names: Vec<_> = documented
        .iter()
        .map(|[name, _, _]| name.trim_matches('`'))
        .collect();
    for key in row.keys() {
        assert!(names.contains(&&**key), "{key} is not in {REFERENCE_PAGE}");
    }
    for [name, holds, _] in &documented {
        let name = name.trim_matches('`');
        assert!(
            row.contains_key(name) || holds.ends_with("or not there"),
            "{name} is in {REFERENCE_PAGE} alone"
        );
    }
    let list =
        ray_relay_view::listing::json::list(&ray_relay_ray::ray::registry::Snapshot::default());
    let documented = fields(LIST_SOURCE, "ListEnd");
    for key in list
        .as_object()
        .unwrap()
        .keys()
        .filter(|key| *key != "breakpoints")
    {
        assert!(
            documented.iter().any(|[name, _, _]| *name == code(key)),
            "{key} is not in {REFERENCE_PAGE}"
        );
    }
}

/// Checks that `ray-relay --help` abbreviates the reference.
#[test]
fn the_help_names_every_exit_code() {
    let help = read("src/cli/mod.rs");
    let (_, help) = help.split_once("Exit codes:\n").unwrap();
    let (help, _) = help.split_once("\";").unwrap();
    let words: Vec<_> = help.split_whitespace().collect();
    for row in exit_codes().lines().skip(2) {
        let code = row.trim_start_matches("| ").split(' ').next().unwrap();
        assert!(
            words.contains(&code),
            "`ray-relay --help` says nothing of {code}"
        );
    }
}
