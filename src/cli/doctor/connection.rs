//! Checks the path to the relay: its address, name, port and certificate, and its clock.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{AlertDescription, CertificateError, Error as TlsError};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::report::Report;
use crate::cli::kube::KubeRelay;
use crate::cli::relay_client::{RelayError, refusal};
use crate::cli::{RELAY_BY_DEFAULT, RELAY_VARIABLE, RelayArgs};
use ray_relay_base::dial::http::{Roots, trusting};
use ray_relay_base::dial::{Connector, DialError, Proxies, ProxyError, tls_error};
use ray_relay_base::wire::human_time::{moment, span};
use ray_relay_base::wire::prefixed::Prefixed;
use ray_relay_base::wire::relay_url::{RelayUrl, is_this_machine};
use ray_relay_base::wire::text::shortened;
use ray_relay_view::doctor::{ChainLink, Fault, Finding, Severity, split_sentence};

/// The finding for `error`, with the message of other commands.
pub(super) fn refused(error: &RelayError) -> Finding {
    let (link, fault) = match error {
        RelayError::Unreachable { .. } => (ChainLink::Connection, Fault::Unreachable),
        // A server that the proxy cannot reach is behind it.
        RelayError::Proxy { why, .. } if why.is_behind() => {
            (ChainLink::Connection, Fault::Unreachable)
        }
        RelayError::Proxy { .. } => (ChainLink::Proxy, Fault::Unreachable),
        RelayError::Untrusted { .. } | RelayError::Identity { .. } => {
            (ChainLink::Tls, Fault::Misconfigured)
        }
        RelayError::Unrecognised { .. } => (ChainLink::Tls, Fault::NotPermitted),
        RelayError::Dashboard { .. } | RelayError::NotARelay { .. } | RelayError::Older { .. } => {
            (ChainLink::Relay, Fault::Misconfigured)
        }
        RelayError::Token(_) => (ChainLink::Token, Fault::Misconfigured),
        RelayError::Kube(why) if why.is_not_permitted() => {
            (ChainLink::Address, Fault::NotPermitted)
        }
        RelayError::Kube(why) if why.is_misconfigured() => {
            (ChainLink::Address, Fault::Misconfigured)
        }
        RelayError::Kube(_) => (ChainLink::Connection, Fault::Unreachable),
        RelayError::Refused { status, .. } => match status.as_u16() {
            401 | 403 => (ChainLink::Token, Fault::NotPermitted),
            429 | 500.. => (ChainLink::Relay, Fault::Unreachable),
            _ => (ChainLink::Relay, Fault::Misconfigured),
        },
    };
    let (says, next) = match (error, error.hint()) {
        (RelayError::Unreachable { .. }, _) => (error.to_string(), Some(FIND_IT.to_owned())),
        (_, Some(hint)) => (error.to_string(), Some(hint.into_owned())),
        (_, None) => split_sentence(&error.to_string()),
    };
    let finding = Finding::error(link, fault, says);
    match next {
        Some(next) => finding.next(next),
        None => finding,
    }
}

/// Time limit for resolving a name, and for connecting to each address.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A certificate that expires sooner gets a warning.
const EXPIRY_WARNING: Duration = Duration::from_secs(14 * 86_400);

/// Maximum clock difference: the default of `auth.leeway`.
const LEEWAY: Duration = Duration::from_secs(30);

/// Maximum length of a displayed name, in characters.
const MAX_NAME_CHARS: usize = 200;

/// Next step if no relay is found.
const FIND_IT: &str = "where it runs in Kubernetes, `kubectl port-forward svc/ray-relay 5678` brings it here; name another \
                       address with --relay URL, or start one with `ray-relay serve --ray-address http://HEAD:8265`";

/// The relay's address, and its source.
pub(super) fn address(args: &RelayArgs) -> Finding {
    let relay = &args.relay;
    if args.reached.is_some() {
        return Finding::ok(ChainLink::Address, format!("the relay is {relay}"));
    }
    let of = |text: &str| text.parse::<RelayUrl>().is_ok_and(|url| url == *relay);
    let by_variable = std::env::var(RELAY_VARIABLE).is_ok_and(|text| of(&text));
    let source = match (by_variable, of(RELAY_BY_DEFAULT)) {
        (true, _) => format!("by {RELAY_VARIABLE}"),
        (false, true) => "by default".to_owned(),
        (false, false) => "by --relay".to_owned(),
    };
    Finding::ok(
        ChainLink::Address,
        format!("the relay is at {relay}, {source}"),
    )
}

/// Locates a relay in Kubernetes, if needed. Returns whether checks can continue.
pub(super) async fn find(args: &mut RelayArgs, report: &mut Report) -> io::Result<bool> {
    report.about("looking for the relay's Service");
    match args.reach().await {
        Ok(()) => Ok(true),
        Err(error) => {
            report.add(super::refused(&error))?;
            Ok(false)
        }
    }
}

