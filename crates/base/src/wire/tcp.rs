//! Options of the relay's TCP connections, towards clients and workers alike.

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::os::fd::AsFd;
use std::time::Duration;

use rand::RngExt as _;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

/// How long data may go unacknowledged before a debugger's connection counts as dead.
const DEAD_AFTER: Duration = Duration::from_secs(30);

/// The same for a doubted peer, because its user has connected in another way.
const DEAD_AFTER_DOUBT: Duration = Duration::from_secs(4);

/// Bytes of a response that wait in the kernel to be sent.
const MAX_UNSENT_BYTES: u32 = 64 * 1024;

/// Disables delays of small messages, and detects a vanished peer with keepalive probes: the first after `idle`, four
/// more at a quarter of it each. Connections inherit these options from their listening socket.
///
/// # Errors
/// If the system refuses an option.
pub fn tune(socket: &impl AsFd, idle: Duration) -> io::Result<()> {
    let socket = SockRef::from(socket);
    socket.set_tcp_nodelay(true)?;
    let probe = (idle / 4).max(Duration::from_secs(1));
    socket.set_tcp_keepalive(
        &TcpKeepalive::new()
            .with_time(idle)
            .with_interval(probe)
            .with_retries(4),
    )
}

/// Bounds the unsent bytes in the kernel: for a client that does not read a response, the kernel must not hold
/// megabytes of it.
///
/// # Errors
/// If the system refuses the option.
pub fn bound_unsent(stream: &TcpStream) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    SockRef::from(stream).set_tcp_notsent_lowat(MAX_UNSENT_BYTES)?;
    #[cfg(not(target_os = "linux"))]
    let _ = (stream, MAX_UNSENT_BYTES);
    Ok(())
}

/// Ends the connection if sent data is not acknowledged or accepted for half a minute; keepalive probes do not run
/// while data is in transit. For debuggers only: a person may well leave `curl | less` alone for longer.
///
/// # Errors
/// If the system refuses the option.
pub fn bound_silence(stream: &TcpStream) -> io::Result<()> {
    dead_after(stream, DEAD_AFTER)
}

/// Shortens that time to a few seconds while the peer is `doubted`, and restores it afterwards. It relies on data,
/// which the system retransmits: one lost probe must not end a connection.
///
/// # Errors
/// If the system refuses the option.
pub fn doubt(stream: &TcpStream, doubted: bool) -> io::Result<()> {
    dead_after(
        stream,
        match doubted {
            true => DEAD_AFTER_DOUBT,
            false => DEAD_AFTER,
        },
    )
}

fn dead_after(stream: &TcpStream, after: Duration) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    SockRef::from(stream).set_tcp_user_timeout(Some(after))?;
    #[cfg(not(target_os = "linux"))]
    let _ = (stream, after);
    Ok(())
}

/// Ports that the system does not hand out by itself on Linux (from 32768) or macOS (from 49152).
pub const FREE_PORTS: Range<u16> = 20_000..32_000;

/// A port without a listener, on any address. Another process may still use it before the caller does; the range is
/// wide enough to make that unlikely. `None`: none of 200 candidates is free.
pub fn free_port() -> Option<u16> {
    let mut rng = rand::rng();
    (0..200)
        .map(|_| rng.random_range(FREE_PORTS))
        .find(|port| TcpListener::bind((Ipv4Addr::UNSPECIFIED, *port)).is_ok())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn accepted_socket_inherits_the_keepalive_options() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        tune(&listener, Duration::from_secs(40)).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap());
        let (client, accepted) = tokio::join!(client, listener.accept());
        let (client, (accepted, _)) = (client.unwrap(), accepted.unwrap());
        let socket = SockRef::from(&accepted);
        assert!(accepted.nodelay().unwrap() && socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap().as_secs(), 40);
        assert_eq!(socket.tcp_keepalive_interval().unwrap().as_secs(), 10);
        assert_eq!(socket.tcp_keepalive_retries().unwrap(), 4);
        assert!(!SockRef::from(&client).keepalive().unwrap());
    }
}
