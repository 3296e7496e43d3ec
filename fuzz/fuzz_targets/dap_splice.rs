//! Two peers and the splice between them, whatever sizes their sockets read and take: each body arrives once, whole and in its
//! place, what has to be captured has been, and nothing is delivered behind half a frame.
#![no_main]

use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use ray_relay_dap::messages::{captures_from_client, captures_from_worker};
use ray_relay_dap::wall::examined;
use ray_relay_base::memory::Account;
use ray_relay_base::wire::dap::codec::{Frames, put_frame};
use ray_relay_base::wire::dap::peek::Depth;
use ray_relay_base::wire::dap::scanner::Rules;
use ray_relay_base::wire::dap::splice::{Side, Splice, SpliceEvent};
use ray_relay_base::wire::peer_stream::PeerStream;
use ray_relay_fuzz::{Body, MAX_BODY_BYTES, is_acted_upon, is_overwritten, must_be_captured};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What a captured body has in front when it goes on.
const MARK: u8 = b'!';

#[derive(Debug, Arbitrary)]
struct Sent<'a> {
    bodies: Vec<Body<'a>>,
    rest: &'a [u8],
    /// How much is read at once, again and again; 0 is not yet.
    reads: &'a [u8],
    /// How much is taken at once of what is for this peer; 0 is not yet.
    takes: &'a [u8],
    /// How much of it was read before the splice began.
    before: u8,
}

impl Sent<'_> {
    fn wire(&self) -> Vec<u8> {
        let mut wire = Vec::new();
        for body in &self.bodies {
            put_frame(&mut wire, &body.bytes());
        }
        wire.extend_from_slice(self.rest);
        wire
    }
}

/// One end in memory.
struct Peer {
    unread: Vec<u8>,
    reads: Sizes,
    takes: Sizes,
    got: Vec<u8>,
    closed: bool,
}

/// Sizes that come again and again; a 0 is always followed by something.
struct Sizes {
    sizes: Vec<u8>,
    at: usize,
}

impl Sizes {
    fn next(&mut self) -> Option<usize> {
        let size = self.sizes.get(self.at % self.sizes.len().max(1)).copied();
        self.at += 1;
        match size {
            None => Some(usize::MAX),
            Some(0) if self.at % 2 == 0 => None,
            Some(size) => Some(usize::from(size).max(1)),
        }
    }
}

impl PeerStream for Peer {}

impl AsyncRead for Peer {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Some(size) = self.reads.next() else {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        };
        let size = size.min(buf.remaining()).min(self.unread.len());
        buf.put_slice(&self.unread[..size]);
        self.unread.drain(..size);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Peer {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        assert!(!self.closed, "written to behind the end");
        let Some(size) = self.takes.next() else {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        };
        let size = size.min(bytes.len());
        self.got.extend_from_slice(&bytes[..size]);
        Poll::Ready(Ok(size))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.closed = true;
        Poll::Ready(Ok(()))
    }
}

/// The bodies of `wire`, up to what is no frame, and whether that is its end.
fn bodies(wire: &[u8], most: usize) -> (Vec<Vec<u8>>, bool) {
    let mut frames = Frames::new(most);
    frames.buffer().extend_from_slice(wire);
    let mut bodies = Vec::new();
    loop {
        match frames.next_body() {
            Ok(Some(body)) => bodies.push(body.to_vec()),
            Ok(None) => return (bodies, true),
            Err(_) => return (bodies, false),
        }
    }
}

/// What arrived of what was sent: in order, and marked where it has to be captured.
fn compare(
    sent: &[u8],
    got: &[u8],
    whole: bool,
    same: fn(&[u8], &[u8]) -> bool,
    acted: fn(&[u8]) -> bool,
) {
    let (expected, _) = bodies(sent, MAX_BODY_BYTES);
    let (got, is_frames) = bodies(got, MAX_BODY_BYTES + 1);
    assert!(is_frames, "what is delivered is well formed");
    assert!(got.len() <= expected.len(), "more came than was sent");
    if whole {
        assert_eq!(got.len(), expected.len(), "lost");
    }
    for (got, expected) in got.iter().zip(&expected) {
        match got.split_first() {
            Some((&MARK, body)) if same(expected, body) => {}
            _ => {
                assert!(same(expected, got), "changed or out of order");
                assert!(!acted(got), "{}", got.escape_ascii());
            }
        }
    }
}

fn peer(sent: &Sent<'_>) -> (Peer, Vec<u8>) {
    let mut unread = sent.wire();
    let before = unread
        .drain(..usize::from(sent.before).min(unread.len()))
        .collect();
    let sizes = |sizes: &[u8]| Sizes {
        sizes: sizes.to_vec(),
        at: 0,
    };
    let peer = Peer {
        unread,
        reads: sizes(sent.reads),
        takes: sizes(sent.takes),
        got: Vec::new(),
        closed: false,
    };
    (peer, before)
}

fn rules(
    depth: Depth,
    captures: fn(ray_relay_base::wire::dap::peek::MessageType, &[u8]) -> bool,
) -> Rules {
    Rules {
        depth,
        captures,
        examined,
        max_captured: MAX_BODY_BYTES,
        max_passed: MAX_BODY_BYTES,
    }
}

fuzz_target!(|input: (Sent<'_>, Sent<'_>)| {
    let (from_client, from_worker) = input;
    let (client, client_before) = peer(&from_client);
    let (worker, worker_before) = peer(&from_worker);
    let mut splice = Splice::new(
        Account::default(),
        client,
        client_before,
        rules(Depth::Whole, captures_from_client),
        worker,
        worker_before,
        rules(Depth::Deciding, captures_from_worker),
    );
    let mut cx = Context::from_waker(Waker::noop());
    let mut malformed = false;
    // Each poll moves something or gives an event, but where a size is "not yet": every second one is.
    let mut polls = 0;
    while !splice.finished() {
        polls += 1;
        assert!(polls < 1_000_000, "no progress");
        let event = match pin!(splice.next()).poll(&mut cx) {
            Poll::Pending => continue,
            Poll::Ready(event) => event,
        };
        match event {
            SpliceEvent::Captured(side, body) => {
                splice.insert_body(opposite(side), &[&[MARK], &body[..]].concat());
            }
            SpliceEvent::Eof(side) => splice.close(opposite(side)),
            SpliceEvent::Failed(..) => panic!("no peer fails"),
            SpliceEvent::Malformed(..) => {
                malformed = true;
                break;
            }
        }
    }
    compare(
        &from_client.wire(),
        &splice.worker().got,
        !malformed,
        <[u8]>::eq,
        must_be_captured,
    );
    compare(
        &from_worker.wire(),
        &splice.client().got,
        !malformed,
        is_overwritten,
        is_acted_upon,
    );
});

fn opposite(side: Side) -> Side {
    match side {
        Side::Client => Side::Worker,
        Side::Worker => Side::Client,
    }
}
