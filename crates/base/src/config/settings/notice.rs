//! `[notice]`: a webhook for breakpoints that wait too long, and for their outcome.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::config::kind::{Keyword, Shape, ValueKind, choice, duration, listed, path, quoted};
use crate::config::problem::{Wrong, nearest};
use crate::config::raw::RawValue;
use crate::config::read::{self, Read};
use crate::config::units::{DAY, MINUTE, SECOND};

/// The default of `notice.text`.
const DEFAULT_TEMPLATE: &str =
    "{name} on {cluster} {event}: stopped {waited} ago at {location}, held by {holder}. {link}";

const MAX_TEMPLATE_BYTES: usize = 1000;

settings! {
    /// `[notice]`: a webhook, and the notices that it gets.
    pub struct Notice = "notice" {
        /// A file with the address of the webhook: https, or http to loopback. Absent: no notices.
        url_file: Option<PathBuf> = None, path("the path of a file with the address of a webhook");
        /// Certificate authorities of that address. Absent: the system's.
        ca_file: Option<PathBuf> = None, path("the path of a PEM file with certificate authorities");
        /// The secret that notices are signed with. Absent: they are not signed.
        key_file: Option<PathBuf> = None, path("the path of a file with a secret of 32 bytes or more");
        /// The format of a notice's body.
        form: NoticeForm = NoticeForm::Json, choice();
        /// The events that are sent to the webhook. Never empty.
        on: Vec<NoticeEvent> = NoticeEvent::usual(), ValueKind::new(events, |events| listed(&words(events.iter())));
        /// How long a breakpoint has to wait before a notice is sent, once for each stop.
        paused_for: Duration = 30 * MINUTE, duration(SECOND..=30 * DAY);
        /// How long before a job's collectives time out on a stopped task a notice is sent, once for each stop.
        collective_within: Duration = 5 * MINUTE, duration(SECOND..=30 * DAY);
        /// The sentence for people, in notices about breakpoints.
        text: Template = Template::usual(), ValueKind::new(template, quoted);
        /// The public address of the relay, without a slash at its end. Absent: notices have no link.
        link: Option<String> = None, ValueKind::new(link, quoted).shaped(Shape::Address).optional();
    }
}

words! {
    /// The format of a notice's body.
    pub enum NoticeForm {
        /// An object in the relay's own format.
        Json = "json",
        /// The payload of Slack's incoming webhooks.
        Slack = "slack",
    }
}

words! {
    /// The event that a notice reports.
    pub enum NoticeEvent {
        /// A breakpoint has waited for `notice.paused_for`.
        Paused = "paused",
        /// Collectives of its job that wait for it time out within `notice.collective_within`.
        Collective = "collective",
        /// A task is kept stopped for a user who lost the connection or parked it.
        Parked = "parked",
        /// A task was resumed by `[release]`.
        Released = "released",
        /// A worker died while a session held it.
        Died = "died",
        /// A task has raised an exception, and its stack is kept by `[post_mortem]`.
        Failed = "failed",
        /// A job hangs: some of its tasks hold others up. For this all that runs is inspected every 20 s.
        Hangs = "hangs",
    }
}

words! {
    /// A placeholder in the text of a notice.
    pub enum Placeholder {
        /// The task, actor method, replica or driver.
        Name = "name",
        /// The cluster's name in the configuration.
        Cluster = "cluster",
        /// The address of the node.
        Node = "node",
        /// The submission id, or Ray's job id if the job has no submission id.
        Job = "job",
        /// File and line of the stop.
        Location = "location",
        /// How long the task has been paused, or had been at its end.
        Waited = "waited",
        /// The holder of the task, now or before, with a debugger or in a park.
        Holder = "holder",
        /// The event, as a verb.
        Event = "event",
        /// The address of the breakpoint in the relay's page.
        Link = "link",
    }
}

impl NoticeEvent {
    /// All that need no inspection of tasks.
    fn usual() -> Vec<Self> {
        let all = Self::WORDS.iter().map(|(_, event)| *event);
        all.filter(|event| *event != Self::Hangs).collect()
    }

    /// The word in the configuration, in notices and in metrics.
    pub fn word(self) -> &'static str {
        let word = Self::WORDS.iter().find(|(_, event)| *event == self);
        word.map_or("", |(word, _)| word)
    }
}

/// A text with placeholders.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Template(Vec<TemplatePiece>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum TemplatePiece {
    Text(String),
    Value(Placeholder),
}

impl Template {
    fn usual() -> Self {
        DEFAULT_TEMPLATE.parse().unwrap_or_default()
    }

