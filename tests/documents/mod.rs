//! Checks of the documents: short sentences, the field's words, links that resolve, and security claims with tests.

pub(crate) mod avoided;
mod reference;
mod source;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

const MAX_SENTENCE_WORDS: usize = 35;

/// The median of a page's sentences is below it. Cells of tables are short, and do not count.
const MAX_MEDIAN_WORDS: usize = 15;

/// Lines of a page at most.
const PAGE_BUDGETS: &[(&str, usize)] = &[
    ("README.md", 200),
    ("SECURITY.md", 80),
    ("CONTRIBUTING.md", 180),
];

/// Words that pages avoid in addition to those of [`avoided`], and their replacements.
const AVOIDED_ON_PAGES: &[(&str, &str)] = &[("is none", "say what it is")];

/// Exceptions: page, word, and reason.
const EXCEPTIONS: &[(&str, &str, &str)] = &[(
    "docs/security-model.md",
    "who is who",
    "agents take a relay's word about identities: the phrase is the subject",
)];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The documents: their path in the repository, and their text.
fn documents() -> BTreeMap<String, String> {
    let mut paths: Vec<PathBuf> = [
        "README.md",
        "SECURITY.md",
        "CONTRIBUTING.md",
        "docker/README.md",
    ]
    .map(Into::into)
    .into();
    for file in fs::read_dir(root().join("docs")).unwrap() {
        let name = PathBuf::from(file.unwrap().file_name());
        if name.extension().is_some_and(|kind| kind == "md") {
            paths.push(Path::new("docs").join(name));
        }
    }
    let read = |path: PathBuf| {
        let text = fs::read_to_string(root().join(&path)).unwrap();
        (path.to_str().unwrap().to_owned(), text)
    };
    paths.into_iter().map(read).collect()
}

/// Prose of a page, without examples and comments.
#[derive(Default)]
struct Prose {
    /// Paragraphs and items of lists, each on one line.
    paragraphs: Vec<String>,
    /// Cells of tables.
    cells: Vec<String>,
    headings: Vec<String>,
}

impl Prose {
    fn of(page: &str) -> Self {
        let mut prose = Self::default();
        let mut current = String::new();
        let mut is_code = false;
        for line in page.lines() {
            let line = line.trim();
            let is_fence = line.starts_with("```");
            let is_item =
                line.starts_with("- ") || line.starts_with("* ") || numbered(line).is_some();
            if is_fence
                || is_code
                || line.is_empty()
                || line.starts_with(['|', '#'])
                || line.starts_with("<!--")
                || is_item
            {
                prose
                    .paragraphs
                    .extend(Some(std::mem::take(&mut current)).filter(|text| !text.is_empty()));
            }
            is_code ^= is_fence;
            if is_fence || is_code || line.is_empty() || line.starts_with("<!--") {
                continue;
            }
            if let Some(heading) = line.strip_prefix('#') {
                prose
                    .headings
                    .push(heading.trim_start_matches('#').trim().to_owned());
            } else if line.starts_with('|') {
                let cells = line.replace("\\|", "/");
                let cells = cells
                    .trim_matches('|')
                    .split('|')
                    .map(|cell| cell.trim().to_owned());
                prose.cells.extend(cells.filter(|cell| cell.contains(' ')));
            } else {
                let text = numbered(line)
                    .unwrap_or(line)
                    .trim_start_matches(['-', '*'])
                    .trim_start();
                let text = if is_item { text } else { line };
                current = format!("{current} {text}").trim().to_owned();
            }
        }
        prose
            .paragraphs
            .extend(Some(current).filter(|text| !text.is_empty()));
        prose
    }
}

/// Returns the text after the number of a list item.
fn numbered(line: &str) -> Option<&str> {
    let (number, text) = line.split_once(". ")?;
    (!number.is_empty() && number.chars().all(|c| c.is_ascii_digit())).then_some(text)
}

/// A text as it is read: a link is its words, code and addresses are one word each.
fn read_aloud(text: &str) -> String {
    let mut aloud = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('`') {
        let (_, behind) = behind.split_once('`').unwrap_or_default();
        aloud += before;
        aloud += "CODE";
        rest = behind;
    }
    aloud += rest;
    while let Some(at) = aloud.find("](") {
        let end = aloud[at..]
            .find(')')
            .map_or(aloud.len(), |end| at + end + 1);
        aloud.replace_range(at..end, "");
    }
    aloud.replace(['[', ']', '*'], "")
}

