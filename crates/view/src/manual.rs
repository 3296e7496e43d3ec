//! The pages of `docs/`, embedded in the program: `ray-relay help TOPIC` prints them, and the page at `/relay/` links
//! to them.

use std::fmt::Write;

pub mod html;
#[cfg(test)]
mod tests;

/// One page.
#[derive(Debug)]
pub struct Page {
    /// The name of its file, without `.md`.
    pub topic: &'static str,
    /// Its audience or purpose, on one line.
    pub about: &'static str,
    /// The whole page, as Markdown.
    pub text: &'static str,
}

macro_rules! pages {
    ($($topic:literal: $about:literal;)+) => {
        /// Every page, in reading order.
        pub const PAGES: &[Page] = &[$(Page {
            topic: $topic,
            about: $about,
            text: include_str!(concat!("../../../docs/", $topic, ".md")),
        }),+];
    };
}

/// The picture of a page, an SVG.
pub const PICTURE: (&str, &str) = (
    "architecture.svg",
    include_str!("../../../docs/architecture.svg"),
);

pages! {
    "install": "every way to install: Kubernetes, a host, systemd, packages";
    "editors": "VS Code and other editors, terminals, scripts, the page for browsers";
    "jobs": "all tasks of a job: which hang, where each rank is, which one is elsewhere";
    "laptop": "the relay on a port of your machine: connect, Kubernetes, tokens, proxies";
    "connection-lost": "what becomes of a task when its debugger is gone, and how to leave one on purpose";
    "troubleshooting": "symptom, cause and command; what to do on call when a task holds GPUs";
    "operate": "run a relay for others: tokens, policy, TLS, replicas, upgrades, metrics, notices";
    "agents": "a process on each Ray node that opens its debuggers, so that their ports are closed";
    "security-model": "what is defended against whom, boundary by boundary";
    "reference": "routes, states, events, exit codes, metrics, permissions and configuration keys";
    "glossary": "the words of these pages, of messages and of the code";
}

/// Returns the page called `topic`.
pub fn page(topic: &str) -> Option<&'static Page> {
    PAGES.iter().find(|page| page.topic == topic)
}

impl Page {
    /// Returns the text for a terminal, without pictures.
    pub fn at_terminal(&self) -> String {
        let lines = self.text.lines().filter(|line| !line.starts_with("!["));
        lines.flat_map(|line| [line, "\n"]).collect()
    }
}

/// Lists the pages, one line each, their names prefixed with `before`.
pub fn list(before: &str) -> String {
    let widest = PAGES.iter().map(|page| page.topic.len()).max();
    let widest = widest.unwrap_or_default() + before.len();
    let mut text = String::new();
    for Page { topic, about, .. } in PAGES {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{:widest$}  {about}", format!("{before}{topic}"));
    }
    text
}
