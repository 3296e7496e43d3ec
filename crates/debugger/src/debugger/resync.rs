//! Resuming a debugger in the middle of its output, when the process that read the beginning is gone.
//!
//! A message of debugpy is JSON without a raw line break behind a header that ends in two, so the next header is found
//! without knowing the position of the last. The cut message belonged to the former client. A request then shows when
//! everything requested before it is answered. Evaluations are answered out of order; their responses are counted
//! ([`super::progress::Progress`]).

use std::io;

use bytes::BytesMut;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::Worker;
use ray_relay_base::wire::dap::codec::{Frames, MAX_HEADER_BYTES, frame, header, parse};
use ray_relay_base::wire::dap::message::{Incoming, request};
use ray_relay_base::wire::dap::names::Command;
use ray_relay_base::wire::dap::stored_messages::StoredMessages;

/// `seq` of these requests: no client counts so far.
const SEQ: i64 = 0x7fff_5679;

const MAX_MESSAGE_BYTES: usize = 1 << 24;

/// Bytes per read.
const READ_BYTES: usize = 16 * 1024;

/// The end of a header.
const HEADER_END: &[u8] = b"\r\n\r\n";

impl Worker {
    /// Continues at the next message, and waits for the response to a request of its own. Returns the partial message
    /// behind the response, and the messages since the last client, with the paused threads.
    ///
    /// # Errors
    /// The connection is gone, or its bytes are not DAP. The caller bounds the wait.
    pub async fn resync(&mut self) -> io::Result<(Vec<u8>, StoredMessages)> {
        let mut kept = self.take_stored();
        // Store that state too: this process may be killed before the response arrives, as the previous one was.
        self.set_stored(StoredMessages::of(kept.threads.clone()));
        let Some(connection) = self.connection_mut() else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        if connection.ledger.lost {
            return Err(garbage());
        }
        let question = frame(&request(SEQ, Command::Threads, json!({})));
        connection.ledger.sent(&question);
        connection.stream.write_all(&question).await?;
        let mut room = BytesMut::with_capacity(READ_BYTES);
        let rest = loop {
            if connection.stream.read_buf(&mut room).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if let Some(at) = first_header(&room) {
                break room.split_off(at);
            }
            // An incomplete header is at the end.
            let passed = room.len().saturating_sub(MAX_HEADER_BYTES);
            _ = room.split_to(passed);
        };
        let mut frames = Frames::new(MAX_MESSAGE_BYTES);
        frames.buffer().extend_from_slice(&rest);
        connection.received(&rest);
        let mut is_answered = false;
        loop {
            while let Some(body) = frames.next_body().map_err(|_| garbage())? {
                is_answered |= is_answer(&body);
                kept.take(&body);
            }
            if is_answered {
                break;
            }
            let buffer = frames.buffer();
            let before = buffer.len();
            if connection.stream.read_buf(buffer).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let read = buffer.split_off(before);
            connection.received(&read);
            buffer.unsplit(read);
        }
        if connection.ledger.progress.starting {
            // A response would be here by now, so it was never sent, and the task would wait for it.
            let start = frame(&request(SEQ, Command::ConfigurationDone, json!({})));
            connection.sent(&start);
            connection.stream.write_all(&start).await?;
        }
        let part = frames.into_rest().to_vec();
        Ok((part, kept))
    }
}

fn is_answer(body: &[u8]) -> bool {
    parse(body).is_ok_and(|message| Incoming::read(message).answers(SEQ))
}

fn garbage() -> io::Error {
    io::ErrorKind::InvalidData.into()
}