/// Makes the API server connect to the relay of a Service.
async fn forwarded(args: &RelayArgs, reached: &KubeRelay, report: &mut Report) -> io::Result<bool> {
    report.about("having the API server connect");
    let began = Instant::now();
    let stream = match reached.forwarder().open().await {
        Ok(stream) => stream,
        Err(why) => {
            report.add(super::refused(&RelayError::Kube(Box::new(why))))?;
            return Ok(false);
        }
    };
    let took = began.elapsed().as_secs_f64() * 1000.0;
    let says = format!(
        "the API server {} has a port-forward to pod {}, in {took:.1} ms",
        reached.cluster().server(),
        stream.pod()
    );
    report.add(Finding::ok(ChainLink::Connection, says))?;
    secured(args, stream, report).await
}

/// Resolves the name, connects, through a proxy if there is one, and negotiates TLS if needed. Returns whether checks
/// can continue.
pub(super) async fn examine(args: &RelayArgs, report: &mut Report) -> io::Result<bool> {
    let relay = &args.relay;
    if let Some(reached) = &args.reached {
        return forwarded(args, reached, report).await;
    }
    report.about("looking for a proxy");
    match by_proxy(args, report).await? {
        Some(Ok(tunnel)) => return secured(args, tunnel, report).await,
        Some(Err(error)) => {
            report.add(refused(&error))?;
            return Ok(false);
        }
        None => {}
    }
    report.about("looking up its name");
    let addresses = match resolve(relay).await {
        Ok((addresses, finding)) => {
            if let Some(finding) = finding {
                report.add(finding)?;
            }
            addresses
        }
        Err(finding) => {
            report.add(finding)?;
            return Ok(false);
        }
    };
    report.about("connecting");
    let stream = match connect(relay, &addresses).await {
        Ok((stream, finding)) => {
            report.add(finding)?;
            stream
        }
        Err(finding) => {
            report.add(finding)?;
            return Ok(false);
        }
    };
    secured(args, stream, report).await
}

/// Connects through the proxy on the way to the relay; `None`: there is none.
async fn by_proxy(
    args: &RelayArgs,
    report: &mut Report,
) -> io::Result<Option<Result<Prefixed<TcpStream>, RelayError>>> {
    let relay = &args.relay;
    let proxies = Proxies::from_env();
    // The connection to the proxy has no TLS. Problems with TLS are reported later.
    let (Some(to), Ok(tls)) = (relay.uri("/"), trusting(Roots::None)) else {
        return Ok(None);
    };
    let connector = Connector::new(tls.with_no_client_auth(), CONNECT_TIMEOUT, proxies.clone());
    let not_reached = |why: ProxyError| RelayError::of(relay, &DialError::Proxy(why));
    let proxy = match proxies.towards(&to).await {
        Ok(Some(proxy)) => proxy,
        Ok(None) => return Ok(None),
        Err(why) => return Ok(Some(Err(not_reached(why)))),
    };
    report.about("connecting");
    let began = Instant::now();
    let tunnel = connector.tunnel(&proxy, &to).await;
    let answers = tunnel.as_ref().err().is_none_or(ProxyError::is_behind);
    if answers {
        let says = format!(
            "the way there is by the proxy {proxy}, of {}",
            proxy.variable()
        );
        report.add(Finding::ok(ChainLink::Proxy, says))?;
    }
    if tunnel.is_ok() {
        let took = began.elapsed().as_secs_f64() * 1000.0;
        let says = format!(
            "the proxy has a connection to {}:{}, in {took:.1} ms",
            relay.host(),
            relay.port()
        );
        report.add(Finding::ok(ChainLink::Connection, says))?;
    }
    Ok(Some(tunnel.map_err(not_reached)))
}

async fn secured(
    args: &RelayArgs,
    stream: impl AsyncRead + AsyncWrite + Unpin,
    report: &mut Report,
) -> io::Result<bool> {
    report.about("looking at its certificate");
    let finding = match args.relay.is_https() {
        true => handshake(args, stream).await,
        false if args.reached.is_some() => Finding::ok(
            ChainLink::Tls,
            "not used in the relay's pod; the way there is inside the API server's TLS",
        ),
        false => without_tls(&args.relay),
    };
    let goes_on = finding.severity != Severity::Error;
    report.add(finding)?;
    Ok(goes_on)
}

