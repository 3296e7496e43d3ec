//! A walk over a message by its [`Schema`], in pieces of any size.
//!
//! Pure. A field is judged with the first bytes of its value, before its key passes, so that both pass or neither. A
//! comma passes with the field behind it.

mod judge;
mod level;
mod state;

use self::judge::{Judged, Next, judge, unexamined, usual_path, usual_scalar};
use self::level::{Level, Token};
use self::state::WalkState;
use super::console;
use super::{Fields, Irregular, Schema};
use crate::wire::dap::inside::{rest_of_text, spaces};
use crate::wire::dap::peek::number;

/// Bytes of a key, the space around it, and the part of its value that is judged with it.
const MAX_JUDGED_BYTES: usize = 8 * 1024;

/// Objects within each other in a schema: message, body, frame, source.
const MAX_DEPTH: usize = 4;

/// The walk of one message.
#[derive(Debug, Clone, Copy)]
pub struct SchemaWalk {
    /// The open objects, the message first, and room for more.
    levels: [Level; MAX_DEPTH],
    /// Number of open objects.
    depth: usize,
    state: WalkState,
    /// Whether a part of the message has been forwarded, so that it can no longer be parsed.
    forwarded: bool,
    request_seq: Option<u64>,
}

impl SchemaWalk {
    /// Starts in front of a message with these fields.
    pub fn new(fields: &'static Fields) -> Self {
        Self {
            levels: [Level::new(fields); MAX_DEPTH],
            depth: 0,
            state: WalkState::Open,
            forwarded: false,
            request_seq: None,
        }
    }

    /// Whether the message has ended.
    pub fn is_over(&self) -> bool {
        matches!(self.state, WalkState::Over)
    }

    /// The number of the answered request.
    pub fn request_seq(&self) -> Option<u64> {
        self.request_seq
    }

    /// Whether the message has all that is required of it, so that what was read may be forwarded.
    pub fn has_required(&self) -> bool {
        self.depth > 0 && self.levels[0].has_required()
    }

    /// Whether it is in a text for a console.
    pub fn is_in_console_text(&self) -> bool {
        matches!(self.state, WalkState::Console)
    }

    /// From now on a value that would have to be parsed is overwritten, because the bytes read so far are forwarded.
    pub fn forward(&mut self) {
        self.forwarded = true;
    }

    /// Reads on in `bytes`, overwrites what may not pass, and returns how many are done with. The others, in which a
    /// key or a short value is incomplete, must come again in front of the next ones.
    ///
    /// # Errors
    /// [`Irregular`]. What was overwritten would have been left out by a parser too.
    pub fn pass(&mut self, bytes: &mut [u8]) -> Result<usize, Irregular> {
        let mut at = 0;
        while at < bytes.len() {
            match self.step(&mut bytes[at..])? {
                0 => break,
                read => at += read,
            }
        }
        Ok(at)
    }

    /// Reads a token, or a part of a long one; 0: it is incomplete.
    fn step(&mut self, bytes: &mut [u8]) -> Result<usize, Irregular> {
        match self.state {
            WalkState::Member => match self.usual_fields(bytes)? {
                0 => self.member(bytes),
                read => Ok(read),
            },
            WalkState::Text(overwritten) => {
                let (read, ends) = rest_of_text(bytes);
                if ends {
                    self.state = WalkState::Member;
                }
                overwrite_if(overwritten, &mut bytes[..read]);
                Ok(read)
            }
            WalkState::Nested(mut inside, overwritten) => {
                let read = inside.pass(bytes);
                self.state = match inside.open {
                    0 => WalkState::Member,
                    _ => WalkState::Nested(inside, overwritten),
                };
                overwrite_if(overwritten, &mut bytes[..read]);
                Ok(read)
            }
            WalkState::Console => self.console(bytes),
            WalkState::Open | WalkState::FirstItem | WalkState::AfterItem | WalkState::Over => {
                self.punctuation(bytes)
            }
        }
    }

    /// Reads what is between objects.
    fn punctuation(&mut self, bytes: &[u8]) -> Result<usize, Irregular> {
        let at = spaces(bytes);
        let Some(first) = bytes.get(at) else {
            return Ok(at);
        };
        let list = self.depth.checked_sub(1).map(|top| self.levels[top].list);
        let items = list.flatten().ok_or(Irregular);
        match (self.state, first) {
            (WalkState::Open, b'{') => self.open(self.levels[0].fields)?,
            (WalkState::FirstItem, b'{') => self.open(items?)?,
            (WalkState::AfterItem, b',') => {
                let next = at + 1 + spaces(&bytes[at + 1..]);
                return match bytes.get(next) {
                    None if bytes.len() > MAX_JUDGED_BYTES => Err(Irregular),
                    None => Ok(0),
                    Some(b'{') => {
                        self.open(items?)?;
                        Ok(next + 1)
                    }
                    Some(_) => Err(Irregular),
                };
            }
            (WalkState::FirstItem | WalkState::AfterItem, b']') => {
                self.levels[self.depth - 1].list = None;
                self.state = WalkState::Member;
            }
            _ => return Err(Irregular),
        }
        Ok(at + 1)
    }

