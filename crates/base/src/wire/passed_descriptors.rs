//! Descriptors that the service manager passed to this process (`LISTEN_FDS`, `sd_listen_fds(3)`): the listening
//! sockets of a `.socket` unit, which stay open while the service restarts, and connections from the descriptor store.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;

use socket2::SockRef;
use tracing::warn;

/// The descriptors without an owner yet. Dropping it closes them.
#[derive(Debug, Default)]
pub struct PassedDescriptors(Vec<(String, OwnedFd)>);

impl PassedDescriptors {
    /// Takes every descriptor that was passed to this process. Call it once: a second call would own them twice.
    pub fn take() -> Self {
        let passed = sd_listen_fds::get().unwrap_or_else(|why| {
            warn!(%why, "cannot read which descriptors the service manager passed");
            Vec::new()
        });
        let passed = passed.into_iter();
        Self(
            passed
                .map(|(name, descriptor)| (name.unwrap_or_default(), descriptor.into_std()))
                .collect(),
        )
    }

    /// Takes those whose names begin with `prefix`.
    pub fn named(&mut self, prefix: &str) -> Vec<(String, OwnedFd)> {
        self.0
            .extract_if(.., |(name, _)| name.starts_with(prefix))
            .collect()
    }

    /// Takes the socket that listens on exactly `address`. The configuration decides who may reach the relay, so a
    /// socket on another address does not stand in for it.
    pub fn listener(&mut self, address: SocketAddr) -> Option<TcpListener> {
        let at = self
            .0
            .iter()
            .position(|(_, descriptor)| listens_on(descriptor) == Some(address))?;
        Some(TcpListener::from(self.0.swap_remove(at).1))
    }

    /// The address of a listening socket that is still unused.
    pub fn unused_listener(&self) -> Option<SocketAddr> {
        self.0
            .iter()
            .find_map(|(_, descriptor)| listens_on(descriptor))
    }
}

/// The address that `descriptor` listens on; `None`: it is no listening TCP socket.
fn listens_on(descriptor: &OwnedFd) -> Option<SocketAddr> {
    let socket = SockRef::from(descriptor);
    let listens = socket.is_listener().ok()?;
    socket.local_addr().ok()?.as_socket().filter(|_| listens)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn listener_is_matched_by_its_exact_address() {
        let [one, other] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let address = one.local_addr().unwrap();
        let connection = TcpStream::connect(other.local_addr().unwrap()).unwrap();
        let name = |name: &str| name.to_owned();
        let mut passed = PassedDescriptors(vec![
            (name("kept-1"), connection.into()),
            (name("ray-relay.socket"), one.into()),
        ]);
        let other_address = SocketAddr::from(([127, 0, 0, 2], address.port()));
        assert!(passed.listener(other_address).is_none());
        assert_eq!(passed.unused_listener(), Some(address));
        let listener = passed.listener(address).unwrap();
        assert_eq!(listener.local_addr().unwrap(), address);
        assert_eq!(passed.unused_listener(), None);
        assert_eq!(passed.named("kept-").len(), 1);
        assert!(passed.0.is_empty());
    }
}
