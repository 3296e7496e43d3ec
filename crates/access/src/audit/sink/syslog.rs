//! Sends lines as RFC 5424 messages to a syslog daemon: over a local datagram socket, UDP, or TCP.
//!
//! TCP frames by octet counting (RFC 6587, 3.4.1). None of the three is acknowledged: a line counts as written once
//! the socket has accepted it. The hashes reveal a missing line to the reader.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::time::{Duration, SystemTime};

use super::super::time::rfc3339;
use super::line_sink::{LineSink, not_taken_within};
use ray_relay_base::config::SyslogAddress;

/// Facility 13 (log audit), severity 5 (notice).
const PRIORITY: u8 = 13 * 8 + 5;

/// The deadline of connecting, and of each write. A caller's own deadline is `WRITE_TIMEOUT`.
const IO_TIMEOUT: Duration = Duration::from_secs(2);

pub(in crate::audit) struct Syslog {
    address: SyslogAddress,
    socket: Option<SyslogSocket>,
}

enum SyslogSocket {
    Unix(UnixDatagram),
    Udp(UdpSocket),
    Tcp(TcpStream),
}

impl Syslog {
    pub(super) fn new(address: SyslogAddress) -> Self {
        Self {
            address,
            socket: None,
        }
    }
}

impl LineSink for Syslog {
    fn name(&self) -> String {
        format!("syslog at {}", self.address)
    }

    /// Sends the line, over a new connection if the old one has ended.
    fn append(&mut self, line: &str) -> Result<(), String> {
        let message = message(SystemTime::now(), line.trim_end());
        let mut socket = match self.socket.take().filter(|socket| !socket.is_over()) {
            Some(socket) => socket,
            None => connect(&self.address)
                .map_err(|why| format!("cannot reach syslog at {}: {why}", self.address))?,
        };
        // The socket is dropped on failure: a frame may be half sent.
        socket.send(&message).map_err(|why| {
            let why = match why.kind() {
                // A deadline of the socket that has passed: "temporarily unavailable".
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => not_taken_within(IO_TIMEOUT),
                _ => why.to_string(),
            };
            format!("cannot write to syslog at {}: {why}", self.address)
        })?;
        self.socket = Some(socket);
        Ok(())
    }
}

fn connect(address: &SyslogAddress) -> io::Result<SyslogSocket> {
    match address {
        SyslogAddress::Unix(path) => {
            let socket = UnixDatagram::unbound()?;
            socket.connect(path)?;
            socket.set_write_timeout(Some(IO_TIMEOUT))?;
            Ok(SyslogSocket::Unix(socket))
        }
        SyslogAddress::Udp(address) => {
            let address = first(address)?;
            let any: SocketAddr = if address.is_ipv4() {
                ([0; 4], 0).into()
            } else {
                ([0u16; 8], 0).into()
            };
            let socket = UdpSocket::bind(any)?;
            socket.connect(address)?;
            Ok(SyslogSocket::Udp(socket))
        }
        SyslogAddress::Tcp(address) => {
            let socket = TcpStream::connect_timeout(&first(address)?, IO_TIMEOUT)?;
            socket.set_write_timeout(Some(IO_TIMEOUT))?;
            socket.set_nodelay(true)?;
            Ok(SyslogSocket::Tcp(socket))
        }
    }
}

fn first(address: &str) -> io::Result<SocketAddr> {
    address
        .to_socket_addrs()?
        .next()
        .ok_or_else(|| io::Error::other("the name has no address"))
}

impl SyslogSocket {
    /// Whether the other side has closed: output would be lost without an error.
    fn is_over(&self) -> bool {
        let Self::Tcp(stream) = self else {
            return false;
        };
        let is_alive = stream.set_nonblocking(true).map(|()| {
            let read = (&*stream).read(&mut [0; 64]);
            matches!(&read, Err(why) if why.kind() == io::ErrorKind::WouldBlock)
                || matches!(read, Ok(n) if n > 0)
        });
        !(is_alive.unwrap_or(false) && stream.set_nonblocking(false).is_ok())
    }

