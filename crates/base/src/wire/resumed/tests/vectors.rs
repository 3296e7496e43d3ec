//! `vectors.json`: what the opener of a link sends in given situations. The extension for VS Code is tested with the
//! same file.

use futures_util::FutureExt as _;
use serde::Deserialize;
use serde_json::Value;

use super::super::link::{Attachment, Sent};
use super::super::messages::ResumeMessage;
use super::*;

#[derive(Deserialize)]
struct Vector {
    name: String,
    up_window: usize,
    down_window: usize,
    steps: Vec<VectorStep>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum VectorStep {
    /// A new transport, over which the relay has everything before this position.
    Attach(u64),
    Write(Content),
    /// The stream is neither read nor written any more.
    Close,
    Receive(String),
    ReceiveOverFormer(String),
    ReceiveText(Value),
    /// Everything that is sent now.
    Sends(Vec<SentItem>),
    /// Everything that is sent when a heartbeat is due.
    Heartbeat(Vec<SentItem>),
    Reads(String),
    Received(u64),
    /// The step before has broken the link.
    Breaks(String),
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum SentItem {
    Bytes(Content),
    End,
    Text(Value),
    Done,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Repeated { repeat: String, times: usize },
}

impl Content {
    fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Repeated { repeat, times } => repeat.repeat(*times),
        }
    }
}

impl PartialEq for Content {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

struct Scene {
    link: Arc<LinkHandle>,
    stream: Option<LinkedStream>,
    attachments: Vec<Attachment>,
    /// Written and not accepted yet.
    waiting: Vec<u8>,
    read: Vec<u8>,
    broken: Option<String>,
}

impl Scene {
    fn new(vector: &Vector) -> Self {
        let (link, stream) = LinkHandle::new(vector.up_window, vector.down_window);
        link.take_up();
        Self {
            link,
            stream: Some(stream),
            attachments: Vec::new(),
            waiting: Vec::new(),
            read: Vec::new(),
            broken: None,
        }
    }

    fn note(&mut self, outcome: Result<(), Mismatch>) {
        self.broken = outcome.err().map(|mismatch| mismatch.to_string());
    }

    /// Writes and reads as much as there is room for.
    fn pump(&mut self) {
        let Some(stream) = &mut self.stream else {
            return;
        };
        while !self.waiting.is_empty()
            && let Some(Ok(count)) = stream.write(&self.waiting).now_or_never()
        {
            self.waiting.drain(..count);
        }
        let mut buffer = [0; 4096];
        while let Some(Ok(count)) = stream.read(&mut buffer).now_or_never()
            && count > 0
        {
            self.read.extend(&buffer[..count]);
        }
    }

    fn sent(&mut self, heartbeat: bool) -> Vec<SentItem> {
        let (mut items, mut all) = (Vec::new(), heartbeat);
        let attachment = self.attachments.last().unwrap();
        loop {
            items.push(match self.link.next(attachment, std::mem::take(&mut all)) {
                Sent::Bytes(bytes) => {
                    let text = String::from_utf8(bytes.to_vec()).unwrap();
                    SentItem::Bytes(Content::Text(text))
                }
                Sent::End => SentItem::End,
                Sent::Message(message) => SentItem::Text(serde_json::to_value(message).unwrap()),
                Sent::Done => {
                    items.push(SentItem::Done);
                    return items;
                }
                Sent::Nothing | Sent::Over => return items,
            });
        }
    }

    fn step(&mut self, step: VectorStep) {
        match step {
            VectorStep::Attach(received) => {
                let attached = self.link.attach(received);
                self.broken = attached.as_ref().err().map(ToString::to_string);
                self.attachments.extend(attached.ok());
            }
            VectorStep::Write(content) => self.waiting.extend(content.text().into_bytes()),
            VectorStep::Close => {
                self.pump();
                self.stream = None;
            }
            VectorStep::Receive(text) => {
                let attachment = self.attachments.last().unwrap();
                let outcome = self.link.receive(attachment, text.as_bytes());
                self.note(outcome);
            }
            VectorStep::ReceiveOverFormer(text) => {
                let former = &self.attachments[self.attachments.len() - 2];
                let outcome = self.link.receive(former, text.as_bytes());
                self.note(outcome);
            }
            VectorStep::ReceiveText(message) => {
                let message: ResumeMessage = serde_json::from_value(message).unwrap();
                let attachment = self.attachments.last().unwrap();
                let outcome = self.link.receive_message(attachment, message);
                self.note(outcome);
            }
            VectorStep::Sends(expected) => assert_eq!(self.sent(false), expected),
            VectorStep::Heartbeat(expected) => assert_eq!(self.sent(true), expected),
            VectorStep::Reads(text) => {
                let read = std::mem::take(&mut self.read);
                assert_eq!(String::from_utf8(read).unwrap(), text);
            }
            VectorStep::Received(position) => assert_eq!(self.link.received(), position),
            VectorStep::Breaks(why) => assert_eq!(self.broken.take(), Some(why)),
        }
        self.pump();
    }
}

#[test]
fn link_does_what_the_vectors_of_the_protocol_say() {
    let vectors: Vec<Vector> = serde_json::from_str(include_str!("../vectors.json")).unwrap();
    for vector in vectors {
        let mut scene = Scene::new(&vector);
        let name = vector.name;
        for step in vector.steps {
            // Shown if the test fails.
            println!("{name}: {step:?}");
            scene.step(step);
        }
        assert_eq!(scene.broken, None, "{name}: broken without being expected");
    }
}
