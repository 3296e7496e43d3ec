//! Messages between two processes of one machine over a Unix socket, some with a file descriptor.
//!
//! A frame is a four-byte header, big endian, and a message as JSON. The header's highest bit marks a message with a
//! descriptor, the others are the message's length. Bounds: [`MAX_MESSAGE_BYTES`], and the descriptors of one read.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::time::timeout;

/// Largest message, in bytes.
pub const MAX_MESSAGE_BYTES: usize = 1024 * 1024;

/// Received descriptors whose messages are incomplete.
const MAX_PENDING_DESCRIPTORS: usize = 4;

/// Descriptors per send.
const MAX_SENT_DESCRIPTORS: usize = 2;

/// Bytes per read.
const READ_BYTES: usize = 16 * 1024;

/// Timeout of the peer accepting a message.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);

/// Header bit of a message with a descriptor.
const DESCRIPTOR_BIT: u32 = 1 << 31;

/// Both directions of a channel that receives messages `M`.
pub fn channel<M>(socket: UnixStream) -> (MessageReader<M>, MessageWriter) {
    let socket = Arc::new(socket);
    let reader = MessageReader {
        socket: Arc::clone(&socket),
        bytes: BytesMut::new(),
        descriptors: VecDeque::new(),
        _messages: PhantomData,
    };
    (reader, MessageWriter { socket })
}

/// The receiving direction.
#[derive(Debug)]
pub struct MessageReader<M> {
    socket: Arc<UnixStream>,
    bytes: BytesMut,
    descriptors: VecDeque<OwnedFd>,
    _messages: PhantomData<fn() -> M>,
}

/// The sending direction.
#[derive(Debug)]
pub struct MessageWriter {
    socket: Arc<UnixStream>,
}

impl<M: DeserializeOwned> MessageReader<M> {
    /// Receives the next message. Cancel safe: received bytes stay here.
    ///
    /// # Errors
    /// If the connection ends or breaks, or the bytes are not a valid message.
    pub async fn read(&mut self) -> io::Result<(M, Option<OwnedFd>)> {
        loop {
            if let Some(read) = self.whole()? {
                return Ok(read);
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
            if self.descriptors.len() > MAX_PENDING_DESCRIPTORS {
                return Err(garbage("more descriptors than messages"));
            }
        }
    }

    /// Removes the message at the start of the received bytes, if it is complete.
    fn whole(&mut self) -> io::Result<Option<(M, Option<OwnedFd>)>> {
        let Some((head, _)) = self.bytes.split_first_chunk::<4>() else {
            return Ok(None);
        };
        let head = u32::from_be_bytes(*head);
        let length = (head & !DESCRIPTOR_BIT) as usize;
        if length > MAX_MESSAGE_BYTES {
            return Err(garbage("a message that is too long"));
        }
        if self.bytes.len() < 4 + length {
            return Ok(None);
        }
        self.bytes.advance(4);
        let message = serde_json::from_slice(&self.bytes.split_to(length))
            .map_err(|why| garbage(&why.to_string()))?;
        let descriptor = match head & DESCRIPTOR_BIT {
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

impl MessageWriter {
    /// Writes `message`, with a duplicate of `descriptor` for the peer. Not cancel safe: a partial message ends the
    /// channel.
    ///
    /// # Errors
    /// If the connection breaks, or the peer does not accept the message within [`SEND_TIMEOUT`].
    pub async fn write(
        &self,
        message: &impl Serialize,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        let body = serde_json::to_vec(message)?;
        let length = u32::try_from(body.len()).ok();
        let Some(length) = length.filter(|_| body.len() <= MAX_MESSAGE_BYTES) else {
            return Err(garbage("a message that is too long to be written"));
        };
        let mark = if descriptor.is_some() {
            DESCRIPTOR_BIT
        } else {
            0
        };
        let mut frame = (length | mark).to_be_bytes().to_vec();
        frame.extend_from_slice(&body);
        let written = timeout(SEND_TIMEOUT, self.send(&frame, descriptor)).await;
        written.unwrap_or(Err(io::ErrorKind::TimedOut.into()))
    }

    async fn send(&self, frame: &[u8], descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let mut sent = 0;
        while sent < frame.len() {
            // Only the first bytes carry it.
            let descriptor = descriptor.filter(|_| sent == 0);
            sent += self
                .socket
                .async_io(Interest::WRITABLE, || {
                    send(&self.socket, &frame[sent..], descriptor.as_slice())
                })
                .await?;
        }
        Ok(())
    }
}

fn garbage(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

/// Sends `bytes` with duplicates of `descriptors`, at most [`MAX_SENT_DESCRIPTORS`]; returns the number of bytes sent.
///
/// # Errors
/// Errors of the system.
pub fn send(socket: impl AsFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_SENT_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
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
    let mut bytes = vec![0; READ_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut into = [IoSliceMut::new(&mut bytes)];
    let read = recvmsg(socket, &mut into, &mut control, RecvFlags::CMSG_CLOEXEC)?.bytes;
    let mut descriptor = None;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            // There was space for one.
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

    use serde::Deserialize;

    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(tag = "type", rename_all = "snake_case")]
    enum Message {
        Refused { reason: String },
        WithDescriptor,
        Ready,
    }

    #[tokio::test]
    async fn messages_arrive_in_order_with_their_descriptors() {
        let (near, far) = UnixStream::pair().unwrap();
        let (_, writer) = channel::<Message>(near);
        let (mut reader, _) = channel::<Message>(far);
        let (mut local, remote) = UnixStream::pair().unwrap();
        let refused = |length: usize| Message::Refused {
            reason: "x".repeat(length),
        };
        let send = async {
            writer.write(&refused(300), None).await.unwrap();
            let descriptor = Some(remote.as_fd());
            writer
                .write(&Message::WithDescriptor, descriptor)
                .await
                .unwrap();
            writer
                .write(&Message::WithDescriptor, descriptor)
                .await
                .unwrap();
            writer.write(&Message::Ready, None).await.unwrap();
            drop((writer, remote));
        };
        let receive = async {
            assert!(
                matches!(reader.read().await.unwrap(), (Message::Refused { reason }, None) if reason.len() == 300)
            );
            let (message, first) = reader.read().await.unwrap();
            assert_eq!(message, Message::WithDescriptor);
            let (_, second) = reader.read().await.unwrap();
            assert!(matches!(
                reader.read().await.unwrap(),
                (Message::Ready, None)
            ));
            assert!(reader.read().await.is_err(), "the end");
            (first.unwrap(), second.unwrap())
        };
        let ((), (first, second)) = tokio::join!(send, receive);
        drop(second);
        let passed = std::os::unix::net::UnixStream::from(first);
        passed.set_nonblocking(true).unwrap();
        let mut passed = UnixStream::from_std(passed).unwrap();
        passed.write_all(b"through").await.unwrap();
        drop(passed);
        let mut received = String::new();
        local.read_to_string(&mut received).await.unwrap();
        assert_eq!(received, "through");
    }

    #[tokio::test]
    async fn invalid_message_ends_the_channel() {
        for bytes in [
            &[0x7f, 0xff, 0xff, 0xff][..],
            &[0, 0, 0, 2, b'{', b'x'],
            b"\x80\x00\x00\x10{\"type\":\"ready\"}",
        ] {
            let (mut near, far) = UnixStream::pair().unwrap();
            near.write_all(bytes).await.unwrap();
            let (mut reader, _) = channel::<Message>(far);
            let error = reader.read().await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
        }
    }
}