/// Position of the first whole header in `bytes`, which may begin in the middle of a message.
fn first_header(bytes: &[u8]) -> Option<usize> {
    const FIELD: &[u8] = b"Content-Length: ";
    let mut from = 0;
    while let Some(end) = memchr::memmem::find(&bytes[from..], HEADER_END) {
        let end = from + end + HEADER_END.len();
        let lines = &bytes[end.saturating_sub(MAX_HEADER_BYTES)..end];
        if let Some(begin) = memchr::memmem::rfind(lines, FIELD) {
            let begin = end - lines.len() + begin;
            if matches!(header(&bytes[begin..], MAX_MESSAGE_BYTES), Ok(Some((head, _))) if begin + head == end)
            {
                return Some(begin);
            }
        }
        from = end;
    }
    None
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use proptest::prelude::*;
    use serde_json::Value;
    use tokio::net::{TcpListener, TcpStream};
    use tokio::time::timeout;
    use tokio_util::task::TaskTracker;

    use super::*;
    use crate::debugger::kept::Stored;
    use crate::debugger::progress::{Attach, Progress};
    use crate::debugger::{Direct, Stream};
    use ray_relay_base::wire::dap::codec::put_frame;

    /// The debugger first sends the rest of a message that the lost relay has read in part.
    #[tokio::test]
    async fn resync_resumes_behind_a_partial_message() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap());
        let (near, far) = tokio::join!(near, listener.accept());
        let mut debugger = far.unwrap().0;
        let stored = Stored {
            progress: Progress {
                attach: Attach::Initialized,
                configured: true,
                evaluating: 1,
                ..Progress::default()
            },
            ..Stored::of(Value::Null)
        };
        let written = serde_json::to_vec(&stored).unwrap();
        let stored = serde_json::from_slice(&written).unwrap();
        let stream = Stream::Direct(Direct::new(near.unwrap()));
        let mut worker = Worker::restored(stream, &stored, None, TaskTracker::new());

        let answers = async {
            debugger
                .write_all(b"ngth: 7\r\n\r\n{\"a\":1}")
                .await
                .unwrap();
            let mut requests = Frames::new(MAX_MESSAGE_BYTES);
            let question = loop {
                assert!(debugger.read_buf(requests.buffer()).await.unwrap() > 0);
                if let Some(body) = requests.next_body().unwrap() {
                    break parse(&body).unwrap();
                }
            };
            assert_eq!(question["command"], "threads");
            let stop = json!({"seq": 9, "type": "event", "event": "stopped", "body": {"threadId": 3, "reason": "step"}});
            let answer = json!({"seq": 10, "type": "response", "request_seq": question["seq"], "command": "threads", "success": true, "body": {"threads": []}});
            for message in [stop, answer] {
                debugger.write_all(&frame(&message)).await.unwrap();
            }
            debugger.write_all(b"Content-Le").await.unwrap();
        };
        let (resynced, ()) = tokio::join!(worker.resync(), answers);
        let (partial, stored_messages) = resynced.unwrap();
        assert!(b"Content-Le".starts_with(&partial));
        assert!(!stored_messages.runs(), "a thread has stopped since");
        assert!(worker.stays() && !worker.is_quiet(), "it still evaluates");

        let value = json!({"seq": 11, "type": "response", "request_seq": 5, "command": "evaluate", "success": true, "body": {"result": "1"}});
        let rest = frame(&value);
        let rest = rest.strip_prefix(b"Content-Le").unwrap();
        debugger.write_all(rest).await.unwrap();
        let mut buffer = [0; 1024];
        while !worker.is_quiet() {
            assert!(worker.read(&mut buffer).await.unwrap() > 0);
        }
    }

    fn success(command: &Value, request_seq: &Value) -> Vec<u8> {
        frame(
            &json!({"seq": 2, "type": "response", "request_seq": request_seq, "command": command, "success": true, "body": {}}),
        )
    }

    /// The previous relay was killed while it sent `configurationDone`: the debugger may have received it or not.
    #[tokio::test]
    async fn resync_sends_a_possibly_lost_configuration_done() {
        for was_sent in [true, false] {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
            let near = TcpStream::connect(listener.local_addr().unwrap());
            let (near, far) = tokio::join!(near, listener.accept());
            let mut debugger = far.unwrap().0;
            let mut progress = Progress {
                attach: Attach::Initialized,
                ..Progress::default()
            };
            progress.starts();
            let stored = Stored {
                progress,
                ..Stored::of(Value::Null)
            };
            let stream = Stream::Direct(Direct::new(near.unwrap()));
            let mut worker = Worker::restored(stream, &stored, None, TaskTracker::new());
            let mut requests = Frames::new(MAX_MESSAGE_BYTES);
            let debugpy = async {
                let mut commands = Vec::new();
                while commands.len() < 1 + usize::from(!was_sent) {
                    assert!(debugger.read_buf(requests.buffer()).await.unwrap() > 0);
                    while let Some(body) = requests.next_body().unwrap() {
                        let request = parse(&body).unwrap();
                        if was_sent {
                            let configured = success(&"configurationDone".into(), &7.into());
                            debugger.write_all(&configured).await.unwrap();
                        }
                        let answer = success(&request["command"], &request["seq"]);
                        debugger.write_all(&answer).await.unwrap();
                        commands.push(request["command"].as_str().unwrap().to_owned());
                    }
                }
                commands
            };
            let exchange = async { tokio::join!(worker.resync(), debugpy) };
            let (resynced, commands) = timeout(Duration::from_secs(20), exchange).await.unwrap();
            resynced.unwrap();
            let expected = ["threads", "configurationDone"];
            assert_eq!(commands, expected[..commands.len()], "told: {was_sent}");
            let mut buffer = [0; 1024];
            while !worker.is_quiet() {
                assert!(worker.read(&mut buffer).await.unwrap() > 0);
            }
        }
    }

    #[tokio::test]
    async fn resync_fails_behind_a_partial_request() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap());
        let stored = Stored {
            midway: true,
            ..Stored::of(Value::Null)
        };
        let stream = Stream::Direct(Direct::new(near.await.unwrap()));
        let mut worker = Worker::restored(stream, &stored, None, TaskTracker::new());
        let error = worker.resync().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }

    proptest! {
        /// The next process must resume at a message boundary and lose no later message.
        #[test]
        fn next_message_is_found_from_any_offset(
            texts in prop::collection::vec(".{0,80}|(Content-Length: [0-9]\r\n\r\n){1,3}", 2..6),
            cut in 0_usize..400,
        ) {
            let mut stream = Vec::new();
            let mut starts = Vec::new();
            for text in &texts {
                starts.push(stream.len());
                put_frame(&mut stream, Value::from(text.as_str()).to_string().as_bytes());
            }
            let cut = cut.min(stream.len());
            let found = first_header(&stream[cut..]).map(|offset| offset + cut);
            let next = starts.into_iter().find(|start| *start >= cut);
            prop_assert_eq!(found, next);
        }
    }
}