/// Resolves the relay's host. Returns the addresses with a finding about its name, or the problem.
async fn resolve(relay: &RelayUrl) -> Result<(Vec<SocketAddr>, Option<Finding>), Finding> {
    let host = relay.host();
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok((vec![SocketAddr::new(ip, relay.port())], None));
    }
    let looked_up = timeout(CONNECT_TIMEOUT, lookup_host((host, relay.port()))).await;
    let unknown = |cause: String| {
        Finding::error(
            ChainLink::Name,
            Fault::Unreachable,
            format!("there is no address for the name {host}: {cause}"),
        )
        .next("is the name written correctly, and is the network (or VPN) there that knows it?")
    };
    let addresses: Vec<SocketAddr> = match looked_up {
        Ok(Ok(addresses)) => addresses.collect(),
        Ok(Err(error)) => return Err(unknown(shortened(&error.to_string(), MAX_NAME_CHARS))),
        Err(_) => {
            return Err(unknown(format!(
                "no answer within {}",
                span(CONNECT_TIMEOUT)
            )));
        }
    };
    let mut texts: Vec<String> = addresses.iter().map(|a| a.ip().to_string()).collect();
    texts.dedup();
    match texts.is_empty() {
        true => Err(unknown("it has none".to_owned())),
        false => {
            let says = format!("{host} is {}", texts.join(", "));
            Ok((addresses, Some(Finding::ok(ChainLink::Name, says))))
        }
    }
}

/// Connects to the first of `addresses` that accepts.
#[expect(clippy::disallowed_methods, reason = "the address is the user's own")]
async fn connect(
    relay: &RelayUrl,
    addresses: &[SocketAddr],
) -> Result<(TcpStream, Finding), Finding> {
    let mut why = String::new();
    for address in addresses {
        let began = Instant::now();
        why = match timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                let took = began.elapsed().as_secs_f64() * 1000.0;
                let says = format!("{address} takes connections, in {took:.1} ms");
                return Ok((stream, Finding::ok(ChainLink::Connection, says)));
            }
            Ok(Err(error)) => format!("{address}: {error}"),
            Err(_) => format!("{address}: no answer within {}", span(CONNECT_TIMEOUT)),
        };
    }
    let by_default = RELAY_BY_DEFAULT
        .parse::<RelayUrl>()
        .is_ok_and(|url| url == *relay);
    let next = match is_this_machine(relay.host()) {
        true => FIND_IT,
        false => {
            "is the relay up, and its port open on the way there (firewall, NetworkPolicy, VPN)?"
        }
    };
    let says = match by_default {
        true => format!("no relay is at the default address, {why}"),
        false => format!("nothing takes connections there, {why}"),
    };
    Err(Finding::error(ChainLink::Connection, Fault::Unreachable, says).next(next))
}

/// The finding for a relay without TLS.
fn without_tls(relay: &RelayUrl) -> Finding {
    match is_this_machine(relay.host()) {
        true => Finding::ok(
            ChainLink::Tls,
            "not used, and the relay's address is on this machine",
        ),
        false => Finding::note(
            ChainLink::Tls,
            "not used: anyone on the network path can read the traffic",
        )
        .next("have the relay speak TLS and write https://, or forward its port to this machine"),
    }
}

/// Negotiates TLS on `stream` as the other commands do, and returns the result.
async fn handshake(args: &RelayArgs, stream: impl AsyncRead + AsyncWrite + Unpin) -> Finding {
    let relay = &args.relay;
    let config = match args.tls.config(relay) {
        Ok(config) => config,
        Err(error) => return refused(&error),
    };
    let reached_name = args.reached.as_ref().and_then(|reached| reached.name());
    let name = match reached_name {
        Some(name) => Ok(name),
        None => ServerName::try_from(relay.host().to_owned()),
    };
    let Ok(name) = name else {
        let says = format!("{} is no name that a certificate can be for", relay.host());
        return Finding::error(ChainLink::Tls, Fault::Misconfigured, says);
    };
    let connecting = TlsConnector::from(Arc::new(config)).connect(name, stream);
    let connected = match timeout(CONNECT_TIMEOUT, connecting).await {
        Ok(connected) => connected,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    };
    match connected {
        Ok(stream) => match stream.get_ref().1.peer_certificates() {
            Some([certificate, ..]) => presented(certificate, SystemTime::now()),
            _ => Finding::ok(ChainLink::Tls, "the relay is trusted"),
        },
        Err(error) => untrusted(args, &error),
    }
}

