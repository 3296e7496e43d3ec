//! A page as a document for browsers: as much of Markdown as the pages use.
//!
//! All of a page becomes text, and only its links to other pages and to the web become links: the document that it goes into
//! runs nothing, and takes styles from the relay alone.

use std::fmt::Write;

/// The pages, as links to each.
pub fn contents() -> String {
    let mut body = String::from("<h1>Documentation</h1>\n<ul>\n");
    for page in super::PAGES {
        let _ = writeln!(
            body,
            "<li><a href=\"{0}\">{0}</a>: {1}</li>",
            page.topic,
            escaped(page.about)
        );
    }
    document("Documentation", &(body + "</ul>\n"))
}

/// `text`, which is Markdown, as a document called `title`.
pub fn page(title: &str, text: &str) -> String {
    document(title, &body(text))
}

fn document(title: &str, body: &str) -> String {
    let title = escaped(title);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title} · ray-relay</title>\n\
         <link rel=\"stylesheet\" href=\"../page/page.css\">\n<link rel=\"stylesheet\" href=\"../page/docs.css\">\n</head>\n\
         <body>\n<nav><a href=\"./\">Documentation</a> <a href=\"../\">What waits</a></nav>\n<main>\n{body}</main>\n</body>\n</html>\n"
    )
}

/// What is open and has to be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OpenElement {
    /// An item of a list of this tag, whose mark is at this column.
    Item(&'static str, usize),
    Table,
}