    fn send(&mut self, message: &str) -> io::Result<()> {
        match self {
            Self::Unix(socket) => socket.send(message.as_bytes()).map(drop),
            Self::Udp(socket) => socket.send(message.as_bytes()).map(drop),
            Self::Tcp(stream) => {
                stream.write_all(format!("{} {message}", message.len()).as_bytes())
            }
        }
    }
}

/// Formats `<109>1 TIME HOST ray-relay PID audit - LINE`.
fn message(now: SystemTime, line: &str) -> String {
    let uname = rustix::system::uname();
    let host: String = uname
        .nodename()
        .to_string_lossy()
        .chars()
        .filter(char::is_ascii_graphic)
        .take(255)
        .collect();
    let host = if host.is_empty() { "-" } else { &host };
    format!(
        "<{PRIORITY}>1 {} {host} ray-relay {} audit - {line}",
        rfc3339(now),
        std::process::id()
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::{BufReader, Read};
    use std::net::TcpListener;

    use super::*;

    fn assert_message(text: &str, line: &str) {
        let fields: Vec<&str> = text.splitn(8, ' ').collect();
        assert_eq!(fields[0], "<109>1", "{text}");
        assert!(
            fields[1].ends_with('Z') && fields[1].contains('T'),
            "{text}"
        );
        assert_eq!(
            &fields[3..],
            [
                "ray-relay",
                &std::process::id().to_string(),
                "audit",
                "-",
                line
            ]
        );
    }

    #[test]
    fn local_syslog_gets_datagrams_and_its_loss_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let daemon = UnixDatagram::bind(&path).unwrap();
        let mut syslog = Syslog::new(SyslogAddress::Unix(path.clone()));
        syslog.append("{\"a\":1}\n").unwrap();
        let mut bytes = [0; 1024];
        let n = daemon.recv(&mut bytes).unwrap();
        assert_message(std::str::from_utf8(&bytes[..n]).unwrap(), "{\"a\":1}");
        drop(daemon);
        assert!(syslog.append("{}\n").unwrap_err().contains("cannot write"));
        assert!(syslog.append("{}\n").unwrap_err().contains("cannot reach"));
        std::fs::remove_file(&path).unwrap();
        let _daemon = UnixDatagram::bind(&path).unwrap();
        syslog.append("{}\n").unwrap();
    }

    #[test]
    fn udp_and_tcp_syslog_get_messages() {
        let daemon = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = daemon.local_addr().unwrap().to_string();
        Syslog::new(SyslogAddress::Udp(address))
            .append("{}\n")
            .unwrap();
        let mut bytes = [0; 1024];
        let n = daemon.recv(&mut bytes).unwrap();
        assert_message(std::str::from_utf8(&bytes[..n]).unwrap(), "{}");

        let daemon = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut syslog = Syslog::new(SyslogAddress::Tcp(daemon.local_addr().unwrap().to_string()));
        syslog.append("{\"a\":1}\n").unwrap();
        syslog.append("{\"b\":2}\n").unwrap();
        let (stream, _) = daemon.accept().unwrap();
        let mut reader = BufReader::new(&stream);
        for line in ["{\"a\":1}", "{\"b\":2}"] {
            let mut length = Vec::new();
            for byte in reader.by_ref().bytes() {
                match byte.unwrap() {
                    b' ' => break,
                    digit => length.push(digit),
                }
            }
            let length = String::from_utf8(length).unwrap().parse().unwrap();
            let mut message = vec![0; length];
            reader.read_exact(&mut message).unwrap();
            assert_message(std::str::from_utf8(&message).unwrap(), line);
        }
        // After a restart of the daemon, the closed connection is noticed before a line is lost.
        drop(reader);
        drop(stream);
        while !syslog.socket.as_ref().unwrap().is_over() {
            std::thread::yield_now();
        }
        syslog.append("{\"c\":3}\n").unwrap();
        let (mut stream, _) = daemon.accept().unwrap();
        let mut received = [0; 8];
        stream.read_exact(&mut received).unwrap();
        drop((stream, daemon));
        while !syslog.socket.as_ref().unwrap().is_over() {
            std::thread::yield_now();
        }
        assert!(syslog.append("{}\n").is_err());
    }
}
