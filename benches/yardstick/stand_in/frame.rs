//! DAP frames: `Content-Length: N`, an empty line, N bytes of JSON. Used by both ends.

use std::sync::LazyLock;

use tokio::io::{AsyncRead, AsyncReadExt};

use crate::Result;

/// A reader begins with so much: thousands of them are idle at a time.
const INITIAL_BUFFER_BYTES: usize = 16 * 1024;
/// The size after a read has filled the buffer.
const MAX_IDLE_BUFFER_BYTES: usize = 512 * 1024;
/// The limit for a large frame.
const MAX_FRAME_BYTES: usize = 4 << 20;

/// A line as a training loop prints it.
const TENSOR: &str = "tensor([[0.1314, 0.2718], [0.5772, 1.6180]], device='cuda:0'), ";

/// `body` as a frame.
pub(crate) fn frame(body: &str) -> Vec<u8> {
    format!("Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// A JSON body of exactly `size` bytes with its head and a padding string: `{HEAD,"pad":"xxx…"}`.
pub(crate) fn padded(head: &str, size: usize) -> String {
    let fixed = head.len() + r#"{,"pad":""}"#.len();
    format!(
        r#"{{{head},"pad":"{}"}}"#,
        "x".repeat(size.saturating_sub(fixed))
    )
}

/// The answer to the `stackTrace` of this number, of exactly `size` bytes, of which there are at least a thousand: frames as
/// debugpy writes them, or with a field of their own.
pub(super) fn stack(request: usize, size: usize, is_odd: bool) -> String {
    static FRAMES: LazyLock<String> = LazyLock::new(|| {
        (2..1000).fold(String::new(), |text, id| {
            text + &format!(r#",{{"id":{id},"name":"step","line":{id},"column":1,"source":{{"path":"/job/training/model/layers.py","sourceReference":0}}}}"#)
        })
    });
    let front = format!(
        r#"{{"seq":1000000,"type":"response","request_seq":{request},"success":true,"command":"stackTrace","body":{{"stackFrames":["#
    );
    let own = r#"{"id":1,"line":1,"column":1,"source":{"path":"/job/train.py","sourceReference":0},"name":""#;
    let back = r#"],"totalFrames":30}}"#;
    let own = match is_odd {
        true => own.replacen("1,", r#"1,"instructionPointerReference":"0x0","#, 1),
        false => own.to_owned(),
    };
    let room = size - front.len() - own.len() - back.len() - r#""}"#.len();
    // A whole number of them, and the name of the innermost takes what is left.
    let frames = FRAMES[..=room].rfind(",{").map_or("", |end| &FRAMES[..end]);
    let name = "x".repeat(room - frames.len());
    format!(r#"{front}{own}{name}"}}{frames}{back}"#)
}

/// An `output` event of exactly `size` bytes.
pub(super) fn output(size: usize) -> String {
    let front =
        r#"{"seq":1000000,"type":"event","event":"output","body":{"category":"stdout","output":""#;
    let back = r#""}}"#;
    let text = TENSOR.chars().cycle();
    let text = text.take(size.saturating_sub(front.len() + back.len()));
    front.chars().chain(text).chain(back.chars()).collect()
}

/// The text of `"key":"TEXT"` or the digits of `"key":123` near the front of `body`.
pub(crate) fn field<'a>(body: &'a [u8], key: &str) -> Option<&'a str> {
    // Every field that is asked for here comes before long contents.
    let front = &body[..body.len().min(512)];
    let front = match std::str::from_utf8(front) {
        Ok(text) => text,
        Err(cut) => std::str::from_utf8(&front[..cut.valid_up_to()]).ok()?,
    };
    let at = front.find(&format!("\"{key}\":"))? + key.len() + 3;
    let value = front[at..].trim_start().trim_start_matches('"');
    value.split(['"', ',', '}']).next()
}

/// Splits a stream into frames.
pub(crate) struct FrameReader<R> {
    from: R,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    pub(crate) fn new(from: R) -> Self {
        Self {
            from,
            buffer: vec![0; INITIAL_BUFFER_BYTES],
            start: 0,
            end: 0,
        }
    }

    /// The next frame's body; `None` at the end of the stream.
    pub(crate) async fn next(&mut self) -> Result<Option<&[u8]>> {
        loop {
            if let Some((head, length)) = head(&self.buffer[self.start..self.end])? {
                let frame_length = head + length;
                if self.end - self.start >= frame_length {
                    let body = self.start + head..self.start + frame_length;
                    self.start += frame_length;
                    return Ok(Some(&self.buffer[body]));
                }
                if frame_length > MAX_FRAME_BYTES {
                    return Err(format!("a frame of {length} bytes").into());
                }
                if frame_length > self.buffer.len() {
                    self.buffer.resize(frame_length, 0);
                }
            }
            let size = self.buffer.len();
            if self.start == self.end {
                (self.start, self.end) = (0, 0);
            } else if self.end == size || self.start > size / 2 {
                self.buffer.copy_within(self.start..self.end, 0);
                (self.start, self.end) = (0, self.end - self.start);
            }
            match self.from.read(&mut self.buffer[self.end..]).await? {
                0 => return Ok(None),
                read => self.end += read,
            }
            if self.end == size && size < MAX_IDLE_BUFFER_BYTES {
                self.buffer.resize(2 * size, 0);
            }
        }
    }
}

/// Length of the header block and of the body that it announces, once the block is whole.
fn head(bytes: &[u8]) -> Result<Option<(usize, usize)>> {
    let front = &bytes[..bytes.len().min(256)];
    let Some(end) = front.windows(4).position(|w| w == b"\r\n\r\n") else {
        return if front.len() < 256 {
            Ok(None)
        } else {
            Err("no end of the frame's header".into())
        };
    };
    let text = std::str::from_utf8(&front[..end])?;
    let length = text
        .split("\r\n")
        .find_map(|line| line.strip_prefix("Content-Length:"))
        .ok_or_else(|| format!("no Content-Length in {text:?}"))?;
    Ok(Some((end + 4, length.trim().parse()?)))
}
