//! Telnet's commands within a stream of bytes (RFC 854, 857). Pure.
//!
//! Nothing is negotiated but the echo, and that only with a client that has begun to negotiate: any other client would see
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
pub const ECHO_OFF: [u8; 3] = [IAC, WILL, ECHO];
/// Gives it back.
pub const ECHO_ON: [u8; 3] = [IAC, WONT, ECHO];

/// Where in the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum TelnetState {
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
pub struct Decoded {
    pub text: Vec<u8>,
    /// To be sent back.
    pub answers: Vec<u8>,
    /// The client's interrupt key.
    pub interrupted: bool,
}

/// The state of one client's stream.
#[derive(Debug, Default)]
pub struct Telnet {
    state: TelnetState,
    seen: bool,
}

impl Telnet {
    /// The client speaks telnet.
    pub fn is_spoken(&self) -> bool {
        self.seen
    }

    pub fn decode(&mut self, bytes: &[u8]) -> Decoded {
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
            (TelnetState::Text | TelnetState::Return, IAC) => TelnetState::Command,
            // A bare return is a line's end in telnet.
            (TelnetState::Return, 0) => {
                to.text.push(b'\n');
                TelnetState::Text
            }
            // Ctrl-C of a client that sends each key.
            (TelnetState::Text | TelnetState::Return, 3) => {
                to.interrupted = true;
                TelnetState::Text
            }
            (TelnetState::Text | TelnetState::Return, byte) => {
                to.text.push(byte);
                match byte {
                    b'\r' => TelnetState::Return,
                    _ => TelnetState::Text,
                }
            }
            (TelnetState::Command, IAC) => {
                to.text.push(IAC);
                TelnetState::Text
            }
            (TelnetState::Command, WILL | WONT | DO | DONT) => TelnetState::Option(byte),
            (TelnetState::Command, SUBNEGOTIATION) => TelnetState::Sub,
            (TelnetState::Command, INTERRUPT | BREAK | ABORT | EOF) => {
                self.seen = true;
                to.interrupted = true;
                TelnetState::Text
            }
            (TelnetState::Command, _) => TelnetState::Text,
            (TelnetState::Option(verb), option) => {
                self.seen = true;
                match verb {
                    WILL => to.answers.extend([IAC, DONT, option]),
                    DO if option != ECHO => to.answers.extend([IAC, WONT, option]),
                    _ => {}
                }
                TelnetState::Text
            }
            (TelnetState::Sub, IAC) => TelnetState::SubCommand,
            (TelnetState::SubCommand, SE) => TelnetState::Text,
            (TelnetState::Sub | TelnetState::SubCommand, _) => TelnetState::Sub,
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

    /// Bytes of which many are telnet's own.
    fn wire() -> impl proptest::strategy::Strategy<Value = Vec<u8>> {
        use proptest::prelude::*;
        let own = proptest::sample::select(vec![
            IAC,
            IAC,
            IAC,
            WILL,
            WONT,
            DO,
            DONT,
            SUBNEGOTIATION,
            SE,
            INTERRUPT,
            ECHO,
            b'\r',
            0,
            3,
        ]);
        proptest::collection::vec(prop_oneof![own, any::<u8>()], 0..60)
    }

    proptest::proptest! {
        #[test]
        fn pieces_make_no_difference(bytes in wire(), cuts in proptest::collection::vec(1usize..9, 1..9)) {
            let mut at_once = Telnet::default();
            let whole = at_once.decode(&bytes);
            let mut telnet = Telnet::default();
            let mut all = Decoded::default();
            let (mut rest, mut cuts) = (&bytes[..], cuts.into_iter().cycle());
            while !rest.is_empty() {
                let (piece, later) = rest.split_at(cuts.next().unwrap_or(1).min(rest.len()));
                rest = later;
                let one = telnet.decode(piece);
                all.text.extend(one.text);
                all.answers.extend(one.answers);
                all.interrupted |= one.interrupted;
                proptest::prop_assert!(all.text.len() + all.answers.len() <= bytes.len() - rest.len());
            }
            proptest::prop_assert_eq!(&all, &whole);
            proptest::prop_assert_eq!(telnet.is_spoken(), at_once.is_spoken());
            // Two such ends would talk forever otherwise.
            proptest::prop_assert_eq!(Telnet::default().decode(&all.answers), Decoded::default());
        }

        #[test]
        fn what_is_sent_as_text_arrives_as_that(text in proptest::collection::vec(4u8.., 0..60), options in proptest::collection::vec((WILL..=DONT, 0u8..), 0..4)) {
            let mut wire: Vec<u8> = text.iter().flat_map(|byte| std::iter::repeat_n(*byte, 1 + usize::from(*byte == IAC))).collect();
            let mut answers = Vec::new();
            for (verb, option) in options {
                wire.splice(0..0, [IAC, verb, option]);
                let answer = match verb {
                    WILL => vec![IAC, DONT, option],
                    DO if option != ECHO => vec![IAC, WONT, option],
                    _ => Vec::new(),
                };
                answers.splice(0..0, answer);
            }
            proptest::prop_assert_eq!(Telnet::default().decode(&wire), Decoded { text, answers, interrupted: false });
        }
    }
}
