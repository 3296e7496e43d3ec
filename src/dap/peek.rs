//! What kind of message a body is, read without parsing it.
//!
//! Pure. [`super::splice`] asks for each frame that passes and forwards nearly all of them as they came; only
//! what must be rewritten is parsed. Towards the client the first keys are enough: the worker is not an
//! adversary of its own client, and a wrong guess costs a rewrite. Towards the worker the whole object is
//! walked, because Python takes the *last* of two equal keys: `{"command":"threads", … ,"command":"terminate"}`
//! must not pass as `threads`.

/// `type` of a protocol message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageType {
    /// `request`
    Request,
    /// `response`
    Response,
    /// `event`
    Event,
}

/// What was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peek<'a> {
    /// The type, and the `command` or `event` it names (raw bytes, free of escapes).
    Known(MessageType, &'a [u8]),
    /// It takes a JSON parser to tell: escapes, duplicates, unusual order, or no JSON at all.
    Unclear,
    /// The bytes so far do not say.
    More,
}

/// How much of the object has to be seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// Up to the keys that decide.
    Deciding,
    /// All top-level keys.
    Whole,
}

/// Looks at `body`, the first bytes of a message of `length` bytes in all.
pub fn peek(body: &[u8], length: usize, depth: Depth) -> Peek<'_> {
    let mut cursor = Cursor { bytes: body, at: 0 };
    match walk(&mut cursor, depth) {
        Ok(known) => known,
        Err(Stop::Unclear) => Peek::Unclear,
        Err(Stop::End) if body.len() < length => Peek::More,
        Err(Stop::End) => Peek::Unclear,
    }
}

enum Stop {
    /// The bytes ran out.
    End,
    Unclear,
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

fn walk<'a>(cursor: &mut Cursor<'a>, depth: Depth) -> Result<Peek<'a>, Stop> {
    let (mut kind, mut command, mut event) = (None, None, None);
    cursor.expect(b'{')?;
    loop {
        let key = cursor.plain_string()?;
        cursor.expect(b':')?;
        let slot = match key {
            b"type" => &mut kind,
            b"command" => &mut command,
            b"event" => &mut event,
            _ => {
                cursor.skip_value()?;
                if cursor.ends()? {
                    break;
                }
                continue;
            }
        };
        if slot.replace(cursor.plain_string()?).is_some() {
            return Err(Stop::Unclear);
        }
        if depth == Depth::Deciding
            && let Some(known) = known(kind, command, event)
        {
            return Ok(known);
        }
        if cursor.ends()? {
            break;
        }
    }
    known(kind, command, event).ok_or(Stop::Unclear)
}

fn known<'a>(
    kind: Option<&[u8]>,
    command: Option<&'a [u8]>,
    event: Option<&'a [u8]>,
) -> Option<Peek<'a>> {
    Some(match kind? {
        b"request" => Peek::Known(MessageType::Request, command?),
        b"response" => Peek::Known(MessageType::Response, command?),
        b"event" => Peek::Known(MessageType::Event, event?),
        _ => return None,
    })
}

impl<'a> Cursor<'a> {
    fn byte(&mut self) -> Result<u8, Stop> {
        let byte = *self.bytes.get(self.at).ok_or(Stop::End)?;
        self.at += 1;
        Ok(byte)
    }

    fn after_space(&mut self) -> Result<u8, Stop> {
        loop {
            match self.byte()? {
                b' ' | b'\t' | b'\r' | b'\n' => {}
                other => return Ok(other),
            }
        }
    }

    fn expect(&mut self, wanted: u8) -> Result<(), Stop> {
        if self.after_space()? == wanted {
            Ok(())
        } else {
            Err(Stop::Unclear)
        }
    }

    /// `,` or `}` after a member: whether the object is over.
    fn ends(&mut self) -> Result<bool, Stop> {
        match self.after_space()? {
            b',' => Ok(false),
            b'}' => Ok(true),
            _ => Err(Stop::Unclear),
        }
    }

