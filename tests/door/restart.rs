//! A relay that restarts on a passed socket, as with a `.socket` unit of systemd.

use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::support::*;

/// Starts the relay on `socket`, passed as file descriptor 3, with `listen` as its address. Dropping the child kills nothing.
fn serve(socket: &TcpListener, listen: &str) -> Child {
    let script = "exec 3<&0 </dev/null; LISTEN_PID=$$ LISTEN_FDS=1 exec \"$@\"";
    let passed = OwnedFd::from(socket.try_clone().unwrap());
    Command::new("sh")
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .args(["-c", script, "sh", env!("CARGO_BIN_EXE_ray-relay"), "serve"])
        .args(["--listen", listen, "--ray-address", "http://127.0.0.1:1"])
        .stdin(Stdio::from(passed))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Ends `relay` by SIGTERM, and waits for that.
async fn wait_end(mut relay: Child) {
    let pid = Pid::from_raw(i32::try_from(relay.id()).unwrap()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    let status = tokio::task::spawn_blocking(move || relay.wait().unwrap());
    let status = timeout(TEST_TIMEOUT, status)
        .await
        .expect("it ends")
        .unwrap();
    assert!(status.success(), "{status}");
}

async fn healthy(at: std::net::SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(at).await?;
    let request = "GET /relay/healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    timeout(TEST_TIMEOUT, stream.read_to_string(&mut answer)).await??;
    Ok(answer)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_on_a_passed_socket_refuses_no_client() {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = socket.local_addr().unwrap();
    let mut relay = serve(&socket, &at.to_string());
    assert!(healthy(at).await.unwrap().starts_with("HTTP/1.1 200"));
    let over = Arc::new(AtomicBool::new(false));
    let clients = tokio::spawn({
        let over = Arc::clone(&over);
        async move {
            let mut answers = Vec::new();
            while !over.load(Ordering::Relaxed) {
                answers.push(healthy(at).await);
            }
            answers
        }
    });
    for _ in 0..3 {
        wait_end(relay).await;
        relay = serve(&socket, &at.to_string());
        assert!(healthy(at).await.unwrap().starts_with("HTTP/1.1 200"));
    }
    over.store(true, Ordering::Relaxed);
    let answers = clients.await.unwrap();
    for answer in &answers {
        let answer = answer.as_ref().expect("no client is refused or cut off");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer:?}");
    }
    wait_end(relay).await;
}

#[tokio::test]
async fn passed_socket_with_another_address_is_refused_at_start() {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let refused = serve(&socket, "127.0.0.1:0");
    let output = tokio::task::spawn_blocking(move || refused.wait_with_output().unwrap());
    let output = timeout(TEST_TIMEOUT, output)
        .await
        .expect("it ends")
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    let address = socket.local_addr().unwrap().to_string();
    assert!(
        stderr.contains(&address) && stderr.contains("listen.address"),
        "{stderr}"
    );
}