/// The finding for a trusted certificate.
fn presented(certificate: &CertificateDer<'_>, now: SystemTime) -> Finding {
    let Ok((_, read)) = X509Certificate::from_der(certificate) else {
        return Finding::ok(ChainLink::Tls, "the relay's certificate is trusted");
    };
    let expires = read.validity().not_after.timestamp();
    let expires = Duration::from_secs(u64::try_from(expires).unwrap_or_default());
    let expires = SystemTime::UNIX_EPOCH + expires;
    let issuer = shortened(&read.issuer().to_string(), MAX_NAME_CHARS);
    let says = format!(
        "the relay's certificate is trusted; it is of {issuer}, and expires {}",
        moment(expires, now)
    );
    let remaining = expires.duration_since(now).unwrap_or_default();
    match remaining < EXPIRY_WARNING {
        true => Finding::warning(ChainLink::Tls, says)
            .next("have it renewed: the relay takes new files without a restart"),
        false => Finding::ok(ChainLink::Tls, says),
    }
}

/// Why the TLS handshake failed.
fn untrusted(args: &RelayArgs, error: &io::Error) -> Finding {
    let relay = &args.relay;
    let wrong = |says: String| Finding::error(ChainLink::Tls, Fault::Misconfigured, says);
    let cause = shortened(&error.to_string(), MAX_NAME_CHARS);
    let error_of_tls = match tls_error(error) {
        Some(TlsError::InvalidCertificate(why)) => return invalid(args, why),
        // The second is the answer of a relay without a certificate.
        Some(
            TlsError::InvalidMessage(_)
            | TlsError::AlertReceived(AlertDescription::HandshakeFailure),
        ) => {
            let plain = relay.to_string().replacen("https", "http", 1);
            return wrong(format!("{relay} does not speak TLS")).next(format!(
                "name it as {plain}, or have it speak TLS (`tls.cert_file`)"
            ));
        }
        _ => refusal(relay, error, &cause),
    };
    let unreachable = || RelayError::Unreachable {
        relay: relay.to_string(),
        cause: cause.clone(),
    };
    refused(&error_of_tls.unwrap_or_else(unreachable))
}

/// The finding for an invalid certificate of the relay.
fn invalid(args: &RelayArgs, why: &CertificateError) -> Finding {
    let wrong = |says: String| Finding::error(ChainLink::Tls, Fault::Misconfigured, says);
    let reached_name = args.reached.as_ref().and_then(|reached| reached.name());
    let host = match &reached_name {
        Some(name) => name.to_str(),
        None => args.relay.host().into(),
    };
    match why {
        CertificateError::NotValidForNameContext { presented, .. } => {
            let names = shortened(&presented.join(", "), MAX_NAME_CHARS);
            wrong(format!(
                "the relay's certificate is not for {host}, but for {names}"
            ))
            .next(match args.reached {
                Some(_) => "name one of those with --tls-server-name NAME",
                None => "name the relay by one of those, or have a certificate made for this name",
            })
        }
        CertificateError::NotValidForName => {
            wrong(format!("the relay's certificate is not for {host}"))
                .next("name the relay as its certificate does, or have one made for this name")
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            wrong("the relay's certificate has expired, by the clock of this machine".to_owned())
                .next("have it renewed; is the clock here right?")
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => wrong(
            "the relay's certificate is not valid yet, by the clock of this machine".to_owned(),
        )
        .next("is the clock of this machine right, and the issuer's?"),
        why => {
            let trusted = match args.tls.ca_file {
                Some(_) => "--ca-file (or RAY_RELAY_CA_FILE)",
                None => "the system",
            };
            let says = match why {
                CertificateError::UnknownIssuer => {
                    format!("no authority in {trusted} has signed the relay's certificate")
                }
                why => format!("the relay's certificate is not trusted: {why}"),
            };
            wrong(says).next("name the file of the authority that signed it, or of the certificate itself, with --ca-file FILE")
        }
    }
}

/// Compares the relay's clock with this machine's.
pub(super) fn clock(relay_time: SystemTime, now: SystemTime) -> Finding {
    let (apart, word) = match relay_time.duration_since(now) {
        Ok(ahead) => (ahead, "ahead of"),
        Err(error) => (error.duration(), "behind"),
    };
    match apart > LEEWAY {
        true => {
            let says = format!("the relay's clock is {} {word} this machine's", span(apart));
            Finding::warning(ChainLink::Clock, says).next(
                "correct the wrong clock: the relay's decides when tokens and certificates are valid",
            )
        }
        false => Finding::ok(
            ChainLink::Clock,
            "the relay's clock and this machine's agree",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_skew_of_an_hour_is_reported() {
        let now = SystemTime::now();
        let hour = Duration::from_secs(3600);
        let found = clock(now + hour, now);
        assert_eq!(found.severity, Severity::Warning);
        assert_eq!(
            found.says,
            "the relay's clock is 1h 00m ahead of this machine's"
        );
        assert!(clock(now - hour, now).says.contains("1h 00m behind"));
        let within_tolerance = clock(now - Duration::from_secs(29), now);
        assert_eq!(within_tolerance.severity, Severity::Ok);
    }
}
