//! The kernel's tables of TCP sockets, `/proc/net/tcp` and `/proc/net/tcp6`.

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

/// The tables of IPv4 and IPv6, below `/proc`.
pub const TABLES: [&str; 2] = ["net/tcp", "net/tcp6"];

/// Bytes of a table of sockets to read: 400,000 sockets.
pub const MAX_TABLE_BYTES: u64 = 64 << 20;

/// Bytes of about two lines.
const READ_BUFFER_BYTES: usize = 256;

/// One socket. An IPv4 address of an IPv6 socket is shown as IPv4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelSocket {
    pub local: SocketAddr,
    pub remote: SocketAddr,
    pub state: SocketState,
    /// Bytes written to it that its peer has not acknowledged.
    pub(crate) unacknowledged: u64,
    /// The inode by which `/proc/PID/fd` names it; 0 if no process has it.
    pub inode: u64,
}

/// The state of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocketState {
    Listening,
    Established,
    Other,
}

/// The sockets in `text`; lines of another form are skipped.
pub fn sockets(text: &str) -> impl Iterator<Item = KernelSocket> {
    text.lines().filter_map(socket)
}

/// The listening sockets of `table`, which the kernel writes first. It is read few lines at a time: with a larger
/// buffer the kernel would search for connected sockets too, in a large table of its own.
pub fn listeners(table: impl Read) -> impl Iterator<Item = KernelSocket> {
    let lines = BufReader::with_capacity(READ_BUFFER_BYTES, table).lines();
    let sockets = lines
        .map_while(Result::ok)
        .skip(1)
        .map_while(|line| socket(&line));
    sockets.take_while(|socket| socket.state == SocketState::Listening)
}

/// The `peers` that have acknowledged everything sent to them, according to the connection tables of this network in
/// `/proc` below `root`. Blocks: the kernel takes about 10 ms for its table on a machine with 16 GiB.
pub fn acknowledged(root: &Path, peers: &HashSet<SocketAddr>) -> HashSet<SocketAddr> {
    let tables = TABLES
        .iter()
        .filter_map(|name| File::open(root.join(name)).ok());
    let lines = tables.flat_map(|file| BufReader::new(file.take(MAX_TABLE_BYTES)).lines());
    let connections = lines
        .map_while(Result::ok)
        .filter_map(|line| socket(&line))
        .filter(|socket| {
            socket.state == SocketState::Established && peers.contains(&socket.remote)
        });
    let (mut all, mut behind) = (HashSet::new(), HashSet::new());
    for connection in connections {
        match connection.unacknowledged {
            0 => all.insert(connection.remote),
            _ => behind.insert(connection.remote),
        };
    }
    all.difference(&behind).copied().collect()
}

/// Parses `0: 0100007F:D5AF 00000000:0000 0A 00000000:00000000 00:00000000 00000000  0  0 7632316 …`.
fn socket(line: &str) -> Option<KernelSocket> {
    let mut words = line.split_ascii_whitespace().skip(1);
    let (local, remote) = (address(words.next()?)?, address(words.next()?)?);
    let state = match words.next()? {
        "0A" => SocketState::Listening,
        "01" => SocketState::Established,
        _ => SocketState::Other,
    };
    let (unacknowledged, _) = words.next()?.split_once(':')?;
    let unacknowledged = u64::from_str_radix(unacknowledged, 16).ok()?;
    let inode = words.nth(4)?.parse().ok()?;
    Some(KernelSocket {
        local,
        remote,
        state,
        unacknowledged,
        inode,
    })
}

