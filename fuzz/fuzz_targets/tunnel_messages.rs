//! Messages between relays and agents: whatever comes is read or refused, and what was read is written and read again as
//! the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ray_relay_base::wire::tunnel::messages::{
    FromAgent, FromRelay, MAX_MESSAGE_BYTES, StreamGreeting, read, written,
};

fuzz_target!(|text: &str| {
    if let Ok(message) = read::<FromRelay>(text)
        && message != FromRelay::Unknown
    {
        let again = written(&message);
        assert!(again.len() <= MAX_MESSAGE_BYTES);
        assert_eq!(read::<FromRelay>(&again).unwrap(), message);
    }
    if let Ok(message) = read::<FromAgent>(text)
        && message != FromAgent::Unknown
    {
        let again = written(&message);
        assert_eq!(read::<FromAgent>(&again).unwrap(), message);
    }
    if let Ok(message) = read::<StreamGreeting>(text) {
        assert_eq!(read::<StreamGreeting>(&written(&message)).unwrap(), message);
    }
});
