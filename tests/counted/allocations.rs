//! After attach, relaying a message allocates nothing: the buffers come from a stock of the thread.
//!
//! The counting allocator counts by thread.

use ray_relay_base::memory::Account;
use ray_relay_base::wire::dap::peek::Depth;
use ray_relay_base::wire::dap::scanner::Rules;
use ray_relay_base::wire::dap::splice::Splice;
use ray_relay_dap::messages::{captures_from_client, captures_from_worker};
use ray_relay_dap::wall::examined;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap())
        .await
        .unwrap();
    let far = listener.accept().await.unwrap().0;
    for stream in [&near, &far] {
        stream.set_nodelay(true).unwrap();
    }
    (near, far)
}

fn frame(body: &str) -> Vec<u8> {
    format!("Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// Allocations of `trips` round trips: a request of some 300 bytes, an event, and an answer of some 4 KiB.
fn allocations(trips: usize) -> u64 {
    let info = allocation_counter::measure(|| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let (mut client, near) = pair().await;
            let (far, mut worker) = pair().await;
            let up = Rules { depth: Depth::Whole, captures: captures_from_client, examined: |_, _| None, max_captured: 1 << 20, max_passed: 1 << 20 };
            let down = Rules { depth: Depth::Deciding, captures: captures_from_worker, examined, ..up };
            let mut splice = Splice::new(Account::default(), near, Vec::new(), up, far, Vec::new(), down);
            let filler = "x".repeat(230);
            let request = frame(&format!(r#"{{"command":"variables","arguments":{{"filter":"{filler}"}},"type":"request","seq":7}}"#));
            // Its `data` is overwritten.
            let event = frame(r#"{"seq": 8, "type": "event", "event": "output", "body": {"output": "a\n", "data": {}}}"#);
            let filler = "y".repeat(4000);
            let answer = frame(&format!(r#"{{"seq": 9, "type": "response", "request_seq": 7, "success": true, "command": "variables", "body": {{"result": "{filler}"}}}}"#));
            let (mut request_buffer, mut received) = (vec![0; request.len()], vec![0; event.len() + answer.len()]);
            let exchange = async {
                for _ in 0..trips {
                    client.write_all(&request).await.unwrap();
                    worker.read_exact(&mut request_buffer).await.unwrap();
                    worker.write_all(&event).await.unwrap();
                    worker.write_all(&answer).await.unwrap();
                    client.read_exact(&mut received).await.unwrap();
                }
            };
            tokio::select! {
                () = exchange => {}
                event = splice.next() => panic!("{event:?}"),
            }
        });
    });
    info.count_total
}

#[test]
fn thousand_more_messages_allocate_nothing() {
    allocations(10); // what a thread allocates once
    let (few, many) = (allocations(100), allocations(1100));
    assert!(
        many <= few + 10,
        "{few} allocations for 100 round trips, {many} for 1100"
    );
}