/// Parses `0100007F:D5AF`: words of 32 bits in the machine's own byte order, then the port.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| {
        let digits = ip.get(at..at + 8)?;
        u32::from_str_radix(digits, 16).ok().map(u32::to_ne_bytes)
    };
    let ip: IpAddr = match ip.len() {
        8 => Ipv4Addr::from(word(0)?).into(),
        32 => {
            let mut bytes = [0; 16];
            for (at, into) in (0..).step_by(8).zip(bytes.chunks_exact_mut(4)) {
                into.copy_from_slice(&word(at)?);
            }
            Ipv6Addr::from(bytes).to_canonical()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    // Recorded from debugpy 1.8.22 (Ray 2.60) on an x86-64 machine.
    const TCP: &str = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:D5AF 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 7632316 1 0000000013c2e44f 100 0 0 10 0
   1: 00000000:D08B 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 7632314 1 00000000bcec8b1a 100 0 0 10 0
   2: 0100007F:D5AF 0100007F:99BC 01 00000000:00000000 00:00000000 00000000     0        0 7632317 1 0000000000000000 20 4 30 10 -1
   3: 0100007F:A0AD 0100007F:B78E 06 00000000:00000000 03:000004E6 00000000     0        0 0 3 00000000cc00e987
";
    const TCP6: &str = "\
  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000000000000000000001000000:1F90 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 53 1 0000000000000000 100 0 0 10 0
   1: B80D0120000000000000000001000000:A34D 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 54 1 0000000000000000 100 0 0 10 0
   2: 0000000000000000FFFF00000F02000A:A34D 0000000000000000FFFF00000302000A:01BB 01 00000000:00000000 00:00000000 00000000     0        0 55 1 0000000000000000 20 4 30 10 -1
";

    #[test]
    #[cfg(target_endian = "little")]
    fn recorded_tables_are_parsed() {
        let all: Vec<_> = sockets(TCP).chain(sockets(TCP6)).collect();
        let summary = |socket: &KernelSocket| {
            let KernelSocket { local, remote, .. } = socket;
            format!("{local} {remote} {:?} {}", socket.state, socket.inode)
        };
        assert_eq!(
            all.iter().map(summary).collect::<Vec<_>>(),
            [
                "127.0.0.1:54703 0.0.0.0:0 Listening 7632316",
                "0.0.0.0:53387 0.0.0.0:0 Listening 7632314",
                "127.0.0.1:54703 127.0.0.1:39356 Established 7632317",
                "127.0.0.1:41133 127.0.0.1:46990 Other 0",
                "[::1]:8080 [::]:0 Listening 53",
                "[2001:db8::1]:41805 [::]:0 Listening 54",
                "10.0.2.15:41805 10.0.2.3:443 Established 55",
            ]
        );
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn peers_with_unacknowledged_data_are_excluded() {
        let root = tempfile::tempdir().unwrap();
        let (acknowledged_peer, pending_peer): (SocketAddr, SocketAddr) = (
            "127.0.0.1:39356".parse().unwrap(),
            "10.0.2.3:443".parse().unwrap(),
        );
        std::fs::create_dir(root.path().join("net")).unwrap();
        std::fs::write(root.path().join("net/tcp"), TCP).unwrap();
        let peers = HashSet::from([acknowledged_peer, pending_peer]);
        assert_eq!(
            acknowledged(root.path(), &peers),
            HashSet::from([acknowledged_peer])
        );
        std::fs::write(root.path().join("net/tcp6"), TCP6).unwrap();
        assert_eq!(acknowledged(root.path(), &peers), peers);
        let unacknowledged =
            TCP6.replace("0302000A:01BB 01 00000000:", "0302000A:01BB 01 00000023:");
        std::fs::write(root.path().join("net/tcp6"), unacknowledged).unwrap();
        assert_eq!(
            acknowledged(root.path(), &peers),
            HashSet::from([acknowledged_peer])
        );
        assert_eq!(acknowledged(root.path(), &HashSet::new()), HashSet::new());
    }

    #[test]
    fn only_listening_sockets_are_read() {
        let table = TCP.as_bytes().chain(std::io::repeat(b'\n'));
        let ports: Vec<_> = listeners(table).map(|socket| socket.local.port()).collect();
        assert_eq!(ports, [54703, 53387]);
        assert_eq!(listeners(TCP6.as_bytes()).count(), 2);
        assert_eq!(listeners(&b""[..]).count(), 0);
    }

    proptest::proptest! {
        #[test]
        fn any_table_is_parsed_without_panic(
            text in "\\PC{0,200}",
            line in "[0-9]: [0-9A-Fé]{6,34}:[0-9A-F]{3,5} [0-9A-F]{8}:[0-9A-F]{4} [0-9A-F]{2}( [0-9:]{1,9}){0,8}",
        ) {
            let _ = sockets(&text).count();
            let _ = sockets(&line).count();
        }
    }
}
