//! Messages between two relays of one machine over a Unix socket, some of them with a descriptor.
//!
//! A frame is four bytes, big endian, and a message as JSON: the highest bit says that a descriptor comes with it, the
//! others how long the message is. Bounds: [`LARGEST`], and the descriptors that one read can bring.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::messages::Message;

/// Bytes of one message.
pub(super) const LARGEST: usize = 1024 * 1024;

/// Descriptors that have come and whose message is not whole yet.
const MOST_DESCRIPTORS: usize = 4;

/// Bytes that are read at once.
const CHUNK: usize = 16 * 1024;

/// How long the other side may take to take a message in.
const TAKEN: Duration = Duration::from_secs(10);

/// Says that a descriptor comes with a message.
const WITH_DESCRIPTOR: u32 = 1 << 31;

/// What is said with a message.
pub(super) type Heard = (Message, Option<OwnedFd>);

/// Both directions of a channel.
pub(super) fn channel(socket: UnixStream) -> (Hearing, Saying) {
    let socket = Arc::new(socket);
    let hearing = Hearing {
        socket: Arc::clone(&socket),
        bytes: BytesMut::new(),
        descriptors: VecDeque::new(),
    };
    (hearing, Saying { socket })
}

/// The direction in which messages come.
#[derive(Debug)]
pub(super) struct Hearing {
    socket: Arc<UnixStream>,
    bytes: BytesMut,
    descriptors: VecDeque<OwnedFd>,
}

/// The direction in which messages go.
#[derive(Debug)]
pub(super) struct Saying {
    socket: Arc<UnixStream>,
}

impl Hearing {
    /// The next message. Cancel safe: what has come stays here.
    ///
    /// # Errors
    /// Where the connection ends or breaks, and where what comes is no message.
    pub(super) async fn hear(&mut self) -> io::Result<Heard> {
        loop {
            if let Some(heard) = self.whole()? {
                return Ok(heard);
            }
            let (read, descriptor) = self
                .socket
                .async_io(Interest::READABLE, || receive(&self.socket))
                .await?;
            if read.is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.bytes.extend_from_slice(&read);
            self.descriptors.extend(descriptor);
            if self.descriptors.len() > MOST_DESCRIPTORS {
                return Err(garbage("more descriptors than messages"));
            }
        }
    }

    /// The message at the beginning of what has come, if it is there whole.
    fn whole(&mut self) -> io::Result<Option<Heard>> {
        let Some((head, _)) = self.bytes.split_first_chunk::<4>() else {
            return Ok(None);
        };
        let head = u32::from_be_bytes(*head);
        let length = (head & !WITH_DESCRIPTOR) as usize;
        if length > LARGEST {
            return Err(garbage("a message that is too long"));
        }
        if self.bytes.len() < 4 + length {
            return Ok(None);
        }
        self.bytes.advance(4);
        let message = serde_json::from_slice(&self.bytes.split_to(length))
            .map_err(|why| garbage(&why.to_string()))?;
        let descriptor = match head & WITH_DESCRIPTOR {
            0 => None,
            _ => Some(
                self.descriptors
                    .pop_front()
                    .ok_or_else(|| garbage("a message without its descriptor"))?,
            ),
        };
        Ok(Some((message, descriptor)))
    }
}

impl Saying {
    /// Says `message`, with `descriptor`, of which the other side gets a duplicate. Not cancel safe: a message that is cut
    /// ends the channel.
    ///
    /// # Errors
    /// Where the connection breaks, or the other side does not take it in for [`TAKEN`].
    pub(super) async fn say(
        &self,
        message: &Message,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        let body = serde_json::to_vec(message)?;
        let length = u32::try_from(body.len()).ok();
        let Some(length) = length.filter(|_| body.len() <= LARGEST) else {
            return Err(garbage("a message that is too long to be said"));
        };
        let mark = if descriptor.is_some() {
            WITH_DESCRIPTOR
        } else {
            0
        };
        let mut frame = (length | mark).to_be_bytes().to_vec();
        frame.extend_from_slice(&body);
        let said = timeout(TAKEN, self.send(&frame, descriptor)).await;
        said.unwrap_or(Err(io::ErrorKind::TimedOut.into()))
    }