/// A piece of a page.
enum HtmlBlock<'a> {
    Heading(usize, &'a str),
    Row(&'a str),
    Item(&'static str, String),
    Text(String),
    Code(Vec<&'a str>),
}

/// The pieces of a page, each with the column at which it begins. Lines that go on are joined.
fn blocks(text: &str) -> Vec<(usize, HtmlBlock<'_>)> {
    let mut blocks: Vec<(usize, HtmlBlock<'_>)> = Vec::new();
    let mut goes_on = false;
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let inner = line.trim_start();
        let depth = line.len() - inner.len();
        let was_text = std::mem::take(&mut goes_on);
        let block = if inner.is_empty() || inner.starts_with("<!--") {
            continue;
        } else if inner.starts_with("```") {
            let is_code = |line: &&str| !line.trim_start().starts_with("```");
            let code = lines.by_ref().take_while(is_code);
            HtmlBlock::Code(
                code.map(|line| line.get(depth..).unwrap_or_default())
                    .collect(),
            )
        } else if let Some((level, text)) = heading(inner) {
            HtmlBlock::Heading(level, text)
        } else if inner.starts_with('|') {
            HtmlBlock::Row(inner)
        } else if let Some((list, text)) = item(inner) {
            goes_on = true;
            HtmlBlock::Item(list, text.to_owned())
        } else {
            goes_on = true;
            match blocks.last_mut().filter(|_| was_text) {
                Some((_, HtmlBlock::Item(_, text) | HtmlBlock::Text(text))) => {
                    *text += " ";
                    *text += inner;
                    continue;
                }
                _ => HtmlBlock::Text(inner.to_owned()),
            }
        };
        blocks.push((depth, block));
    }
    blocks
}

fn body(text: &str) -> String {
    let mut html = String::new();
    let mut open: Vec<OpenElement> = Vec::new();
    for (depth, block) in blocks(text) {
        // What begins further left than an item's text is not in the item.
        let is_left = |open: OpenElement| match open {
            OpenElement::Item(_, column) => column >= depth,
            OpenElement::Table => true,
        };
        match block {
            HtmlBlock::Row(row) if open.last() == Some(&OpenElement::Table) => {
                if !row.starts_with("|---") {
                    html += &cells(row, "td");
                }
            }
            HtmlBlock::Row(row) => {
                close_while(&mut html, &mut open, is_left);
                html += "<div class=\"wide\"><table>\n";
                html += &cells(row, "th");
                open.push(OpenElement::Table);
            }
            HtmlBlock::Item(list, text) => {
                let is_same = |open: OpenElement| open == OpenElement::Item(list, depth);
                close_while(&mut html, &mut open, |open| is_left(open) && !is_same(open));
                if open.last().is_some_and(|last| is_same(*last)) {
                    html += "</li>\n<li>";
                } else {
                    let _ = write!(html, "<{list}>\n<li>");
                    open.push(OpenElement::Item(list, depth));
                }
                html += &inline(&text);
            }
            HtmlBlock::Heading(level, text) => {
                close_while(&mut html, &mut open, is_left);
                let id = anchor(text);
                let _ = writeln!(html, "<h{level} id=\"{id}\">{}</h{level}>", inline(text));
            }
            HtmlBlock::Text(text) => {
                close_while(&mut html, &mut open, is_left);
                let _ = writeln!(html, "<p>{}</p>", inline(&text));
            }
            HtmlBlock::Code(lines) => {
                close_while(&mut html, &mut open, is_left);
                let code: String = lines.iter().map(|line| escaped(line) + "\n").collect();
                let _ = writeln!(html, "<pre><code>{code}</code></pre>");
            }
        }
    }
    close_while(&mut html, &mut open, |_| true);
    html
}

fn close_while(html: &mut String, open: &mut Vec<OpenElement>, ends: impl Fn(OpenElement) -> bool) {
    while let Some(last) = open.last().copied().filter(|last| ends(*last)) {
        open.pop();
        *html += &match last {
            OpenElement::Item(list, _) => format!("</li>\n</{list}>\n"),
            OpenElement::Table => "</table></div>\n".to_owned(),
        };
    }
}

fn heading(line: &str) -> Option<(usize, &str)> {
    let text = line.trim_start_matches('#');
    let level = line.len() - text.len();
    ((1..=6).contains(&level) && text.starts_with(' ')).then(|| (level, text.trim()))
}

/// The tag of its list, and its text.
fn item(line: &str) -> Option<(&'static str, &str)> {
    if let Some(text) = line.strip_prefix("- ") {
        return Some(("ul", text));
    }
    let (number, text) = line.split_once(". ")?;
    let is_number = !number.is_empty() && number.chars().all(|c| c.is_ascii_digit());
    is_number.then_some(("ol", text))
}

fn cells(row: &str, tag: &str) -> String {
    let row = row.replace("\\|", "\u{1}");
    let cells = row.trim().trim_matches('|').split('|');
    let cell = |cell: &str| inline(&cell.trim().replace('\u{1}', "|"));
    let cells: String = cells
        .map(|text| format!("<{tag}>{}</{tag}>", cell(text)))
        .collect();
    format!("<tr>{cells}</tr>\n")
}

/// Code, bold words and links of a text.
fn inline(text: &str) -> String {
    let mut html = String::new();
    for (n, part) in text.split('`').enumerate() {
        match n % 2 {
            0 => html += &escaped(part),
            // A star in code is no mark.
            _ => _ = write!(html, "<code>{}</code>", escaped(part).replace('*', "&#42;")),
        }
    }
    linked(&bold(&html))
}

fn bold(text: &str) -> String {
    let mut html = String::new();
    for (n, part) in text.split("**").enumerate() {
        html += match n {
            0 => "",
            n if n % 2 == 1 => "<b>",
            _ => "</b>",
        };
        html += part;
    }
    html
}

/// `[words](address)` as a link, where a browser can follow it; with `!` before it as a picture.
fn linked(text: &str) -> String {
    let mut html = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('[') {
        html += before;
        let link = behind.split_once("](").and_then(|(words, behind)| {
            let (address, behind) = behind.split_once(')')?;
            (!words.contains('[')).then_some((words, address, behind))
        });
        match link {
            Some((words, address, behind)) if html.ends_with('!') => {
                html.pop();
                let _ = write!(html, "<img src=\"{address}\" alt=\"{words}\">");
                rest = behind;
            }
            Some((words, address, behind)) => {
                match followed(address) {
                    Some(address) => _ = write!(html, "<a href=\"{address}\">{words}</a>"),
                    None => html += words,
                }
                rest = behind;
            }
            None => {
                html.push('[');
                rest = behind;
            }
        }
    }
    html + rest
}

/// Where a link leads from here; `None`: to a file of the source, which the relay has not.
fn followed(address: &str) -> Option<String> {
    if address.starts_with('#') || address.starts_with("https://") {
        return Some(address.to_owned());
    }
    let (file, section) = address.split_once('#').unwrap_or((address, ""));
    let topic = file.strip_suffix(".md")?;
    super::page(topic)?;
    Some(match section {
        "" => topic.to_owned(),
        section => format!("{topic}#{section}"),
    })
}

/// As GitHub makes it, so that the same links lead there.
fn anchor(heading: &str) -> String {
    let mut id = String::new();
    for c in heading.chars() {
        match c {
            ' ' | '-' => id.push('-'),
            '_' => id.push('_'),
            c if c.is_alphanumeric() => id.extend(c.to_lowercase()),
            _ => {}
        }
    }
    id
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_becomes_a_document() {
        let text = "# A `b`\n\nOne **two `a*`\nthree**.\n\n- an item\n  goes on:\n\n  ```sh\n  x <y>\n  ```\n\n- another\n\n| a | b |\n|---|---|\n| c\\|d | e |\n\n1. first\n2. second\n";
        assert_eq!(
            body(text),
            "<h1 id=\"a-b\">A <code>b</code></h1>\n<p>One <b>two <code>a&#42;</code> three</b>.</p>\n\
             <ul>\n<li>an item goes on:<pre><code>x &lt;y&gt;\n</code></pre>\n</li>\n<li>another</li>\n</ul>\n\
             <div class=\"wide\"><table>\n<tr><th>a</th><th>b</th></tr>\n<tr><td>c|d</td><td>e</td></tr>\n</table></div>\n\
             <ol>\n<li>first</li>\n<li>second</li>\n</ol>\n"
        );
    }

    #[test]
    fn links_lead_to_pages_and_the_web_and_nothing_becomes_markup() {
        let html = inline(
            "![p \"q\"](architecture.svg) [o](operate.md#tls) [r](https://ray.io) [s](../SECURITY.md) [j](javascript:x) <i> [n \"q\"",
        );
        assert_eq!(
            html,
            "<img src=\"architecture.svg\" alt=\"p &quot;q&quot;\"> <a href=\"operate#tls\">o</a> <a href=\"https://ray.io\">r</a> s j &lt;i&gt; [n &quot;q&quot;"
        );
    }

    #[test]
    fn every_page_is_balanced() {
        for page in crate::manual::PAGES {
            let html = body(page.text);
            for tag in [
                "ul", "ol", "li", "p", "table", "tr", "pre", "code", "b", "div",
            ] {
                let opened = html.matches(&format!("<{tag}>")).count()
                    + html.matches(&format!("<{tag} ")).count();
                let closed = html.matches(&format!("</{tag}>")).count();
                assert_eq!(opened, closed, "{tag} of {}", page.topic);
            }
        }
    }
}
