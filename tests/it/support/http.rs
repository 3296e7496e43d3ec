//! Requests of this process that begin on the network of a node. What is waited for is asked for many times: a process for each
//! would take more of the machine than Ray does.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::time::Duration;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// GET `url`, which is plain HTTP at an address, from that network namespace or this process's: status and body.
pub(super) fn get(
    namespace: Option<&str>,
    url: &str,
    token: Option<&str>,
    max_wait: Duration,
) -> io::Result<(u16, Vec<u8>)> {
    let rest = url.strip_prefix("http://").unwrap();
    let (host, path) = rest.find('/').map_or((rest, "/"), |at| rest.split_at(at));
    let mut stream = connect(namespace, host.parse().unwrap(), max_wait)?;
    stream.set_read_timeout(Some(max_wait))?;
    let authorization = token.map_or_else(String::new, |token| {
        format!("Authorization: Bearer {token}\r\n")
    });
    // Of HTTP/1.0 the body has no chunks, and ends with the connection. Ray 2.9 fails where no agent is named.
    let request =
        format!("GET {path} HTTP/1.0\r\nHost: {host}\r\nUser-Agent: it\r\n{authorization}\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let cut = || io::Error::new(io::ErrorKind::UnexpectedEof, "no whole answer");
    let head = answer.windows(4).position(|window| window == b"\r\n\r\n");
    let body = answer.split_off(head.ok_or_else(cut)? + 4);
    let head = String::from_utf8_lossy(&answer).to_ascii_lowercase();
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length:"));
    if length.is_some_and(|length| length.trim().parse() != Ok(body.len())) {
        return Err(cut());
    }
    Ok((status.ok_or_else(cut)?, body))
}

fn connect(namespace: Option<&str>, to: SocketAddr, max_wait: Duration) -> io::Result<TcpStream> {
    let Some(namespace) = namespace else {
        return TcpStream::connect_timeout(&to, max_wait);
    };
    let namespace = File::open(Path::new("/var/run/netns").join(namespace))?;
    // A thread goes to a namespace for good; a socket stays in the one that it was made in.
    std::thread::scope(|scope| {
        let made = scope.spawn(|| {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
            TcpStream::connect_timeout(&to, max_wait)
        });
        made.join().unwrap()
    })
}