    /// The text with each placeholder replaced by its `value`.
    pub fn filled(&self, value: impl Fn(Placeholder) -> String) -> String {
        let pieces = self.0.iter().map(|piece| match piece {
            TemplatePiece::Text(text) => text.clone(),
            TemplatePiece::Value(placeholder) => value(*placeholder),
        });
        pieces.collect()
    }
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |placeholder: Placeholder| {
            let word = Placeholder::WORDS.iter().find(|(_, it)| *it == placeholder);
            format!("{{{}}}", word.map_or("", |(word, _)| word))
        };
        f.write_str(&self.filled(name))
    }
}

/// A `{` that begins no placeholder. Holds the text behind it, up to the next `}`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no placeholder {{{0}}}")]
pub struct UnknownPlaceholder(String);

impl FromStr for Template {
    type Err = UnknownPlaceholder;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (mut pieces, mut rest) = (Vec::new(), text);
        while let Some((before, after)) = rest.split_once('{') {
            let (name, behind) = after.split_once('}').unwrap_or((after, ""));
            let known = Placeholder::WORDS.iter().find(|(word, _)| *word == name);
            let Some((_, placeholder)) = known else {
                return Err(UnknownPlaceholder(name.to_owned()));
            };
            if !before.is_empty() {
                pieces.push(TemplatePiece::Text(before.to_owned()));
            }
            pieces.push(TemplatePiece::Value(*placeholder));
            rest = behind;
        }
        if !rest.is_empty() {
            pieces.push(TemplatePiece::Text(rest.to_owned()));
        }
        Ok(Self(pieces))
    }
}

fn template(value: &RawValue) -> Read<Template> {
    let names = || Placeholder::WORDS.iter().map(|(word, _)| *word);
    let known: Vec<String> = names().map(|name| format!("{{{name}}}")).collect();
    let expected = format!(
        "a text of at most {MAX_TEMPLATE_BYTES} bytes with any of {}",
        known.join(", ")
    );
    let text = read::text(value, &expected)?;
    if text.len() > MAX_TEMPLATE_BYTES {
        return Err(Wrong::expected(expected));
    }
    text.parse().map_err(|UnknownPlaceholder(name)| {
        let wrong = Wrong::expected(expected);
        match nearest(&name, names()) {
            Some(nearest) => wrong.hint(format!("did you mean {{{nearest}}}?")),
            None => wrong,
        }
    })
}

fn words<'a>(events: impl Iterator<Item = &'a NoticeEvent>) -> Vec<String> {
    events.map(|event| event.word().to_owned()).collect()
}

fn events(value: &RawValue) -> Read<Vec<NoticeEvent>> {
    let known = words(NoticeEvent::WORDS.iter().map(|(_, event)| event)).join(", ");
    let expected = format!("an array of at least one of {known}");
    let words = read::texts(value, NoticeEvent::WORDS.len(), &expected)?;
    let event = |word: &String| {
        let known = NoticeEvent::WORDS.iter().find(|(known, _)| known == word);
        known.map(|(_, event)| *event)
    };
    match words.iter().map(event).collect::<Option<Vec<_>>>() {
        Some(events) if !events.is_empty() => Ok(events),
        _ => Err(Wrong::expected(expected)),
    }
}

fn link(value: &RawValue) -> Read<String> {
    read::plain_address(
        value,
        "the address of this relay as people reach it, such as \"https://relay.example.com\"",
        "the page is /relay/ below it",
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn text(text: &str) -> RawValue {
        RawValue::Text(text.to_owned())
    }

    #[test]
    fn unknown_placeholder_is_refused_with_the_known_ones() {
        let read = template(&text("a {name} } {waited}{link}")).unwrap();
        assert_eq!(read.to_string(), "a {name} } {waited}{link}");
        let filled = read.filled(|placeholder| format!("<{placeholder:?}>"));
        assert_eq!(filled, "a <Name> } <Waited><Link>");
        for (invalid, hint) in [("{nmae}", Some("did you mean {name}?")), ("{", None)] {
            let error = template(&text(invalid)).unwrap_err();
            for (word, _) in Placeholder::WORDS {
                assert!(error.expected.contains(&format!("{{{word}}}")), "{error:?}");
            }
            assert_eq!(error.hint.as_deref(), hint, "{invalid}");
        }
        assert!(template(&text(&"x".repeat(MAX_TEMPLATE_BYTES + 1))).is_err());
        assert_eq!(Template::usual().to_string(), DEFAULT_TEMPLATE);
    }

    #[test]
    fn notice_link_must_be_a_url_without_secrets() {
        let read = link(&text("http://relay.example.com:5678/team/"));
        assert_eq!(read.unwrap(), "http://relay.example.com:5678/team");
        for invalid in [
            "relay.example.com",
            "ftp://relay",
            "https://ann:secret@relay",
            "https://relay/?token=x",
            "https://relay/#x",
        ] {
            assert!(link(&text(invalid)).is_err(), "{invalid}");
        }
    }
}
