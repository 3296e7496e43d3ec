//! Arguments of `reverse`.

use clap::{Args, ValueHint};

use crate::cli::RelayArgs;
use ray_relay_base::wire::tunnel::reverse::RendezvousName;

/// `reverse`
#[derive(Debug, Clone, Args)]
pub struct ReverseArgs {
    /// Name of the rendezvous: 1 to 32 lower-case letters, digits and `-`
    #[arg(value_name = "NAME")]
    pub name: RendezvousName,
    /// Where the debugger listens: HOST:PORT, or a port of this machine
    #[arg(long, value_name = "HOST:PORT", value_parser = debugger, value_hint = ValueHint::Hostname)]
    pub to: DebuggerAddress,
    /// Port that workers dial on their node; without it one is chosen, always the same for NAME
    #[arg(long, value_name = "PORT")]
    pub port: Option<u16>,
    /// Print JSON, one object a line
    #[arg(long)]
    pub json: bool,
    /// How the relay is reached.
    #[command(flatten)]
    pub relay: RelayArgs,
}

/// Address of a listening debugger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DebuggerAddress {
    /// A host name or address, IPv6 without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl std::fmt::Display for DebuggerAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

pub(super) fn debugger(text: &str) -> Result<DebuggerAddress, &'static str> {
    let (host, port) = text.rsplit_once(':').unwrap_or(("127.0.0.1", text));
    let host = host.trim_start_matches('[').trim_end_matches(']');
    match port.parse() {
        Ok(port) if port != 0 && !host.is_empty() => Ok(DebuggerAddress {
            host: host.to_owned(),
            port,
        }),
        _ => Err("write where the debugger listens as HOST:PORT, such as 127.0.0.1:7779"),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn debugger_is_a_local_port_or_host_and_port() {
        for (text, shown) in [
            ("7779", "127.0.0.1:7779"),
            ("localhost:1", "localhost:1"),
            ("[::1]:7779", "[::1]:7779"),
        ] {
            assert_eq!(debugger(text).unwrap().to_string(), shown);
        }
        for text in ["", ":7779", "host", "host:0", "host:70000", "host:"] {
            assert!(debugger(text).is_err(), "{text}");
        }
    }
}