/// The sentences of a text.
fn sentences(text: &str) -> Vec<String> {
    let mut found = vec![String::new()];
    for word in read_aloud(text).split_whitespace() {
        let sentence = found.last_mut().unwrap();
        if !sentence.is_empty() {
            sentence.push(' ');
        }
        sentence.push_str(word);
        let end = word.trim_end_matches([')', '"', '\'', ',']);
        if end.ends_with(['.', '!', '?']) && !["e.g.", "i.e.", "vs."].contains(&end) {
            found.push(String::new());
        }
    }
    found.retain(|sentence| words(sentence) > 0);
    found
}

fn words(sentence: &str) -> usize {
    let is_word = |word: &&str| word.chars().any(char::is_alphanumeric);
    sentence.split_whitespace().filter(is_word).count()
}

/// The anchor of a heading, as GitHub makes it.
fn anchor(heading: &str) -> String {
    let heading = heading.replace("](", "\u{1}");
    let mut text = String::new();
    let mut is_address = false;
    for c in heading.chars() {
        match c {
            '\u{1}' => is_address = true,
            ')' if is_address => is_address = false,
            _ if is_address => {}
            ' ' | '-' => text.push('-'),
            '_' => text.push('_'),
            c if c.is_alphanumeric() => text.extend(c.to_lowercase()),
            _ => {}
        }
    }
    text
}

/// Addresses of the links of a page, but those in examples.
fn links(page: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut is_code = false;
    for line in page.lines() {
        is_code ^= line.trim_start().starts_with("```");
        if is_code {
            continue;
        }
        for part in line.split("](").skip(1) {
            found.extend(part.split_once(')').map(|(link, _)| link.to_owned()));
        }
    }
    found
}