    async fn send(&self, frame: &[u8], descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let mut sent = 0;
        while sent < frame.len() {
            // With the first bytes alone.
            let descriptor = descriptor.filter(|_| sent == 0);
            sent += self
                .socket
                .async_io(Interest::WRITABLE, || {
                    send(&self.socket, &frame[sent..], descriptor)
                })
                .await?;
        }
        Ok(())
    }
}

fn garbage(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

fn send(socket: impl AsFd, bytes: &[u8], descriptor: Option<BorrowedFd<'_>>) -> io::Result<usize> {
    let descriptors: Vec<_> = descriptor.into_iter().collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(garbage("no room for a descriptor"));
    }
    let flags = SendFlags::NOSIGNAL;
    Ok(sendmsg(
        socket,
        &[IoSlice::new(bytes)],
        &mut control,
        flags,
    )?)
}

fn receive(socket: impl AsFd) -> io::Result<(Vec<u8>, Option<OwnedFd>)> {
    let mut bytes = vec![0; CHUNK];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut into = [IoSliceMut::new(&mut bytes)];
    let read = recvmsg(socket, &mut into, &mut control, RecvFlags::CMSG_CLOEXEC)?.bytes;
    let mut descriptor = None;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            // There was room for one.
            descriptor = descriptors.last();
        }
    }
    bytes.truncate(read);
    Ok((bytes, descriptor))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn messages_come_whole_and_in_order_with_the_descriptors_that_were_given() {
        let (near, far) = UnixStream::pair().unwrap();
        let (_, saying) = channel(near);
        let (mut hearing, _) = channel(far);
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let refused = |length: usize| Message::Refused {
            reason: "x".repeat(length).as_str().into(),
        };
        let talk = async {
            saying.say(&refused(300), None).await.unwrap();
            let with = Some(theirs.as_fd());
            saying.say(&Message::Successor, with).await.unwrap();
            saying.say(&Message::Successor, with).await.unwrap();
            saying.say(&Message::Ready, None).await.unwrap();
            drop((saying, theirs));
        };
        let listen = async {
            assert!(
                matches!(hearing.hear().await.unwrap(), (Message::Refused { reason }, None) if reason.len() == 300)
            );
            let (message, first) = hearing.hear().await.unwrap();
            assert_eq!(message, Message::Successor);
            let (_, second) = hearing.hear().await.unwrap();
            assert!(matches!(
                hearing.hear().await.unwrap(),
                (Message::Ready, None)
            ));
            assert!(hearing.hear().await.is_err(), "the end");
            (first.unwrap(), second.unwrap())
        };
        let ((), (first, second)) = tokio::join!(talk, listen);
        drop(second);
        let passed = std::os::unix::net::UnixStream::from(first);
        passed.set_nonblocking(true).unwrap();
        let mut passed = UnixStream::from_std(passed).unwrap();
        passed.write_all(b"through").await.unwrap();
        drop(passed);
        let mut heard = String::new();
        ours.read_to_string(&mut heard).await.unwrap();
        assert_eq!(heard, "through");
    }

    #[tokio::test]
    async fn what_is_no_message_ends_the_channel() {
        for bytes in [
            &[0x7f, 0xff, 0xff, 0xff][..],
            &[0, 0, 0, 2, b'{', b'x'],
            b"\x80\x00\x00\x10{\"type\":\"ready\"}",
        ] {
            let (mut near, far) = UnixStream::pair().unwrap();
            near.write_all(bytes).await.unwrap();
            let (mut hearing, _) = channel(far);
            let why = hearing.hear().await.unwrap_err();
            assert_eq!(why.kind(), io::ErrorKind::InvalidData, "{why}");
        }
    }
}