    /// A string without escapes.
    fn plain_string(&mut self) -> Result<&'a [u8], Stop> {
        self.expect(b'"')?;
        let start = self.at;
        loop {
            match self.byte()? {
                b'"' => return Ok(&self.bytes[start..self.at - 1]),
                b'\\' => return Err(Stop::Unclear),
                _ => {}
            }
        }
    }

    fn skip_string(&mut self) -> Result<(), Stop> {
        loop {
            match self.byte()? {
                b'"' => return Ok(()),
                b'\\' => {
                    self.byte()?;
                }
                _ => {}
            }
        }
    }

    fn skip_value(&mut self) -> Result<(), Stop> {
        let mut open = match self.after_space()? {
            b'"' => return self.skip_string(),
            b'{' | b'[' => 1usize,
            // A number or a word: ends before what follows it.
            _ => loop {
                match self.bytes.get(self.at).ok_or(Stop::End)? {
                    b',' | b'}' => return Ok(()),
                    _ => self.at += 1,
                }
            },
        };
        while open > 0 {
            match self.byte()? {
                b'"' => self.skip_string()?,
                b'{' | b'[' => open += 1,
                b'}' | b']' => open -= 1,
                _ => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn whole(text: &str, depth: Depth) -> Peek<'_> {
        peek(text.as_bytes(), text.len(), depth)
    }

    #[test]
    fn messages_of_real_clients_are_known_from_their_first_bytes() {
        let debugpy = r#"{"seq": 12, "type": "event", "event": "stopped", "body": {"reason": "br"#;
        assert_eq!(
            peek(debugpy.as_bytes(), 400, Depth::Deciding),
            Peek::Known(MessageType::Event, b"stopped")
        );
        let reply = r#"{"seq": 8, "type": "response", "request_seq": 2, "success": true, "command": "attach"}"#;
        assert_eq!(
            whole(reply, Depth::Deciding),
            Peek::Known(MessageType::Response, b"attach")
        );
        let vscode = r#"{"command":"disconnect","arguments":{"restart":false,"x":["}",{}]},"type":"request","seq":9}"#;
        assert_eq!(
            whole(vscode, Depth::Whole),
            Peek::Known(MessageType::Request, b"disconnect")
        );
        let neovim =
            r#"{"arguments": {"a\"}": "\\"}, "seq": -1.5e3, "type": "request", "command": "next"}"#;
        assert_eq!(
            whole(neovim, Depth::Whole),
            Peek::Known(MessageType::Request, b"next")
        );
    }

    #[test]
    fn a_hidden_second_command_is_never_taken_for_the_first() {
        for text in [
            r#"{"type":"request","command":"threads","seq":1,"command":"terminate"}"#,
            r#"{"type":"request","command":"threads","seq":1,"comm\u0061nd":"terminate"}"#,
            r#"{"type":"request","command":"thr\u0065ads","seq":1}"#,
            r#"{"type":"event","type":"request","command":"terminate"}"#,
            r#"[{"type":"request"}]"#,
            "",
            "{}",
        ] {
            assert_eq!(whole(text, Depth::Whole), Peek::Unclear, "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_known_agrees_with_a_json_parser(text in "[{}\\[\\]\",:\\\\a ]{0,40}", name in "[a-z]{1,8}", event in any::<bool>()) {
            let (kind, key) = if event { ("event", "event") } else { ("request", "command") };
            let message = json!({"seq": 1, "x": text, "type": kind, (text): {"y": [1, null]}, (key): name, "z": 1.5}).to_string();
            if let Peek::Known(_, found) = whole(&message, Depth::Whole) {
                prop_assert_eq!(found, name.as_bytes());
            }
            for cut in 0..message.len() {
                if let Peek::Known(_, found) = peek(&message.as_bytes()[..cut], message.len(), Depth::Deciding) {
                    prop_assert_eq!(found, name.as_bytes());
                }
            }
        }

        #[test]
        fn any_text_that_is_known_whole_means_the_same_to_a_json_parser(text in "\\{(\"(type|command|event|a)\":(\"(request|event|x)\"|1|\\{\\}),?){0,5}\\}") {
            if let (Peek::Known(kind, found), Ok(Value::Object(map))) = (whole(&text, Depth::Whole), serde_json::from_str(&text)) {
                let key = if kind == MessageType::Event { "event" } else { "command" };
                prop_assert_eq!(map[key].as_str().map(str::as_bytes), Some(found));
            }
        }
    }
}
