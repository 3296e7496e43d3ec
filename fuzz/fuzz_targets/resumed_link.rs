//! A link whose other side says whatever it likes: nothing falls over, no more is kept than was agreed, and what was read as
//! a message is written and read again as the same.
#![no_main]

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use ray_relay_base::wire::resumed::messages::ResumeMessage;
use ray_relay_base::wire::resumed::offsets::{IncomingOffsets, OutgoingOffsets};
use ray_relay_base::wire::tunnel::messages::{read, written};

const WINDOW: usize = 500;

#[derive(Debug, Arbitrary)]
enum Step {
    Write(Vec<u8>),
    Finish,
    Send(u8),
    Taken(u16),
    Received(u16),
    Abandon,
    Receive(Vec<u8>),
    End,
    Read(u8),
    Tell(bool),
    Resume,
    Discard,
    Text(String),
}

fuzz_target!(|steps: Vec<Step>| {
    let (mut outgoing, mut incoming) = (OutgoingOffsets::new(WINDOW), IncomingOffsets::new(WINDOW));
    for step in steps {
        match step {
            Step::Write(bytes) => assert!(outgoing.write(&bytes) <= bytes.len()),
            Step::Finish => outgoing.finish(),
            Step::Send(most) => drop(outgoing.send(most.into())),
            Step::Taken(before) => _ = outgoing.acknowledged(before.into()),
            Step::Received(before) => _ = outgoing.resume(before.into()),
            Step::Abandon => outgoing.abandon(),
            Step::Receive(bytes) => _ = incoming.receive(&bytes),
            Step::End => _ = incoming.finish(),
            Step::Read(most) => _ = incoming.read(|bytes| bytes.len().min(most.into())),
            Step::Tell(all) => _ = incoming.acknowledge(all),
            Step::Resume => incoming.resume(),
            Step::Discard => incoming.discard(),
            Step::Text(text) => {
                if let Ok(said) = read::<ResumeMessage>(&text)
                    && said != ResumeMessage::Unknown
                {
                    assert_eq!(read::<ResumeMessage>(&written(&said)).unwrap(), said);
                }
            }
        }
        assert!(outgoing.stored() <= WINDOW && outgoing.room() <= WINDOW);
        assert!(incoming.held() <= WINDOW);
    }
});
