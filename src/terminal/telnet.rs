//! Telnet's commands within a stream of bytes (RFC 854, 857). Pure.
//!
//! Nothing is negotiated but the echo, and that only with a client that has begun to negotiate: anybody else would see
//! the bytes as text.

const SE: u8 = 240;
const EOF: u8 = 236;
const ABORT: u8 = 238;
const BREAK: u8 = 243;
const INTERRUPT: u8 = 244;
const SUBNEGOTIATION: u8 = 250;
const WILL: u8 = 251;
const WONT: u8 = 252;
const DO: u8 = 253;
const DONT: u8 = 254;
const IAC: u8 = 255;
const ECHO: u8 = 1;

/// Takes the echo over, and does not echo.
pub(super) const ECHO_OFF: [u8; 3] = [IAC, WILL, ECHO];
/// Gives it back.
pub(super) const ECHO_ON: [u8; 3] = [IAC, WONT, ECHO];

/// Where in the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    #[default]
    Text,
    /// After a carriage return.
    Return,
    Command,
    Option(u8),
    Sub,
    SubCommand,
}

/// What one piece of the stream came to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Decoded {
    pub(super) text: Vec<u8>,
    /// To be sent back.
    pub(super) answers: Vec<u8>,
    /// The client's interrupt key.
    pub(super) interrupted: bool,
}

/// The state of one client's stream.
#[derive(Debug, Default)]
pub(super) struct Telnet {
    state: State,
    seen: bool,
}

impl Telnet {
    /// The client speaks telnet.
    pub(super) fn is_spoken(&self) -> bool {
        self.seen
    }

    pub(super) fn decode(&mut self, bytes: &[u8]) -> Decoded {
        let mut decoded = Decoded::default();
        for byte in bytes {
            self.one(*byte, &mut decoded);
        }
        decoded
    }

    fn one(&mut self, byte: u8, to: &mut Decoded) {
        let before = std::mem::take(&mut self.state);
        self.state = match (before, byte) {
            // Only at the start of a command is it certain that this is telnet.
            (State::Text | State::Return, IAC) => State::Command,
            // A bare return is a line's end in telnet.
            (State::Return, 0) => {
                to.text.push(b'\n');
                State::Text
            }
            // Ctrl-C of a client that sends each key.
            (State::Text | State::Return, 3) => {
                to.interrupted = true;
                State::Text
            }
            (State::Text | State::Return, byte) => {
                to.text.push(byte);
                match byte {
                    b'\r' => State::Return,
                    _ => State::Text,
                }
            }
            (State::Command, IAC) => {
                to.text.push(IAC);
                State::Text
            }
            (State::Command, WILL | WONT | DO | DONT) => State::Option(byte),
            (State::Command, SUBNEGOTIATION) => State::Sub,
            (State::Command, INTERRUPT | BREAK | ABORT | EOF) => {
                self.seen = true;
                to.interrupted = true;
                State::Text
            }
            (State::Command, _) => State::Text,
            (State::Option(verb), option) => {
                self.seen = true;
                match verb {
                    WILL => to.answers.extend([IAC, DONT, option]),
                    DO if option != ECHO => to.answers.extend([IAC, WONT, option]),
                    _ => {}
                }
                State::Text
            }
            (State::Sub, IAC) => State::SubCommand,
            (State::SubCommand, SE) => State::Text,
            (State::Sub | State::SubCommand, _) => State::Sub,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_taken_out_and_answered() {
        let mut telnet = Telnet::default();
        let decoded =
            telnet.decode(b"\xff\xfb\x1fp\xff\xfd\x03 x\r\0\xff\xfa\x18\0vt\xff\xf0q\r\n");
        assert_eq!(decoded.text, b"p x\r\nq\r\n");
        assert_eq!(decoded.answers, b"\xff\xfe\x1f\xff\xfc\x03");
        assert!(telnet.is_spoken() && !decoded.interrupted);
        // The answer to an offer of the relay's own needs none.
        assert_eq!(telnet.decode(b"\xff\xfd\x01"), Decoded::default());
        assert!(telnet.decode(b"\xff\xf4\xff\xfd\x06").interrupted);
    }

    #[test]
    fn text_is_text() {
        let mut telnet = Telnet::default();
        assert_eq!(
            telnet.decode("größe\r\n".as_bytes()).text,
            "größe\r\n".as_bytes()
        );
        assert!(!telnet.is_spoken());
    }

    proptest::proptest! {
        #[test]
        fn pieces_make_no_difference(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..60), cut in 0usize..60) {
            let whole = Telnet::default().decode(&bytes);
            let mut telnet = Telnet::default();
            let cut = cut.min(bytes.len());
            let (first, second) = (telnet.decode(&bytes[..cut]), telnet.decode(&bytes[cut..]));
            proptest::prop_assert_eq!(whole.text, [first.text, second.text].concat());
            proptest::prop_assert_eq!(whole.answers, [first.answers, second.answers].concat());
        }
    }
}