fn fail_on(wrong: &[String]) {
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn sentences_are_short() {
    let mut wrong = Vec::new();
    for (path, page) in documents() {
        let prose = Prose::of(&page);
        let all: Vec<_> = prose
            .paragraphs
            .iter()
            .flat_map(|text| sentences(text))
            .collect();
        let cells = prose.cells.iter().flat_map(|cell| sentences(cell));
        for sentence in all.iter().cloned().chain(cells) {
            let count = words(&sentence);
            if count > MAX_SENTENCE_WORDS {
                wrong.push(format!(
                    "{path}: {count} words, {MAX_SENTENCE_WORDS} at most: {sentence}"
                ));
            }
        }
        let mut counts: Vec<_> = all.iter().map(|sentence| words(sentence)).collect();
        counts.sort_unstable();
        let median = counts.get(counts.len() / 2).copied().unwrap_or_default();
        println!(
            "{path}: {} sentences, median {median}, longest {:?}",
            counts.len(),
            counts.last()
        );
        if median >= MAX_MEDIAN_WORDS {
            wrong.push(format!(
                "{path}: the median sentence has {median} words, and is to have fewer than {MAX_MEDIAN_WORDS}"
            ));
        }
    }
    fail_on(&wrong);
}

#[test]
fn avoided_words_are_not_used() {
    let mut wrong = Vec::new();
    for (path, page) in documents() {
        let prose = Prose::of(&page);
        for text in prose
            .paragraphs
            .iter()
            .chain(&prose.cells)
            .chain(&prose.headings)
        {
            let text = read_aloud(text);
            let found = avoided::among(avoided::AVOIDED, &text);
            for (word, instead) in found.chain(avoided::among(AVOIDED_ON_PAGES, &text)) {
                let is_right = EXCEPTIONS
                    .iter()
                    .any(|(page, right, _)| (*page, *right) == (&*path, word));
                if !is_right {
                    wrong.push(format!("{path}: {word:?}: write {instead}\n  {text}"));
                }
            }
        }
    }
    fail_on(&wrong);
}

#[test]
fn links_resolve() {
    let documents = documents();
    let mut wrong = Vec::new();
    for (path, page) in &documents {
        for link in links(page).into_iter().filter(|link| !link.contains("://")) {
            let (file, section) = link.split_once('#').unwrap_or((&link, ""));
            let folder = Path::new(path).parent().unwrap();
            let target = match file {
                "" => path.clone(),
                file => normal(&folder.join(file)),
            };
            if !root().join(&target).exists() {
                wrong.push(format!("{path}: there is no {target} ({link})"));
            } else if !section.is_empty() {
                let text = documents.get(&target).cloned();
                let text = text.unwrap_or_else(|| {
                    fs::read_to_string(root().join(&target)).unwrap_or_default()
                });
                let headings = Prose::of(&text).headings;
                if !headings.iter().any(|heading| anchor(heading) == section) {
                    wrong.push(format!("{path}: {target} has no heading for #{section}"));
                }
            }
        }
    }
    fail_on(&wrong);
}

/// `docs/../config` is `config`.
fn normal(path: &Path) -> String {
    let mut parts = Vec::new();
    for part in path.components() {
        match part.as_os_str().to_str().unwrap() {
            ".." => _ = parts.pop(),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[test]
fn a_page_fits_its_budget() {
    let documents = documents();
    let mut wrong = Vec::new();
    for (path, most) in PAGE_BUDGETS {
        let lines = documents[*path].lines().count();
        if lines > *most {
            wrong.push(format!("{path} has {lines} lines, {most} at most"));
        }
    }
    fail_on(&wrong);
}

/// Each row of the table of claims names tests in its last cell.
#[test]
fn every_security_claim_names_a_test() {
    let page = fs::read_to_string(root().join("SECURITY.md")).unwrap();
    let (_, table) = page.split_once("| claim | held by |\n").unwrap();
    let mut sources = String::new();
    for folder in ["src", "crates", "tests"] {
        gather(&root().join(folder), &mut sources);
    }
    let mut wrong = Vec::new();
    let mut claims = 0;
    for row in table
        .lines()
        .skip(1)
        .take_while(|line| line.starts_with('|'))
    {
        claims += 1;
        let held_by = row.trim_matches('|').rsplit('|').next().unwrap();
        let tests: Vec<_> = held_by.split('`').skip(1).step_by(2).collect();
        if tests.is_empty() {
            wrong.push(format!("SECURITY.md: no test is named: {row}"));
        }
        for test in tests {
            if !is_test(&sources, test) {
                wrong.push(format!("SECURITY.md: there is no test {test}: {row}"));
            }
        }
    }
    assert!(claims > 10, "the table of claims is gone: {claims} rows");
    fail_on(&wrong);
}

fn gather(folder: &Path, sources: &mut String) {
    for file in fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        if path.is_dir() {
            gather(&path, sources);
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            *sources += &fs::read_to_string(path).unwrap();
        }
    }
}

/// Whether a function of that name has an attribute such as `#[test]` or `#[tokio::test]` above it.
fn is_test(sources: &str, name: &str) -> bool {
    let opening = format!("fn {name}(");
    sources.match_indices(&opening).any(|(at, _)| {
        let line = sources[..at].rfind('\n').map_or(0, |end| end + 1);
        let above = sources[..line].lines().rev();
        let mut attributes = above.take_while(|line| {
            let line = line.trim();
            line.starts_with("#[") || line.starts_with("//")
        });
        attributes.any(|line| {
            line.contains("test]") || line.contains("test(") || line.contains("proptest")
        }) || sources[..at]
            .rfind("proptest! {")
            .is_some_and(|from| !sources[from..at].contains("\n}\n"))
    })
}

#[test]
fn markdown_is_reduced_to_prose() {
    let page = "# A *b* `c`\n\nOne two. `three four` [five](six seven.md)\nsix!\n\n```sh\nnot read\n```\n\n- item one\n- item\n  two\n\n| a b | c |\n|---|---|\n1. first thing\n";
    let prose = Prose::of(page);
    assert_eq!(prose.headings, ["A *b* `c`"]);
    assert_eq!(anchor(&prose.headings[0]), "a-b-c");
    assert_eq!(
        prose.paragraphs[1..],
        ["item one", "item two", "first thing"]
    );
    assert_eq!(
        sentences(&prose.paragraphs[0]),
        ["One two.", "CODE five six!"]
    );
    assert_eq!(prose.cells, ["a b"]);
    assert_eq!(links(page), ["six seven.md"]);
    assert_eq!(normal(Path::new("docs/../config/a.toml")), "config/a.toml");
}

#[test]
fn tests_are_distinguished_from_helpers() {
    let sources = "    #[tokio::test]\n    async fn holds() {}\n\nfn helps() {}\n#[test]\n#[ignore]\nfn late() {}\n";
    assert!(is_test(sources, "holds") && is_test(sources, "late"));
    assert!(!is_test(sources, "helps") && !is_test(sources, "gone"));
}
