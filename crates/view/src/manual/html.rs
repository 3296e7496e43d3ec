//! A page as a document for browsers.
//!
//! Everything on a page becomes text, except for links to other pages and to the web. The document runs no scripts,
//! and loads styles only from the relay.

use std::fmt::Write;

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd, html};

/// Renders the table of contents.
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

/// Renders the Markdown `text` as a document called `title`.
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

fn body(text: &str) -> String {
    let mut is_followed = true;
    let events = Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter();
    let events = events.filter_map(|(mut event, at)| match event {
        Event::Start(Tag::Heading { ref mut id, .. }) => {
            let heading = text.get(at)?.trim_start_matches('#').trim();
            *id = Some(anchor(heading).into());
            Some(event)
        }
        Event::Start(Tag::Link {
            ref mut dest_url, ..
        }) => {
            let followed = followed(dest_url);
            is_followed = followed.is_some();
            *dest_url = followed?.into();
            Some(event)
        }
        Event::End(TagEnd::Link) => is_followed.then_some(event),
        Event::Start(Tag::Table(_)) => Some(Event::Html("<div class=\"wide\"><table>\n".into())),
        Event::End(TagEnd::Table) => Some(Event::Html("</tbody></table></div>\n".into())),
        // Comments are for the page's authors.
        Event::Html(html) if html.starts_with("<!--") => None,
        Event::Html(html) | Event::InlineHtml(html) => Some(Event::Text(html)),
        event => Some(event),
    });
    let mut html = String::new();
    html::push_html(&mut html, events);
    html
}

/// Returns the target of a link. `None`: a file of the source, which the relay does not serve.
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

/// Builds the same anchor as GitHub, so that links work in both.
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
    fn page_is_rendered_as_html() {
        let text = "# A `b`\n\nOne **two `a*`\nthree**.\n\n- an item\n  goes on:\n\n  ```sh\n  x <y>\n  ```\n\n- another\n\n| a | b |\n|---|---|\n| c\\|d | e |\n\n1. first\n2. second\n";
        assert_eq!(
            body(text),
            "<h1 id=\"a-b\">A <code>b</code></h1>\n<p>One <strong>two <code>a*</code>\nthree</strong>.</p>\n\
             <ul>\n<li>\n<p>an item\ngoes on:</p>\n<pre><code class=\"language-sh\">x &lt;y&gt;\n</code></pre>\n</li>\n\
             <li>\n<p>another</p>\n</li>\n</ul>\n\
             <div class=\"wide\"><table>\n<thead><tr><th>a</th><th>b</th></tr></thead><tbody>\n\
             <tr><td>c|d</td><td>e</td></tr>\n</tbody></table></div>\n<ol>\n<li>first</li>\n<li>second</li>\n</ol>\n"
        );
    }

    #[test]
    fn links_are_rewritten_and_markup_is_escaped() {
        let html = body(
            "![p \"q\"](architecture.svg) [o](operate.md#tls) [r](https://ray.io) [s](../SECURITY.md) [j](javascript:x) <i> [n \"q\"\n\n<!-- for writers -->\n\n<script>\n",
        );
        assert_eq!(
            html,
            "<p><img src=\"architecture.svg\" alt=\"p &quot;q&quot;\" /> <a href=\"operate#tls\">o</a> <a href=\"https://ray.io\">r</a> s j &lt;i&gt; [n \"q\"</p>\n&lt;script&gt;\n"
        );
    }

    #[test]
    fn every_page_has_balanced_tags() {
        for page in crate::manual::PAGES {
            let html = body(page.text);
            for tag in [
                "ul", "ol", "li", "p", "table", "tr", "pre", "code", "strong", "div",
            ] {
                let opened = html.matches(&format!("<{tag}>")).count()
                    + html.matches(&format!("<{tag} ")).count();
                let closed = html.matches(&format!("</{tag}>")).count();
                assert_eq!(opened, closed, "{tag} of {}", page.topic);
            }
        }
    }
}