    fn open(&mut self, fields: &'static Fields) -> Result<(), Irregular> {
        *self.levels.get_mut(self.depth).ok_or(Irregular)? = Level::new(fields);
        self.depth += 1;
        self.state = WalkState::Member;
        Ok(())
    }

    fn close(&mut self) -> Result<(), Irregular> {
        if !self.levels[self.depth - 1].has_required() && !self.forwarded {
            return Err(Irregular);
        }
        self.depth -= 1;
        self.state = match self.depth.checked_sub(1) {
            None => WalkState::Over,
            Some(top) if self.levels[top].list.is_some() => WalkState::AfterItem,
            Some(_) => WalkState::Member,
        };
        Ok(())
    }

    /// Reads on while all is as debuggers write it: known fields with scalars and paths in their order, up to an object.
    /// Only for speed: 0 where anything else comes, and [`Self::member`] reads it.
    fn usual_fields(&mut self, bytes: &[u8]) -> Result<usize, Irregular> {
        let level = &mut self.levels[self.depth - 1];
        let mut read = 0;
        while let Some((index, value)) = level.usual_field(&bytes[read..]) {
            let value = read + value;
            let rest = &bytes[value..];
            let (length, opens) = match level.fields.known[index].schema {
                Schema::Scalar => (usual_scalar(rest), None),
                Schema::Path(_) => (usual_path(rest), None),
                Schema::Object(fields) => (rest.starts_with(b"{").then_some(1), Some(fields)),
                _ => (None, None),
            };
            let Some(length) = length else {
                break;
            };
            read = value + length;
            level.seen |= 1 << index;
            level.expected = index as u8 + 1;
            (level.begun, level.kept) = (true, true);
            if let Some(fields) = opens {
                self.open(fields)?;
                break;
            }
        }
        Ok(read)
    }

    /// Reads the end of an object, or a field with its comma and the beginning of its value.
    fn member(&mut self, bytes: &mut [u8]) -> Result<usize, Irregular> {
        let top = self.depth - 1;
        let field = match self.levels[top].field(bytes) {
            Ok(Token::Field(field)) => field,
            Ok(Token::End(read)) => {
                self.close()?;
                return Ok(read);
            }
            Ok(Token::Cut) if bytes.len() <= MAX_JUDGED_BYTES => return Ok(0),
            Ok(Token::Cut) | Err(Irregular) => return Err(Irregular),
        };
        let value = &bytes[field.value..];
        let judged = match judge(field.schema, value) {
            Err(Irregular) if self.forwarded => Judged::Overwritten,
            judged => judged?,
        };
        let (judged, passes) = match judged {
            Judged::Overwritten => (unexamined(value, true)?, false),
            judged => (judged, true),
        };
        let (read, next) = match judged {
            Judged::Passes(read, next) => (field.value + read, next),
            Judged::Cut | Judged::Overwritten if bytes.len() <= MAX_JUDGED_BYTES => return Ok(0),
            Judged::Cut | Judged::Overwritten => return Err(Irregular),
        };
        if passes && matches!(field.schema, Schema::RequestSeq) {
            self.request_seq = number(&bytes[field.value..read]);
        }
        let level = &mut self.levels[top];
        level.begun = true;
        level.seen |= field.bit;
        level.expected = field.next;
        // All fields before it are overwritten.
        let needs_no_comma = passes && !level.kept;
        level.kept |= passes;
        if let Some(comma) = field.comma.filter(|_| needs_no_comma) {
            bytes[comma] = b' ';
        }
        overwrite_if(!passes, &mut bytes[..read]);
        match next {
            Next::State(state) => self.state = state,
            Next::Object(fields) => self.open(fields)?,
            Next::List(fields) => {
                self.levels[top].list = Some(fields);
                self.state = WalkState::FirstItem;
            }
        }
        Ok(read)
    }

    fn console(&mut self, bytes: &mut [u8]) -> Result<usize, Irregular> {
        let piece = console::pass(bytes, self.forwarded)?;
        if piece.ends {
            self.state = WalkState::Member;
        }
        Ok(piece.read)
    }
}

fn overwrite_if(overwritten: bool, bytes: &mut [u8]) {
    if overwritten {
        bytes.fill(b' ');
    }
}
