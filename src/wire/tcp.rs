//! Options of the relay's TCP connections, towards clients and workers alike.

use std::io;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

/// How long data may go unacknowledged before a debugger's connection counts as dead.
const DEAD_AFTER: Duration = Duration::from_secs(30);

/// Bytes of an answer that wait in the kernel to be sent.
const MOST_UNSENT: u32 = 64 * 1024;

/// No delay for small messages; a peer that is gone without a word is noticed by probes, the first after `idle`, four
/// more at a quarter of it each.
///
/// # Errors
/// Where the system refuses an option.
pub fn tune(stream: &TcpStream, idle: Duration) -> io::Result<()> {
    let socket = SockRef::from(stream);
    socket.set_tcp_nodelay(true)?;
    let probe = (idle / 4).max(Duration::from_secs(1));
    socket.set_tcp_keepalive(
        &TcpKeepalive::new()
            .with_time(idle)
            .with_interval(probe)
            .with_retries(4),
    )
}

/// Bounds what the system holds for sending and has not sent yet: somebody who does not read an answer is not to have
/// megabytes of it wait in the kernel.
///
/// # Errors
/// Where the system refuses the option.
pub fn bound_unsent(stream: &TcpStream) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    SockRef::from(stream).set_tcp_notsent_lowat(MOST_UNSENT)?;
    #[cfg(not(target_os = "linux"))]
    let _ = (stream, MOST_UNSENT);
    Ok(())
}

/// Ends the connection when what was sent is not acknowledged, or not taken, for half a minute: probes say nothing while
/// data is under way. For debuggers only; a person may well leave `curl | less` alone for longer.
///
/// # Errors
/// Where the system refuses the option.
pub fn bound_silence(stream: &TcpStream) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    SockRef::from(stream).set_tcp_user_timeout(Some(DEAD_AFTER))?;
    #[cfg(not(target_os = "linux"))]
    let _ = (stream, DEAD_AFTER);
    Ok(())
}
