//! Tests that every documentation page is embedded.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use super::*;

#[test]
fn every_docs_page_is_embedded() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");
    let files = std::fs::read_dir(folder).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let pages: BTreeSet<String> = names
        .filter_map(|name| Some(name.strip_suffix(".md")?.to_owned()))
        .collect();
    let embedded = PAGES.iter().map(|page| page.topic.to_owned()).collect();
    assert_eq!(pages, embedded, "src/manual.rs has a row for each page");
}

#[test]
fn topic_list_fits_a_terminal() {
    for line in list("").lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
}
